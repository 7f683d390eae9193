/**
 * The losslessness test as it runs: a real drafter and a real rule on a tiny target whose law is known exactly
 * (spec_viz/lab/law_watch.py), counted part by part. Nothing runs until it is asked for.
 */

import { h, newId, say } from '../dom.js';
import { ALARM, FLOOR, figure, lawBars, lineChart, pText } from '../lawchart.js';
import { ruleTitle } from '../rule.js';

const PART = 100; // runs asked for at a time
const MOST = 3000;

/** `earlier`: the same test before the language changed; what it has counted stays. */
export function mountWatch(root, host, ctx, earlier = null) {
  return new Watch(root, host, ctx, earlier);
}

class Watch {
  #root;
  #host;
  #ctx;
  #choices = null; // {methods: rules by drafter, temperatures}
  #counted = { points: [], law: null, lossless: true, about: '', series: 0 }; // points: after each part, a checkpoint a place
  #running = false;
  #failed = false;
  #asked = 0;

  constructor(root, host, ctx, earlier) {
    this.#root = root;
    if (earlier) this.#counted = earlier.counted;
    this.#host = host;
    this.#ctx = ctx;
    root.append(h('p', { class: 'sv-none' }, ctx.t('lab.watch.asking')));
    this.#load();
  }

  async #load() {
    try {
      this.#choices = (await this.#host.server.law({})) ?? null;
    } catch (error) {
      console.error(error);
    }
    this.#build();
    this.draw();
  }

  #selects;
  #run;
  #again;
  #help;
  #status;
  #bars;
  #chart;
  #rest;

  #build() {
    const { t } = this.#ctx;
    this.#root.querySelector('.sv-none')?.remove();
    if (!this.#choices) {
      this.#root.append(h('p', { class: 'sv-alert' }, t('lab.law.failed')));
      return;
    }
    const { state } = this.#host;
    const make = (name, change) => h('select', { class: 'sv-select', id: newId(name), onChange: () => change(this.#selects[name].value) });
    this.#selects = {
      drafter: make('drafter', (drafter) => state.set({ lab_drafter: drafter, lab_rule: '' })),
      rule: make('rule', (rule) => state.set({ lab_rule: rule })),
      temperature: make('temperature', (value) => state.set({ lab_temperature: Number(value) })),
    };
    const field = (name) => h('label', { class: 'sv-lab-choose' }, h('span', {}, t(`lab.watch.${name}`)), this.#selects[name]);
    this.#run = h('button', { class: 'sv-run', type: 'button', onClick: () => (this.#running ? this.pause() : this.#go()) });
    this.#again = h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => this.#restart() });
    this.#help = h('p', { class: 'sv-help' });
    this.#status = h('p', { class: 'sv-break-said', role: 'status' });
    this.#bars = h('div', { class: 'sv-break-bars' });
    this.#chart = h('div', { class: 'sv-break-charts' });
    this.#rest = h('p', { class: 'sv-lab-why' });
    this.#root.append(
      h('div', { class: 'sv-lab-fields' }, ...['drafter', 'rule', 'temperature'].map(field)),
      this.#help,
      h('div', { class: 'sv-break-actions' }, this.#run, this.#again),
      this.#status,
      h('div', { class: 'sv-break-figure' }, this.#bars, this.#chart),
      this.#rest,
      h('p', { class: 'sv-break-note' }, this.#ctx.badge('measured'), ' ', t('lab.watch.note')),
    );
  }

  /** What is tested: the address's choices where they exist here, else the first ones. */
  get #test() {
    const { state } = this.#host;
    const { methods, temperatures } = this.#choices;
    const drafter = state.get('lab_drafter') in methods ? state.get('lab_drafter') : Object.keys(methods)[0];
    const rule = methods[drafter].includes(state.get('lab_rule')) ? state.get('lab_rule') : methods[drafter][0];
    const temperature = temperatures.includes(state.get('lab_temperature')) ? state.get('lab_temperature') : 1;
    return { drafter, rule, temperature };
  }

  get counted() {
    return this.#counted;
  }

  get #runs() {
    return this.#counted.points.at(-1)?.[0].rounds ?? 0;
  }

  pause() {
    this.#running = false;
    if (this.#run) this.draw();
  }

  #restart() {
    this.#running = false;
    this.#asked += 1;
    this.#counted.series += 1;
    this.#counted.points = [];
    this.#failed = false;
    this.draw();
  }

  async #go() {
    if (this.#runs >= MOST) return;
    this.#asked += 1;
    const mine = this.#asked;
    this.#running = true;
    this.#failed = false;
    this.draw();
    while (this.#running && mine === this.#asked && this.#runs < MOST) {
      const answer = await this.#ask();
      if (mine !== this.#asked) return;
      if (answer) {
        this.#counted.points.push(answer.places);
        this.#counted.law = answer.law;
        this.#counted.lossless = answer.lossless;
      } else this.#failed = true;
      if (this.#failed || this.#runs >= MOST) this.#running = false;
      this.draw();
    }
  }

  async #ask() {
    const seed = this.#counted.series * MOST + this.#runs;
    const before = this.#counted.points.at(-1)?.map((place) => place.counts) ?? [];
    try {
      const answer = await this.#host.server.law({ ...this.#test, runs: PART, seed, before });
      return answer?.places ? answer : null;
    } catch (error) {
      console.error(error);
      return null;
    }
  }

  // ------------------------------------------------------------ what is seen

  draw() {
    if (!this.#run) return;
    const { t, number } = this.#ctx;
    const test = this.#test;
    const about = JSON.stringify(test);
    if (about !== this.#counted.about) {
      this.#counted.about = about;
      if (this.#counted.points.length || this.#running) {
        this.#restart();
        return;
      }
    }
    const { methods, temperatures } = this.#choices;
    options(this.#selects.drafter, Object.keys(methods), (name) => t(`drafter.${name}`), test.drafter);
    options(this.#selects.rule, methods[test.drafter], (name) => ruleTitle(name, t) ?? name, test.rule);
    options(this.#selects.temperature, temperatures, (value) => number(value, 1), test.temperature);
    say(this.#help, t(`rule.${test.rule}.help`));
    say(this.#run, t(this.#running ? 'break.pause' : this.#runs ? 'break.more' : 'lab.watch.run'));
    this.#run.setAttribute('aria-disabled', String(this.#runs >= MOST));
    this.#run.classList.toggle('sv-run--stop', this.#running);
    say(this.#again, t('break.again'));
    this.#again.hidden = !this.#counted.points.length;
    say(this.#status, this.#said());
    this.#drawFigures();
  }

  #said() {
    const { t } = this.#ctx;
    if (this.#failed) return t('lab.law.failed');
    if (!this.#counted.points.length) return t(this.#running ? 'break.running' : 'lab.watch.start');
    if (this.#running) return t('break.running');
    // Three places are looked at, so each must be three times as unlikely before it counts (Bonferroni).
    const last = this.#counted.points.at(-1);
    const worst = last.reduce((a, b) => (b.p_value < a.p_value ? b : a));
    const broken = worst.p_value < ALARM / last.length;
    const key = broken ? (this.#counted.lossless ? 'unlucky' : 'lossy') : this.#counted.lossless ? 'holds' : 'unclear';
    return t(`lab.watch.${key}`, { runs: this.#runs, ...this.#words(worst) });
  }

  /** A checkpoint as sentences say it. */
  #words({ distance, by_chance: chance, p_value: value }) {
    const { number } = this.#ctx;
    const p = pText(value, this.#host.words);
    return { tv: number(distance, 3), chance: number(chance, 3), p: value < FLOOR ? p : `= ${p}` };
  }

  #drawFigures() {
    const { t, number } = this.#ctx;
    const { words } = this.#host;
    const last = this.#counted.points.at(-1);
    if (!last) {
      for (const box of [this.#bars, this.#chart, this.#rest]) box.replaceChildren();
      return;
    }
    this.#bars.replaceChildren(...lawBars({ title: t('lab.watch.bars'), target: this.#counted.law[0], last: last[0] }, words));
    this.#bars.classList.toggle('sv-break-bars--right', this.#counted.lossless);
    const points = this.#counted.points.map(([first]) => first);
    const up = Math.max(...points.map((point) => Math.max(point.distance, point.by_chance)), 0.05);
    const way = this.#counted.lossless ? 'right' : 'wrong';
    const swatch = (name) => h('span', { class: `sv-break-swatch sv-break-swatch--${name}`, 'aria-hidden': 'true' });
    const key = [h('li', {}, swatch(way), t('lab.watch.counted')), h('li', {}, swatch('chance'), t('lab.watch.chance'))];
    const chart = lineChart({
      lines: [
        { name: 'chance', points: points.map((point) => [point.rounds, point.by_chance]) },
        { name: way, points: points.map((point) => [point.rounds, point.distance]) },
      ],
      across: Math.max(points.at(-1).rounds, 2 * PART),
      up: up * 1.1,
      ticks: [0, up / 2, up].map((value) => [value, number(value, 2)]),
      words,
    });
    this.#chart.replaceChildren(h('ul', { class: 'sv-break-key' }, ...key), figure(t('lab.watch.tv'), chart));
    const place = (checkpoint, index) => t('lab.watch.place', { place: index + 2, ...this.#words(checkpoint) });
    say(this.#rest, last.map(place).join(' '));
  }
}

/** Options made anew only when there are others; their words follow the language. */
function options(select, values, name, chosen) {
  const wanted = values.map(String);
  if ([...select.options].map((option) => option.value).join() !== wanted.join())
    select.replaceChildren(...wanted.map((value) => h('option', { value })));
  values.forEach((value, index) => say(select.options[index], name(value)));
  select.value = String(chosen);
}
