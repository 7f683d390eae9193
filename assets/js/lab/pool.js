/** The pool of blocks in one step, and beside it each request's own block table. */

import { h, say } from '../dom.js';

/** Requests go by letters, so that the picture reads without colours. */
export const nameOf = (request) => String.fromCharCode(65 + request);
export const FATES = Object.freeze(['committed', 'kept', 'returned', 'empty']);

/** Slots below `before` were filled; what the step wrote is kept below `after` and was returned below `peak`. */
function fate(slot, { before, peak, after }) {
  if (slot < Math.min(before, after)) return 'committed';
  if (slot < after) return 'kept';
  return slot < peak ? 'returned' : 'empty';
}

export function makeSlot(kind) {
  return h('i', { class: `sv-pg-slot sv-pg-slot--${kind}` });
}

/** Returns {element, draw(step)}; a step of null is the pool before anyone has come. */
export function makeGrid({ pool, block: size }, { t }) {
  const element = h('div', { class: 'sv-pg-grid', role: 'img' });
  const blocks = Array.from({ length: pool }, (_, number) => {
    const slots = Array.from({ length: size }, () => makeSlot('empty'));
    const owner = h('b', { class: 'sv-pg-owner' });
    const box = h(
      'div',
      { class: 'sv-pg-block' },
      h('div', { class: 'sv-pg-block-head' }, owner, h('span', { class: 'sv-pg-number' }, String(number))),
      h('div', { class: 'sv-pg-slots' }, ...slots),
    );
    element.append(box);
    return { box, owner, slots };
  });

  const paint = ({ box, owner, slots }, held, place, how) => {
    box.dataset.request = held ? nameOf(held.request) : '';
    box.className = ['sv-pg-block', how && `sv-pg-block--${how}`].filter(Boolean).join(' ');
    say(owner, held ? nameOf(held.request) : '');
    slots.forEach((slot, index) => {
      const kind = held && how !== 'freed' ? fate(place * size + index, held) : 'empty';
      slot.className = `sv-pg-slot sv-pg-slot--${kind}`;
    });
  };

  return {
    element,
    draw(step) {
      const shown = new Map();
      for (const held of step?.held ?? [])
        held.blocks.forEach((block, place) => shown.set(block, [held, place, place >= held.blocks.length - held.taken ? 'taken' : '']));
      for (const block of step?.freed ?? []) shown.set(block, [{ request: step.about[0] }, 0, 'freed']);
      blocks.forEach((block, number) => paint(block, ...(shown.get(number) ?? [null, 0, 'free'])));
      element.setAttribute('aria-label', describe(step, pool, t));
    },
  };
}

/** The whole pool in words. */
function describe(step, pool, t) {
  const lines = (step?.held ?? []).map((held) =>
    t('paged.spoken.held', { name: nameOf(held.request), blocks: held.blocks.join(', '), slots: held.after, returned: held.peak - held.after }),
  );
  return [t('paged.spoken.free', { free: step?.free ?? pool, pool }), ...lines].join(' ');
}

/** Returns {element, draw(step)}: a row a request, with where its blocks lie in the order of its tokens. */
export function makeTables({ requests, block: size }, { t }) {
  const rows = requests.map((request, number) => {
    const status = h('span', { class: 'sv-pg-status' });
    const change = h('span', { class: 'sv-pg-change' });
    const blocks = h('span', { class: 'sv-pg-table' });
    const element = h(
      'li',
      { class: 'sv-pg-request', 'data-request': nameOf(number) },
      h('b', { class: 'sv-pg-chip' }, nameOf(number)),
      h('span', { class: 'sv-pg-prompt', title: request.prompt }, request.prompt),
      status,
      h('span', { class: 'sv-pg-where' }, blocks, change),
    );
    return { element, status, change, blocks };
  });

  const cell = (block, place, { after, taken, blocks }) => {
    const filled = Math.min(Math.max(after - place * size, 0), size);
    const made = h('span', { class: `sv-pg-cell${place >= blocks.length - taken ? ' sv-pg-cell--taken' : ''}` }, String(block));
    made.style.setProperty('--filled', `${(100 * filled) / size}%`);
    made.title = t('paged.cell', { place, block, filled, size });
    return made;
  };

  return {
    element: h('ol', { class: 'sv-pg-requests', 'aria-label': t('paged.tables') }, ...rows.map(({ element }) => element)),
    draw(step) {
      rows.forEach(({ element, status, change, blocks }, number) => {
        const held = step?.held.find((each) => each.request === number);
        const how = held ? 'running' : step?.finished.includes(number) ? 'finished' : 'waiting';
        element.dataset.how = how;
        element.classList.toggle('sv-pg-request--about', step?.about.includes(number) ?? false);
        const { tokens, wrote } = requests[number];
        say(status, t(`paged.status.${how}`, { slots: held?.after ?? 0, tokens, wrote }));
        blocks.replaceChildren(...(held?.blocks ?? []).map((block, place) => cell(block, place, held)));
        change.replaceChildren(...(held && held.peak > held.before ? changed(held, t) : []));
      });
    },
  };
}

/** What the step wrote for one request: slots kept and slots returned, in words for those who do not see the signs. */
function changed({ before, peak, after, drafted }, t) {
  const sign = (kind, n) => h('span', { class: 'sv-pg-sign', 'aria-hidden': 'true' }, makeSlot(kind), String(n));
  const words = t('paged.change', { kept: after - before, returned: peak - after });
  return [h('span', { class: 'sv-hush' }, words), sign('kept', after - before), drafted ? sign('returned', peak - after) : ''];
}
