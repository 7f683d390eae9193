/** What a round is made of: draft, verify, accept, roll back; one stage after another. */

import { h } from '../dom.js';
import { LOOKS } from '../tile.js';
import { svg } from './draw.js';

const STAGES = ['draft', 'verify', 'accept', 'rollback'];
const SIDE = 34;
const GAP = 8;
const FATES = ['accepted', 'accepted', 'rejected', 'discarded'];

export function mountAnatomy(root, stage) {
  const { figure, ctx, words } = stage;
  const { t } = ctx;
  const items = STAGES.map((name, index) => {
    const own = `lesson.anatomy.${figure.method}.${name}`;
    return h(
      'li',
      { class: 'sv-l-stage', 'data-part': name },
      h(
        'h2',
        {},
        h('span', { class: 'sv-l-stage-number', 'aria-hidden': 'true' }, String(index + 1)),
        t(`lesson.anatomy.${name}`),
      ),
      DRAWINGS[name](),
      h('p', {}, t(words.has(own) ? own : `lesson.anatomy.${name}.text`)),
    );
  });
  root.append(h('ol', { class: 'sv-l-anatomy', 'aria-label': t('lesson.anatomy.title') }, ...items));
  const go = (position) =>
    items.forEach((item, index) => {
      item.classList.toggle('sv-l-stage--later', index > position);
      if (index === position) item.setAttribute('aria-current', 'step');
      else item.removeAttribute('aria-current');
    });
  go(0);
  return { total: STAGES.length - 1, first: 0, go };
}

function frame(...children) {
  return svg('svg', { viewBox: '0 0 212 104', class: 'sv-l-drawing', 'aria-hidden': 'true' }, ...children);
}

function square(column, y, className, sign = '') {
  const x = GAP + column * (SIDE + GAP);
  const box = svg('rect', { x, y, width: SIDE, height: SIDE, rx: 5, class: `sv-l-box sv-l-box--${className}` });
  return sign
    ? svg(
        'g',
        {},
        box,
        svg(
          'text',
          { x: x + SIDE / 2, y: y + SIDE / 2 + 6, 'text-anchor': 'middle', class: `sv-l-sign sv-l-sign--${className}` },
          sign,
        ),
      )
    : box;
}

const middle = (column) => GAP + column * (SIDE + GAP) + SIDE / 2;
const arrow = (x1, y1, x2, y2) => {
  const way = Math.atan2(y2 - y1, x2 - x1);
  const wing = (turn) => `${x2 - 7 * Math.cos(way + turn)},${y2 - 7 * Math.sin(way + turn)}`;
  return svg('path', { d: `M${x1},${y1}L${x2},${y2}M${wing(0.5)}L${x2},${y2}L${wing(-0.5)}`, class: 'sv-l-arrow' });
};

const DRAWINGS = {
  /** The drafts come one after another, each from the one before. */
  draft: () =>
    frame(
      ...[0, 1, 2, 3].map((column) => square(column, 34, 'draft', LOOKS.draft.glyph)),
      ...[0, 1, 2].map((column) =>
        svg('path', {
          d: `M${middle(column)},30C${middle(column)},10 ${middle(column + 1)},10 ${middle(column + 1)},28`,
          class: 'sv-l-arrow',
        }),
      ),
    ),
  /** One pass of the target over all of them. */
  verify: () =>
    frame(
      svg('rect', { x: GAP, y: 4, width: 5 * SIDE + 4 * GAP - 4, height: 30, rx: 6, class: 'sv-l-box sv-l-box--own' }),
      svg('text', { x: GAP + 10, y: 24, class: 'sv-l-sign sv-l-sign--own' }, 'p'),
      ...[0, 1, 2, 3].flatMap((column) => [
        arrow(middle(column), 38, middle(column), 58),
        square(column, 62, 'draft', LOOKS.draft.glyph),
      ]),
    ),
  /** Left to right until the first refusal; then the target's own token. */
  accept: () =>
    frame(
      ...FATES.map((fate, column) => square(column, 14, fate, LOOKS[fate].glyph)),
      arrow(middle(2), 52, middle(2), 60),
      square(2, 64, 'own', LOOKS.correction.glyph),
    ),
  /** The entries of what was not kept leave the cache. */
  rollback: () =>
    frame(
      ...[0, 1, 2, 3, 4].map((column) => square(column, 34, column < 3 ? 'cached' : 'rolled', column < 3 ? '' : '×')),
      svg('path', { d: `M${GAP * 0.5 + 3 * (SIDE + GAP)},18V86`, class: 'sv-l-cut' }),
      arrow(middle(4), 88, middle(3), 88),
    ),
};
