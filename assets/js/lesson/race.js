/** A run beside plain decoding on one clock. */

import { h } from '../dom.js';
import { mountRace } from '../race.js';
import { Bundle } from '../trace.js';

export function mountBesides(root, stage) {
  const { ctx, texts, asks } = stage;
  const bundle = Bundle.of(texts[0]);
  const [trace] = bundle.traces;
  const box = h('div');
  root.append(h('p', { class: 'sv-l-about' }, ctx.badge(trace.origin, trace)), box);
  const race = mountRace(box, ctx);
  race.show(bundle);
  const go = (position) => {
    box.hidden = asks && position === 0;
  };
  go(0);
  return { total: asks ? 1 : 0, first: 0, go, destroy: race.destroy };
}
