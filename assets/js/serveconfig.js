/**
 * The builder: choices on the left, the checked command on the right. The server checks and writes; this draws.
 * Every choice is in the address, so a link is a configuration.
 */

import { h, newId, say } from './dom.js';

const FIELDS = ['method', 'target', 'drafter', 'hardware', 'version'];
const CHOICES = new Set([...FIELDS, 'options'].map((name) => `serve_${name}`));
const OTHER = '\u0000other';
const GRAVE = Object.freeze({ refuse: '✗', warn: '!', note: 'i' });

export class ServeConfig {
  #host;
  #root;
  #answer = null;
  #asked = 0;
  #failed = false;
  #built = ''; // what the controls were built for
  #typing = { target: false, drafter: false };
  #fields = new Map();
  #options = new Map();
  #parts = {};
  #at = null; // the key that is explained
  #repaired = false; // a fix was pressed, whose button goes away with the answer

  constructor(root, host) {
    this.#root = root;
    this.#host = host;
    this.#build();
    this.#ask();
  }

  build() {
    this.#build();
    this.#draw();
  }

  draw(changed) {
    if (changed.some((name) => CHOICES.has(name))) this.#ask();
    else if (changed.includes('serve_form')) this.#drawForms();
  }

  // ------------------------------------------------------------ asking

  async #ask() {
    const { state, server } = this.#host;
    const turn = ++this.#asked;
    const choice = Object.fromEntries(FIELDS.map((name) => [name, state.get(`serve_${name}`)]));
    let answer = null;
    try {
      answer = await server.serve({ ...choice, options: state.get('serve_options') });
    } catch (error) {
      console.info('serve:', error?.message ?? error);
    }
    if (turn !== this.#asked) return;
    this.#failed = !answer;
    if (answer) this.#answer = answer;
    this.#draw();
  }

  #set(patch) {
    const fields = Object.fromEntries(Object.entries(patch).map(([name, value]) => [`serve_${name}`, value]));
    this.#host.state.set(fields);
  }

  /** Another method keeps what stands around the server and forgets how the last one drafted. */
  #choose(name, value) {
    if (name === 'method') {
      const inside = new Set(this.#answer.controls.filter(({ place }) => place === 'speculative').map((each) => each.name));
      const kept = Object.entries(this.#host.state.get('serve_options')).filter(([key]) => !inside.has(key));
      this.#typing = { target: false, drafter: false };
      this.#set({ method: value, target: '', drafter: '', options: Object.fromEntries(kept) });
    } else if (name === 'target') this.#set({ target: value, drafter: '' });
    else this.#set({ [name]: value });
  }

  #option(name, value) {
    this.#set({ options: { ...this.#host.state.get('serve_options'), [name]: value } });
  }

  #repair({ fields, options }) {
    const now = this.#host.state.get('serve_options');
    this.#typing = { target: false, drafter: false };
    this.#set({ ...fields, options: { ...now, ...options } });
    this.#repaired = true;
  }

  // ------------------------------------------------------------ building

  #build() {
    const { t } = this.#host.words;
    this.#built = '';
    this.#fields.clear();
    this.#options.clear();
    const parts = {
      lead: h('p', { class: 'sv-lead' }),
      choose: h('div', { class: 'sv-serve-choose' }),
      help: h('p', { class: 'sv-help' }),
      groups: h('div', { class: 'sv-serve-groups' }),
      remarks: h('div', { class: 'sv-serve-remarks', tabindex: '-1' }),
      verdict: h('p', { class: 'sv-serve-verdict', 'aria-live': 'polite' }),
      list: h('ul', { class: 'sv-serve-list' }),
      tabs: h('div', { class: 'sv-choice sv-serve-tabs', role: 'group', 'aria-label': t('serve.forms') }),
      copy: h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => this.#copy() }, t('serve.copy')),
      copied: h('span', { class: 'sv-help', 'aria-live': 'polite' }),
      code: h('pre', { class: 'sv-serve-code' }),
      said: h('div', { class: 'sv-serve-said', id: newId('said'), 'aria-live': 'polite' }),
      keys: h('dl', { class: 'sv-serve-keys' }),
      memory: h('div', { class: 'sv-serve-memory' }),
    };
    this.#parts = parts;
    parts.remarks.append(h('h3', { class: 'sv-h2' }, t('serve.remarks')), parts.verdict, parts.list);
    parts.command = h(
      'div',
      { class: 'sv-serve-command' },
      h('div', { class: 'sv-serve-bar' }, parts.tabs, h('span', { class: 'sv-serve-copy' }, parts.copied, parts.copy)),
      parts.code,
      parts.said,
      h('details', { class: 'sv-ask sv-serve-all' }, h('summary', {}, t('serve.keys')), parts.keys),
    );
    this.#root.replaceChildren(
      h('h2', { class: 'sv-h2 sv-serve-heading' }, t('serve.title')),
      parts.lead,
      h(
        'div',
        { class: 'sv-serve-desk' },
        h('div', { class: 'sv-serve-side', role: 'group', 'aria-label': t('serve.choose') }, parts.choose, parts.groups),
        h('div', { class: 'sv-serve-main' }, parts.remarks, parts.command, parts.memory),
      ),
    );
  }

  #draw() {
    const { t } = this.#host.words;
    if (this.#failed) say(this.#parts.verdict, t('serve.failed'));
    if (!this.#answer) return;
    say(this.#parts.lead, t('serve.lead', { version: this.#answer.choice.version }));
    this.#drawChoices();
    this.#drawOptions();
    this.#drawRemarks();
    this.#drawForms();
    this.#drawMemory();
  }

  // ------------------------------------------------------------ choices

  #drawChoices() {
    const { t } = this.#host.words;
    const { choice, methods, targets, drafters, hardware, versions, remarks } = this.#answer;
    if (!this.#fields.size) {
      for (const name of FIELDS) this.#fields.set(name, this.#field(name));
      const rows = [...this.#fields.values()].map((each) => each.element);
      rows[0].append(this.#parts.help);
      this.#parts.choose.replaceChildren(...rows);
    }
    const known = methods.includes(choice.method) ? methods : [choice.method, ...methods];
    this.#fields.get('method').show(
      known.map((name) => [name, methods.includes(name) ? t(`serve.method.${name}`) : name]),
      choice.method,
    );
    const models = (name, list) => {
      const value = choice[name];
      const all = value && !list.includes(value) ? [value, ...list] : list;
      this.#fields.get(name).show([...all.map((each) => [each, each]), [OTHER, t('serve.other')]], value || OTHER);
    };
    models('target', targets);
    const needs = drafters.length || choice.drafter || remarks.some(({ about, severity }) => about === 'drafter' && severity === 'refuse');
    this.#fields.get('drafter').element.hidden = !needs;
    models('drafter', drafters);
    this.#fields.get('hardware').show(
      hardware.map((name) => [name, t(`serve.hardware.${name.split('-')[0]}`, { size: name.split('-')[1] })]),
      choice.hardware,
    );
    this.#fields.get('version').show(versions.map((name) => [name, name]), choice.version);
    say(this.#parts.help, methods.includes(choice.method) ? t(`serve.method.${choice.method}.help`) : '');
  }

  /** A select with its name; models may also be typed. */
  #field(name) {
    const { t } = this.#host.words;
    const id = newId(name);
    const typed = ['target', 'drafter'].includes(name);
    const select = h('select', { class: 'sv-select', id });
    const text = h('input', {
      class: 'sv-text',
      type: 'text',
      hidden: true,
      spellcheck: 'false',
      autocomplete: 'off',
      maxlength: '200',
      'aria-label': typed ? t(`serve.other.${name}`) : null,
      placeholder: typed ? t(`serve.other.${name}`) : null,
      onChange: () => {
        if (text.value.trim()) this.#typing[name] = false;
        this.#choose(name, text.value.trim());
      },
    });
    select.addEventListener('change', () => {
      if (select.value !== OTHER) {
        this.#typing[name] = false;
        this.#choose(name, select.value);
        return;
      }
      this.#typing[name] = true;
      text.hidden = false;
      text.value = '';
      text.focus();
    });
    const element = h('div', { class: 'sv-control' }, h('label', { class: 'sv-field-name', for: id }, t(`serve.field.${name}`)), select, typed ? text : null);
    const show = (entries, value) => {
      const signature = JSON.stringify(entries);
      if (select.dataset.entries !== signature) {
        select.dataset.entries = signature;
        select.replaceChildren(...entries.map(([key, label]) => h('option', { value: key }, label)));
      }
      select.value = this.#typing[name] ? OTHER : value;
      text.hidden = select.value !== OTHER;
    };
    return { element, show };
  }

  // ------------------------------------------------------------ options

  #drawOptions() {
    const { t } = this.#host.words;
    const { controls } = this.#answer;
    const signature = JSON.stringify(controls.map(({ name, choices }) => [name, choices]));
    if (signature !== this.#built) {
      const open = new Set([...this.#parts.groups.querySelectorAll('details[open]')].map((each) => each.dataset.group));
      const focused = document.activeElement?.closest('[data-option]')?.dataset.option;
      this.#built = signature;
      this.#options.clear();
      const group = (name, places) => {
        const own = controls.filter(({ place }) => places.includes(place));
        const rows = own.map((control) => this.#control(control));
        const fold = h('details', { class: 'sv-ask', 'data-group': name }, h('summary', {}, t(`serve.group.${name}`)), h('div', { class: 'sv-serve-options' }, ...rows));
        fold.open = open.has(name);
        return own.length ? fold : null;
      };
      const reset = h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => this.#set({ options: {} }) }, t('serve.reset'));
      this.#parts.reset = reset;
      this.#parts.groups.replaceChildren(
        ...[group('speculative', ['speculative']), group('server', ['server', 'environment', 'request']), reset].filter(Boolean),
      );
      if (focused) this.#options.get(focused)?.input.focus();
    }
    for (const control of controls) {
      const { input } = this.#options.get(control.name);
      if (document.activeElement !== input || input.tagName === 'SELECT') input.value = control.value;
    }
    this.#parts.reset.hidden = !Object.keys(this.#host.state.get('serve_options')).length;
  }

  #control({ name, kind, choices, usual }) {
    const { t } = this.#host.words;
    const id = newId('option');
    const nothing = usual ? t('serve.default.usual', { usual }) : t('serve.default');
    const change = () => this.#option(name, input.value.trim());
    const numeric = kind === 'whole' ? 'numeric' : kind === 'real' ? 'decimal' : null;
    const input = choices.length
      ? h('select', { class: 'sv-select', id, onChange: change }, h('option', { value: '' }, nothing), ...choices.map((each) => h('option', { value: each }, each)))
      : h('input', { class: 'sv-text', id, type: 'text', inputmode: numeric, placeholder: nothing, spellcheck: 'false', autocomplete: 'off', maxlength: '400', onChange: change });
    const help = h('p', { class: 'sv-help', id: `${id}-help` }, t(`serve.key.${name}`));
    input.setAttribute('aria-describedby', help.id);
    this.#options.set(name, { input });
    return h('div', { class: 'sv-control', 'data-option': name }, h('label', { class: 'sv-serve-name', for: id }, name), input, help);
  }

  // ------------------------------------------------------------ what is said of it

  #drawRemarks() {
    const { t } = this.#host.words;
    const { remarks, memory } = this.#answer;
    const count = (severity) => remarks.filter((each) => each.severity === severity).length;
    const [refused, warned] = [count('refuse'), count('warn')];
    const full = memory?.fits === false;
    const found = refused ? 'refused' : full ? 'full' : warned ? 'warned' : 'ok';
    if (!this.#failed) say(this.#parts.verdict, t(`serve.remarks.${found}`, { count: refused || warned }));
    // What must be known stands before the command, a clean bill behind it.
    if (found !== 'ok') this.#parts.command.before(this.#parts.remarks);
    else this.#parts.command.after(this.#parts.remarks);
    this.#parts.list.replaceChildren(
      ...remarks.map(({ severity, said, fix }) =>
        h(
          'li',
          { class: `sv-serve-remark sv-serve-remark--${severity}` },
          h('span', { class: 'sv-serve-mark', 'aria-hidden': 'true' }, GRAVE[severity]),
          h('p', {}, h('b', {}, t(`serve.severity.${severity}`)), ' ', t(said.key, plainly(said.args))),
          fix ? h('button', { class: 'sv-serve-fix', type: 'button', onClick: () => this.#repair(fix) }, t(fix.said.key, plainly(fix.said.args))) : null,
        ),
      ),
    );
    if (this.#repaired) this.#parts.remarks.focus();
    this.#repaired = false;
  }

  #drawMemory() {
    const { words } = this.#host;
    const { t } = words;
    const { memory } = this.#answer;
    const head = h('h3', { class: 'sv-h2' }, t('serve.memory'));
    if (!memory) {
      this.#parts.memory.replaceChildren(head, h('p', { class: 'sv-none' }, t('serve.memory.unknown')));
      return;
    }
    const gigabytes = (value) => words.number(value, 1);
    const key = memory.fits === null ? 'cpu' : memory.fits ? 'fits' : 'full';
    const sentence = t(`serve.memory.${key}`, { total: gigabytes(memory.total), room: gigabytes(memory.room ?? 0) });
    const rows = memory.parts.map(({ name, gigabytes: size }) =>
      h('li', {}, h('span', {}, t(`serve.memory.${name}`)), h('b', {}, size === null ? t('serve.memory.not_known') : `${gigabytes(size)} GB`)),
    );
    const badge = h('span', { class: 'sv-badge sv-badge--computed', title: t('shell.badge.computed.help') }, t('shell.badge.computed'));
    this.#parts.memory.replaceChildren(head, h('p', { class: `sv-serve-fits sv-serve-fits--${key}` }, sentence, ' ', badge), h('ul', { class: 'sv-serve-parts' }, ...rows));
  }

  // ------------------------------------------------------------ the command

  get #form() {
    const forms = this.#answer?.forms ?? [];
    return forms.find(({ name }) => name === this.#host.state.get('serve_form')) ?? forms[0] ?? null;
  }

  #drawForms() {
    const { t } = this.#host.words;
    const form = this.#form;
    this.#parts.command.hidden = form === null;
    if (!form) return;
    this.#parts.tabs.replaceChildren(
      ...this.#answer.forms.map(({ name }) =>
        h('button', { type: 'button', 'aria-pressed': String(name === form.name), onClick: () => this.#pick(name) }, t(`serve.form.${name}`)),
      ),
    );
    const pieces = form.pieces.map(([text, key]) => {
      if (!key) return document.createTextNode(text);
      const piece = h('span', { class: 'sv-serve-key', tabindex: '0', role: 'button', 'data-key': key, 'aria-controls': this.#parts.said.id }, text);
      for (const event of ['pointerenter', 'focus', 'click']) piece.addEventListener(event, () => this.#explain(key));
      piece.addEventListener('keydown', (event) => {
        if (!['Enter', ' '].includes(event.key)) return;
        event.preventDefault();
        this.#explain(key);
      });
      return piece;
    });
    this.#parts.code.replaceChildren(...pieces);
    say(this.#parts.copied, '');
    const shown = [...new Set(form.pieces.map(([, key]) => key).filter(Boolean))];
    this.#parts.keys.replaceChildren(...shown.flatMap((key) => [h('dt', {}, h('code', {}, key)), h('dd', {}, ...this.#words(key))]));
    this.#explain(shown.includes(this.#at) ? this.#at : null);
  }

  #pick(name) {
    this.#set({ form: name });
    this.#parts.tabs.querySelector('[aria-pressed="true"]')?.focus();
  }

  #explain(key) {
    this.#at = key;
    for (const piece of this.#parts.code.querySelectorAll('.sv-serve-key')) piece.classList.toggle('sv-serve-key--at', piece.dataset.key === key);
    const { t } = this.#host.words;
    if (key) this.#parts.said.replaceChildren(h('p', {}, h('code', {}, key)), ...this.#words(key));
    else this.#parts.said.replaceChildren(h('p', { class: 'sv-none' }, t('serve.point')));
  }

  #words(name) {
    const { t } = this.#host.words;
    const { usual, source } = this.#answer.keys.find((each) => each.name === name) ?? {};
    const more = [usual ? t('serve.usual', { usual }) : null, source ? t('serve.source', { source }) : null].filter(Boolean);
    return [h('p', {}, t(`serve.key.${name}`)), more.length ? h('p', { class: 'sv-help' }, more.join(' ')) : null].filter(Boolean);
  }

  async #copy() {
    const { t } = this.#host.words;
    const text = this.#form.pieces.map(([piece]) => piece).join('');
    try {
      await navigator.clipboard.writeText(text);
      say(this.#parts.copied, t('serve.copied'));
    } catch {
      // Browsers give the clipboard to https and localhost only.
      getSelection().selectAllChildren(this.#parts.code);
      say(this.#parts.copied, t('serve.copy.failed'));
    }
  }
}

/** What fills a sentence as text: keys and numbers of a configuration are written as they stand, not as prose. */
function plainly(args) {
  return Object.fromEntries(Object.entries(args).map(([name, value]) => [name, String(value)]));
}
