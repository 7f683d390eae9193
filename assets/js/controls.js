/**
 * The settings: native inputs, each with a label and one line of explanation.
 * What cannot be combined is disabled, with the reason in place of the explanation.
 */

import { againstControl } from './against.js';
import { h, newId, say } from './dom.js';
import { ruleControls } from './rules.js';
import { SCRIPT } from './state.js';

/** What each control is; ranges come from the same table that checks the address. */
const RUN = [
  { name: 'gamma', kind: 'range', low: 1, step: 1 },
  { name: 'max_new_tokens', kind: 'range', low: 1, step: 1 },
  { name: 'temperature', kind: 'range', low: 0, high: 2, step: 0.1, digits: 1 },
  { name: 'seed', kind: 'number', low: 0, high: Number.MAX_SAFE_INTEGER, step: 1 },
  { name: 'top_p', kind: 'range', low: 0.05, high: 1, step: 0.05, digits: 2 },
  { name: 'top_k', kind: 'number', low: 0, high: 1000, step: 1 },
  { name: 'repetition_penalty', kind: 'range', low: 0.5, high: 2, step: 0.05, digits: 2 },
];

/** Why a control has no say right now; null when it has. */
function silenced(name, state) {
  const without = state.get('drafter') === 'none';
  if (without && name === 'gamma') return 'control.gamma.off';
  if (without && name === 'race') return 'control.race.off';
  if (without && name === 'rule') return 'control.rule.off';
  if (without && name === 'length') return 'control.length.off';
  if (state.get('temperature') === 0 && ['top_p', 'top_k', 'seed'].includes(name)) return 'control.greedy.off';
  return null;
}

export function mountControls(root, { boot, state, words }) {
  const controls = [];
  const grid = h('div', { class: 'sv-settings-grid' });
  const knobs = h('div', { class: 'sv-settings-grid', 'data-hide': 'knobs' });
  const group = (key) => words.bind(h('h2', { class: 'sv-settings-group' }), key);
  const highs = { gamma: boot.limits.gamma_max, max_new_tokens: boot.limits.max_new_tokens };

  const add = (control) => {
    controls.push(control);
    return control.element;
  };
  grid.append(
    group('control.group.who'),
    add(
      selectControl(
        'target',
        boot.targets.map((target) => ({ name: target.name, text: () => target.title, off: false })),
        { state, words },
      ),
    ),
    add(
      selectControl(
        'drafter',
        [...boot.drafters].sort((a, b) => Number(b.ready) - Number(a.ready)).map((drafter) => ({
          name: drafter.name,
          off: !drafter.ready,
          group: groupOf(drafter),
          text: () => drafterTitle(drafter, words),
        })),
        { state, words, help: () => words.t(`drafter.${state.get('drafter')}.help`) },
      ),
    ),
    ...ruleControls({ boot, state, words }, { frame, select: selectControl, range: rangeOrNumber }).map(add),
  );
  const how = h('div', { class: 'sv-settings-grid' });
  how.append(
    group('control.group.how'),
    ...RUN.map((spec) => add(numberControl({ high: highs[spec.name], ...spec }, { state, words }))),
    add(checkControl('chat', { state, words })),
    add(checkControl('race', { state, words })),
    add(againstControl({ boot, state, words })),
  );
  const reset = words.bind(
    h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick: () => state.reset() }),
    'control.reset',
  );
  root.append(grid, knobs, how, h('div', { class: 'sv-settings-foot' }, reset));

  let knobbed = null;
  let knobControls = [];
  const drawKnobs = () => {
    const drafter = state.drafter;
    const shown = (drafter?.knobs ?? []).filter((knob) => knob.name !== SCRIPT);
    if (knobbed !== drafter?.name) {
      knobbed = drafter?.name;
      knobControls = shown.map((knob) => knobControl(drafter, knob, { state, words }));
      knobs.replaceChildren(...knobControls.map((control) => control.element));
    }
    knobs.hidden = !shown.length || state.isHidden('knobs');
  };
  const draw = () => {
    drawKnobs();
    for (const control of [...controls, ...knobControls]) control.draw();
  };
  draw();
  return { draw };
}

export function drafterTitle(drafter, words) {
  const title = words.t(`drafter.${drafter.name}`);
  if (drafter.fetch) return words.t('control.drafter.fetch', { title, command: drafter.fetch });
  return drafter.ready ? title : words.t('control.drafter.weights', { title });
}

/** The drafters by what they need; doing without one stands alone. */
function groupOf(drafter) {
  if (!drafter.ready) return 'weights';
  return drafter.drafts === 'none' ? null : drafter.drafts;
}

/** Label, input, and the line under it, which gives way to the reason when the control is off. */
function frame(name, label, input, { state, words, help, output = null }) {
  const id = newId(name);
  const line = h('p', { class: 'sv-help', id: `${id}-help` });
  input.id = id;
  input.setAttribute('aria-describedby', line.id);
  const title = h('label', { class: 'sv-field-name', for: id });
  const element = h(
    'div',
    { class: 'sv-control', 'data-hide': name },
    h('div', { class: 'sv-control-head' }, title, output),
    input,
    line,
  );
  const draw = () => {
    const reason = silenced(name, state);
    input.disabled = reason !== null;
    element.classList.toggle('sv-control--off', reason !== null);
    say(title, label());
    say(line, reason === null ? help() : words.t(reason));
  };
  return { element, draw };
}

function selectControl(name, entries, { state, words, help = () => words.t(`control.${name}.help`) }) {
  const select = h('select', { class: 'sv-select', onChange: () => state.set({ [name]: select.value }) });
  const options = entries.map((entry) => h('option', { value: entry.name, disabled: entry.off }));
  const groups = new Map();
  entries.forEach(({ group }, index) => {
    if (!group) select.append(options[index]);
    else {
      if (!groups.has(group)) groups.set(group, h('optgroup'));
      groups.get(group).append(options[index]);
    }
  });
  select.append(...groups.values());
  const framed = frame(name, () => words.t(`control.${name}`), select, { state, words, help });
  const draw = () => {
    entries.forEach((entry, index) => say(options[index], entry.text()));
    for (const [group, element] of groups) element.label = words.t(`control.drafters.${group}`);
    select.value = state.get(name);
    framed.draw();
  };
  return { element: framed.element, draw };
}

function numberControl(spec, { state, words }) {
  const { name, kind, low, high, step, digits = 0 } = spec;
  const read = () => state.get(name);
  const write = (value) => state.set({ [name]: value });
  return rangeOrNumber(
    name,
    kind,
    { low, high, step, digits, read, write },
    {
      state,
      words,
      label: () => words.t(`control.${name}`),
      help: () => words.t(`control.${name}.help`),
    },
  );
}

function rangeOrNumber(name, kind, spec, { state, words, label, help }) {
  const { low, high, step, digits, read, write } = spec;
  const ranged = kind === 'range';
  const input = h('input', {
    type: kind,
    min: low,
    max: high,
    step,
    class: ranged ? null : 'sv-number-input',
    inputmode: ranged ? null : 'numeric',
  });
  const output = ranged ? h('output') : null;
  const take = () => {
    const value = Number(input.value);
    if (input.value === '' || !Number.isFinite(value)) return;
    write(Math.min(Math.max(Number(value.toFixed(digits)), spec.low), spec.high));
  };
  input.addEventListener(ranged ? 'input' : 'change', take);
  const framed = frame(name, label, input, { state, words, help, output });
  const draw = () => {
    // A value from the address may lie between two stops; the slider rounds, the number shown does not.
    if (document.activeElement !== input || !ranged) input.value = read();
    if (output) say(output, words.number(read(), Math.max(digits, decimals(read()))));
    if (ranged) input.setAttribute('aria-valuetext', output.textContent);
    framed.draw();
  };
  return { element: framed.element, draw };
}

function checkControl(name, { state, words }) {
  const id = newId(name);
  const box = h('input', {
    type: 'checkbox',
    'aria-describedby': `${id}-help`,
    onChange: () => state.set({ [name]: box.checked }),
  });
  const title = h('span');
  const line = h('p', { class: 'sv-help', id: `${id}-help` });
  const element = h(
    'div',
    { class: 'sv-control', 'data-hide': name },
    h('label', { class: 'sv-check' }, box, title),
    line,
  );
  const draw = () => {
    const reason = silenced(name, state);
    box.disabled = reason !== null;
    box.checked = state.get(name) && reason === null;
    say(title, words.t(`control.${name}`));
    say(line, words.t(reason ?? `control.${name}.help`));
  };
  return { element, draw };
}

/** A knob as the drafter declares it: a whole number or one of a few names. */
function knobControl(drafter, knob, { state, words }) {
  const key = `knob.${drafter.name}.${knob.name}`;
  const label = () => words.t(key);
  const help = () => words.t(`${key}.help`);
  if (knob.kind === 'int') {
    const spec = {
      low: knob.min,
      high: knob.max,
      step: 1,
      digits: 0,
      read: () => state.options[knob.name],
      write: (value) => setPair(drafter, knob, value, state),
    };
    return rangeOrNumber(knob.name, 'range', spec, { state, words, label, help });
  }
  if (knob.kind === 'text') {
    const field = h('input', {
      class: 'sv-number-input',
      type: 'text',
      maxlength: 64,
      spellcheck: 'false',
      // What is left empty is what the knob has by itself.
      onChange: () => state.setOption(knob.name, field.value.trim() || knob.default),
    });
    const framed = frame(knob.name, label, field, { state, words, help });
    const draw = () => {
      field.value = state.options[knob.name];
      framed.draw();
    };
    return { element: framed.element, draw };
  }
  const select = h('select', { class: 'sv-select', onChange: () => state.setOption(knob.name, select.value) });
  select.append(...knob.choices.map((name) => h('option', { value: name })));
  const framed = frame(knob.name, label, select, { state, words, help });
  const draw = () => {
    knob.choices.forEach((name, index) => say(select.options[index], words.t(`${key}.${name}`)));
    select.value = state.options[knob.name];
    framed.draw();
  };
  return { element: framed.element, draw };
}

/** A knob min_x never passes its max_x: the one that is moved takes the other along. */
function setPair(drafter, knob, value, state) {
  const patch = { [knob.name]: value };
  const [, end, rest] = knob.name.match(/^(min|max)_(.+)$/) ?? [];
  const other = drafter.knobs.find((each) => each.name === `${end === 'min' ? 'max' : 'min'}_${rest}`);
  if (other) {
    const held = state.options[other.name];
    patch[other.name] = end === 'min' ? Math.max(held, value) : Math.min(held, value);
  }
  state.set({ options: { ...state.get('options'), ...patch } });
}

function decimals(value) {
  return (String(value).split('.')[1] ?? '').length;
}
