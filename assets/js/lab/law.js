/** The law room: two laws in hand, the losslessness test as it runs, faults to plant, a round again a thousand times. */

import { FAULTS, linkToBreak } from '../break.js';
import { h } from '../dom.js';
import { mountDrag } from '../lesson/drag.js';
import { mountReroll } from '../lesson/reroll.js';
import { Bundle } from '../trace.js';
import { makeAsks } from './asks.js';
import { mountWatch } from './watch.js';

const ASKS = ['watch', 'break', 'reroll'];
/** Two laws that disagree, for each number of tokens; what they are normalised to is drag.js's affair. */
const LAWS = Object.freeze({
  3: { p: [0.5, 0.3, 0.2], q: [0.2, 0.5, 0.3] },
  4: { p: [0.4, 0.3, 0.2, 0.1], q: [0.1, 0.4, 0.2, 0.3] },
  5: { p: [0.35, 0.25, 0.2, 0.15, 0.05], q: [0.1, 0.35, 0.15, 0.1, 0.3] },
});
const ROLLS = 1000;

export class LawRoom {
  #root;
  #host;
  #ctx;
  #size = 3;
  #kept = new Map(); // what the hand has done to the bars, for each number of tokens
  #opened = new Set(['watch']);
  #rolled = {};
  #ndjson = null;
  #watch = null;
  #reroll = null;
  #faults;

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#faults = FAULTS.map((fault) => linkToBreak(host, fault));
    this.build();
  }

  build() {
    const { t } = this.#ctx;
    this.#watch?.pause();
    this.#reroll = null;
    const drag = h('div');
    this.#root.replaceChildren(
      h('p', { class: 'sv-lead' }, t('lab.law.lead')),
      h('section', { class: 'sv-section' }, h('h2', { class: 'sv-h2' }, t('lab.drag')), drag),
      h(
        'section',
        { class: 'sv-section' },
        h('h2', { class: 'sv-h2' }, t('question.title')),
        makeAsks(ASKS, { words: this.#host.words, opened: this.#opened, make: (name, body) => this.#make(name, body) }),
      ),
    );
    this.#drag(drag);
  }

  draw() {
    this.#watch?.draw();
  }

  arrive() {
    if (this.#reroll) this.#roll();
  }

  leave() {
    this.#watch?.pause();
  }

  #make(name, body) {
    const { t } = this.#ctx;
    if (name === 'watch') this.#watch = mountWatch(body, this.#host, this.#ctx, this.#watch);
    if (name === 'break') {
      const cards = this.#faults.map((link, index) => h('li', {}, link, h('span', {}, t(`break.fault.${FAULTS[index]}.is`))));
      body.append(h('ul', { class: 'sv-lab-faults' }, ...cards));
    }
    if (name === 'reroll') {
      this.#reroll = h('div');
      body.append(this.#reroll);
      this.#roll();
    }
  }

  // ------------------------------------------------------------ p and q in hand

  #drag(box) {
    const { t } = this.#ctx;
    const sizes = Object.keys(LAWS).map((size) =>
      h(
        'button',
        {
          type: 'button',
          'aria-pressed': String(Number(size) === this.#size),
          onClick: () => {
            this.#size = Number(size);
            this.#drag(box);
            box.querySelector('[aria-pressed="true"]').focus();
          },
        },
        size,
      ),
    );
    const figure = h('div', { class: 'sv-l-figure sv-l-figure--drag' });
    box.replaceChildren(
      h(
        'div',
        { class: 'sv-lab-sizes' },
        h('span', {}, t('lab.drag.tokens')),
        h('div', { class: 'sv-choice', role: 'group', 'aria-label': t('lab.drag.tokens') }, ...sizes),
        this.#ctx.badge('computed'),
      ),
      figure,
    );
    if (!this.#kept.has(this.#size)) this.#kept.set(this.#size, {});
    const labels = [...'ABCDE'].slice(0, this.#size);
    mountDrag(figure, { figure: { labels, ...LAWS[this.#size] }, ctx: this.#ctx, keep: this.#kept.get(this.#size) });
  }

  // ------------------------------------------------------------ a round of the last run again

  #roll() {
    const { t, number } = this.#ctx;
    const { boot, finished } = this.#host;
    const ndjson = finished ? finished() : (boot.first?.ndjson ?? '');
    if (ndjson === this.#ndjson && this.#reroll.childElementCount) return;
    this.#ndjson = ndjson;
    const trace = ndjson ? Bundle.of(ndjson).traces.find((each) => each.meta.drafter !== 'none') : null;
    const rounds = (trace?.rounds ?? []).filter(canRoll);
    if (!rounds.length) {
      this.#reroll.replaceChildren(h('p', { class: 'sv-none' }, t(trace ? 'lab.reroll.none' : 'lab.here.none.empty')));
      return;
    }
    // One whose first draft is most in doubt shows most.
    const doubt = (round) => Math.abs(round.nodes[round.judged[0]].accept - 0.5);
    const first = rounds.reduce((a, b) => (doubt(b) < doubt(a) ? b : a));
    const figure = h('div', { class: 'sv-l-figure sv-l-figure--reroll' });
    const select = h(
      'select',
      { class: 'sv-select sv-lab-select', onChange: () => mount(Number(select.value)) },
      ...rounds.map((round) =>
        h('option', { value: round.round }, t('lab.reroll.option', { round: round.round, chance: number(round.nodes[round.judged[0]].accept, 2) })),
      ),
    );
    const mount = (round) => {
      figure.replaceChildren();
      mountReroll(figure, { figure: { round, n: ROLLS }, ctx: this.#ctx, texts: [ndjson], keep: this.#rolled });
    };
    select.value = String(first.round);
    this.#reroll.replaceChildren(h('label', { class: 'sv-lab-choose' }, h('span', {}, t('lab.reroll.round')), select), figure);
    mount(first.round);
  }
}

/** A chain whose judged drafts have their laws: rolled again, it can go otherwise. */
function canRoll(round) {
  const chain = round.judged ?? [];
  const known = ({ accept, p_top: law }) => typeof accept === 'number' && Boolean(law);
  const open = ({ accept }) => accept > 0 && accept < 1;
  return chain.every((index, place) => index === place && known(round.nodes[index])) && chain.some((index) => open(round.nodes[index]));
}
