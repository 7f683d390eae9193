/** One question to a visitor's servers, from the click to its last line. What stands for the moment only is told apart. */

import { requestOf } from '../lab/conduct.js';

const SILENCE = 30_000; // ms without a line before the page says so
const PATIENCE = 5_000; // ms for our last lines to come, once it was stopped or another run has taken the place
const PASSING = ['part', 'progress']; // as in spec_viz/ui/serve_wire.py

/** events = {line(body), passing(body), said({key, args}), ended(notice | null)}. */
export class Wire {
  #host;
  #events;
  #nonce = null;
  #read = 0; // up to where the answer was read
  #silent = null;
  #last = null;
  #before = null; // the run whose answer stood here when ours began

  constructor(host, events) {
    this.#host = host;
    this.#events = events;
  }

  get on() {
    return this.#nonce !== null;
  }

  start(wire) {
    this.#nonce = crypto.getRandomValues(new Uint32Array(3)).join('-');
    this.#read = 0;
    this.#before = requestOf(this.#host.props.value);
    this.#listen();
    this.#host.trigger('run', { request: { wire, nonce: this.#nonce } });
  }

  /** What came stays: the last lines are waited for. */
  async stop() {
    if (this.#nonce === null) return;
    this.#give(null);
    try {
      await this.#host.server.stop(this.#nonce);
    } catch (error) {
      console.error(error);
      this.#events.said({ key: 'shell.state.away', args: {} });
    }
  }

  /** The whole answer so far. Its first line names the request, so that a late line of an older one changes nothing. */
  take(text) {
    const request = requestOf(text);
    if (this.#nonce === null || request === null) return;
    if (request !== this.#nonce) {
      if (request !== this.#before) this.#give({ key: 'serve.taken', args: {} });
      return;
    }
    this.#listen();
    for (let end = text.indexOf('\n', this.#read); end >= 0; end = text.indexOf('\n', this.#read)) {
      const body = JSON.parse(text.slice(this.#read, end));
      if (PASSING.some((name) => name in body)) {
        this.#events.passing(body);
        return;
      }
      this.#read = end + 1;
      if (body.wait) this.#events.said({ key: 'shell.wait', args: { place: body.wait } });
      if (body.notice || body.closed) {
        this.#end(body.notice ?? null);
        return;
      }
      this.#events.line(body);
    }
  }

  #give(notice) {
    this.#last ??= setTimeout(() => this.#end(notice), PATIENCE);
  }

  #listen() {
    clearTimeout(this.#silent);
    this.#silent = setTimeout(() => this.#events.said({ key: 'serve.silent', args: {} }), SILENCE);
  }

  #end(notice) {
    clearTimeout(this.#silent);
    clearTimeout(this.#last);
    this.#last = null;
    this.#nonce = null;
    this.#events.ended(notice);
  }
}
