/**
 * Several drafters on one prompt, replayed on one clock. Nothing moves until the visitor asks.
 * The numbers and sentences of a lane are the server's (`lanes` of its view); this file only plays them.
 */

import { laneOf, moments } from './clock.js';
import { h, say } from './dom.js';
import { isLossy } from './rule.js';
import { drawRunning, icon } from './tile.js';
import { pieces } from './trace.js';

const SHORTEST = 3000; // ms that a replay lasts at least, and at most
const LONGEST = 10_000;
const BUTTONS = ['home', 'back', 'play', 'next', 'end'];

/** Whether a bundle holds more than one drafter's run. */
export function isComparison(bundle) {
  return (bundle?.traces ?? []).filter((trace) => trace.meta.drafter !== 'none').length > 1;
}

export function mountCompare(root, { words }) {
  const compare = new Compare(root, words);
  return {
    show: (bundle, options) => compare.show(bundle, options),
    setView: (view) => compare.setView(view),
    setWords: () => compare.draw(),
  };
}

class Compare {
  #root;
  #words;
  #bundle = null;
  #expected = 0; // how many runs this bundle will hold
  #told = null; // the server's `lanes`
  #lanes = []; // in the order asked
  #now = null; // ms after the start; null: at the end
  #frame = null;
  #calm = matchMedia('(prefers-reduced-motion: reduce)');

  constructor(root, words) {
    this.#root = root;
    this.#words = words;
    this.#build();
    this.#calm.addEventListener('change', () => this.draw());
  }

  #title;
  #waiting;
  #bar;
  #buttons;
  #scrub;
  #time;
  #list;
  #notes;
  #status;

  /** Take a bundle; `expected` runs will come into it. A bundle of one drafter leaves nothing to see. */
  show(bundle, { expected = 0 } = {}) {
    if (bundle !== this.#bundle) {
      this.#told = null;
      this.#lanes = [];
      this.#now = null;
      this.#pause();
    }
    this.#bundle = bundle;
    this.#expected = expected;
    this.draw();
  }

  setView(view) {
    this.#told = view?.lanes ?? null;
    this.draw();
  }

  draw() {
    const { t } = this.#words;
    const traces = this.#bundle?.traces ?? [];
    const coming = this.#expected > traces.length || traces.some((trace) => trace.finish === null);
    this.#root.hidden = !this.#expected && !isComparison(this.#bundle);
    if (this.#root.hidden) return;
    say(this.#title, t('compare.title'));
    const ready = isComparison(this.#bundle) && (this.#told !== null || !coming);
    this.#bar.hidden = !ready;
    this.#list.hidden = !ready;
    this.#waiting.hidden = ready;
    say(this.#waiting, ready ? '' : this.#progress(traces));
    if (!ready) {
      this.#notes.replaceChildren();
      return;
    }
    this.#lanes = traces.map((trace, index) => this.#drawLane(trace, index));
    this.#nameBar();
    this.#place();
    this.#sayNotes();
  }

  #progress(traces) {
    const { t } = this.#words;
    const last = traces.at(-1);
    const of = Math.max(this.#expected, traces.length);
    if (!last) return t('compare.waiting');
    return t('compare.running', { n: traces.length, of, drafter: this.#name(last), tokens: last.entries.length });
  }

  #name(trace) {
    const { t } = this.#words;
    return t(trace.meta.drafter === 'none' ? 'race.baseline' : `drafter.${trace.meta.drafter}`);
  }

  // ------------------------------------------------------------ a lane

  #drawLane(trace, index) {
    const { t } = this.#words;
    const lane = laneOf(trace);
    const row = this.#told?.rows.find((each) => each.trace === index) ?? null;
    const plain = trace.meta.drafter === 'none';
    const rule = plain || !this.#words.has(`rule.${trace.meta.rule}`) ? '' : t(`rule.${trace.meta.rule}`);
    const numbers = h('span', { class: 'sv-compare-count' });
    const speedup = h('span', { class: 'sv-compare-speedup sv-compare-result' }, ...this.#speedup(row));
    const bar = h('span', { class: 'sv-race-bar' }, this.#strip(lane));
    const text = h('p', { class: 'sv-compare-text', tabindex: '0', role: 'group' });
    text.setAttribute('aria-label', t('compare.text', { drafter: this.#name(trace) }));
    const parts = drawText(text, trace);
    const element = h(
      'li',
      { class: 'sv-compare-lane' },
      h(
        'div',
        { class: 'sv-compare-head' },
        h('b', {}, this.#name(trace)),
        isLossy(trace.meta.rule) && !plain ? h('span', { class: 'sv-compare-lossy' }, t('compare.lossy')) : null,
        h('span', { class: 'sv-compare-rule' }, rule),
        numbers,
        speedup,
      ),
      h('div', { class: 'sv-race-track', 'aria-hidden': 'true' }, bar),
      text,
      h('div', { class: 'sv-compare-result' }, ...this.#reasons(row)),
    );
    return { ...lane, row, element, numbers, bar, text, parts };
  }

  #speedup(row) {
    if (!row?.speedup || !this.#told.against) return [];
    const times = this.#words.number(row.speedup, 2);
    return [h('b', {}, `${times}×`), ` ${this.#words.t(`compare.speedup.${this.#told.against}`)}`];
  }

  /** Rounds on the clock: what drafting took is hatched, the prefill pale. */
  #strip(lane) {
    const strip = h('span', { class: 'sv-race-rounds' });
    for (const round of lane.total ? lane.trace.rounds : []) {
      const kind = round.prefill ? 'prefill' : round.nodes.length ? 'drafted' : 'plain';
      const mark = h('span', { class: `sv-compare-round sv-compare-round--${kind}` });
      mark.style.width = `${(round.total / lane.total) * 100}%`;
      if (!round.prefill) mark.style.setProperty('--draft', `${((round.ms.propose ?? 0) / round.total) * 100}%`);
      strip.append(mark);
    }
    return strip;
  }

  #reasons(row) {
    if (!row) return [];
    const { t } = this.#words;
    const numbers = row.numbers.map(({ key, value, fraction }) => {
      const amount = h('b', {}, value === null ? t('shell.unknown') : this.#words.number(value, 2));
      return h('div', {}, h('dt', {}, t(`compare.${key}`)), h('dd', {}, amount, ` ${fraction ?? ''}`));
    });
    const drafted = this.#bundle.traces[row.trace].meta.drafter !== 'none';
    return [
      drafted ? h('dl', { class: 'sv-compare-numbers' }, ...numbers) : null,
      h('p', { class: 'sv-compare-why' }, t(row.why.key, row.why.args)),
      row.text ? h('p', { class: 'sv-compare-same' }, t(row.text.key, row.text.args)) : null,
    ].filter(Boolean);
  }

  // ------------------------------------------------------------ the clock

  get #end() {
    return Math.max(...this.#lanes.map((lane) => lane.total ?? 0), 0);
  }

  /** Show every lane as it stood then, and the lanes in order once all have arrived. */
  #place({ spoken = false } = {}) {
    const { t } = this.#words;
    const end = this.#end;
    const now = this.#now ?? end;
    for (const lane of this.#lanes) this.#placeLane(lane, now, end);
    this.#order();
    this.#scrub.max = String(end);
    this.#scrub.value = String(now);
    const seconds = t('compare.time', { now: this.#words.number(now / 1000, 2), end: this.#words.number(end / 1000, 2) });
    say(this.#time, end ? seconds : '');
    this.#scrub.setAttribute('aria-valuetext', seconds);
    for (const [name, button] of this.#buttons) {
      const idle = !end || (['home', 'back'].includes(name) && now <= 0) || (['next', 'end'].includes(name) && now >= end);
      button.setAttribute('aria-disabled', String(idle));
    }
    if (!spoken) return;
    const said = this.#lanes.map((lane) => `${this.#name(lane.trace)}: ${lane.writtenBy(now).tokens}`).join(', ');
    say(this.#status, `${seconds}. ${t('compare.said', { lanes: said })}`);
  }

  #placeLane(lane, now, end) {
    const { t } = this.#words;
    const known = lane.total !== null;
    const there = this.#now === null || (known && now >= lane.total - 1e-6);
    const written = known && !there ? lane.writtenBy(now) : lane.writtenBy(Infinity);
    const own = Math.min(now, lane.total ?? 0);
    lane.element.classList.toggle('sv-compare-lane--there', there);
    lane.bar.style.width = end ? `${(own / end) * 100}%` : '0';
    lane.bar.firstChild.style.width = own > 0 ? `${(lane.total / own) * 100}%` : '0';
    const speed = there ? (lane.row?.speed ?? written.speed) : written.speed;
    const fast = known && speed ? this.#words.number(speed, 1) : null;
    say(lane.numbers, t(fast ? 'compare.count' : 'compare.count.tokens', { tokens: written.tokens, speed: fast }));
    let last = null;
    for (const part of lane.parts) {
      part.element.classList.toggle('sv-compare-later', part.end > written.tokens);
      if (part.end <= written.tokens) last = part.element;
    }
    const bottom = last ? last.offsetTop + last.offsetHeight - lane.text.offsetTop : 0;
    lane.text.scrollTop = this.#now === null ? 0 : Math.max(bottom - lane.text.clientHeight, 0);
  }

  /** Asked order on the way, fastest first at the end. Lanes slide to their places where motion is welcome. */
  #order() {
    const asked = this.#lanes;
    const rows = this.#told?.rows;
    const wanted = this.#now === null && rows ? rows.map((row) => asked[row.trace]) : asked;
    const shown = [...this.#list.children];
    if (wanted.length === shown.length && wanted.every((lane, index) => lane.element === shown[index])) return;
    const same = wanted.every((lane) => shown.includes(lane.element));
    const before = new Map(wanted.map((lane) => [lane, lane.element.getBoundingClientRect().top]));
    const focused = this.#list.contains(document.activeElement) ? document.activeElement : null;
    this.#list.replaceChildren(...wanted.map((lane) => lane.element));
    focused?.focus({ preventScroll: true });
    if (!same || this.#calm.matches) return;
    for (const lane of wanted) {
      const moved = before.get(lane) - lane.element.getBoundingClientRect().top;
      if (moved) lane.element.animate([{ transform: `translateY(${moved}px)` }, { transform: 'none' }], { duration: 450, easing: 'ease-in-out' });
    }
  }

  #go(ms, options) {
    const end = this.#end;
    this.#now = ms >= end - 1e-6 ? null : Math.max(ms, 0);
    this.#place(options);
  }

  #step(by) {
    const at = this.#now ?? this.#end;
    const all = [0, ...moments(this.#lanes)];
    const next = by > 0 ? all.find((ms) => ms > at + 1e-6) : all.findLast((ms) => ms < at - 1e-6);
    if (next !== undefined) this.#go(next, { spoken: true });
  }

  #play() {
    if (this.#frame !== null) {
      this.#pause();
      this.#place({ spoken: true });
      return;
    }
    const end = this.#end;
    if (!end || this.#calm.matches) return;
    const from = this.#now ?? 0;
    const scale = end / Math.min(Math.max(end, SHORTEST), LONGEST);
    const began = performance.now();
    const tick = (time) => {
      this.#go(from + Math.max(time - began, 0) * scale);
      if (this.#now !== null) this.#frame = requestAnimationFrame(tick);
      else {
        this.#pause();
        this.#place({ spoken: true });
      }
    };
    this.#go(from);
    this.#frame = requestAnimationFrame(tick);
    this.#nameBar();
  }

  #pause() {
    if (this.#frame === null) return;
    cancelAnimationFrame(this.#frame);
    this.#frame = null;
    this.#nameBar();
  }

  // ------------------------------------------------------------ frame

  #build() {
    this.#title = h('h2', { class: 'sv-h2' });
    this.#waiting = h('p', { class: 'sv-compare-waiting' });
    this.#buttons = new Map(
      BUTTONS.map((name) => {
        const button = h('button', { class: 'sv-board-button', type: 'button', onClick: () => this.#command(name) }, icon(name));
        return [name, button];
      }),
    );
    this.#scrub = h('input', { type: 'range', min: '0', step: 'any', class: 'sv-compare-scrub' });
    this.#time = h('output', { class: 'sv-compare-time' });
    this.#bar = h('div', { class: 'sv-compare-bar', role: 'group' }, ...this.#buttons.values(), this.#scrub, this.#time);
    this.#list = h('ol', { class: 'sv-compare-lanes' });
    this.#notes = h('div', { class: 'sv-compare-notes' });
    this.#status = h('p', { class: 'sv-hush', role: 'status' });
    this.#root.classList.add('sv-compare');
    this.#root.append(this.#title, this.#waiting, this.#bar, this.#list, this.#notes, this.#status);
    this.#scrub.addEventListener('input', () => {
      this.#pause();
      this.#go(Number(this.#scrub.value));
    });
    this.#bar.addEventListener('keydown', (event) => this.#onKey(event));
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    // A button takes Space and Enter as its own press; the slider has no use for them.
    if ([' ', 'Enter'].includes(event.key) && event.target !== this.#scrub) return;
    const keys = { ArrowRight: 'next', ArrowUp: 'next', ArrowLeft: 'back', ArrowDown: 'back', Home: 'home', End: 'end', ' ': 'play', p: 'play' };
    const name = keys[event.key.length > 1 ? event.key : event.key.toLowerCase()];
    if (!name) return;
    // The board listens for the same keys on the whole page.
    event.stopPropagation();
    event.preventDefault();
    this.#command(name);
  }

  #command(name) {
    if (name === 'play') {
      this.#play();
      return;
    }
    this.#pause();
    if (name === 'home') this.#go(0, { spoken: true });
    else if (name === 'end') this.#go(Infinity, { spoken: true });
    else this.#step(name === 'next' ? 1 : -1);
  }

  #nameBar() {
    const { t } = this.#words;
    const playing = this.#frame !== null;
    this.#bar.setAttribute('aria-label', t('compare.bar'));
    this.#scrub.setAttribute('aria-label', t('compare.scrub'));
    for (const [name, button] of this.#buttons) {
      const said = t(name === 'play' && playing ? 'board.do.pause' : `compare.do.${name}`);
      button.setAttribute('aria-label', said);
      button.title = said;
    }
    const play = this.#buttons.get('play');
    play.replaceChildren(icon(playing ? 'pause' : 'play'));
    play.hidden = this.#calm.matches;
  }

  #sayNotes() {
    const { t } = this.#words;
    const against = this.#told?.against ?? null;
    const keys = [
      this.#told && !this.#told.alike ? 'compare.note.unlike' : null,
      against ? `compare.note.${against}` : 'compare.note.untimed',
      this.#end ? 'compare.note.strip' : null,
    ];
    this.#notes.replaceChildren(...keys.filter(Boolean).map((key) => h('p', {}, t(key))));
  }
}

/** The whole text, hidden from its end backwards; returns [{element, end}], `end` being the tokens it needs. */
function drawText(holder, trace) {
  return pieces(trace.entries.map((entry) => trace.text(entry.id))).map((piece) => {
    const element = h('span', { class: `sv-piece sv-piece--${trace.entries[piece.end - 1].source}` });
    drawRunning(element, piece.text ?? new TextDecoder().decode(piece.bytes));
    holder.append(element);
    return { element, end: piece.end };
  });
}
