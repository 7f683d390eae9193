/** The caches of target and drafter, round by round. */

import { h } from '../dom.js';
import { mountKv } from '../kv.js';
import { Bundle } from '../trace.js';

const SIDES = ['target', 'drafter'];

export function mountCaches(root, stage) {
  const { figure, ctx, texts } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const [from, to] = figure.rounds ?? [0, trace.rounds.length - 1];
  const box = h('div');
  root.append(h('p', { class: 'sv-l-about' }, ctx.badge(trace.origin, trace)), box);
  const kv = mountKv(box, ctx);
  const show = (position) => kv.show(trace, from + position);
  box.addEventListener('input', (event) =>
    stage.moved?.(Math.min(Math.max(Number(event.target.value) - from, 0), to - from)),
  );
  show(0);
  return {
    total: to - from,
    first: 0,
    go: show,
    find: (ref, target) =>
      ref === 'slot' ? [box.querySelectorAll('.sv-kv-cache')[SIDES.indexOf(target)]].filter(Boolean) : [],
    destroy: kv.destroy,
  };
}
