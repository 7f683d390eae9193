/** A server's answers to one question: tiles as far as it told of them, how they came, and … where it told nothing. */

import { mountBoard } from '../board.js';
import { mountCharts } from '../charts.js';
import { h, say } from '../dom.js';
import { unsettledOf } from '../lesson/served.js';
import { promptOf } from '../lesson/tiles.js';
import { drawRunning } from '../tile.js';
import { Bundle } from '../trace.js';

const KEYS = Object.freeze({
  ArrowRight: (board) => board.step(1),
  ' ': (board) => board.step(1),
  ArrowLeft: (board) => board.step(-1),
  Home: (board) => board.home(),
  End: (board) => board.end(),
  r: (board) => board.reveal(),
  p: (board) => board.play(),
  Escape: (board) => board.escape(),
});

export class Replay {
  #root;
  #host;
  #ctx;
  #origin;
  #answers = [];
  #at = 0;
  #board = null;
  #charts;
  #tabs = h('div', { class: 'sv-choice sv-serve-who', role: 'group' });
  #facts = h('dl', { class: 'sv-serve-facts' });
  #said = h('p', { class: 'sv-l-about' });
  #fault = h('p', { class: 'sv-alert' });
  #tiles = h('div');
  #plot = h('div', { class: 'sv-serve-came' });
  #tidy = new AbortController();

  /** `origin`: "recorded" or "measured". */
  constructor(root, host, ctx, origin) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#origin = origin;
    root.append(this.#tabs, this.#fault, this.#facts, this.#tiles, this.#said, this.#plot);
    this.#charts = mountCharts(this.#plot, { boot: host.boot, words: host.words, heading: 'serve.replay' });
    document.addEventListener('keydown', (event) => this.#onKey(event), { signal: this.#tidy.signal });
    this.clear();
  }

  /** answers: each {name, text, ndjson, gap, problem, tokens, first_ms, token_ms, arrivals, drafts}. */
  show(answers, chart) {
    this.#answers = answers;
    if (this.#at >= answers.length) this.#at = 0;
    // Of several the one that drafts is what one came to see.
    const drafting = answers.findIndex((each) => each.drafts?.[0]);
    if (this.#root.hidden && drafting >= 0) this.#at = drafting;
    this.#root.hidden = false;
    this.#draw();
    this.chart(chart);
  }

  chart(chart) {
    this.#charts.show(chart ? [chart] : []);
    const plot = this.#plot.querySelector('.sv-chart-plot');
    if (plot) plot.style.height = `${chart.figure.layout.height}px`;
  }

  clear() {
    this.#root.hidden = true;
    this.#answers = [];
    this.#board?.destroy();
    this.#board = null;
    this.#charts.show([]);
  }

  destroy() {
    this.clear();
    this.#tidy.abort();
  }

  #draw() {
    const { t } = this.#ctx;
    this.#tabs.hidden = this.#answers.length < 2;
    this.#tabs.setAttribute('aria-label', t('serve.replay.who'));
    this.#tabs.replaceChildren(
      ...this.#answers.map(({ name }, index) =>
        h('button', { type: 'button', 'aria-pressed': String(index === this.#at), onClick: () => this.#pick(index) }, name),
      ),
    );
    const answer = this.#answers[this.#at];
    this.#facts.replaceChildren(...this.#factsOf(answer));
    say(this.#fault, answer.problem ? t(answer.problem.key, answer.problem.args) : '');
    this.#board?.destroy();
    this.#board = null;
    this.#tiles.replaceChildren();
    if (answer.ndjson) this.#drawTiles(answer);
    else this.#drawText(answer);
  }

  #pick(index) {
    this.#at = index;
    this.#draw();
    this.#tabs.children[index].focus();
  }

  #drawTiles({ ndjson, text }) {
    const { t } = this.#ctx;
    const bundle = Bundle.of(ndjson);
    const [trace] = bundle.traces;
    const box = h('div');
    this.#tiles.append(promptOf(trace, this.#ctx), box);
    this.#board = mountBoard(box, { ...this.#ctx, badge: () => this.#ctx.badge(this.#origin) });
    this.#board.setBundle(bundle);
    const named = trace.entries.some(({ id }) => trace.text(id).text !== `#${id}`);
    if (!named) this.#tiles.append(textOf(text));
    const drafts = trace.rounds.flatMap((round) => round.nodes);
    const said = [
      named ? '' : t('serve.replay.numbers'),
      drafts.some(({ id }) => id === null) ? t('lesson.served.unknown') : '',
      drafts.length ? t('serve.replay.unknown') : '',
      unsettledOf(trace.meta, this.#ctx),
    ];
    say(this.#said, said.filter(Boolean).join(' '));
  }

  /** Without the server's account of its steps there is the text, and a sentence that says why there is no more. */
  #drawText({ text, gap, problem }) {
    this.#tiles.append(textOf(text));
    say(this.#said, gap && (!problem || gap === 'broken') ? this.#ctx.t(`serve.gap.${gap}`) : '');
  }

  #factsOf({ tokens, first_ms: first, token_ms: pace, arrivals, drafts }) {
    const { t, number } = this.#ctx;
    const unknown = t('shell.unknown');
    const largest = Math.max(0, ...arrivals.map(([, count]) => count));
    const facts = [
      ['first', first === null ? unknown : t('serve.ms', { ms: number(first, 0) })],
      ['token', pace === null ? unknown : t('serve.ms', { ms: number(pace, 0) })],
      ['tokens', String(tokens)],
      ['bursts', t('serve.fact.bursts.said', { count: arrivals.length, largest })],
      ['kept', drafts ? `${drafts[2]}/${drafts[1]}` : unknown],
    ];
    return facts.map(([name, value]) => h('div', { title: t(`serve.fact.${name}.help`) }, h('dt', {}, t(`serve.fact.${name}`)), h('dd', {}, value)));
  }

  #onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { target } = event;
    const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
    if (!act || !this.#board || this.#root.offsetParent === null) return;
    if (target.closest?.('input, textarea, select, [contenteditable="true"], dialog')) return;
    if (event.key === ' ' && target.closest?.('button, a, summary')) return;
    if (target !== document.body && !this.#root.contains(target)) return;
    event.preventDefault();
    act(this.#board);
  }
}

function textOf(text) {
  const running = h('p', { class: 'sv-serve-text' });
  drawRunning(running, text);
  return running;
}
