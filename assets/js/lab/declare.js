/** What an experiment is made of, chosen by hand: a question, drafters, values, prompts. Says how many runs that is. */

import { comparable } from '../against.js';
import { drafterTitle } from '../controls.js';
import { h, newId, say } from '../dom.js';
import { readQuestions } from './results.js';

export const KINDS = Object.freeze(['gamma', 'temperature', 'task', 'streaming']);
// As in spec_viz/ui/experiments.py, which checks them again.
const MOST = Object.freeze({ drafters: 4, points: 200, prompts: 24 });
const TASKS = Object.freeze(['chat', 'explanation', 'list', 'code', 'summary', 'question']);
const SETS = Object.freeze(['held_out', 'presets', 'own']);
const VALUES = Object.freeze({ gamma: [1, 2, 3, 4, 6, 8, 10, 12], temperature: [0, 0.3, 0.5, 0.7, 1, 1.5] });
const CHOICES = Object.freeze({
  limit: [1, 2, 3, 4],
  tokens: [16, 32, 48, 64, 128],
  repeats: [1, 2, 3, 5],
  gamma: [1, 2, 3, 4, 6, 8, 12],
  temperature: [0, 0.5, 0.7, 1],
});
/** Drafters that draft from a law of their own show most over temperatures; the first ones that are ready are taken. */
const USUAL = Object.freeze({
  gamma: ['prompt_lookup', 'eagle3'],
  temperature: ['eagle3', 'draft_model', 'early_exit'],
  task: ['prompt_lookup', 'token_recycling', 'eagle3'],
  streaming: ['prompt_lookup', 'eagle3'],
});
const FEW = Object.freeze({ temperature: 1 });

/** Small enough for about a minute on two cores. */
export function usual(boot) {
  const ready = comparable(boot).filter((each) => each.ready).map((each) => each.name);
  const drafters = KINDS.map((kind) => [kind, USUAL[kind].filter((name) => ready.includes(name)).slice(0, FEW[kind] ?? 3)]);
  return {
    kind: 'gamma',
    drafters: Object.fromEntries(drafters),
    values: { gamma: [1, 2, 4, 8], temperature: [0, 0.5, 1] },
    set: 'held_out',
    tasks: { gamma: ['chat', 'code', 'summary'], temperature: ['chat', 'code', 'summary'], task: [...TASKS], streaming: ['code'] },
    presets: [],
    own: '',
    file: null,
    limit: 1,
    tokens: 32,
    repeats: 1,
    gamma: 4,
    temperature: 0,
  };
}

/** `kept` is changed by the hand and outlives the form. changed() hears every change. */
export function makeForm({ boot, words, ctx, kept, changed }) {
  const { t } = ctx;
  const ready = comparable(boot).filter((each) => each.ready);
  const size = h('p', { class: 'sv-help' });
  const parts = h('div', { class: 'sv-x-parts' });
  const element = h('div', { class: 'sv-x-form' }, kinds(), parts);

  function kinds() {
    const name = newId('kind');
    const radios = KINDS.map((kind) => {
      const input = h('input', { type: 'radio', name, value: kind, checked: kind === kept.kind, onChange: () => set({ kind }) });
      return h('label', { class: 'sv-x-kind' }, input, h('span', {}, h('b', {}, t(`experiments.kind.${kind}`)), h('small', {}, t(`experiments.kind.${kind}.help`))));
    });
    return fieldset('experiments.kind', ...radios);
  }

  function set(patch) {
    Object.assign(kept, patch);
    draw();
    changed();
  }

  function draw() {
    parts.replaceChildren(
      ...[drafters(), values(), prompts(), more()].filter(Boolean),
    );
    count();
  }

  function count() {
    const { runs, plain } = sizeOf(kept, ready);
    const key = !runs ? 'none' : runs > MOST.points ? 'many' : null;
    say(size, t(key ? `experiments.size.${key}` : 'experiments.size', { runs, plain, most: MOST.points }));
  }

  function fieldset(key, ...children) {
    return h('fieldset', { class: 'sv-x-field' }, h('legend', { class: 'sv-field-name' }, t(key)), ...children);
  }

  /** Boxes to tick; the list keeps the order of `all`. */
  function ticks(all, chosen, title, most, write) {
    const boxes = all.map((value) => {
      const on = chosen.includes(value);
      const input = h('input', { type: 'checkbox', checked: on, disabled: !on && chosen.length >= most });
      input.addEventListener('change', () => {
        const now = all.filter((each) => (each === value ? input.checked : chosen.includes(each)));
        const place = boxes.findIndex((box) => box.contains(input));
        write(now, place);
      });
      return h('label', { class: 'sv-x-tick' }, input, h('span', {}, title(value)));
    });
    return h('div', { class: 'sv-x-ticks' }, ...boxes);
  }

  /** Ticking draws the boxes anew; the focus stays on the one that was ticked. */
  function ticking(name, patch) {
    return (now, place) => {
      set(patch(now));
      parts.querySelectorAll(`[data-part=${name}] input`)[place]?.focus();
    };
  }

  function part(name, element) {
    element.dataset.part = name;
    return element;
  }

  function drafters() {
    const all = ready.map((each) => each.name);
    const title = (name) => drafterTitle(ready.find((each) => each.name === name), words);
    const write = ticking('drafters', (now) => ({ drafters: { ...kept.drafters, [kept.kind]: now } }));
    const help = h('p', { class: 'sv-help' }, t('experiments.drafters.help', { most: MOST.drafters }));
    return part('drafters', fieldset('experiments.drafters', ticks(all, kept.drafters[kept.kind], title, MOST.drafters, write), help));
  }

  function values() {
    const { kind } = kept;
    if (!(kind in VALUES)) return null;
    const all = VALUES[kind].filter((value) => kind !== 'gamma' || value <= boot.limits.gamma_max);
    const write = ticking('values', (now) => ({ values: { ...kept.values, [kind]: now } }));
    const title = (value) => ctx.number(value, 1, false);
    return part('values', fieldset(`experiments.values.${kind}`, ticks(all, kept.values[kind], title, all.length, write)));
  }

  function prompts() {
    const select = h('select', { class: 'sv-select', 'aria-label': t('experiments.prompts'), onChange: () => set({ set: select.value }) });
    select.append(...SETS.map((name) => h('option', { value: name }, t(`experiments.set.${name}`))));
    select.value = kept.set;
    return part('prompts', fieldset('experiments.prompts', select, ...{ held_out: heldOut, presets, own }[kept.set]()));
  }

  function heldOut() {
    const write = ticking('prompts', (now) => ({ tasks: { ...kept.tasks, [kept.kind]: now } }));
    const tasks = ticks(TASKS, kept.tasks[kept.kind], (task) => t(`experiments.task.${task}`), TASKS.length, write);
    return [tasks, choose('limit', 'experiments.limit')];
  }

  function presets() {
    const write = ticking('prompts', (now) => ({ presets: now }));
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
    const said = h('span', { class: 'sv-help', role: 'status' }, kept.file ? t('experiments.own.file.read', { name: kept.file.name, count: kept.file.prompts.length }) : '');
    picker.addEventListener('change', async () => {
      const [file] = picker.files;
      picker.value = '';
      if (!file) return;
      const found = readQuestions(await file.text(), MOST.prompts);
      kept.file = found.length ? { name: file.name, prompts: found } : null;
      const key = found.length ? 'experiments.own.file.read' : 'experiments.own.file.broken';
      say(said, t(key, { name: file.name, count: found.length }));
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

  function more() {
    const fields = [choose('tokens', 'experiments.tokens'), choose('repeats', 'experiments.repeats')];
    for (const name of ['gamma', 'temperature']) if (name !== kept.kind) fields.push(choose(name, `experiments.${name}`));
    const details = h('details', { class: 'sv-x-more', open: kept.open }, h('summary', {}, t('experiments.more')), h('div', { class: 'sv-x-fields' }, ...fields));
    details.addEventListener('toggle', () => {
      kept.open = details.open;
    });
    return details;
  }

  function choose(name, key) {
    const most = name === 'tokens' ? boot.limits.max_new_tokens : Infinity;
    const select = h('select', { class: 'sv-select', onChange: () => {
      kept[name] = Number(select.value);
      count();
      changed();
    } });
    select.append(...CHOICES[name].filter((value) => value <= most).map((value) => h('option', { value }, ctx.number(value, 1, false))));
    select.value = String(kept[name]);
    return h('label', { class: 'sv-x-choose' }, h('span', {}, t(key)), select);
  }

  draw();
  return {
    element,
    /** How many runs that is, in words. */
    size,
    /** What is sent, or null where nothing can be run. */
    request() {
      const { runs } = sizeOf(kept, ready);
      return runs && runs <= MOST.points ? requestOf(kept, t) : null;
    },
  };
}

function requestOf(kept, t) {
  const { kind, set } = kept;
  const questions = {
    held_out: { set, tasks: kept.tasks[kind], limit: kept.limit },
    presets: { set, names: kept.presets },
    own: { set, prompts: promptsOf(kept, t) },
  }[set];
  return {
    kind,
    drafters: kept.drafters[kind],
    axis: kept.values[kind] ?? [],
    questions,
    gamma: kept.gamma,
    temperature: kept.temperature,
    max_new_tokens: kept.tokens,
    repeats: kept.repeats,
  };
}

/** [category, prompt] pairs: of the file that was opened, else a line each. */
function promptsOf({ own, file }, t) {
  if (file) return file.prompts;
  const lines = own.split('\n').filter((line) => line.trim());
  return lines.map((line, place) => [t('experiments.own.name', { place: place + 1 }), line]);
}

/** Runs, and the plain ones beside them: one between two. */
function sizeOf(kept, ready) {
  const { kind, set } = kept;
  const prompts = {
    held_out: kept.tasks[kind].length * kept.limit,
    presets: kept.presets.length,
    own: promptsOf(kept, () => '').length,
  }[set];
  const times = Math.min(prompts, MOST.prompts + 1) * kept.repeats;
  const chosen = ready.filter((each) => kept.drafters[kind].includes(each.name));
  const forms = chosen.reduce((sum, each) => sum + (kind === 'temperature' && each.drafts === 'sampled' ? 2 : 1), 0);
  const values = kept.values[kind]?.length ?? 1;
  const plain = kind === 'temperature' ? values * Math.ceil(forms / 2) : Math.ceil((values * forms) / 2);
  return { runs: forms * values * times, plain: plain * times };
}
