/** The settings that say how drafts are judged and how long they are: the rule, a lossy rule's number, the length. */

import { h, newId, say } from './dom.js';
import { ruleTitle } from './rule.js';

const WAYS = ['one_hot', 'sampled', 'without_replacement'];

/** The controls, in order; `make` holds controls.js's own ways to make one: {frame, select, range}. */
export function ruleControls({ boot, state, words }, make) {
  return [ruleControl({ boot, state, words }, make), strengthControl({ state, words }, make), lengthControl({ boot, state, words }, make)];
}

function ruleControl({ boot, state, words }, { frame }) {
  const select = h('select', { class: 'sv-select', onChange: () => state.set({ rule: select.value }) });
  const help = () => {
    const { rule } = state;
    const said = rule ? words.t(`rule.${rule.name}.help`) : '';
    return state.get('temperature') === 0 && rule?.lossless ? words.t('control.rule.greedy') : said;
  };
  const framed = frame('rule', () => words.t('control.rule'), select, { state, words, help });
  const table = ruleTable({ boot, state, words });
  const opener = h('button', { class: 'sv-link', type: 'button', onClick: () => table.open() });
  framed.element.append(opener, table.element);
  let shown = null;
  const draw = () => {
    const rules = state.drafter?.rules ?? [];
    if (shown !== state.drafter) {
      shown = state.drafter;
      select.replaceChildren(...rules.map((rule) => h('option', { value: rule.name })));
    }
    rules.forEach((rule, index) => say(select.options[index], ruleTitle(rule.name, words.t) ?? rule.name));
    select.value = state.rule?.name ?? '';
    framed.element.classList.toggle('sv-control--lossy', state.rule?.lossless === false);
    say(opener, words.t('rule.table'));
    framed.draw();
    table.draw();
  };
  return { element: framed.element, draw };
}

function strengthControl({ state, words }, { range }) {
  const read = () => state.strength ?? 0;
  const label = () => words.t(`rule.${state.rule.name}.strength`);
  const help = () => {
    const [usual, low, high] = state.rule.strength;
    return words.t('control.strength.help', { low, high, default: usual });
  };
  const spec = { low: 0, high: 1, step: 0.01, digits: 2, read, write: (strength) => state.set({ strength }) };
  const control = range('strength', 'number', spec, { state, words, label, help });
  const draw = () => {
    const bounds = state.rule?.strength ?? null;
    control.element.classList.toggle('sv-control--none', bounds === null);
    if (bounds === null) return;
    const input = control.element.querySelector('input');
    [, input.min, input.max] = bounds;
    [, spec.low, spec.high] = bounds;
    input.inputMode = 'decimal';
    control.draw();
  };
  return { element: control.element, draw };
}

function lengthControl({ boot, state, words }, { select }) {
  const entries = boot.lengths.map((name) => ({ name, text: () => words.t(`length.${name}`), off: false }));
  return select('length', entries, { state, words, help: () => words.t(`length.${state.get('length')}.help`) });
}

// ------------------------------------------------------------ the table of all rules

/** Every rule that some drafter offers, once, the lossy ones last. */
function rulesOf(boot) {
  const found = new Map(boot.drafters.flatMap((drafter) => drafter.rules.map((rule) => [rule.name, rule])));
  return [...found.values()].sort((a, b) => Number(b.lossless) - Number(a.lossless));
}

function ruleTable({ boot, state, words }) {
  const id = newId('rules');
  const title = h('h2', { class: 'sv-h2', id });
  const lead = h('p', { class: 'sv-help' });
  const wide = h('div', { class: 'sv-rules-wide', tabindex: '0', role: 'region', 'aria-labelledby': id });
  const close = h('button', { class: 'sv-quiet', type: 'button', onClick: () => element.close() });
  const element = h('dialog', { class: 'sv-rules', 'aria-labelledby': id }, h('div', { class: 'sv-rules-head' }, h('div', {}, title, lead), close), wide);
  const fits = (yes) => {
    const cell = h('td', { class: yes ? 'sv-fits' : 'sv-fits sv-fits--no' });
    cell.append(h('span', { 'aria-hidden': 'true' }, yes ? '✓' : '–'), h('span', { class: 'sv-hush' }, words.t(yes ? 'rule.table.yes' : 'rule.table.no')));
    return cell;
  };
  const draw = () => {
    if (!element.open) return;
    const { t } = words;
    say(title, t('rule.table'));
    say(lead, t('rule.table.lead'));
    say(close, t('rule.table.close'));
    const here = new Set((state.drafter?.rules ?? []).map((rule) => rule.name));
    const columns = ['rule', ...WAYS, 'trees', 'why'];
    const head = h('tr', {}, ...columns.map((name) => h('th', { scope: 'col' }, t(`rule.table.${name}`))));
    const rows = rulesOf(boot).map((rule) => {
      const name = h('th', { scope: 'row', class: rule.lossless ? null : 'sv-lossy' }, ruleTitle(rule.name, t) ?? rule.name);
      if (here.has(rule.name)) name.append(h('p', { class: 'sv-help' }, t('rule.table.here')));
      return h('tr', {}, name, ...WAYS.map((way) => fits(rule.drawn.includes(way))), fits(rule.trees), h('td', {}, t(`rule.${rule.name}.fit`)));
    });
    wide.replaceChildren(h('table', {}, h('thead', {}, head), h('tbody', {}, ...rows)));
  };
  const open = () => {
    element.showModal();
    draw();
  };
  return { element, open, draw };
}
