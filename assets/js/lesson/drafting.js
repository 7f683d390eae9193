/** How the draft of one round came about, and whether a run's confidence was right. */

import { drawCalibration, heldOut } from '../calibration.js';
import { h } from '../dom.js';
import { drawGrown, movesOf } from '../grown.js';
import { drawSlots } from '../slots.js';
import { Bundle } from '../trace.js';
import { promptOf } from './tiles.js';

/** A round's slots; with a guess to make, what the target made of them comes second. */
export function mountSlots(root, stage) {
  const { figure, ctx, texts, asks } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const box = framed(root, trace, ctx, figure.round);
  const go = (position) => {
    const picture = drawSlots(trace, trace.rounds[figure.round], ctx, { judged: !asks || position > 0 });
    box.replaceChildren(picture ?? missing(ctx));
  };
  go(0);
  return { total: asks ? 1 : 0, first: 0, go };
}

/** A round's tree, depth by depth, and then what the rerank kept and the target judged. */
export function mountGrown(root, stage) {
  const { figure, ctx, texts } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const round = trace.rounds[figure.round];
  const box = framed(root, trace, ctx, figure.round);
  const total = movesOf(round);
  const go = (move) => box.replaceChildren(drawGrown(trace, round, ctx, { move }) ?? missing(ctx));
  go(total);
  return { total, first: 0, go };
}

/** What was said of a run's drafts against what became of them; with a guess to make, the points come second. */
export function mountCalibration(root, stage) {
  const { ctx, texts, asks, host } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const box = framed(root, trace, ctx);
  const held = heldOut(host.boot, trace.meta.drafter);
  const go = (position) =>
    box.replaceChildren(drawCalibration(trace.rounds, held, ctx, { shown: !asks || position > 0 }) ?? missing(ctx));
  go(0);
  return { total: asks ? 1 : 0, first: 0, go };
}

function framed(root, trace, ctx, round = null) {
  const box = h('div');
  root.append(promptOf(trace, ctx, { badged: true }));
  if (round !== null) root.append(h('p', { class: 'sv-drafting-round' }, ctx.t('drafting.round', { round })));
  root.append(box);
  return box;
}

/** A live run may have gone another way than the recorded one. */
function missing(ctx) {
  return h('p', { class: 'sv-none' }, ctx.t('drafting.none'));
}
