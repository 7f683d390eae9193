/** One experiment, from the click to its last line: it stands in the visitors' line like any run. */

import { Waiting } from '../lesson/waiting.js';

const SILENCE = 30_000; // ms without a line before the page says so: a point is a whole run
const PATIENCE = 5_000; // ms for our last lines to come, once another run of this visitor has taken the place

const TAKEN = Object.freeze({ key: 'experiments.taken', args: {} });

/**
 * events = {said({key, args}), begun(record, of), point(point), ended({finish, notice, more})}. `finish` is null where
 * the server told of a fault, or where Stop was pressed: the page is free at once. `more` belongs into the record.
 */
export class Conduct {
  #host;
  #events;
  #waiting;
  #nonce = null;
  #first = null; // where the lines begin that were not read yet
  #timer = null;
  #before = null; // the run whose answer stood here when ours began
  #taken = null;

  constructor(host, events) {
    this.#host = host;
    this.#events = events;
    this.#waiting = new Waiting(host, (said) => events.said(said));
  }

  get on() {
    return this.#nonce !== null || this.#waiting.on;
  }

  async start(sweep) {
    if (!(await this.#waiting.over())) return;
    this.#nonce = crypto.getRandomValues(new Uint32Array(3)).join('-');
    this.#first = 0;
    this.#before = requestOf(this.#host.props.value);
    this.#events.said({ key: 'shell.running', args: {} });
    this.#listen();
    this.#host.trigger('run', { request: { sweep, nonce: this.#nonce } });
  }

  async stop() {
    const stopped = this.#nonce;
    this.#waiting.end();
    this.#end({ finish: null, notice: null });
    if (stopped === null) return;
    try {
      await this.#host.server.stop(stopped);
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
      if (request !== this.#before) this.#give();
      return;
    }
    this.#listen();
    const end = text.lastIndexOf('\n') + 1;
    const lines = text.slice(this.#first, end).split('\n').filter(Boolean).map((line) => JSON.parse(line));
    this.#first = end;
    const notice = lines.find((line) => line.notice)?.notice ?? null;
    for (const { wait, sweep } of lines) {
      if (wait) this.#events.said({ key: 'shell.wait', args: { place: wait } });
      if (wait === 0) this.#events.said({ key: 'experiments.starting', args: {} });
      if (sweep?.begin) this.#events.begun(sweep.begin, sweep.of);
      if (sweep?.point) this.#events.point(sweep.point);
      if (sweep?.finish) {
        const { finish, ...more } = sweep;
        this.#end({ finish, notice: notice ?? (this.#taken && TAKEN), more });
        return;
      }
    }
    if (notice) this.#end({ finish: null, notice });
  }

  /** A visitor has one place in the line: a new run anywhere on the page ends this one on the server. */
  #give() {
    this.#taken ??= setTimeout(() => this.#end({ finish: null, notice: TAKEN }), PATIENCE);
  }

  #listen() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#events.said({ key: 'shell.silent', args: {} }), SILENCE);
  }

  #end(how) {
    clearTimeout(this.#timer);
    clearTimeout(this.#taken);
    this.#taken = null;
    this.#nonce = null;
    this.#events.ended(how);
  }
}

/** The request that stands in the first line of a bundle; null where there is none. */
export function requestOf(text) {
  return typeof text === 'string' && text ? JSON.parse(text.slice(0, text.indexOf('\n'))).request : null;
}
