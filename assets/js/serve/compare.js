/** Compare: two to four running servers, the same questions in turns, under several loads; drawn while it goes on. */

import { h, newId, say } from '../dom.js';
import { makeAddress, refusal } from './address.js';
import { MOST_NAME, MOST_QUESTIONS, MOST_SERVERS, PRACTICE, TOKENS, WIDTHS } from './settings.js';
import { Sides } from './sides.js';
import { Wire } from './wire.js';

const COUNTS = Object.freeze([3, 5, 10, 20]);
const SECOND = PRACTICE.replace(/\d+$/, '8001');

export class CompareRoom {
  #root;
  #host;
  #ctx;
  #wire;
  #sides;
  #box = h('div');
  #below = h('div');
  #parts = {};
  #kept;
  #record = null; // what the servers answered so far, as the page's server writes it
  #place = { at: 1, question: null };
  #progress = null;
  #status = null; // {key, args}
  #problems = [];
  #alert = null;

  constructor(root, host, ctx) {
    this.#root = root;
    this.#host = host;
    this.#ctx = ctx;
    this.#kept = { servers: [this.#fresh(PRACTICE, 1), this.#fresh(SECOND, 2)], widths: [1, 4], count: 5, own: '', tokens: 64 };
    this.#wire = new Wire(host, {
      line: ({ compared }) => compared && this.#compared(compared),
      passing: ({ progress }) => this.#take(progress),
      said: ({ key, args }) => this.#tell(key, args),
      ended: (notice) => this.#ended(notice),
    });
    this.#sides = this.#makeSides();
    this.build();
  }

  take(text) {
    this.#wire.take(text);
  }

  #fresh(address, place) {
    return { name: this.#ctx.t('serve.compare.name', { place }), address };
  }

  /** One more, by the first name that is free. */
  #another() {
    const names = this.#kept.servers.map(({ name }) => name.trim());
    for (let place = 1; ; place += 1) {
      const fresh = this.#fresh('', place);
      if (!names.includes(fresh.name)) return fresh;
    }
  }

  #makeSides() {
    const { state } = this.#host;
    const place = this.#place;
    const sides = new Sides(this.#box, this.#host, this.#ctx, {
      source: () => (this.#record ? { record: this.#record } : null),
      place: {
        get at() {
          return place.at;
        },
        get question() {
          return place.question;
        },
        set: (patch) => {
          Object.assign(place, patch);
          sides.ask();
        },
      },
      origin: 'measured',
      name: 'compare',
      empty: 'serve.compare.empty',
      below: this.#below,
      seen: () => state.get('page') === 'serve' && state.get('serve_room') === 'compare',
    });
    return sides;
  }

  // ------------------------------------------------------------ building

  build() {
    const { t } = this.#ctx;
    const off = refusal(this.#host, this.#ctx);
    const lead = h('p', { class: 'sv-lead' }, t('serve.compare.lead'));
    if (off) {
      this.#parts = {};
      this.#root.replaceChildren(lead, off);
      return;
    }
    const parts = {
      servers: h('div', { class: 'sv-serve-servers' }),
      run: h('button', { class: 'sv-run', type: 'button', onClick: () => this.#press() }),
      size: h('p', { class: 'sv-help' }),
      said: h('p', { class: 'sv-x-said', role: 'status' }),
      bar: h('progress', { class: 'sv-x-bar', 'aria-label': t('serve.compare.run') }),
      alert: h('p', { class: 'sv-alert', role: 'alert' }),
      problems: h('ul', { class: 'sv-serve-problems' }),
    };
    this.#parts = parts;
    const side = h('div', { class: 'sv-x-parts' }, parts.servers, this.#widths(), this.#prompts(), this.#tokens());
    const main = h('div', { class: 'sv-x-main' }, h('div', { class: 'sv-x-go' }, parts.run, parts.size), h('div', { class: 'sv-x-state' }, parts.said, parts.bar), parts.alert, parts.problems, this.#box);
    this.#root.replaceChildren(lead, h('div', { class: 'sv-lab-desk sv-x-desk' }, h('div', { class: 'sv-lab-side' }, side), main), this.#below);
    this.#drawServers();
    this.#sides.build();
    this.#draw();
  }

  #drawServers() {
    const { t } = this.#ctx;
    const { servers } = this.#kept;
    const rows = servers.map((server, index) => {
      const id = newId('name');
      const name = h('input', { class: 'sv-text', id, type: 'text', value: server.name, maxlength: String(MOST_NAME), autocomplete: 'off', spellcheck: 'false' });
      name.addEventListener('input', () => {
        server.name = name.value;
        this.#draw();
      });
      const address = makeAddress({
        boot: this.#host.boot,
        t,
        key: 'serve.compare.address',
        value: server.address,
        changed: () => {
          server.address = address.input.value;
          this.#draw();
        },
      });
      if (address.input.tagName === 'SELECT') {
        if ([...address.input.options].some((option) => option.value === server.address)) address.input.value = server.address;
        else address.input.selectedIndex = Math.min(index, address.input.options.length - 1);
        server.address = address.input.value;
      }
      const away = h('button', { class: 'sv-quiet', type: 'button', 'aria-label': t('serve.compare.away', { name: server.name }), onClick: () => this.#change(servers.filter((each) => each !== server)) }, '✕');
      const head = h('div', { class: 'sv-serve-server-head' }, h('label', { class: 'sv-field-name', for: id }, t('serve.compare.called')), servers.length > 2 ? away : null);
      return h('fieldset', { class: 'sv-x-field sv-serve-server' }, h('legend', { class: 'sv-hush' }, server.name), head, name, address.element);
    });
    const more = h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => this.#change([...servers, this.#another()]) }, t('serve.compare.add'));
    this.#parts.servers.replaceChildren(...rows, ...(servers.length < MOST_SERVERS ? [more] : []));
  }

  #change(servers) {
    this.#kept.servers = servers;
    this.#drawServers();
    this.#draw();
    [...this.#parts.servers.querySelectorAll('input')].at(-1)?.focus();
  }

  #widths() {
    const { t } = this.#ctx;
    const boxes = WIDTHS.map((width) => {
      const input = h('input', { type: 'checkbox', value: width, checked: this.#kept.widths.includes(width) });
      input.addEventListener('change', () => {
        this.#kept.widths = WIDTHS.filter((each) => (each === width ? input.checked : this.#kept.widths.includes(each)));
        this.#draw();
      });
      return h('label', { class: 'sv-x-tick' }, input, h('span', {}, String(width)));
    });
    return h('fieldset', { class: 'sv-x-field' }, h('legend', { class: 'sv-field-name' }, t('serve.levels')), h('div', { class: 'sv-x-ticks' }, ...boxes));
  }

  #prompts() {
    const { t } = this.#ctx;
    const select = h('select', { class: 'sv-select', 'aria-label': t('experiments.prompts') }, ...COUNTS.map((count) => h('option', { value: count }, t('serve.compare.ours', { count }))), h('option', { value: 0 }, t('experiments.set.own')));
    const area = h('textarea', { class: 'sv-x-own', rows: 4, placeholder: t('experiments.own.placeholder'), 'aria-label': t('experiments.own') });
    const help = h('p', { class: 'sv-help' }, t('serve.compare.own', { most: MOST_QUESTIONS }));
    select.value = String(this.#kept.count);
    area.value = this.#kept.own;
    const follow = () => {
      for (const each of [area, help]) each.hidden = this.#kept.count > 0;
    };
    select.addEventListener('change', () => {
      this.#kept.count = Number(select.value);
      follow();
      this.#draw();
    });
    area.addEventListener('input', () => {
      this.#kept.own = area.value;
      this.#draw();
    });
    follow();
    return h('fieldset', { class: 'sv-x-field' }, h('legend', { class: 'sv-field-name' }, t('experiments.prompts')), select, area, help);
  }

  #tokens() {
    const { t } = this.#ctx;
    const select = h('select', { class: 'sv-select' }, ...TOKENS.map((value) => h('option', { value }, String(value))));
    select.value = String(this.#kept.tokens);
    select.addEventListener('change', () => {
      this.#kept.tokens = Number(select.value);
    });
    return h('label', { class: 'sv-x-choose' }, h('span', {}, t('serve.tokens')), select);
  }

  // ------------------------------------------------------------ a comparison

  get #texts() {
    return this.#kept.own.split('\n').map((line) => line.trim()).filter(Boolean);
  }

  /** Answers that will come, or the key of what is missing with what fills it. */
  get #size() {
    const { servers, widths, count } = this.#kept;
    const prompts = count || this.#texts.length;
    if (servers.some(({ name, address }) => !name.trim() || !address.trim())) return { missing: 'serve.compare.missing.server' };
    if (!widths.length || !prompts) return { missing: 'serve.compare.missing.choice' };
    const width = Math.max(...widths);
    if (width > prompts) return { missing: 'serve.compare.few', args: { width, count: prompts } };
    return { answers: servers.length * widths.length * prompts };
  }

  #press() {
    if (this.#wire.on) {
      this.#tell('serve.compare.stopping');
      this.#wire.stop();
      return;
    }
    if (this.#size.missing) return;
    const { servers, widths, count, tokens } = this.#kept;
    this.#alert = null;
    this.#problems = [];
    this.#progress = null;
    this.#tell('serve.compare.looking');
    this.#wire.start({
      compare: {
        servers: servers.map(({ name, address }) => ({ name: name.trim(), address: address.trim() })),
        prompts: count ? [] : this.#texts,
        count: count || 1,
        max_tokens: tokens,
        widths,
      },
    });
    this.#draw();
  }

  #take(progress) {
    this.#progress = progress;
    this.#problems = progress.problems;
    const { stage, name, width, done, total } = progress;
    this.#status = { key: `serve.compare.stage.${stage}`, args: { name: name ?? '', width: width ?? '', done, total } };
    this.#draw();
    if (progress.record) this.#see(progress.record);
  }

  #compared(last) {
    this.#take(last);
    this.#progress = null;
  }

  #see(record) {
    this.#record = record;
    this.#sides.ask();
  }

  #ended(notice) {
    this.#progress = null;
    this.#alert = notice;
    // What was said last stays, unless nothing was measured at all.
    if (notice) this.#status = null;
    this.#draw();
  }

  // ------------------------------------------------------------ what is seen

  #tell(key, args = {}) {
    this.#status = { key, args };
    this.#draw();
  }

  #draw() {
    const { t } = this.#ctx;
    const parts = this.#parts;
    if (!parts.run) return;
    const { missing, answers, args = { answers } } = this.#size;
    say(parts.run, t(this.#wire.on ? 'control.stop' : 'serve.compare.run'));
    parts.run.classList.toggle('sv-run--stop', this.#wire.on);
    parts.run.setAttribute('aria-disabled', String(!this.#wire.on && Boolean(missing)));
    say(parts.size, t(missing ?? 'serve.compare.size', args));
    // Every answer would be read aloud; the end is.
    parts.said.setAttribute('aria-live', this.#progress ? 'off' : 'polite');
    say(parts.said, this.#status ? t(this.#status.key, this.#status.args) : '');
    parts.bar.hidden = !this.#wire.on || !this.#progress?.total;
    if (this.#progress) [parts.bar.max, parts.bar.value] = [this.#progress.total || 1, this.#progress.done];
    say(parts.alert, this.#alert ? t(this.#alert.key, this.#alert.args) : '');
    parts.problems.replaceChildren(...this.#problems.map(({ name, key, args }) => h('li', { class: 'sv-x-differ' }, `${name}: ${t(key, args)}`)));
  }

  draw() {
    this.#sides.draw();
  }

  arrive() {
    this.#sides.arrive();
  }

  leave() {
    this.#sides.leave();
  }
}
