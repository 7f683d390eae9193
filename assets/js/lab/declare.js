/** What an experiment is made of, chosen by hand: a question, drafters, values, prompts. Says how many runs that is. */

import { comparable } from '../against.js';
import { drafterTitle } from '../controls.js';
import { h, newId, say } from '../dom.js';
import { CHOICES, GROUPS, MACHINE, MOST, SETS, TASKS, VALUES, partsOf } from './kinds.js';
import { readQuestions } from './results.js';

const BEYOND = 3; // tokens that a batch needs beyond γ, as in spec_viz/lab/concurrency.py
const PASSES = 3; // kinds of pass that are timed behind every prefix, as in spec_viz/lab/context.py

/** `kept` is changed by the hand and outlives the form. changed() hears every change. */
export function makeForm({ boot, words, ctx, kept, changed }) {
  const { t } = ctx;
  const ready = comparable(boot).filter((each) => each.ready);
  const size = h('p', { class: 'sv-help' });
  const help = h('p', { class: 'sv-x-help', role: 'status' });
  const element = h('div', { class: 'sv-x-parts' });
  const mine = () => kept.kinds[kept.kind];

  /** All questions, by what they are about. */
  function kinds() {
    const name = newId('kind');
    const radio = (kind) => {
      const input = h('input', { type: 'radio', name, value: kind, checked: kind === kept.kind });
      input.addEventListener('change', () => {
        kept.kind = kind;
        draw();
        changed();
      });
      return h('label', { class: 'sv-x-kind' }, input, h('span', {}, t(`experiments.kind.${kind}`)));
    };
    const group = ([about, list]) => h('div', { role: 'group', 'aria-label': t(`experiments.group.${about}`) }, h('p', { class: 'sv-x-about' }, t(`experiments.group.${about}`)), ...list.map(radio));
    const legend = h('legend', { class: 'sv-x-legend' }, t('experiments.kind'));
    return h('fieldset', { class: 'sv-x-kinds' }, legend, h('div', { class: 'sv-x-groups' }, ...Object.entries(GROUPS).map(group)), help);
  }

  function set(patch) {
    Object.assign(mine(), patch);
    draw();
    changed();
  }

  function draw() {
    say(help, t(`experiments.kind.${kept.kind}.help`));
    const { values, tasks } = partsOf(kept.kind);
    element.replaceChildren(...[drafters(), ...Object.keys(values).map(list), tasks && prompts(), more()].filter(Boolean));
    count();
  }

  function count() {
    const { key, args } = sizeOf(kept, ready);
    say(size, t(key, args));
  }

  function fieldset(key, ...children) {
    return h('fieldset', { class: 'sv-x-field' }, h('legend', { class: 'sv-field-name' }, t(key)), ...children);
  }

  /** Boxes to tick, those of `shown`; what is chosen keeps the order of `all`. */
  function ticks(all, chosen, title, most, write, shown = all) {
    const boxes = shown.map((value) => {
      const on = chosen.includes(value);
      const input = h('input', { type: 'checkbox', value, checked: on, disabled: !on && chosen.length >= most });
      input.addEventListener('change', () => write(all.filter((each) => (each === value ? input.checked : chosen.includes(each))), value));
      return h('label', { class: 'sv-x-tick' }, input, h('span', {}, title(value)));
    });
    return h('div', { class: 'sv-x-ticks' }, ...boxes);
  }

  /** Ticking draws the boxes anew; the focus stays on the one that was ticked. */
  function ticking(part, write) {
    return (now, value) => {
      write(now);
      element.querySelector(`[data-part=${part}] input[value="${value}"]`)?.focus();
    };
  }

  function part(name, box) {
    box.dataset.part = name;
    return box;
  }

  /** The chosen ones; the many others are put away. */
  function drafters() {
    const all = ready.map((each) => each.name);
    const chosen = mine().drafters;
    const others = all.filter((name) => !chosen.includes(name));
    const title = (name) => drafterTitle(ready.find((each) => each.name === name), words);
    const write = ticking('drafters', (now) => set({ drafters: now }));
    const boxes = (shown) => ticks(all, chosen, title, MOST.drafters, write, shown);
    const more = h('details', { class: 'sv-x-more', open: kept.others || !chosen.length }, h('summary', {}, t('experiments.drafters.others', { count: others.length })), boxes(others));
    more.addEventListener('toggle', () => {
      kept.others = more.open;
    });
    const note = h('p', { class: 'sv-help' }, t('experiments.drafters.help', { most: MOST.drafters }));
    return part('drafters', fieldset('experiments.drafters', boxes(all.filter((name) => chosen.includes(name))), more, note));
  }

  /** A list of values. */
  function list(name) {
    const all = VALUES[name].filter((value) => !name.startsWith('gamma') || value <= boot.limits.gamma_max);
    const write = ticking(name, (now) => set({ [name]: now }));
    const title = (value) => (typeof value === 'number' ? ctx.number(value, 1, false) : t(`experiments.variant.${value}`));
    const key = `experiments.values.${name}`;
    const note = words.has(`${key}.help`) ? h('p', { class: 'sv-help' }, t(`${key}.help`)) : null;
    return part(name, fieldset(key, ticks(all, mine()[name], title, all.length, write), note));
  }

  function prompts() {
    const select = h('select', { class: 'sv-select', 'aria-label': t('experiments.prompts') });
    select.addEventListener('change', () => {
      kept.set = select.value;
      set({});
    });
    select.append(...SETS.map((name) => h('option', { value: name }, t(`experiments.set.${name}`))));
    select.value = kept.set;
    return part('prompts', fieldset('experiments.prompts', select, ...{ held_out: heldOut, presets, own }[kept.set]()));
  }

  function heldOut() {
    const write = ticking('prompts', (now) => set({ tasks: now }));
    const tasks = ticks(TASKS, mine().tasks, (task) => t(`experiments.task.${task}`), TASKS.length, write);
    return [tasks, choose('limit')];
  }

  function presets() {
    const write = ticking('prompts', (now) => {
      kept.presets = now;
      set({});
    });
    const title = (name) => boot.presets.find((each) => each.name === name).title[words.lang];
    const list = ticks(boot.presets.map((each) => each.name), kept.presets, title, MOST.prompts, write);
    list.classList.add('sv-x-ticks--long');
    return [list];
  }

  function own() {
    const id = newId('own');
    const area = h('textarea', { class: 'sv-x-own', id, rows: 4, placeholder: t('experiments.own.placeholder') });
    area.value = kept.own;
    area.addEventListener('input', () => {
      kept.own = area.value;
      kept.file = null;
      say(said, '');
      count();
      changed();
    });
    const picker = h('input', { type: 'file', accept: '.jsonl,.ndjson,.json', hidden: true });
    const said = h('span', { class: 'sv-help', role: 'status' }, kept.file ? fileSaid(kept.file) : '');
    picker.addEventListener('change', async () => {
      const [file] = picker.files;
      picker.value = '';
      if (!file) return;
      const found = { name: file.name, ...readQuestions(await file.text(), MOST.prompts) };
      kept.file = found.prompts.length ? found : null;
      say(said, kept.file ? fileSaid(found) : t('experiments.own.file.broken', { name: file.name }));
      count();
      changed();
    });
    const open = h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => picker.click() }, t('experiments.own.file'));
    return [
      h('label', { class: 'sv-help', for: id }, t('experiments.own')),
      area,
      h('div', { class: 'sv-x-file' }, open, said, picker),
      h('p', { class: 'sv-help' }, t('experiments.own.file.help')),
    ];
  }

  /** What was read of a question file, and what was not. */
  function fileSaid({ name, prompts, skipped, more: beyond }) {
    return [
      t('experiments.own.file.read', { name, count: prompts.length }),
      beyond ? t('experiments.own.file.more', { more: beyond, most: MOST.prompts }) : '',
      skipped ? t('experiments.own.file.skipped', { skipped }) : '',
    ]
      .filter(Boolean)
      .join(' ');
  }

  function more() {
    const fields = Object.keys(partsOf(kept.kind).more).map((name) => (name === 'policies' ? policies() : choose(name)));
    const details = h('details', { class: 'sv-x-more', open: kept.open }, h('summary', {}, t('experiments.more')), h('div', { class: 'sv-x-fields' }, ...fields));
    details.addEventListener('toggle', () => {
      kept.open = details.open;
    });
    return details;
  }

  function choose(name) {
    const most = name === 'tokens' ? boot.limits.max_new_tokens : Infinity;
    const select = h('select', { class: 'sv-select' });
    select.addEventListener('change', () => {
      mine()[name] = Number(select.value);
      count();
      changed();
    });
    select.append(...CHOICES[name].filter((value) => value <= most).map((value) => h('option', { value }, ctx.number(value, 1, false))));
    select.value = String(mine()[name]);
    return h('label', { class: 'sv-x-choose' }, h('span', {}, t(`experiments.${name}`)), select);
  }

  function policies() {
    const input = h('input', { type: 'checkbox', checked: mine().policies === 1 });
    input.addEventListener('change', () => {
      mine().policies = Number(input.checked);
      count();
      changed();
    });
    return h('label', { class: 'sv-x-choose' }, h('span', {}, t('experiments.policies')), input);
  }

  const questions = kinds();
  draw();
  return {
    questions,
    element,
    /** How many runs that is, in words. */
    size,
    /** What is sent, or null where nothing can be run. */
    request: () => (sizeOf(kept, ready).fits ? requestOf(kept, t) : null),
  };
}

function requestOf(kept, t) {
  const { kind, set } = kept;
  const { drafters, tasks, limit, tokens, policies, ...chosen } = kept.kinds[kind];
  const questions = {
    held_out: { set, tasks, limit },
    presets: { set, names: kept.presets },
    own: { set, prompts: promptsOf(kept, t) },
  }[set];
  const request = { kind, drafters, questions, max_new_tokens: tokens, ...chosen, policies: policies === 1 };
  if (MACHINE.includes(kind) || !Array.isArray(chosen[kind])) return request;
  // What is varied goes by one name, and its single value is not asked for.
  delete request[kind];
  return { ...request, axis: chosen[kind] };
}

/** [category, prompt] pairs: of the file that was opened, else a line each. */
function promptsOf({ own, file }, t) {
  if (file) return file.prompts;
  const lines = own.split('\n').filter((line) => line.trim());
  return lines.map((line, place) => [t('experiments.own.name', { place: place + 1 }), line]);
}

/** What is said of how much that is: {key, args}, and whether it can be run. */
function sizeOf(kept, ready) {
  const { kind, set } = kept;
  const mine = kept.kinds[kind];
  const prompts = !partsOf(kind).tasks || { held_out: mine.tasks.length * mine.limit, presets: kept.presets.length, own: promptsOf(kept, () => '').length }[set];
  const least = Math.max(0, ...(mine.gammas ?? [])) + BEYOND;
  const { runs, plain } = (MACHINE.includes(kind) ? measurements : sweeps)(kind, mine, ready, Number(prompts));
  if (!runs || !prompts) return { key: 'experiments.size.none', fits: false };
  if (runs > MOST.points) return { key: 'experiments.size.many', args: { runs, most: MOST.points }, fits: false };
  if (kind === 'concurrency' && mine.tokens < least) return { key: 'experiments.size.tokens', args: { gamma: least - BEYOND, least }, fits: false };
  return { key: MACHINE.includes(kind) ? 'experiments.size.machine' : 'experiments.size', args: { runs, plain }, fits: true };
}

/** Runs, and the plain ones beside them: one between two. */
function sweeps(kind, mine, ready, prompts) {
  const times = Math.min(prompts, MOST.prompts + 1) * mine.repeats;
  const chosen = ready.filter((each) => mine.drafters.includes(each.name));
  const forms = chosen.reduce((sum, each) => sum + (kind === 'temperature' && each.drafts === 'sampled' ? 2 : 1), 0);
  const values = Array.isArray(mine[kind]) ? mine[kind].length : 1;
  const plain = kind === 'temperature' ? values * Math.ceil(forms / 2) : Math.ceil((values * forms) / 2);
  return { runs: forms * values * times, plain: plain * times };
}

/** Samples, those of plain decoding among them; as `size` of the kind's own module counts them. */
function measurements(kind, mine) {
  const drafters = mine.drafters.length;
  if (kind === 'quantisation') return { runs: drafters && 1 + mine.variants.length };
  if (kind === 'context') return { runs: drafters && mine.lengths.length * (PASSES + mine.repeats * (drafters + Math.ceil(drafters / 2))) };
  const ways = drafters + mine.alphas.length;
  const modes = ways * mine.gammas.length;
  const adaptive = mine.policies ? 2 * ways : 0;
  return { runs: modes && mine.batches.length * mine.repeats * (1 + modes + adaptive) };
}
