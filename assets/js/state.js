/**
 * The state of the page, in one typed table, and the address that holds it.
 * What the address says is checked and clamped like anything that comes from outside; unknown values fall back.
 */

import { MOST_RIVALS, comparable } from './against.js';
import { FAULTS } from './break.js';
import { KNOBS, ROOMS, RUNS } from './lab/settings.js';
import { FIRST as SERVED_FIRST, ROOMS as SERVE_ROOMS, RUNS as SERVED } from './serve/settings.js';
import { LANGUAGES, preferredLanguage } from './words.js';

/** The one knob that is a text of the visitor's own, with a box under the prompt. */
export const SCRIPT = 'script';
export const THEMES = Object.freeze(['auto', 'light', 'dark']);
/** Everything a teacher may take away with ?hide=a,b,c. */
export const HIDEABLE = Object.freeze([
  'presets',
  'prompt',
  'settings',
  'tools',
  'finished',
  'questions',
  'lang',
  'theme',
  'target',
  'drafter',
  'rule',
  'strength',
  'length',
  'knobs',
  'gamma',
  'temperature',
  'top_p',
  'top_k',
  'repetition_penalty',
  'seed',
  'max_new_tokens',
  'chat',
  'race',
  'against',
  'compare',
  'red',
  'anatomy',
  'time',
  'what_if',
  'faster',
  'kv',
  'memory',
  'numbers',
]);

// A field reads a string from the address (undefined: not acceptable), and writes one.
const choice = (names) => ({ read: (text) => (names.includes(text) ? text : undefined), write: String });
const whole = (low, high) => ({
  read: (text) => clamp(/^-?\d{1,16}$/.test(text) ? Number(text) : undefined, low, high),
  write: String,
});
const real = (low, high) => ({
  read: (text) => clamp(/^-?\d{1,6}(\.\d{1,6})?$/.test(text) ? Number(text) : undefined, low, high),
  write: String,
});
const FLAGS = new Map([
  ['1', true],
  ['0', false],
]);
const flag = () => ({ read: (text) => FLAGS.get(text), write: (value) => (value ? '1' : '0') });
const text = (most) => ({ read: (value) => value.slice(0, most), write: String });
const names = (known) => ({
  read: (value) => value.split(',').filter((name) => known.includes(name)),
  write: (value) => value.join(','),
});
const few = (known, most) => ({
  read: (value) => [...new Set(names(known).read(value))].slice(0, most),
  write: names(known).write,
});
/** Names and typed texts, `name-text*name-text`; a star in a text is written otherwise. */
const texts = () => ({
  read: (value) =>
    Object.fromEntries(
      value
        .split('*')
        .slice(0, 40)
        .map((pair) => [pair.split('-', 1)[0], pair.slice(pair.indexOf('-') + 1).slice(0, 400)])
        .filter(([name]) => /^[\w.]{1,60}$/.test(name))
        .map(([name, set]) => [name, set.replaceAll('%2A', '*')]),
    ),
  write: (value) =>
    Object.entries(value)
      .map(([name, set]) => `${name}-${set.replaceAll('*', '%2A')}`)
      .join('*'),
});
/** Commas part the options, so a list of layers is written with semicolons. */
const options = () => ({
  read: (value) =>
    Object.fromEntries(
      [...value.matchAll(/(\w{1,32}):([\w./;-]{1,64})(?:,|$)/g)].map(([, name, set]) => [name, set.replaceAll(';', ',')]),
    ),
  write: (value) =>
    Object.entries(value)
      .map(([name, set]) => `${name}:${String(set).replaceAll(',', ';')}`)
      .join(','),
});

/** The table. `group`: view = how the page looks, run = what a run is made of, text = typed words, only in copied links. */
export function fields(boot, pages) {
  const { limits } = boot;
  return {
    // The host has a ?page= of its own and answers an error to a page it does not know.
    page: { ...choice(pages), group: 'view', value: pages[0], called: 'place' },
    lang: { ...choice(LANGUAGES), group: 'view', value: preferredLanguage(boot.language) },
    theme: { ...choice(THEMES), group: 'view', value: 'auto' },
    hide: { ...names(HIDEABLE), group: 'view', value: [] },
    preset: {
      ...choice(['', ...boot.presets.map((preset) => preset.name)]),
      group: 'view',
      value: boot.first?.preset ?? '',
    },
    fault: { ...choice(FAULTS), group: 'view', value: FAULTS[0] },
    ...lab(),
    ...serve(),
    target: { ...choice(boot.targets.map((target) => target.name)), group: 'run', value: boot.targets[0]?.name ?? '' },
    drafter: {
      ...choice(boot.drafters.filter((drafter) => drafter.ready).map((drafter) => drafter.name)),
      group: 'run',
      value: 'prompt_lookup',
    },
    options: { ...options(), group: 'run', value: {} },
    // Empty: the drafter's default rule.
    rule: {
      ...choice(['', ...new Set(boot.drafters.flatMap((drafter) => drafter.rules.map((rule) => rule.name)))]),
      group: 'run',
      value: '',
    },
    // null: what the rule itself sets.
    strength: { ...real(0, 1), group: 'run', value: null },
    length: { ...choice(boot.lengths), group: 'run', value: boot.lengths[0] },
    gamma: { ...whole(1, limits.gamma_max), group: 'run', value: 4 },
    temperature: { ...real(0, 2), group: 'run', value: 0 },
    top_p: { ...real(0.01, 1), group: 'run', value: 1 },
    top_k: { ...whole(0, 1000), group: 'run', value: 0 },
    repetition_penalty: { ...real(0.5, 2), group: 'run', value: 1 },
    seed: { ...whole(0, Number.MAX_SAFE_INTEGER), group: 'run', value: 0 },
    max_new_tokens: { ...whole(1, limits.max_new_tokens), group: 'run', value: Math.min(64, limits.max_new_tokens) },
    chat: { ...flag(), group: 'run', value: true },
    race: { ...flag(), group: 'run', value: false },
    against: {
      ...few(
        comparable(boot)
          .filter((drafter) => drafter.ready)
          .map((drafter) => drafter.name),
        MOST_RIVALS,
      ),
      group: 'run',
      value: [],
    },
    prompt: { ...text(limits.prompt_chars), group: 'text', value: '' },
    script: { ...text(2000), group: 'text', value: '' },
  };
}

/** The Lab: which room, its sliders, what the law test is about (checked again where the choices are known), a step of a run. */
function lab() {
  const sliders = KNOBS.map(({ name, min, max, step, value }) => [
    `lab_${name}`,
    { ...(step === 1 ? whole(min, max) : real(min, max)), group: 'view', value },
  ]);
  return {
    lab_room: { ...choice(ROOMS), group: 'view', value: ROOMS[0], called: 'room', of: 'lab' },
    ...Object.fromEntries(sliders),
    lab_drafter: { ...text(40), group: 'view', value: 'prompt_lookup' },
    lab_rule: { ...text(40), group: 'view', value: '' },
    lab_temperature: { ...real(0, 2), group: 'view', value: 1 },
    lab_run: { ...choice(RUNS), group: 'view', value: 'eagle3' },
    lab_step: { ...whole(0, 9999), group: 'view', value: 0 },
  };
}

/**
 * The Serve place: which room; what a server is made of, which the server of the page checks; saved runs side by side,
 * under which load, and the question whose answers are replayed.
 */
function serve() {
  const names = ['method', 'target', 'drafter', 'hardware', 'version', 'form'];
  return {
    serve_room: { ...choice(SERVE_ROOMS), group: 'view', value: SERVE_ROOMS[0], called: 'room', of: 'serve' },
    serve_runs: { ...few(SERVED, SERVED.length), group: 'view', value: [...SERVED_FIRST] },
    serve_at: { ...whole(1, 64), group: 'view', value: 1 },
    serve_question: { ...whole(0, 99), group: 'view', value: null },
    ...Object.fromEntries(names.map((name) => [`serve_${name}`, { ...text(200), group: 'view', value: '' }])),
    serve_options: { ...texts(), group: 'view', value: {} },
  };
}

/** Values, who listens to them, and the address. `base` is what a reset returns to: the defaults, then the preset's own. */
export class State {
  #boot;
  #fields;
  #values = {};
  #base = {};
  #writing;
  #going = false;
  #listeners = new Set();

  constructor(boot, pages, search = location.search) {
    this.#boot = boot;
    this.#fields = fields(boot, pages);
    const given = this.#read(new URLSearchParams(search));
    this.#base = this.#baseOf(given.preset ?? this.#fields.preset.value);
    this.#values = { ...this.#base, ...given };
    this.#values.options = this.#checkOptions(this.#values.drafter, this.#values.options);
    this.#write();
    addEventListener('popstate', () => this.#go());
  }

  get(name) {
    return this.#values[name];
  }

  get preset() {
    return this.#boot.presets.find((preset) => preset.name === this.#values.preset) ?? null;
  }

  /** Whether the words are the visitor's own, not those of an example. */
  get isOwn() {
    const texts = Object.keys(this.#fields).filter((name) => this.#fields[name].group === 'text');
    return this.preset === null || texts.some((name) => !same(this.#values[name], this.#base[name]));
  }

  get drafter() {
    return this.#boot.drafters.find((drafter) => drafter.name === this.#values.drafter) ?? null;
  }

  /** The rule that judges: the one chosen where it fits the drafter, else its first, or for a tree of best guesses `match`. */
  get rule() {
    const rules = this.drafter?.rules ?? [];
    const own = this.options.tree > 0 ? rules.find((rule) => rule.name === 'match') : rules[0];
    return rules.find((rule) => rule.name === this.#values.rule) ?? own ?? null;
  }

  /** The number of a lossy rule, null for a lossless one. */
  get strength() {
    const bounds = this.rule?.strength ?? null;
    if (bounds === null) return null;
    const [usual, low, high] = bounds;
    return clamp(this.#values.strength ?? usual, low, high);
  }

  /** The knobs of the chosen drafter with their values; a script comes from its own field. */
  get options() {
    const knobs = this.drafter?.knobs ?? [];
    return Object.fromEntries(
      knobs.map((knob) => [
        knob.name,
        knob.name === SCRIPT ? this.#values.script : (this.#values.options[knob.name] ?? knob.default),
      ]),
    );
  }

  isHidden(name) {
    return this.#values.hide.includes(name);
  }

  /** Change some values; listeners hear the names that changed. */
  set(patch) {
    const changed = Object.keys(patch).filter((name) => !same(this.#values[name], patch[name]));
    if (!changed.length) return;
    Object.assign(this.#values, patch);
    if (changed.includes('drafter') && !('options' in patch)) this.#values.options = {};
    if (changed.includes('rule') && !('strength' in patch)) this.#values.strength = null;
    if (changed.includes('page') && !this.#going) this.#step();
    else this.#write();
    for (const listener of this.#listeners) listener(changed);
  }

  setOption(name, value) {
    this.set({ options: { ...this.#values.options, [name]: value } });
  }

  /** Everything a run is made of, as the preset has it. */
  choosePreset(name) {
    this.#base = this.#baseOf(name);
    const keep = Object.keys(this.#fields).filter((field) => field !== 'preset' && this.#fields[field].group === 'view');
    this.set({ ...this.#base, ...Object.fromEntries(keep.map((field) => [field, this.#values[field]])), preset: name });
  }

  /** Settings back to what the preset says; the typed prompt stays. */
  reset() {
    const names = Object.keys(this.#fields).filter((name) => this.#fields[name].group === 'run');
    this.set(Object.fromEntries(names.map((name) => [name, this.#base[name]])));
  }

  /** Take values from outside (the header of an imported trace), checked like an address. */
  adopt(raw) {
    const strings = Object.entries(raw)
      .filter(
        ([name, value]) =>
          Object.hasOwn(this.#fields, name) &&
          this.#fields[name].group !== 'view' &&
          ['string', 'number', 'boolean'].includes(typeof value),
      )
      .map(([name, value]) => [name, typeof value === 'boolean' ? (value ? '1' : '0') : String(value)]);
    const given = this.#read(new URLSearchParams(strings));
    const knobs = typeof raw.options === 'object' && raw.options !== null ? raw.options : {};
    this.#base = this.#baseOf('');
    const judged = { rule: this.#base.rule, strength: this.#base.strength, length: this.#base.length };
    this.set({ preset: '', ...judged, ...given, options: this.#checkOptions(given.drafter ?? this.#values.drafter, knobs) });
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The address of this state. The language always stands in it. `whole` adds the typed words: a link to hand on. */
  address({ whole = false } = {}) {
    const url = new URL(location.href);
    for (const [name, field] of Object.entries(this.#fields)) url.searchParams.delete(field.called ?? name);
    for (const [name, field] of Object.entries(this.#fields)) {
      // Two places call their room by one name: it is written of the one that is shown.
      if (field.of && field.of !== this.#values.page) continue;
      const value = this.#values[name];
      const plain = same(value, field.group === 'view' ? field.value : this.#base[name]);
      const leave = plain || (field.group === 'text' && !whole);
      const always = name === 'lang' || (whole && name === 'preset' && value);
      if (!leave || always) url.searchParams.set(field.called ?? name, field.write(value));
    }
    if (this.#values.theme !== 'auto') url.searchParams.delete('__theme');
    return url.href;
  }

  /** Another place is another entry of the browser's history, so that Back comes from it to the one before. */
  #step() {
    clearTimeout(this.#writing);
    history.pushState(history.state, '', this.address());
  }

  #go() {
    this.#going = true;
    this.set({ page: this.#read(new URLSearchParams(location.search)).page ?? this.#fields.page.value });
    this.#going = false;
  }

  /** Browsers refuse many address changes in a row, so a dragged slider writes once, when it rests. */
  #write() {
    clearTimeout(this.#writing);
    this.#writing = setTimeout(() => history.replaceState(history.state, '', this.address()), 200);
  }

  #read(query) {
    const given = {};
    for (const [name, field] of Object.entries(this.#fields)) {
      const called = field.called ?? name;
      const value = query.has(called) ? field.read(query.get(called)) : undefined;
      if (value !== undefined) given[name] = value;
    }
    if (!given.theme && ['dark', 'light'].includes(query.get('__theme'))) given.theme = query.get('__theme');
    return given;
  }

  #baseOf(name) {
    const plain = Object.fromEntries(Object.entries(this.#fields).map(([field, { value }]) => [field, value]));
    const preset = this.#boot.presets.find((each) => each.name === name);
    if (!preset) return plain;
    const settings = Object.entries(preset.settings).filter(([field]) => field in plain);
    const base = { ...plain, ...Object.fromEntries(settings), preset: name, prompt: preset.prompt };
    base.script = preset.settings.options?.script ?? base.script;
    base.options = this.#checkOptions(base.drafter, base.options);
    return base;
  }

  #checkOptions(drafter, given) {
    const knobs = this.#boot.drafters.find((each) => each.name === drafter)?.knobs ?? [];
    const checked = {};
    for (const knob of knobs) {
      const value = readKnob(knob, given[knob.name]);
      if (value !== undefined) checked[knob.name] = value;
    }
    return checked;
  }
}

function readKnob(knob, value) {
  if (knob.kind === 'choice') return knob.choices.includes(value) ? value : undefined;
  if (knob.kind === 'int') return whole(knob.min, knob.max).read(String(value));
  return knob.name !== SCRIPT && /^[\w.,/-]{1,64}$/.test(value) ? value : undefined;
}

function clamp(value, low, high) {
  return value === undefined ? undefined : Math.min(Math.max(value, low), high);
}

function same(left, right) {
  return left === right || (typeof left === 'object' && JSON.stringify(left) === JSON.stringify(right));
}
