/** Where a likeness carries, and where it breaks. */

import { h } from '../dom.js';
import { block } from './prose.js';

export function mountAnalogy(root, { figure, ctx }) {
  const side = (name) => {
    const box = block(figure[name], 'sv-l-prose');
    return h('section', { class: `sv-l-side sv-l-side--${name}` }, h('h2', {}, ctx.t(`lesson.analogy.${name}`)), box);
  };
  root.append(h('div', { class: 'sv-l-sides' }, side('carries'), side('breaks')));
  return { total: 0, first: 0, go() {} };
}
