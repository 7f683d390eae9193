/** The whole run on one strip: who was there when, blocks in use, tokens a pass; a marker at the step on show. */

import { h } from '../dom.js';
import { svg } from '../lesson/draw.js';
import { nameOf } from './pool.js';

const ROW = 14; // a request's life
const GAP = 22; // above each of the two plots, for its title
const USED = 56;
const TOKENS = 48;
const LEFT = 30;
const RIGHT = 6;

/** Returns {element, draw(position)}. `go` hears the position that is asked for; 0 is before the first step. */
export function makeTimeline(record, { t, number }, go) {
  const { steps, requests, pool } = record;
  const slider = h('input', { class: 'sv-pg-seek', type: 'range', min: 0, max: steps.length, 'aria-label': t('paged.seek') });
  const holder = h('div', { class: 'sv-pg-strip', 'aria-hidden': 'true' });
  let position = 0;
  let width = 0;
  let marker = null;

  slider.addEventListener('input', () => go(Number(slider.value)));
  holder.addEventListener('click', (event) => {
    const at = (event.clientX - holder.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
    go(Math.min(Math.max(Math.ceil(at * steps.length), 0), steps.length));
  });
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (!now || now === width) return;
    width = now;
    build();
    mark();
  }).observe(holder);

  const x = (at) => LEFT + (at / steps.length) * (width - LEFT - RIGHT);

  function build() {
    const lives = requests.length * ROW;
    const usedFrom = lives + GAP;
    const tokensFrom = usedFrom + USED + GAP;
    const height = tokensFrom + TOKENS + 2;
    const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'sv-pg-svg' });
    const text = (at, y, words, anchor = 'start') => svg('text', { x: at, y, 'text-anchor': anchor }, words);

    const letters = [];
    requests.forEach((_, request) => {
      const inside = steps.map((step) => step.held.some((held) => held.request === request));
      const from = inside.indexOf(true);
      if (from < 0) return;
      const y = request * ROW + 2;
      letters.push(text(x(from) - 5, y + ROW - 5, nameOf(request), 'end'));
      drawing.append(
        svg('rect', { x: x(from), y, width: x(inside.lastIndexOf(true) + 1) - x(from), height: ROW - 4, rx: 2, class: 'sv-pg-life', 'data-request': nameOf(request) }),
      );
    });

    const tall = (used) => usedFrom + USED * (1 - used / pool);
    const stairs = steps.map((step, at) => `L${x(at)} ${tall(pool - step.free)}L${x(at + 1)} ${tall(pool - step.free)}`).join('');
    drawing.append(
      text(LEFT + 5, usedFrom - 6, t('paged.strip.used', { pool })),
      svg('line', { class: 'sv-pg-limit', x1: LEFT, x2: width - RIGHT, y1: usedFrom, y2: usedFrom }),
      text(LEFT - 5, usedFrom + 5, String(pool), 'end'),
      text(LEFT - 5, usedFrom + USED, '0', 'end'),
      svg('path', { class: 'sv-pg-used', d: `M${LEFT} ${tall(0)}${stairs}L${width - RIGHT} ${tall(0)}Z` }),
    );

    const sums = steps.map(({ kind, held }) =>
      kind === 'pass' ? [sum(held, (each) => each.after - each.before), sum(held, (each) => each.peak - each.after)] : [0, 0],
    );
    const most = Math.max(...sums.map(([kept, returned]) => kept + returned), 1);
    const up = (tokens) => (tokens / most) * TOKENS;
    const base = tokensFrom + TOKENS;
    drawing.append(
      text(LEFT + 5, tokensFrom - 6, t(sums.some(([, returned]) => returned) ? 'paged.strip.tokens' : 'paged.strip.plain')),
      text(LEFT - 5, tokensFrom + 5, number(most, 0), 'end'),
      text(LEFT - 5, base, '0', 'end'),
      svg('line', { class: 'sv-pg-limit', x1: LEFT, x2: width - RIGHT, y1: base, y2: base }),
    );
    const thick = Math.max((width - LEFT - RIGHT) / steps.length - 1.5, 1);
    sums.forEach(([kept, returned], at) => {
      const bar = (name, from, tokens) => svg('rect', { class: `sv-pg-bar sv-pg-bar--${name}`, x: x(at) + 0.75, width: thick, y: base - up(from + tokens), height: up(tokens) });
      if (kept) drawing.append(bar('kept', 0, kept));
      if (returned) drawing.append(bar('returned', kept, returned));
    });
    marker = svg('g', { class: 'sv-pg-marker' }, svg('rect', { y: 0, width: thick + 1.5, height }), svg('line', { y1: 0, y2: height }));
    // On a phone the first steps are so narrow that the marker stands where letters do.
    drawing.append(marker, ...letters);
    holder.replaceChildren(drawing);
  }

  /** A band over the step on show; at the very start a line alone. */
  function mark() {
    if (!marker) return;
    const [band, line] = marker.children;
    band.setAttribute('x', x(Math.max(position - 1, 0)));
    band.setAttribute('visibility', position ? 'visible' : 'hidden');
    for (const end of ['x1', 'x2']) line.setAttribute(end, x(position));
  }

  return {
    element: h('div', { class: 'sv-pg-timeline' }, slider, holder),
    draw(next, spoken) {
      position = next;
      slider.value = String(next);
      slider.setAttribute('aria-valuetext', spoken);
      mark();
    },
  };
}

function sum(list, value) {
  return list.reduce((total, each) => total + value(each), 0);
}
