/** A run beside plain decoding on one clock. */

import { h } from '../dom.js';
import { mountRace } from '../race.js';
import { Bundle } from '../trace.js';

export function mountBesides(root, stage) {
  const { ctx, texts, asks } = stage;
  const recorded = Bundle.of(texts[0]);
  const [trace] = recorded.traces;
  const box = h('div');
  root.append(h('p', { class: 'sv-l-about' }, ctx.badge(trace.origin, trace)), box);
  const race = mountRace(box, ctx);
  let bundle = recorded;
  const go = (position) => {
    box.hidden = asks && position === 0;
    if (!box.hidden) race.show(bundle);
  };
  go(0);
  const refresh = () => race.show(bundle);
  return {
    total: asks ? 1 : 0,
    first: 0,
    go,
    show([next]) {
      bundle = next;
      refresh();
    },
    refresh,
    back() {
      bundle = recorded;
      refresh();
    },
    destroy: race.destroy,
  };
}
