/** Saved runs: a real server answered the same questions under each way to draft. Needs no server and no network. */

import { h } from '../dom.js';
import { RUNS } from './settings.js';
import { Sides } from './sides.js';

export class SavedRoom {
  #root;
  #host;
  #ctx;
  #sides;
  #box = h('div', { class: 'sv-x-main' });

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#sides = this.#makeSides();
    this.build();
  }

  build() {
    const { t } = this.#ctx;
    const runs = h('fieldset', { class: 'sv-x-field sv-serve-runs' }, h('legend', { class: 'sv-field-name' }, t('serve.saved.choose')));
    runs.append(h('div', { class: 'sv-x-ticks' }, ...this.#known.map((name) => this.#tick(name))));
    this.#root.replaceChildren(h('p', { class: 'sv-lead' }, t('serve.saved.lead')), runs, this.#box);
    this.#sides.build();
  }

  #makeSides() {
    const { state } = this.#host;
    const place = {
      get at() {
        return state.get('serve_at');
      },
      get question() {
        return state.get('serve_question');
      },
      set: ({ at, question }) => state.set({ ...(at === undefined ? {} : { serve_at: at }), ...(question === undefined ? {} : { serve_question: question }) }),
    };
    return new Sides(this.#box, this.#host, this.#ctx, {
      source: () => (this.#chosen.length ? { runs: this.#chosen } : null),
      place,
      origin: 'recorded',
      name: 'saved',
      empty: 'serve.saved.none',
      seen: () => state.get('page') === 'serve' && state.get('serve_room') === 'saved',
    });
  }

  get #known() {
    return RUNS.filter((name) => this.#host.boot.served.runs.includes(name));
  }

  get #chosen() {
    return this.#known.filter((name) => this.#host.state.get('serve_runs').includes(name));
  }

  #tick(name) {
    const { state } = this.#host;
    const input = h('input', { type: 'checkbox', value: name, checked: this.#chosen.includes(name) });
    input.addEventListener('change', () => {
      state.set({ serve_runs: this.#known.filter((each) => (each === name ? input.checked : this.#chosen.includes(each))) });
    });
    return h('label', { class: 'sv-x-tick' }, input, h('span', {}, this.#ctx.t(`lesson.runs.name.${name}`)));
  }

  draw(changed) {
    if (changed.some((name) => ['serve_runs', 'serve_at', 'serve_question'].includes(name))) this.#sides.ask();
    else this.#sides.draw();
  }

  arrive() {
    this.#sides.arrive();
  }

  leave() {
    this.#sides.leave();
  }
}
