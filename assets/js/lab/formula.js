/** The formula room: five sliders, one sentence, one chart; then the run one comes from, and questions that open. */

import { mountCharts } from '../charts.js';
import { h, say } from '../dom.js';
import { makeKnob } from '../knob.js';
import { mountNumbers } from '../numbers.js';
import { bestGamma, breakEven, expectedTokens, MOST_GAMMA, operationsRatio, roundCost, wrongExpectedTokens } from '../theory.js';
import { makeAsks } from './asks.js';
import { heatChart, lengthsChart, paints, speedupChart, wrongChart } from './figures.js';
import { mountHere } from './here.js';
import { mountMachine } from './machine.js';
import { KNOBS, MOST_DRAFTS } from './settings.js';

const ASKS = ['best', 'lengths', 'wrong', 'machine'];
const CHARTS = { best: heatChart, lengths: lengthsChart, wrong: wrongChart };
const EVEN = 0.05; // as in spec_viz/ui/lanes.py
const SAME = 0.02; // as in spec_viz/ui/lab.py
/** Where the wrong formula was met, and what it claimed there (algorithms §0, claim 1). */
const CLAIM = Object.freeze({ alpha: 0.8, gamma: 4, said: 2.5, near: 0.99 });

export class FormulaRoom {
  #root;
  #host;
  #ctx;
  #run = null; // what the server says of the last run; {none} where the formula says nothing of it
  #ndjson = null; // the run that was asked about
  #asked = 0;
  #fill = false; // the sliders wait for the run
  #measured = null; // a specviz.result/1 of this machine
  #passes = false; // its v(n) stands in for the straight line
  #opened = new Set();
  #charts = new Map();
  #frame = null;

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.build();
    this.arrive();
  }

  #knobs;
  #filled;
  #verdict;
  #numbers;
  #here;
  #machine = null;
  #tryIt;
  #useBest;
  #line;

  build() {
    const { words } = this.#host;
    const { t, number } = this.#ctx;
    for (const charts of this.#charts.values()) charts.show([]);
    this.#charts.clear();
    this.#machine?.stop();
    this.#machine = null;
    this.#knobs = KNOBS.map(({ name, sign, min, max, step, digits }) =>
      makeKnob({
        name,
        sign,
        min,
        max,
        step,
        label: t(`lab.knob.${name}`),
        show: (value) => number(value, digits, name === 'gamma' || name === 'alpha'),
        write: (value) => this.#host.state.set({ [`lab_${name}`]: value }),
      }),
    );
    this.#verdict = h('p', { class: 'sv-lab-verdict', role: 'status' });
    this.#filled = h('span');
    this.#tryIt = h('button', { class: 'sv-run', type: 'button', onClick: () => this.#toLive() });
    this.#useBest = h('button', { class: 'sv-break-button', type: 'button', onClick: () => this.#set({ gamma: this.#model.best.gamma }) });
    this.#line = h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => this.#turn() });
    const main = h('div', { class: 'sv-lab-plot' });
    const numbers = h('div', { class: 'sv-lab-numbers' });
    const here = h('section', { class: 'sv-section' });
    this.#root.replaceChildren(
      h('p', { class: 'sv-lead' }, t('lab.formula.lead')),
      h(
        'div',
        { class: 'sv-lab-desk' },
        h(
          'div',
          { class: 'sv-lab-side' },
          formula(t),
          h('div', { class: 'sv-lab-knobs' }, ...this.#knobs.map((knob) => knob.element)),
          this.#line,
          h('p', { class: 'sv-help' }, t('lab.units')),
        ),
        h(
          'div',
          { class: 'sv-lab-main' },
          h('div', { class: 'sv-lab-answer' }, this.#verdict, h('p', { class: 'sv-lab-filled' }, this.#filled, ' ', this.#ctx.badge('computed'))),
          h('div', { class: 'sv-lab-actions' }, this.#tryIt, this.#useBest),
          main,
        ),
      ),
      numbers,
      here,
      h(
        'section',
        { class: 'sv-section' },
        h('h2', { class: 'sv-h2' }, t('question.title')),
        makeAsks(ASKS, {
          words,
          opened: this.#opened,
          make: (name, body) => this.#make(name, body),
          drawn: () => this.draw(),
        }),
      ),
    );
    this.#charts.set('main', mountCharts(main, { boot: this.#host.boot, words, heading: 'lab.ask.best' }));
    this.#numbers = mountNumbers(numbers, { words });
    this.#here = mountHere(here, this.#ctx, words, { fill: () => this.#take() });
    this.#here.show(this.#run);
    // The server says numbers in the page's language.
    if (this.#ndjson) this.#ask(this.#ndjson);
    this.draw();
  }

  /** A question's figures, when it is first opened. */
  #make(name, body) {
    const { t, number } = this.#ctx;
    if (name === 'machine') {
      this.#machine = mountMachine(body, this.#host, this.#ctx, {
        measured: this.#measured,
        changed: (result) => this.#measure(result),
      });
      return;
    }
    if (name === 'wrong') {
      const { alpha, gamma, said, near } = CLAIM;
      const args = {
        own: number(wrongExpectedTokens(alpha, gamma), 3),
        said: number(said, 1),
        one: number(wrongExpectedTokens(alpha, 1), 2),
        eight: number(wrongExpectedTokens(alpha, 2 * gamma), 2),
        over: number(wrongExpectedTokens(near, gamma), 1),
        right: number(expectedTokens(alpha, gamma), 2),
        near: number(near, 2),
      };
      const reasons = ['sum', 'falls', 'ceiling', 'cost'].map((reason) => h('li', {}, t(`lab.wrong.${reason}`, args)));
      body.append(h('ol', { class: 'sv-lab-reasons' }, ...reasons));
    }
    this.#charts.set(name, mountCharts(body, { boot: this.#host.boot, words: this.#host.words, heading: `lab.ask.${name}` }));
  }

  arrive() {
    const { finished, boot } = this.#host;
    // Before the Live page was seen, the run that it would show first stands for it.
    const ndjson = finished ? finished() : (boot.first?.ndjson ?? '');
    if (ndjson !== this.#ndjson) this.#ask(ndjson);
  }

  leave() {
    this.#machine?.stop();
  }

  take(text) {
    this.#machine?.take(text);
  }

  /** Put the sliders on the run that stands on the Live page's board, as soon as its numbers are known. */
  stand() {
    this.#fill = true;
    this.arrive();
    if (this.#run) this.#take();
  }

  async #ask(ndjson) {
    const { server, words } = this.#host;
    this.#ndjson = ndjson;
    this.#asked += 1;
    const mine = this.#asked;
    this.#run = null;
    if (ndjson) {
      try {
        const answer = await server.place([ndjson, words.lang]);
        if (mine !== this.#asked) return;
        this.#run = answer ?? { none: { key: 'lab.here.failed', args: {} } };
      } catch (error) {
        console.error(error);
        if (mine !== this.#asked) return;
        this.#run = { none: { key: 'lab.here.failed', args: {} } };
        this.#ndjson = null; // who comes again asks again
      }
    } else this.#run = { none: { key: 'lab.here.none.empty', args: {} } };
    this.#here.show(this.#run);
    if (this.#fill) this.#take();
    this.draw();
  }

  /** The sliders take the run's values; what they cannot reach stays at their end. */
  #take() {
    this.#fill = false;
    if (!this.#run?.knobs) return;
    this.#passes = false;
    this.#set(this.#run.knobs);
  }

  #set(values) {
    const patch = KNOBS.filter(({ name }) => name in values).map(({ name, min, max, step }) => {
      const exact = step === 1 ? values[name] : Number(values[name].toFixed(4));
      return [`lab_${name}`, Math.min(Math.max(exact, min), max)];
    });
    this.#host.state.set(Object.fromEntries(patch));
    this.draw();
  }

  #measure(result) {
    this.#measured = result;
    this.#passes = result !== null;
    this.draw();
  }

  #turn() {
    this.#passes = !this.#passes;
    this.draw();
  }

  #toLive() {
    const { state, boot } = this.#host;
    state.set({ page: 'live', gamma: Math.min(state.get('lab_gamma'), boot.limits.gamma_max), race: true });
    scrollTo(0, 0);
  }

  // ------------------------------------------------------------ what is seen

  /** The sliders' values, the pass v(n), and what follows from them. */
  get #model() {
    const { state } = this.#host;
    const values = Object.fromEntries(KNOBS.map(({ name }) => [name, state.get(`lab_${name}`)]));
    const passes = this.#passes ? this.#measured?.v : null;
    const v = passes ? (n) => passes[n - 1].ratio : (n) => 1 + values.slope * (n - 1);
    const most = passes ? MOST_DRAFTS : MOST_GAMMA;
    const run = this.#run?.knobs ? { ...this.#run, measured: this.#run.steps.at(-1).speedup } : null;
    const best = bestGamma(values.alpha, values.c, { v, overhead: values.overhead, most });
    return { ...values, v, most, run, best, passes: passes !== null };
  }

  draw() {
    const model = this.#model;
    const { t } = this.#ctx;
    const { state } = this.#host;
    KNOBS.forEach(({ name }, index) => this.#knobs[index].draw(state.get(`lab_${name}`)));
    const slope = this.#knobs[KNOBS.findIndex(({ name }) => name === 'slope')].element;
    slope.classList.toggle('sv-lab-off', model.passes);
    slope.querySelector('input').disabled = model.passes;
    this.#line.hidden = this.#measured === null;
    say(this.#line, t(model.passes ? 'lab.pass.line' : 'lab.pass.measured'));
    this.#drawSentences(model);
    // A slider that is dragged moves faster than charts are drawn.
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#drawCharts(model));
  }

  #drawSentences({ alpha, gamma, c, v, overhead, best, most }) {
    const { t, number } = this.#ctx;
    const show = (value) => number(value, 2);
    const pass = v(gamma + 1);
    const tokens = expectedTokens(alpha, gamma);
    const cost = roundCost(gamma, c, pass, overhead);
    const value = tokens / cost;
    const key = Math.abs(value - 1) < EVEN ? 'even' : value > 1 ? 'faster' : 'slower';
    const parts = { draft: gamma * c, pass: pass - 1, rest: overhead };
    const dearest = Object.keys(parts).reduce((a, b) => (parts[b] > parts[a] ? b : a));
    const even = breakEven(gamma, c, pass, overhead);
    // Where every further draft pays, the last γ that was tried is no best one.
    const longer = best.gamma === most && best.gamma > gamma && best.speedup >= value * (1 + SAME);
    const better = longer ? 'longer' : best.gamma === 0 ? 'never' : best.gamma === gamma || best.speedup < value * (1 + SAME) ? 'here' : 'other';
    say(
      this.#verdict,
      [
        t(`lab.verdict.${key}`, { speedup: show(value) }),
        key === 'slower' ? t(`lab.verdict.dearest.${alpha < 0.3 && parts[dearest] < 0.3 ? 'refused' : dearest}`) : '',
        t(`lab.verdict.${better}`, { gamma: best.gamma, speedup: show(best.speedup) }),
        better === 'never' && even !== null ? t('lab.verdict.needs', { alpha: show(even) }) : '',
      ]
        .filter(Boolean)
        .join(' '),
    );
    const shown = { tokens, draft: gamma * c, pass, rest: overhead, cost, speedup: value };
    const filled = Object.fromEntries(Object.entries(shown).map(([name, amount]) => [name, show(amount)]));
    say(this.#filled, t('lab.filled', filled));
    say(this.#tryIt, t('lab.try', { gamma: Math.min(gamma, this.#host.boot.limits.gamma_max) }));
    const reachable = Math.min(best.gamma, MOST_DRAFTS);
    say(this.#useBest, t('lab.use_best', { gamma: reachable }));
    this.#useBest.hidden = !['other', 'longer'].includes(better) || best.gamma > MOST_DRAFTS;
    const row = (name, amount, digits, fraction = null) => ({ key: `lab_${name}`, value: amount, digits, fraction, badge: 'computed' });
    this.#numbers.show([
      row('tokens', tokens, 2, t('lab.of', { most: gamma + 1 })),
      row('best_gamma', best.gamma, 0, best.gamma === most ? t('lab.or_more') : `${show(best.speedup)}×`),
      row('break_even', even === null ? t('lab.none') : even, 2, `γ = ${gamma}`),
      row('operations', operationsRatio(alpha, gamma, c), 2, t('lab.arithmetic')),
    ]);
  }

  #drawCharts(model) {
    const paint = paints();
    this.#charts.get('main').show([speedupChart(model, paint, this.#ctx)]);
    for (const [name, draw] of Object.entries(CHARTS)) {
      if (this.#opened.has(name)) this.#charts.get(name)?.show([draw(model, paint, this.#ctx)]);
    }
  }
}

/** S = (1 + α + … + α^γ) / (γc + v(γ+1) + o), as one reads it. */
function formula(t) {
  const above = h('span', { class: 'sv-l-above' }, '1 + α + … + α', h('sup', {}, 'γ'));
  const below = h('span', {}, 'γ·c + v(γ+1) + o');
  return h(
    'p',
    { class: 'sv-lab-formula', role: 'img', 'aria-label': t('lab.formula.spoken') },
    'S = ',
    h('span', { class: 'sv-l-fraction' }, above, below),
  );
}
