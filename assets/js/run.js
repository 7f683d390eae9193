/** One request, from the click to its last line. */

import { Bundle } from './trace.js';

const SILENCE = 12_000; // ms without a line before the page says so
const PATIENCE = 8_000; // ms that a stopped run may take to say that it ended

/** The trace lines of what the server sent: its own lines (request, wait, notice) left out. */
export function traceLines(text) {
  return text
    .split('\n')
    .filter((line) => line.trim() && !/^\{"(request|wait|notice)"/.test(line))
    .map((line) => `${line}\n`)
    .join('');
}

/** The same traces as a file to keep: what was live when it ran is a recording from now on. */
export function asRecorded(ndjson) {
  return ndjson
    .split('\n')
    .map((line) => {
      if (!line.includes('"schema"')) return line;
      try {
        const header = JSON.parse(line);
        return header.origin === 'live' ? JSON.stringify({ ...header, origin: 'recorded' }) : line;
      } catch {
        return line; // broken lines stay as they are: the reader on the server names what is wrong
      }
    })
    .join('\n');
}

/** events = {changed(run), ended(run), silent()}. */
export class Run {
  #host;
  #request;
  #events;
  #timer = null;
  #stopping = false;
  #text = '';

  constructor(host, request, events) {
    this.#host = host;
    this.#request = request;
    this.#events = events;
    this.nonce = crypto.getRandomValues(new Uint32Array(3)).join('-');
    this.rivals = request.against?.length ?? 0;
    this.expected = 1 + this.rivals + (request.race && request.drafter !== 'none' ? 1 : 0);
    this.bundle = new Bundle();
    this.over = false;
    this.lost = false;
  }

  /** Send the request. Lines may arrive before this returns. */
  start() {
    this.#wait(SILENCE, () => this.#events.silent());
    this.#host.trigger('run', { request: { ...this.#request, nonce: this.nonce } });
  }

  get ndjson() {
    return traceLines(this.#text);
  }

  /** Take what has arrived. The first line names the request, so that a late line of an older run changes nothing. */
  take(text) {
    if (this.over || typeof text !== 'string' || requestOf(text) !== this.nonce) return;
    this.#text = text;
    if (!this.bundle.feed(text)) return;
    if (this.#isOver()) {
      this.#end();
      return;
    }
    if (!this.#stopping) this.#wait(SILENCE, () => this.#events.silent());
    this.#events.changed(this);
  }

  async stop() {
    this.#stopping = true;
    this.#wait(PATIENCE, () => {
      this.lost = true;
      this.#end();
    });
    try {
      await this.#host.server.stop(this.nonce);
    } catch (error) {
      console.error(error);
      this.lost = true;
      this.#end();
    }
  }

  #isOver() {
    const { traces, notices } = this.bundle;
    const finish = traces.at(-1)?.finish ?? null;
    return (
      notices.length > 0 || ['stopped', 'error'].includes(finish) || (traces.length >= this.expected && finish !== null)
    );
  }

  #end() {
    if (this.over) return;
    clearTimeout(this.#timer);
    this.over = true;
    this.#events.ended(this);
  }

  #wait(ms, then) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, ms);
  }
}

function requestOf(text) {
  const [first] = text.split('\n', 1);
  return first === '' ? null : JSON.parse(first).request;
}
