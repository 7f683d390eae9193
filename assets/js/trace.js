/**
 * Reads traces as they arrive: one append-only NDJSON string in, traces out.
 * The format is the one of spec_viz/engine/trace.py; fields this reader does not know are ignored.
 */

const STATUSES = new Set(['accepted', 'rejected', 'discarded']);
const KINDS = new Set(['plain', 'correction', 'bonus']);
const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();

/** Everything one request has sent so far: its place in line, its notices and its traces. */
export class Bundle {
  #first = '';
  #read = 0;

  constructor() {
    this.#restart('');
  }

  /** A finished file, with or without a newline at its end. */
  static of(text) {
    const bundle = new Bundle();
    bundle.feed(text.endsWith('\n') ? text : `${text}\n`);
    return bundle;
  }

  /** Take the whole string received so far; only what is new is parsed. Returns whether anything changed. */
  feed(whole) {
    const text = typeof whole === 'string' ? whole : '';
    const first = text.slice(0, text.indexOf('\n') + 1);
    const restarted = text.length < this.#read || first !== this.#first;
    if (restarted) this.#restart(first);
    const end = text.lastIndexOf('\n') + 1;
    const lines = text.slice(this.#read, end).split('\n').filter((line) => line.trim());
    for (const line of lines) this.#take(line);
    this.#read = end;
    return restarted || lines.length > 0;
  }

  #restart(first) {
    this.#first = first;
    this.#read = 0;
    this.request = null;
    this.wait = null;
    this.notices = [];
    this.traces = [];
    this.broken = 0;
  }

  #take(line) {
    let body;
    try {
      body = JSON.parse(line);
    } catch {
      body = null;
    }
    if (body === null || typeof body !== 'object' || !areTokens(body.tokens)) this.broken += 1;
    else if ('schema' in body) this.traces.push(new Trace(body));
    else if ('request' in body) this.request = body.request;
    else if ('wait' in body) this.wait = body.wait;
    else if ('notice' in body) this.notices.push(body.notice);
    else if (!this.traces.at(-1)?.take(body)) this.broken += 1;
  }
}

/** A draft that a server refused without naming it. */
const UNKNOWN = Object.freeze({ text: '', hex: null, unknown: true });

/** One run. `entries` is its text, token by token, each with where it came from. */
export class Trace {
  #table = new Map();
  #open = NOTHING;

  constructor({ run, origin, meta, prompt, tokens }) {
    this.run = run;
    this.origin = origin;
    this.meta = meta ?? {};
    this.prompt = prompt ?? [];
    this.rounds = [];
    this.entries = [];
    this.finish = null;
    this.#learn(tokens);
  }

  /** Add a round or the closing line; false when the line is neither. */
  take(body) {
    if ('finish' in body) {
      this.finish = body.finish;
      return true;
    }
    if (body.round !== this.rounds.length || !isRound(body)) return false;
    this.#learn(body.tokens);
    const round = new Round(body, this.#open);
    this.rounds.push(round);
    for (const entry of round.entries) this.entries.push(entry);
    this.#open = openBytes(round.entries.map((entry) => this.text(entry.id)), this.#open);
    return true;
  }

  /** A token's text, and its bytes in hex when they are not whole UTF-8. */
  text(id) {
    if (id === null) return UNKNOWN;
    return this.#table.get(id) ?? { text: `#${id}`, hex: null };
  }

  /** The ids that round `index` adds to the text. */
  committed(index) {
    return this.rounds[index].entries.map((entry) => entry.id);
  }

  #learn(tokens) {
    for (const [id, [text, hex]] of Object.entries(tokens ?? {})) this.#table.set(Number(id), { text, hex: hex ?? null });
  }
}

/** One round. `before` holds the bytes of a letter that the committed text had begun when the round started. */
export class Round {
  constructor(body, before) {
    this.round = body.round;
    this.prefill = body.prefill === true;
    this.nodes = body.nodes ?? [];
    this.emitted = body.emitted ?? null;
    this.kv = body.kv ?? {};
    this.ms = body.ms ?? {};
    this.before = before;
    this.entries = [...this.#accepted(), ...this.#own()];
  }

  /** Wall time in milliseconds, null when the source does not know it. */
  get total() {
    const parts = [this.ms.propose, this.ms.verify, this.ms.judge, this.ms.rollback].filter((part) => part != null);
    return parts.length ? parts.reduce((sum, part) => sum + part, 0) : null;
  }

  get accepted() {
    return this.nodes.filter((node) => node.status === 'accepted').length;
  }

  /** Indices of the nodes that were judged, in the order the rule looked at them. */
  get judged() {
    return this.nodes.flatMap((node, index) => (node.status === 'discarded' ? [] : [index]));
  }

  /** The token that stands where draft `index` was refused: a sibling that was kept, or the target's own. */
  insteadOf(index) {
    const { parent } = this.nodes[index];
    const sibling = this.nodes.find((node) => node.parent === parent && node.status === 'accepted');
    return sibling ?? this.emitted;
  }

  /** Indices of the nodes from the root down to `index`. */
  pathTo(index) {
    const path = [];
    for (let at = index; at >= 0; at = this.nodes[at].parent) path.unshift(at);
    return path;
  }

  #accepted() {
    return this.nodes.flatMap((node, index) =>
      node.status === 'accepted' ? [{ id: node.id, source: 'accepted', round: this.round, node: index, sure: node.p_raw ?? null }] : []);
  }

  #own() {
    const own = this.emitted;
    return own === null ? [] : [{ id: own.id, source: own.kind, round: this.round, node: null, sure: own.p_raw ?? null }];
  }
}

/** A table of a line: id -> [text, its bytes in hex or null]. */
function areTokens(tokens) {
  const isText = (part) => typeof part === 'string';
  return Object.values(tokens ?? {}).every((pair) => Array.isArray(pair) && isText(pair[0]) && (pair[1] == null || isText(pair[1])));
}

function isRound(body) {
  const nodes = body.nodes ?? [];
  return Array.isArray(nodes)
    && nodes.every((node, index) => STATUSES.has(node?.status) && Number.isInteger(node.parent) && node.parent >= -1 && node.parent < index)
    && (body.emitted == null || KINDS.has(body.emitted.kind));
}

/** The bytes of a token. */
export function bytesOf({ text, hex }) {
  if (hex === null || hex === undefined) return encoder.encode(text);
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/**
 * Group consecutive tokens whose bytes only together form whole characters.
 * Returns [{start, end, text, bytes, open, continues}]: tokens start..end-1 make `text` (null when the bytes are no
 * text at all); `open` = the letter is not finished yet; `continues` = it began in `before`.
 */
export function pieces(tokens, before = NOTHING) {
  const groups = [];
  let start = 0;
  let held = before;
  const close = (end, bytes, text, open = false) => {
    groups.push({ start, end, bytes, text, open, continues: start === 0 && before.length > 0 });
    start = end;
    held = NOTHING;
  };
  tokens.forEach((token, index) => {
    const own = bytesOf(token);
    let bytes = concat(held, own);
    let { text, open } = decode(bytes);
    if (text === null && !open && held.length) {
      if (index > start) close(index, held, null);
      held = NOTHING;
      bytes = own;
      ({ text, open } = decode(bytes));
    }
    if (open) held = bytes;
    else close(index + 1, bytes, text);
  });
  if (start < tokens.length) close(tokens.length, held, null, true);
  return groups;
}

/** The bytes of the letter that `tokens` leave unfinished. */
export function openBytes(tokens, before = NOTHING) {
  const last = pieces(tokens, before).at(-1);
  if (!last) return before;
  return last.open ? last.bytes : NOTHING;
}

/** Bytes as text: `text` when they are whole, otherwise null, with `open` = they may still become whole. */
export function decode(bytes) {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  let text;
  try {
    text = decoder.decode(bytes, { stream: true });
  } catch {
    return { text: null, open: false };
  }
  try {
    return { text: text + decoder.decode(), open: false };
  } catch {
    return { text: null, open: true };
  }
}

/** Bytes cut into readable text and stray bytes: [{text} | {hex}]. */
export function segments(bytes) {
  const parts = [];
  const push = (key, value) => {
    const last = parts.at(-1);
    if (last && key in last) last[key] += value;
    else parts.push({ [key]: value });
  };
  for (let at = 0; at < bytes.length;) {
    const size = lengthOf(bytes[at]);
    const { text } = size ? decode(bytes.subarray(at, at + size)) : { text: null };
    if (text) push('text', text);
    else push('hex', bytes[at].toString(16).toUpperCase().padStart(2, '0'));
    at += text ? size : 1;
  }
  return parts;
}

function lengthOf(lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

function concat(left, right) {
  if (!left.length) return right;
  const both = new Uint8Array(left.length + right.length);
  both.set(left);
  both.set(right, left.length);
  return both;
}
