/** The paged room: a recorded batch in blocks of 16 slots, one step at a time; no step comes by itself. */

import { h, say } from '../dom.js';
import { mountNumbers } from '../numbers.js';
import { icon } from '../tile.js';
import { makeAsks } from './asks.js';
import { guesses, sentence } from './happened.js';
import { FATES, makeGrid, makeSlot, makeTables } from './pool.js';
import { RUNS } from './settings.js';
import { makeTimeline } from './timeline.js';

const BUTTONS = Object.freeze(['home', 'back', 'next', 'end']);
const KEYS = Object.freeze({ ArrowLeft: 'back', ArrowRight: 'next', ' ': 'next', Home: 'home', End: 'end' });
const ASKS = ['paged_cost', 'paged_ahead', 'paged_prefix'];
const sum = (list, value) => list.reduce((total, each) => total + value(each), 0);

export class PagedRoom {
  #root;
  #host;
  #ctx;
  #records = null; // by the drafter's name; null while they are fetched
  #failed = false;
  #guessed = new Map(); // what was guessed, by run and kind
  #opened = new Set();

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    document.addEventListener('keydown', (event) => this.#onKey(event));
    this.build();
    this.#load();
  }

  async #load() {
    const { static: base } = this.#host.boot;
    try {
      const texts = await Promise.all(
        RUNS.map(async (name) => {
          const answer = await fetch(`${base}paged/${name}.json`);
          if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
          return [name, await answer.json()];
        }),
      );
      this.#records = new Map(texts);
    } catch (error) {
      console.error(error);
      this.#failed = true;
    }
    this.build();
  }

  #tabs;
  #buttons;
  #counter;
  #said;
  #guess;
  #grid;
  #tables;
  #timeline;
  #numbers;
  #guesses;

  build() {
    const { words } = this.#host;
    const { t } = this.#ctx;
    const lead = h('p', { class: 'sv-lead' }, t('paged.lead'));
    if (!this.#records) {
      this.#root.replaceChildren(lead, h('p', { class: this.#failed ? 'sv-alert' : 'sv-none' }, t(this.#failed ? 'paged.missing' : 'paged.loading')));
      return;
    }
    const record = this.#record;
    this.#guesses = guesses(record);
    this.#said = h('p', { class: 'sv-pg-said', role: 'status' });
    this.#guess = h('section', { class: 'sv-pg-guess', 'aria-label': t('lesson.ask.title') });
    this.#grid = makeGrid(record, this.#ctx);
    this.#tables = makeTables(record, this.#ctx);
    this.#timeline = makeTimeline(record, this.#ctx, (position) => this.#go(position));
    const numbers = h('div', { class: 'sv-lab-numbers' });
    this.#numbers = mountNumbers(numbers, { words });
    this.#root.replaceChildren(
      lead,
      this.#makeBar(),
      this.#said,
      h(
        'div',
        { class: 'sv-pg-desk' },
        h('div', { class: 'sv-pg-pool' }, this.#grid.element, legend(t), this.#guess),
        this.#tables.element,
      ),
      h('section', { class: 'sv-pg-run' }, this.#timeline.element),
      numbers,
      h('p', { class: 'sv-pg-note' }, this.#ctx.badge('recorded', record), ' ', t('paged.note.recorded'), ' ', this.#ctx.badge('computed'), ' ', t('paged.note.computed'), ' ', t('paged.note.ours')),
      h('section', { class: 'sv-section' }, h('h2', { class: 'sv-h2' }, t('question.title')), makeAsks(ASKS, { words, opened: this.#opened, make: (name, body) => this.#make(name, body) })),
    );
    this.#drawn = this.#name;
    this.draw();
  }

  #makeBar() {
    const { t } = this.#ctx;
    this.#tabs = RUNS.map((name) =>
      h('button', { class: 'sv-board-tab', type: 'button', 'data-run': name, onClick: () => this.#choose(name) }, t(`paged.run.${name}`)),
    );
    this.#buttons = new Map(
      BUTTONS.map((name) => {
        const words = t(`paged.do.${name}`);
        const button = h(
          'button',
          { class: `sv-board-button sv-board-button--${name}`, type: 'button', 'aria-label': words, title: `${words} (${t(`board.key.${name}`)})`, onClick: () => this.#command(name) },
          icon(name),
        );
        return [name, button];
      }),
    );
    this.#counter = h('span', { class: 'sv-board-counter' });
    return h(
      'div',
      { class: 'sv-pg-bar' },
      h('div', { class: 'sv-pg-steps', role: 'toolbar', 'aria-label': t('paged.bar') }, ...this.#buttons.values(), this.#counter),
      h('div', { class: 'sv-board-tabs', role: 'group', 'aria-label': t('paged.runs') }, ...this.#tabs),
    );
  }

  // ------------------------------------------------------------ where we are

  get #name() {
    return this.#host.state.get('lab_run');
  }

  get #record() {
    return this.#records.get(this.#name);
  }

  /** How many steps are behind us; 0 is the empty pool. */
  get #position() {
    return Math.min(this.#host.state.get('lab_step'), this.#record.steps.length);
  }

  #go(position) {
    this.#host.state.set({ lab_step: Math.min(Math.max(position, 0), this.#record.steps.length) });
  }

  #choose(name) {
    this.#host.state.set({ lab_run: name, lab_step: 0 });
    this.#tabs[RUNS.indexOf(name)].focus();
  }

  #command(name) {
    const to = { home: 0, back: this.#position - 1, next: this.#position + 1, end: this.#record.steps.length };
    this.#go(to[name]);
  }

  #onKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const { target, key } = event;
    if (!this.#records || !(key in KEYS) || this.#root.offsetParent === null) return;
    if (target.closest?.('input, textarea, select, [contenteditable="true"], dialog')) return;
    if (key === ' ' && target.closest?.('button, a, summary')) return;
    if (target !== document.body && !this.#root.contains(target) && !target.matches('main, button, a, summary')) return;
    event.preventDefault();
    this.#command(KEYS[key]);
  }

  // What every room is told: nothing runs here by itself, so nothing has to begin or stop.
  arrive() {}

  leave() {}

  // ------------------------------------------------------------ what is seen

  #drawn = null; // the run that the page was built for

  draw() {
    if (!this.#records) return;
    if (this.#drawn !== this.#name) {
      this.build();
      return;
    }
    const { t } = this.#ctx;
    const record = this.#record;
    const position = this.#position;
    const step = record.steps[position - 1] ?? null;
    const words = sentence(record, step, t);
    this.#tabs.forEach((tab) => tab.setAttribute('aria-pressed', String(tab.dataset.run === this.#name)));
    for (const [name, button] of this.#buttons) {
      const idle = position === (['home', 'back'].includes(name) ? 0 : record.steps.length);
      button.setAttribute('aria-disabled', String(idle));
    }
    const counted = t('paged.counter', { step: position, steps: record.steps.length });
    say(this.#counter, counted);
    say(this.#said, words);
    this.#grid.draw(step);
    this.#tables.draw(step);
    this.#timeline.draw(position, `${counted}. ${words}`);
    this.#drawGuess(position);
    this.#drawNumbers(step);
  }

  #drawNumbers(step) {
    const { pool, block } = this.#record;
    const held = step?.held ?? [];
    const used = pool - (step?.free ?? pool);
    const filled = sum(held, (each) => each.after);
    const returned = sum(held, (each) => each.peak - each.after);
    const row = (key, value, fraction, badge = 'computed') => ({ key: `paged_${key}`, value, digits: 0, fraction, badge });
    this.#numbers.show([
      row('used', used, `/ ${pool}`),
      row('filled', filled, `/ ${used * block}`, 'recorded'),
      row('returned', returned, `/ ${sum(held, (each) => each.drafted)}`, 'recorded'),
      row('wasted', used * block - filled, `/ ${used * block}`),
    ]);
  }

  /** Before a step worth a guess the question; at that step, if it was answered, the guess beside the truth. */
  #drawGuess(position) {
    const { t } = this.#ctx;
    const kept = ({ kind }) => this.#guessed.get(`${this.#name}.${kind}`);
    const next = this.#guesses.get(position + 1);
    const here = this.#guesses.get(position);
    const parts = [];
    if (here && kept(here) !== undefined) {
      const right = kept(here) === here.truth;
      const args = { ...here.args, guess: kept(here), truth: here.truth };
      parts.push(h('p', { class: `sv-pg-truth sv-pg-truth--${right ? 'right' : 'other'}` }, t(`paged.guess.${right ? 'right' : 'other'}`, args), ' ', t(`paged.guess.${here.kind}.why`, args)));
    }
    if (next && kept(next) === undefined) {
      const answer = (guess) => {
        this.#guessed.set(`${this.#name}.${next.kind}`, guess);
        this.#go(position + 1);
        this.#buttons.get('next').focus();
      };
      const buttons = next.options.map((guess) => h('button', { class: 'sv-question', type: 'button', onClick: () => answer(guess) }, String(guess)));
      parts.push(h('p', { class: 'sv-pg-asked' }, t(`paged.guess.${next.kind}`, next.args)), h('div', { class: 'sv-pg-options' }, ...buttons));
    }
    this.#guess.hidden = !parts.length;
    this.#guess.replaceChildren(...parts);
  }

  // ------------------------------------------------------------ questions

  #make(name, body) {
    const { t, number } = this.#ctx;
    const record = this.#record;
    if (name === 'paged_cost') body.append(this.#compare());
    if (name === 'paged_ahead') {
      const most = ({ request }) => Math.ceil((record.requests[request].tokens + record.requests[request].most) / record.block);
      const fullest = record.steps.reduce((a, b) => (b.free < a.free ? b : a));
      const args = { used: record.pool - fullest.free, ahead: sum(fullest.held, most), n: fullest.held.length, pool: record.pool };
      body.append(h('p', { class: 'sv-lab-why' }, t('paged.ahead', args), ' ', this.#ctx.badge('computed')));
    }
    if (name === 'paged_prefix') {
      const whole = Math.floor(record.common / record.block);
      const args = { n: record.requests.length, common: record.common, whole, places: record.conditions.batch, saved: number(whole * (record.conditions.batch - 1), 0) };
      body.append(h('p', { class: 'sv-lab-why' }, t('paged.prefix', args), ' ', this.#ctx.badge('computed')));
    }
  }

  /** The runs beside each other: a row each. */
  #compare() {
    const { t, number } = this.#ctx;
    const rows = RUNS.map((name) => {
      const { steps, pool } = this.#records.get(name);
      const passes = steps.filter(({ kind }) => kind === 'pass');
      const all = passes.flatMap(({ held }) => held);
      const [drafted, returned] = [sum(all, (each) => each.drafted), sum(all, (each) => each.peak - each.after)];
      const tokens = sum(all, (each) => each.after - each.before);
      const peak = pool - Math.min(...steps.map(({ free }) => free));
      const cells = [number(passes.length, 0), number(tokens / passes.length, 2), number(drafted, 0), number(returned, 0), number(peak, 0)];
      return h('tr', {}, h('th', { scope: 'row' }, t(`paged.run.${name}`)), ...cells.map((cell) => h('td', { class: 'sv-amount' }, cell)));
    });
    const head = ['run', 'passes', 'tokens', 'drafted', 'returned', 'peak'].map((column) => h('th', { scope: 'col' }, t(`paged.column.${column}`)));
    return h('div', { class: 'sv-pg-scroll', tabindex: '0', role: 'region', 'aria-label': t('lab.ask.paged_cost') }, h('table', { class: 'sv-table' }, h('thead', {}, h('tr', {}, ...head)), h('tbody', {}, ...rows)));
  }
}

function legend(t) {
  const slots = FATES.map((kind) => h('li', {}, makeSlot(kind), t(`paged.fate.${kind}`)));
  const marks = ['taken', 'freed'].map((how) =>
    h('li', {}, h('span', { class: `sv-pg-mark sv-pg-block--${how}`, 'aria-hidden': 'true' }, h('b', { class: 'sv-pg-owner' }, 'A')), t(`paged.mark.${how}`)),
  );
  return h('ul', { class: 'sv-pg-legend', 'aria-label': t('paged.legend'), 'data-request': 'A' }, ...slots, ...marks);
}
