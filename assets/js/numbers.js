/** Numbers that explain a run: each with its fraction, its definition, and whether it was measured, recorded or computed. */

import { h, newId } from './dom.js';

const BADGES = Object.freeze(['measured', 'recorded', 'computed']);

/** A small mark that says where a number comes from; `detail` (device, date) shows on hover. */
export function badge(kind, words, detail = '') {
  const name = BADGES.includes(kind) ? kind : 'recorded';
  const title = [words.t(`shell.badge.${name}.help`), detail].filter(Boolean).join(' ');
  return h('span', { class: `sv-badge sv-badge--${name}`, title }, words.t(`shell.badge.${name}`));
}

export function mountNumbers(root, { words }) {
  const list = h('div', { class: 'sv-numbers', role: 'list' });
  root.append(list);
  // Escape puts a definition away without moving the pointer.
  list.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    for (const tip of list.querySelectorAll('.sv-tip')) tip.classList.add('sv-tip--shut');
    event.stopPropagation();
  });
  const open = (event) =>
    event.target.closest('.sv-number')?.querySelector('.sv-tip')?.classList.remove('sv-tip--shut');
  list.addEventListener('focusin', open);
  list.addEventListener('pointerover', open);
  return { show: (numbers) => list.replaceChildren(...numbers.map((number) => drawNumber(number, words))) };
}

function drawNumber({ key, value, fraction, badge: kind, digits }, words) {
  const id = newId('tip');
  const name = h('button', { class: 'sv-term', type: 'button', 'aria-describedby': id }, words.t(`number.${key}`));
  const tip = h('span', { class: 'sv-tip', id, role: 'tooltip' }, words.t(`number.${key}.help`));
  const amount = h(
    'div',
    { class: 'sv-number-value' },
    h('b', {}, amountOf(value, digits, words)),
    h('span', {}, fraction ?? ''),
    badge(kind, words),
  );
  return h('div', { class: 'sv-number', role: 'listitem' }, name, tip, amount);
}

function amountOf(value, digits, words) {
  if (value === null || value === undefined) return words.t('shell.unknown');
  return typeof value === 'number' ? words.number(value, digits ?? 2) : String(value);
}

/** What weights and caches take: one row a part. */
export function mountMemory(root, { words }) {
  const caption = h('caption');
  const head = h('tr');
  const body = h('tbody');
  root.append(h('table', { class: 'sv-table' }, caption, h('thead', {}, head), body));
  return {
    show(rows) {
      caption.textContent = words.t('shell.memory.caption');
      head.replaceChildren(
        ...['part', 'amount', 'source'].map((column) => h('th', { scope: 'col' }, words.t(`shell.memory.${column}`))),
      );
      body.replaceChildren(...rows.map((row) => drawRow(row, words)));
    },
  };
}

function drawRow({ key, bytes, fraction, badge: kind }, words) {
  const amount = h(
    'td',
    { class: 'sv-amount' },
    bytes === null || bytes === undefined ? words.t('shell.unknown') : bytesText(bytes, words),
  );
  const name = h('th', { scope: 'row' }, words.t(`memory.${key}`));
  if (fraction) name.append(h('span', { class: 'sv-help' }, ` ${fraction}`));
  return h('tr', {}, name, amount, h('td', {}, badge(kind, words)));
}

/** Bytes in the largest unit that keeps the number at least 1; powers of 1024, as memory is counted. */
export function bytesText(bytes, words) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  const step = bytes > 0 ? Math.min(Math.floor(Math.log2(bytes) / 10), units.length - 1) : 0;
  return `${words.number(bytes / 1024 ** step, step ? 1 : 0)} ${units[step]}`;
}
