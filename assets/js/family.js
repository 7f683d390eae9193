/** The drafters that learn from the target, as one table that sorts: in the Lab, and as a figure of a lesson. */

import { h } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
/** γ of the measured chains; a head that was judged at fewer places leaves the last ones empty. */
const PLACES = 4;
const RANGE = { width: 96, height: 14, edge: 5 };
/** What is known of a trained head alone; one that is not trained says so once, over all of these. */
const MEASURED = Object.freeze(['parameters', 'c', 'slots', 'alpha', 'tau', 'speedup']);

/** Columns beside the method's name. `by` is what a column sorts by, null where a row has nothing to say. */
export const COLUMNS = Object.freeze({
  reads: { by: (member) => member.reads.length, first: 'ascending' },
  order: { by: (member) => ORDERS.indexOf(member.order), first: 'ascending' },
  parameters: { by: (member) => member.parameters, first: 'ascending' },
  c: { by: (member) => member.c, first: 'ascending' },
  slots: { by: (member) => member.slots[0] ?? null, first: 'descending' },
  alpha: { by: (member) => member.alpha, first: 'descending' },
  tau: { by: (member) => member.tau, first: 'descending' },
  speedup: { by: (member) => member.speedup?.median ?? null, first: 'descending' },
  // Gains over plain decoding compare with each other; other measures stand behind them.
  published: { by: ({ claims: [first] }) => (first?.measure === 'speedup' ? first.high : null), first: 'descending' },
});
const ORDERS = ['lookup', 'sequential', 'parallel', 'hybrid'];
const NUMBERS = new Set(['parameters', 'c', 'alpha', 'tau']);

/**
 * An element with the table and the conditions under it. family = {members, sources} as `sv/family.json` has them;
 * `columns` names those that are shown, all when empty; `sort` is the column it begins sorted by.
 */
export function makeFamily(family, { t, number, lang, columns = [], sort = null }) {
  const shown = Object.keys(COLUMNS).filter((name) => columns.length === 0 || columns.includes(name));
  const most = Math.max(1, ...family.members.map(({ speedup }) => speedup?.high ?? 0));
  let at = sort ? { name: sort, way: COLUMNS[sort].first } : null;
  const heads = new Map(['method', ...shown].map((name) => [name, headOf(name)]));
  const body = h('tbody');
  const rows = new Map(family.members.map((member) => [member, rowOf(member)]));
  const said = h('p', { class: 'sv-hush', role: 'status' });
  const table = h(
    'table',
    { class: 'sv-fam-table' },
    h('caption', { class: 'sv-hush' }, summary(family.members, { t, number, lang })),
    h('thead', {}, h('tr', {}, ...heads.values())),
    body,
  );
  const scroll = h('div', { class: 'sv-fam-scroll', tabindex: '0', role: 'region', 'aria-label': t('family.table') }, table);
  draw();
  return h('div', { class: 'sv-fam' }, scroll, said, ...conditions());

  function headOf(name) {
    const title = t(`family.column.${name}`);
    const button = h(
      'button',
      { type: 'button', class: 'sv-fam-sort', title: t(`family.column.${name}.help`), onClick: () => turn(name) },
      title,
      h('span', { class: 'sv-fam-way', 'aria-hidden': 'true' }),
    );
    const kind = name === 'method' ? ' sv-fam-name' : '';
    return h('th', { scope: 'col', class: `sv-fam-col sv-fam-col--${name}${kind}`, 'aria-sort': 'none' }, button);
  }

  /** First one way, then the other, then back to the order in which ideas came. */
  function turn(name) {
    const first = COLUMNS[name]?.first ?? 'ascending';
    const second = first === 'ascending' ? 'descending' : 'ascending';
    if (at?.name !== name) at = { name, way: first };
    else at = at.way === first ? { name, way: second } : null;
    draw();
    said.textContent = at
      ? t('family.sorted', { column: t(`family.column.${name}`), way: t(`family.sorted.${at.way}`) })
      : t('family.sorted.not');
  }

  function draw() {
    for (const [name, head] of heads) head.setAttribute('aria-sort', at?.name === name ? at.way : 'none');
    body.replaceChildren(...sorted(family.members, at, { t, lang }).map((member) => rows.get(member)));
  }

  function rowOf(member) {
    const name = t(`drafter.${member.method}`);
    const first = h('th', { scope: 'row', class: 'sv-fam-name' }, name, mark(member));
    const cells = [];
    for (const column of shown) {
      if (!member.trained && MEASURED.includes(column)) {
        if (cells.at(-1)?.dataset.measured) cells.at(-1).colSpan += 1;
        else cells.push(h('td', { class: 'sv-fam-none', 'data-measured': '1' }, t('family.untrained')));
      } else cells.push(h('td', { class: `sv-fam-cell sv-fam-cell--${column}${NUMBERS.has(column) ? ' sv-fam-amount' : ''}` }, ...cellOf(column, member)));
    }
    return h('tr', { 'data-method': member.method }, first, ...cells);
  }

  function mark(member) {
    return member.method === 'bigram' ? h('span', { class: 'sv-fam-note' }, t('family.floor')) : null;
  }

  function cellOf(column, member) {
    if (column === 'reads') return member.reads.map((what) => h('span', { class: 'sv-fam-read' }, readText(what, member.layers)));
    if (column === 'order') return [t(`family.order.${member.order}`)];
    if (column === 'published') return publishedOf(member);
    if (column === 'slots') return member.slots.length ? [slotsOf(member.slots)] : ['–'];
    if (column === 'speedup') return member.speedup ? speedOf(member.speedup) : ['–'];
    const value = member[column];
    if (value === null) return ['–'];
    if (column === 'parameters') return [t('family.millions', { millions: number(value / 1e6, 1) })];
    return [number(value, column === 'c' ? 3 : 2)];
  }

  function readText(what, layers) {
    if (what !== 'hidden') return t(`family.read.${what}`);
    return layers ? t('family.read.hidden', { layers: layers.join(', ') }) : t('family.read.hidden.unknown');
  }

  /** A bar a place, as high as what is accepted there of what is judged; its number below. */
  function slotsOf(slots) {
    const told = slots.map((rate, place) => t('family.slot', { place: place + 1, rate: number(rate, 2) })).join('; ');
    const bars = Array.from({ length: Math.max(PLACES, slots.length) }, (_, place) => {
      const rate = slots[place];
      const bar = h('i', { class: 'sv-fam-bar' });
      bar.style.setProperty('--rate', String(rate ?? 0));
      return h('span', { class: 'sv-fam-slot' }, bar, h('b', {}, rate === undefined ? '' : number(rate, 2).replace(/^0\./, '.')));
    });
    return h('span', { class: 'sv-fam-slots', role: 'img', 'aria-label': told, title: told }, ...bars);
  }

  /** The median, and on one scale for all rows the spread over prompts with a line where plain decoding is. */
  function speedOf({ median, low, high }) {
    const x = (value) => RANGE.edge + (RANGE.width - 2 * RANGE.edge) * (value / most);
    const middle = RANGE.height / 2;
    const drawing = shape('svg', { viewBox: `0 0 ${RANGE.width} ${RANGE.height}`, width: RANGE.width, height: RANGE.height, class: 'sv-fam-range', 'aria-hidden': 'true' });
    drawing.append(
      shape('line', { x1: x(1), x2: x(1), y1: 0, y2: RANGE.height, class: 'sv-fam-even' }),
      shape('line', { x1: x(low), x2: x(high), y1: middle, y2: middle, class: 'sv-fam-spread' }),
      shape('circle', { cx: x(median), cy: middle, r: 4, class: `sv-fam-dot${median > 1 ? ' sv-fam-dot--gain' : ''}` }),
    );
    return [
      h('b', {}, t('family.times', { value: number(median, 2) })),
      h('span', { class: 'sv-fam-small' }, t('family.between', { low: number(low, 2), high: number(high, 2) })),
      drawing,
    ];
  }

  function publishedOf({ claims }) {
    const [first, ...others] = claims;
    if (!first) return ['–'];
    const more = others.length
      ? h('details', { class: 'sv-fam-more' }, h('summary', {}, t('family.more', { count: others.length })), ...others.map((claim) => h('p', {}, ...claimOf(claim))))
      : null;
    return [h('p', {}, ...claimOf(first)), ...(more ? [more] : [])];
  }

  function claimOf(claim) {
    const source = family.sources[claim.source];
    return [
      h('b', {}, claimText(claim, { t, number })),
      h('span', { class: 'sv-fam-small' }, `${claim.when[lang()]} · `, h('a', { href: source.url, target: '_blank', rel: 'noreferrer', title: source.title }, sourceText(source, t))),
    ];
  }

  /** A line for each run that measured some of the methods: numbers of two runs do not compare. */
  function conditions() {
    const runs = new Map();
    for (const member of family.members) {
      if (!member.conditions) continue;
      const line = conditionsOf(member, { t, number });
      runs.set(line, [...(runs.get(line) ?? []), t(`drafter.${member.method}`)]);
    }
    const several = runs.size > 1;
    return [...runs].map(([line, methods]) =>
      h('p', { class: 'sv-fam-about' }, several ? `${new Intl.ListFormat(lang()).format(methods)}: ${line}` : line),
    );
  }
}

/** The members in the order that is asked for; those with nothing to say in that column stay last, whichever way. */
export function sorted(members, at, { t, lang }) {
  if (!at) return [...members];
  const sign = at.way === 'ascending' ? 1 : -1;
  if (at.name === 'method') {
    const collator = new Intl.Collator(lang(), { numeric: true });
    return [...members].sort((a, b) => sign * collator.compare(t(`drafter.${a.method}`), t(`drafter.${b.method}`)));
  }
  const { by } = COLUMNS[at.name];
  return [...members].sort((a, b) => {
    const [left, right] = [by(a), by(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    return sign * (left - right);
  });
}

/** What the table says, in one sentence. */
export function summary(members, { t, number, lang }) {
  const measured = members.filter((member) => member.speedup);
  if (!measured.length) return t('family.summary.none');
  const best = Math.max(...measured.map((member) => member.speedup.median));
  const names = measured.filter((member) => member.speedup.median === best).map((member) => t(`drafter.${member.method}`));
  const args = { trained: measured.length, all: members.length, best: number(best, 2), names: new Intl.ListFormat(lang()).format(names) };
  return t(best > 1 ? 'family.summary' : 'family.summary.slow', args);
}

function claimText({ measure, low, high, most }, { t, number }) {
  const value = (one) => number(one, 2, false);
  const range = low === null ? value(high) : t('family.between', { low: value(low), high: value(high) });
  return t(`family.claim.${measure}`, { value: most ? t('family.most', { value: range }) : range });
}

function conditionsOf({ conditions: told, prompts }, { t, number }) {
  const parts = [
    told.device_name,
    told.threads && t('family.threads', { threads: told.threads }),
    told.dtype,
    Number.isFinite(told.gamma) ? `γ = ${told.gamma}` : '',
    Number.isFinite(told.temperature) ? t('family.temperature', { temperature: number(told.temperature, 1, false) }) : '',
    Number.isFinite(told.max_new_tokens) ? t('family.tokens', { tokens: told.max_new_tokens }) : '',
    prompts && t('family.prompts', { prompts }),
    told.torch && `torch ${told.torch}`,
    told.created?.slice(0, 10),
  ];
  return parts.filter(Boolean).join(' · ');
}

function sourceText({ authors, year }, t) {
  const first = authors.split(',')[0].replace(' et al.', '');
  return t(first === authors ? 'family.source' : 'family.source.many', { authors: first, year: String(year) });
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
