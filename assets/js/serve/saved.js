/**
 * Saved runs: a real server answered the same questions under each way to draft; or what a visitor's file holds of theirs.
 * Needs no server and no network.
 */

import { h, say } from '../dom.js';
import { MOST_BYTES, RUNS } from './settings.js';
import { Sides } from './sides.js';

export class SavedRoom {
  #root;
  #host;
  #ctx;
  #sides;
  #box = h('div', { class: 'sv-x-main' });
  #parts = {};
  #opened = null; // {name, record, at, question}: a file of the visitor's, which no address holds

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#sides = this.#makeSides();
    this.build();
  }

  build() {
    const { t } = this.#ctx;
    const button = (key, onClick) => h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick }, t(key));
    const picker = h('input', { type: 'file', accept: '.json,application/json', hidden: true, 'aria-label': t('serve.saved.open') });
    picker.addEventListener('change', () => {
      const [file] = picker.files;
      picker.value = '';
      if (file) this.#open(file);
    });
    const runs = h('fieldset', { class: 'sv-x-field sv-serve-runs' }, h('legend', { class: 'sv-field-name' }, t('serve.saved.choose')));
    runs.append(h('div', { class: 'sv-x-ticks' }, ...this.#known.map((name) => this.#tick(name))));
    const parts = {
      runs,
      opened: h('p', { class: 'sv-serve-opened', role: 'status' }),
      open: button('serve.saved.open', () => picker.click()),
      away: button('serve.saved.away', () => this.#away()),
      alert: h('p', { class: 'sv-alert', role: 'alert' }),
    };
    this.#parts = parts;
    const files = h('div', { class: 'sv-serve-files' }, parts.opened, parts.away, parts.open, picker);
    this.#root.replaceChildren(h('p', { class: 'sv-lead' }, t('serve.saved.lead')), h('div', { class: 'sv-serve-source' }, runs, files), parts.alert, this.#box);
    this.#drawSource();
    this.#sides.build();
  }

  // ------------------------------------------------------------ a file

  /** What is no comparison is said, and what stood here stays. */
  async #open(file) {
    const { server } = this.#host;
    const { t } = this.#ctx;
    say(this.#parts.alert, '');
    if (file.size > MOST_BYTES) {
      say(this.#parts.alert, t('experiments.import.big', { most: MOST_BYTES / 1e6 }));
      return;
    }
    try {
      const record = await file.text();
      const answer = await server.served({ record, as: 'check' });
      if (answer.error) {
        say(this.#parts.alert, t(answer.error.key, answer.error.args));
        return;
      }
      this.#opened = { name: file.name, record, at: 1, question: null };
    } catch (error) {
      console.info('file not opened:', error.name);
      say(this.#parts.alert, t('serve.failed'));
      return;
    }
    this.#drawSource();
    this.#sides.ask();
  }

  #away() {
    this.#opened = null;
    this.#drawSource();
    this.#parts.open.focus();
    this.#sides.ask();
  }

  #drawSource() {
    const { runs, opened, away } = this.#parts;
    runs.hidden = this.#opened !== null;
    say(opened, this.#opened ? this.#ctx.t('serve.saved.opened', { name: this.#opened.name }) : '');
    away.hidden = this.#opened === null;
  }

  // ------------------------------------------------------------ servers side by side

  #makeSides() {
    const { state } = this.#host;
    const opened = () => this.#opened;
    const place = {
      get at() {
        return opened() ? opened().at : state.get('serve_at');
      },
      get question() {
        return opened() ? opened().question : state.get('serve_question');
      },
      set: (patch) => {
        if (opened()) {
          Object.assign(opened(), patch);
          this.#sides.ask();
          return;
        }
        const { at, question } = patch;
        state.set({ ...(at === undefined ? {} : { serve_at: at }), ...(question === undefined ? {} : { serve_question: question }) });
      },
    };
    return new Sides(this.#box, this.#host, this.#ctx, {
      source: () => (this.#opened ? { record: this.#opened.record } : this.#chosen.length ? { runs: this.#chosen } : null),
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
