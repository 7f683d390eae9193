/**
 * See it break: one planted fault, round after round, until nobody can overlook it; then the right rule.
 * The rounds run on the server with the engine's own rules (spec_viz/lab/drift.py); nothing runs until it is asked for.
 */

import { h, newId, say } from './dom.js';
import { ALARM, FLOOR, figure, lawBars, lineChart, pText } from './lawchart.js';

export const FAULTS = Object.freeze(['argmax', 'drop', 'residual', 'siblings']);
const PART = 500; // rounds asked for at a time
const MOST = 10_000;

/** A link to this place, for others to hold; with a fault named, to that one. */
export function linkToBreak({ state, words }, fault = null) {
  const link = h('a', { href: fault ? `?place=break&fault=${fault}` : '?place=break' });
  link.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.set({ page: 'break', ...(fault && { fault }) });
    scrollTo(0, 0);
  });
  return words.bind(link, fault ? `break.fault.${fault}` : 'break.link');
}

export function mountBreak(root, host) {
  const place = new Break(root, host);
  return { redraw: (changed) => place.redraw(changed) };
}

class Break {
  #host;
  #fault;
  #repaired = false;
  #told = { wrong: null, right: null }; // per way: {law, target, distance, points: [checkpoint]}
  #series = 0; // another series of random numbers for every new start
  #asks = 0;
  #running = false;
  #failed = false;
  #asked = 0; // counts starts, so that a late answer changes nothing

  constructor(root, host) {
    this.#host = host;
    this.#fault = host.state.get('fault');
    this.#build(root);
    this.#draw();
  }

  redraw(changed) {
    if (changed.includes('lang')) this.#draw();
    if (changed.includes('fault') && this.#host.state.get('fault') !== this.#fault) this.#choose(this.#host.state.get('fault'));
    if (changed.includes('page') && this.#host.state.get('page') !== 'break') this.#pause();
  }

  #radios;
  #run;
  #repair;
  #again;
  #status;
  #bars;
  #charts;
  #table;
  #what;

  #build(root) {
    const { words } = this.#host;
    const text = (tag, key, className) => words.bind(h(tag, className ? { class: className } : {}), key);
    const name = newId('fault');
    this.#radios = FAULTS.map((fault) => {
      const input = h('input', { type: 'radio', name, value: fault, onChange: () => this.#choose(fault) });
      const label = h(
        'label',
        { class: 'sv-break-fault' },
        input,
        h('span', {}, text('b', `break.fault.${fault}`), text('span', `break.fault.${fault}.is`)),
      );
      return { fault, input, label };
    });
    this.#what = h('p', { class: 'sv-break-what' });
    this.#run = h('button', { class: 'sv-run', type: 'button', onClick: () => this.#toggle() });
    this.#repair = h('button', { class: 'sv-break-button', type: 'button', onClick: () => this.#turn() });
    this.#again = h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => this.#restart() });
    this.#status = h('p', { class: 'sv-break-said', role: 'status' });
    this.#bars = h('div', { class: 'sv-break-bars' });
    this.#charts = h('div', { class: 'sv-break-charts' });
    this.#table = h('div', { class: 'sv-break-scroll', tabindex: '0', role: 'group' });
    const rows = h('details', { class: 'sv-break-numbers' }, text('summary', 'break.table'), this.#table);
    root.append(
      text('h1', 'break.title', 'sv-title'),
      text('p', 'break.lead', 'sv-lead'),
      h('fieldset', { class: 'sv-break-faults' }, text('legend', 'break.faults'), ...this.#radios.map(({ label }) => label)),
      this.#what,
      h('div', { class: 'sv-break-actions' }, this.#run, this.#repair, this.#again),
      this.#status,
      h('div', { class: 'sv-break-figure' }, this.#bars, this.#charts),
      rows,
      text('p', 'break.note', 'sv-break-note'),
    );
  }

  // ------------------------------------------------------------ what is done

  #choose(fault) {
    this.#fault = fault;
    this.#repaired = false;
    this.#host.state.set({ fault });
    this.#restart();
  }

  #restart() {
    this.#pause();
    this.#asked += 1;
    this.#series += 1;
    this.#asks = 0;
    this.#told = { wrong: null, right: null };
    this.#failed = false;
    this.#draw();
  }

  /** Repair the fault, or break the rule again; either goes on with the rounds it had. */
  #turn() {
    this.#pause();
    this.#asked += 1;
    this.#repaired = !this.#repaired;
    this.#draw();
    if (!this.#rounds) this.#toggle();
  }

  #toggle() {
    if (this.#running) this.#pause();
    else this.#go();
  }

  #pause() {
    this.#running = false;
    this.#drawActions();
    this.#sayState();
  }

  get #way() {
    return this.#repaired ? 'right' : 'wrong';
  }

  get #rounds() {
    return this.#told[this.#way]?.points.at(-1)?.rounds ?? 0;
  }

  async #go() {
    if (this.#rounds >= MOST) return;
    this.#asked += 1;
    const mine = this.#asked;
    this.#running = true;
    this.#failed = false;
    this.#drawActions();
    while (this.#running && mine === this.#asked && this.#rounds < MOST) {
      const answer = await this.#ask();
      if (mine !== this.#asked) return;
      if (answer === null) this.#failed = true;
      else this.#take(answer);
      if (this.#failed || this.#rounds >= MOST) this.#running = false;
      this.#draw();
    }
  }

  async #ask() {
    const { server } = this.#host;
    const way = this.#way;
    this.#asks += 1;
    try {
      const answer = await server.drift({
        fault: this.#fault,
        repaired: this.#repaired,
        rounds: PART,
        seed: this.#series * 1000 + this.#asks,
        before: this.#told[way]?.points.at(-1)?.counts ?? [],
      });
      return answer?.checkpoints ? answer : null;
    } catch (error) {
      console.error(error);
      return null;
    }
  }

  #take({ target, law, distance, checkpoints }) {
    const points = [...(this.#told[this.#way]?.points ?? []), ...checkpoints];
    this.#told[this.#way] = { target, law, distance, points };
  }

  // ------------------------------------------------------------ what is seen

  #draw() {
    const { t } = this.#host.words;
    for (const { fault, input, label } of this.#radios) {
      input.checked = fault === this.#fault;
      label.classList.toggle('sv-break-fault--chosen', input.checked);
    }
    say(this.#what, t(this.#repaired ? `break.fault.${this.#fault}.right` : `break.fault.${this.#fault}.wrong`));
    this.#drawActions();
    this.#drawBars();
    this.#drawCharts();
    this.#drawTable();
    this.#sayState();
  }

  #drawActions() {
    const { t } = this.#host.words;
    const over = this.#rounds >= MOST;
    say(this.#run, t(this.#running ? 'break.pause' : this.#rounds ? 'break.more' : 'break.run'));
    this.#run.setAttribute('aria-disabled', String(over));
    this.#run.classList.toggle('sv-run--stop', this.#running);
    say(this.#repair, t(this.#repaired ? 'break.break' : 'break.repair'));
    say(this.#again, t('break.again'));
    this.#again.hidden = !this.#told.wrong && !this.#told.right;
  }

  /** One sentence; while rounds run it stays short, so that a voice is not flooded. */
  #sayState() {
    const { t } = this.#host.words;
    const told = this.#told[this.#way];
    if (this.#failed) say(this.#status, t('break.failed'));
    else if (!told) say(this.#status, t(this.#running ? 'break.running' : 'break.start'));
    else if (this.#running) say(this.#status, t('break.running'));
    else say(this.#status, this.#verdict(told));
  }

  #verdict(told) {
    const { t } = this.#host.words;
    const last = told.points.at(-1);
    const args = { rounds: last.rounds, tv: this.#tv(last.distance), chance: this.#tv(last.by_chance), p: last.p_value < FLOOR ? this.#p(last.p_value) : `= ${this.#p(last.p_value)}`, law: this.#tv(told.distance) };
    const key = last.p_value >= ALARM ? (this.#repaired ? 'holds' : 'unclear') : this.#repaired ? 'unlucky' : 'broken';
    return t(`break.verdict.${key}`, args);
  }

  #tv(value) {
    return this.#host.words.number(value, 3);
  }

  #p(value) {
    return pText(value, this.#host.words);
  }

  #drawBars() {
    const told = this.#told[this.#way];
    const other = this.#told.wrong ?? this.#told.right;
    const target = (told ?? other)?.target;
    if (!target) {
      this.#bars.replaceChildren();
      return;
    }
    const { words } = this.#host;
    this.#bars.replaceChildren(...lawBars({ title: words.t('break.bars'), target, last: told?.points.at(-1), law: told?.law }, words));
    this.#bars.classList.toggle('sv-break-bars--right', this.#repaired);
  }

  #drawCharts() {
    const { words } = this.#host;
    const { t } = words;
    const lines = ['wrong', 'right'].filter((way) => this.#told[way]).map((way) => ({ way, points: this.#told[way].points }));
    if (!lines.length) {
      this.#charts.replaceChildren();
      return;
    }
    const longest = Math.max(...lines.map(({ points }) => points.at(-1).rounds));
    const farthest = Math.max(...lines.flatMap(({ points }) => points.map((point) => point.distance)), 0.05);
    const chance = (lines.find(({ points }) => points.at(-1).rounds === longest) ?? lines[0]).points;
    const key = [...lines.map(({ way }) => way), 'chance'].map((way) =>
      h('li', {}, h('span', { class: `sv-break-swatch sv-break-swatch--${way}`, 'aria-hidden': 'true' }), t(`break.line.${way}`)),
    );
    const depth = -Math.log10(FLOOR);
    this.#charts.replaceChildren(
      h('ul', { class: 'sv-break-key' }, ...key),
      figure(
        t('break.chart.tv'),
        lineChart({
          lines: [
            { name: 'chance', points: chance.map((point) => [point.rounds, point.by_chance]) },
            ...lines.map(({ way, points }) => ({ name: way, points: points.map((point) => [point.rounds, point.distance]) })),
          ],
          across: longest,
          up: farthest * 1.1,
          ticks: [0, farthest / 2, farthest].map((value) => [value, words.number(value, 2)]),
          words,
        }),
      ),
      figure(
        t('break.chart.p'),
        lineChart({
          lines: lines.map(({ way, points }) => ({
            name: way,
            points: points.map((point) => [point.rounds, depth + Math.log10(Math.max(point.p_value, FLOOR))]),
          })),
          across: longest,
          up: depth,
          ticks: [
            [depth, '1'],
            [depth + Math.log10(ALARM), '10⁻³'],
            [depth - 6, '10⁻⁶'],
            [0, '10⁻¹²'],
          ],
          bar: depth + Math.log10(ALARM),
          words,
        }),
      ),
    );
  }

  #drawTable() {
    const { words } = this.#host;
    const { t } = words;
    const ways = ['wrong', 'right'].filter((way) => this.#told[way]);
    this.#table.parentElement.hidden = !ways.length;
    this.#table.setAttribute('aria-label', t('break.table'));
    const rows = ways.flatMap((way) =>
      this.#told[way].points
        .filter((point, index, all) => point.rounds % (2 * PART) === 0 || index === all.length - 1)
        .map((point) =>
          h(
            'tr',
            {},
            h('th', { scope: 'row' }, t(`break.line.${way}`)),
            ...[String(point.rounds), this.#tv(point.distance), this.#tv(point.by_chance), this.#p(point.p_value)].map((cell) =>
              h('td', { class: 'sv-amount' }, cell),
            ),
          ),
        ),
    );
    const head = ['way', 'rounds', 'tv', 'chance', 'p'].map((column) => h('th', { scope: 'col' }, t(`break.column.${column}`)));
    this.#table.replaceChildren(
      h('table', { class: 'sv-table' }, h('thead', {}, h('tr', {}, ...head)), h('tbody', {}, ...rows)),
    );
  }
}
