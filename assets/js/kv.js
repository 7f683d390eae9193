/** The KV caches of target and drafter in one round: slots in blocks of 16, as a paged cache holds them, and bytes. */

import { make, number } from './tile.js';

const BLOCK = 16;
const BLOCKS = 6; // drawn one by one; full blocks before them are only counted
const SLOTS = ['committed', 'kept', 'rolled', 'free'];
const UNITS = ['B', 'KiB', 'MiB', 'GiB'];

export function mountKv(root, ctx) {
  root.classList.add('sv-kv');
  const chooser = make('label', 'sv-kv-round');
  const name = make('span', '');
  const slider = make('input', '');
  slider.type = 'range';
  slider.min = '0';
  const where = make('output', '');
  chooser.append(name, slider, where);
  const caches = make('div', '');
  const legend = make('ul', 'sv-kv-legend');
  root.replaceChildren(chooser, caches, legend);
  let trace = null;
  let round = 0;

  slider.addEventListener('input', () => {
    round = Number(slider.value);
    draw();
  });

  function draw() {
    const count = trace?.rounds.length ?? 0;
    chooser.hidden = !count;
    caches.replaceChildren();
    if (!count) return;
    round = Math.min(round, count - 1);
    slider.max = String(count - 1);
    slider.value = String(round);
    where.textContent = ctx.t('kv.of', { round, rounds: count - 1 });
    for (const side of ['target', 'drafter']) caches.append(drawCache(side));
  }

  function drawCache(side) {
    const box = make('section', 'sv-kv-cache');
    box.append(make('h4', '', ctx.t(`kv.${side}`)));
    const entries = trace.rounds[round].kv?.[side] ?? null;
    if (entries === null) {
      const reason = side === 'drafter' && trace.origin !== 'server' ? 'kv.none' : 'kv.unknown';
      box.append(make('p', 'sv-kv-more', ctx.t(reason)));
      return box;
    }
    box.append(strip(entries), numbers(entries, trace.meta.kv_bytes_per_token?.[side] ?? null));
    return box;
  }

  function strip([before, peak, after]) {
    const line = make('div', 'sv-kv-strip');
    line.setAttribute('role', 'img');
    line.setAttribute('aria-label', ctx.t('kv.summary', { before, peak, after, rolled: peak - after }));
    const blocks = Math.max(Math.ceil(peak / BLOCK), 1);
    const first = Math.max(0, Math.min(Math.floor(Math.min(before, after) / BLOCK), blocks - BLOCKS));
    if (first > 0) line.append(make('span', 'sv-kv-more', ctx.t('kv.blocks', { n: first })));
    for (let block = first; block < blocks; block += 1) {
      const box = make('span', 'sv-kv-block');
      for (let slot = block * BLOCK; slot < (block + 1) * BLOCK; slot += 1) {
        box.append(make('span', `sv-slot sv-slot--${fate(slot, before, peak, after)}`));
      }
      line.append(box);
    }
    return line;
  }

  function numbers(entries, bytes) {
    const line = make('p', 'sv-kv-numbers');
    ['before', 'peak', 'after'].forEach((when, index) => {
      const item = make('span', '');
      const size = bytes === null ? '' : ` · ${amount(entries[index] * bytes, ctx.lang())}`;
      item.append(`${ctx.t(`kv.${when}`)} `, make('b', '', ctx.t('kv.entries', { n: entries[index] })), size);
      line.append(item);
    });
    return line;
  }

  function setWords() {
    name.textContent = ctx.t('kv.round');
    legend.setAttribute('aria-label', ctx.t('kv.legend'));
    legend.replaceChildren(...SLOTS.map((slot) => {
      const item = make('li', '');
      item.append(make('span', `sv-slot sv-slot--${slot}`), ctx.t(`kv.${slot}`));
      return item;
    }));
    draw();
  }

  setWords();
  return {
    /** Show the caches in one round; without a number, the last one. */
    show(next, index = null) {
      trace = next;
      round = index ?? Math.max((next?.rounds.length ?? 0) - 1, 0);
      draw();
    },
    setWords,
    destroy: () => root.replaceChildren(),
  };
}

/** Slots below `before` were there; what the round wrote is kept below `after` and rolled back below `peak`. */
function fate(slot, before, peak, after) {
  if (slot < Math.min(before, after)) return 'committed';
  if (slot < after) return 'kept';
  return slot < peak ? 'rolled' : 'free';
}

/** Bytes in binary units. */
export function amount(bytes, lang) {
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), UNITS.length - 1);
  return `${number(bytes / 1024 ** power, lang, power ? 1 : 0)} ${UNITS[power]}`;
}
