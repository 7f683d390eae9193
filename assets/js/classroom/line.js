/** A class's line to the server: asks how the class stands, again and again, and says so only when something changed. */

const EVERY = 1000; // ms between two questions
const HIDDEN = 20_000; // the same while nobody looks at the page
const MOST = 8000; // between two tries while the server is away
const PATIENCE = 5000; // for one answer
const LONG = 30_000; // for one that carries a run
const QUIET = 5000; // so long nothing is said of a server that is away

/**
 * pass = {code, member, token?}: a token makes this page the teacher's.
 * events = {stands(view), lost(), found(), over(error)}: `over` is the server's own word that there is nothing more.
 * `storeAway`: the last thing heard is that the server is there, but not the store where it keeps classes.
 */
export class Line {
  #base;
  #pass;
  #events;
  #tag = '';
  #told = 0; // counts what was told the server, so that an answer from before it is not believed
  #missed = 0;
  #since = 0;
  #out = Promise.resolve(); // the question that is out
  #timer = null;
  #tidy = new AbortController();
  storeAway = false;

  constructor(base, pass, events) {
    this.#base = `${base}class/${encodeURIComponent(pass.code)}`;
    this.#pass = pass;
    this.#events = events;
  }

  /** Whether the server has the class of this pass; where it does not answer, it may have. */
  static async isOn(base, pass) {
    try {
      await new Line(base, pass, {}).#fetch('?since=');
      return true;
    } catch (error) {
      return !isFinal(error);
    }
  }

  start() {
    const signal = { signal: this.#tidy.signal };
    document.addEventListener('visibilitychange', () => !document.hidden && this.ask(), signal);
    for (const turn of ['online', 'offline']) window.addEventListener(turn, () => this.ask(), signal);
    this.ask();
  }

  stop() {
    this.#tidy.abort();
    clearTimeout(this.#timer);
  }

  /** Ask now; what is told after an earlier question went out may not be in its answer, so that is waited for first. */
  ask() {
    this.#out = this.#ask(this.#out);
    return this.#out;
  }

  async #ask(out) {
    await out;
    clearTimeout(this.#timer);
    if (this.#tidy.signal.aborted) return;
    const told = this.#told;
    try {
      const answer = await this.#fetch(`?since=${this.#tag}`);
      if (answer.status === 200) {
        const view = await answer.json();
        if (told === this.#told && !this.#tidy.signal.aborted) {
          this.#tag = view.tag;
          this.#events.stands(view);
        }
      }
      this.#found();
    } catch (error) {
      this.storeAway = isStoreAway(error);
      if (isFinal(error)) this.#refused(error);
      else this.#miss(error);
    }
    if (!this.#tidy.signal.aborted) this.#timer = setTimeout(() => this.ask(), this.#pause());
  }

  /** Tell the server something; null when it did not hear, otherwise {error?, …} as it answered. */
  async tell(verb, body) {
    this.#told += 1;
    try {
      const answer = await this.#fetch(`/${verb}`, { method: 'POST', body }, verb === 'send' ? LONG : PATIENCE);
      return answer.status === 200 ? await answer.json() : {};
    } catch (error) {
      this.storeAway = isStoreAway(error);
      if (isFinal(error)) return { error: error.said };
      console.info('class:', error.name);
      return null;
    } finally {
      this.#told += 1;
    }
  }

  /** The run that was sent, as text; null when it could not be had. */
  async run(id) {
    try {
      return await (await this.#fetch(`/sent/${id}`, {}, LONG)).text();
    } catch (error) {
      console.info('class:', error.name);
      return null;
    }
  }

  async #fetch(way, more = {}, patience = PATIENCE) {
    const { token, member } = this.#pass;
    const headers = token ? { 'X-Class-Token': token } : { 'X-Class-Member': member };
    const signal = AbortSignal.timeout(patience);
    const answer = await fetch(`${this.#base}${way}`, { ...more, headers, cache: 'no-store', signal });
    if (!answer.ok) throw await problemOf(answer);
    return answer;
  }

  #pause() {
    if (this.#missed) return Math.min(EVERY * 2 ** this.#missed, MOST);
    // Thirty pages that joined at one moment do not go on asking at one moment.
    return document.hidden ? HIDDEN : EVERY * (0.8 + 0.4 * Math.random());
  }

  #found() {
    if (this.#missed) this.#events.found();
    this.#missed = 0;
  }

  #miss(error) {
    console.info('class:', error.name);
    if (!this.#missed) this.#since = Date.now();
    this.#missed += 1;
    if (!navigator.onLine || Date.now() - this.#since >= QUIET) this.#events.lost();
  }

  #refused({ said }) {
    this.stop();
    this.#events.over(said);
  }
}

/** What the server itself refuses, in its own words {key, args}; a proxy's error page is no such word. */
export class Refused extends Error {
  constructor(said) {
    super(said.key);
    this.said = said;
  }
}

/** The server answers, but the store of classes behind it does not: that passes. */
function isStoreAway(error) {
  return error instanceof Refused && error.said.key === 'classroom.error.store';
}

function isFinal(error) {
  return error instanceof Refused && !isStoreAway(error);
}

/** Why an answer is none: `Refused`, or an error that may pass. */
export async function problemOf(answer) {
  try {
    const { error } = await answer.json();
    if (typeof error?.key === 'string') return new Refused(error);
  } catch (error) {
    console.info('class:', error.name);
  }
  return new Error(String(answer.status));
}
