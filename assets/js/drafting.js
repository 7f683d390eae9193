/** How the draft of the round on the board came about: every picture that its reasons have something for. */

import { drawCalibration, heldOut } from './calibration.js';
import { h } from './dom.js';
import { drawGrown } from './grown.js';
import { RARE, growthOf, joinsOf, slotsOf } from './reasons.js';
import { drawSlots } from './slots.js';

/** Whether a run's reasons have a picture at all. */
export function hasDrafting(trace) {
  return trace?.rounds.some((round) => slotsOf(round) || growthOf(round)) ?? false;
}

/** show(trace, round): the round the board stands at; null takes the last one that has a picture. */
export function mountDrafting(root, { boot, words, ctx }) {
  const box = h('div');
  root.append(box);
  const said = { ...ctx, number: (value, digits) => words.number(value, digits) };
  return {
    show(trace, at) {
      if (!hasDrafting(trace)) {
        box.replaceChildren();
        return;
      }
      const number = at ?? trace.rounds.findLastIndex((round) => slotsOf(round) || growthOf(round));
      const round = trace.rounds[number];
      const slots = drawSlots(trace, round, said);
      const grown = drawGrown(trace, round, said);
      const parts = [h('p', { class: 'sv-drafting-round' }, said.t('drafting.round', { round: round.round }))];
      if (slots) parts.push(slots);
      if (grown) parts.push(grown);
      if (!slots && !grown) parts.push(h('p', { class: 'sv-none' }, said.t('drafting.none')));
      const joins = trace.rounds.slice(0, number + 1).flatMap((each) => joinsOf(each));
      const corrected = slotsOf(round)?.some((slot) => slot.corrected);
      if (joins.length && !corrected) {
        const args = { pairs: joins.length, wrong: joins.filter((join) => join.wrong).length, limit: RARE * 100 };
        parts.push(h('p', { class: 'sv-slots-said' }, said.t('drafting.joins', args)));
      }
      const calibration = drawCalibration(trace.rounds, heldOut(boot, trace.meta.drafter), said);
      if (calibration) parts.push(h('h3', { class: 'sv-drafting-round' }, said.t('calibration.title')), calibration);
      box.replaceChildren(...parts);
    },
  };
}
