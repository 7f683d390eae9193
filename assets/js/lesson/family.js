/** Drafters that learn from the target, side by side: the methods and columns that a step asks for. */

import { h } from '../dom.js';
import { makeFamily } from '../family.js';

export function mountFamily(root, stage) {
  const { figure, ctx } = stage;
  root.append(
    h('h2', { class: 'sv-l-figure-title' }, ctx.t('family.title')),
    makeFamily(figure, { ...ctx, columns: figure.columns, sort: figure.sort }),
    h('p', { class: 'sv-l-about' }, ctx.badge('recorded'), ' ', ctx.t('family.warning')),
  );
  return { total: 0, first: 0, go() {} };
}
