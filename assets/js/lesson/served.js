/** One request of a saved server run, as tiles: what the server told of it, and … where it told nothing. */

import { h } from '../dom.js';
import { mountTiles } from './tiles.js';

export function mountServed(root, stage) {
  const { figure, ctx } = stage;
  // Before a guess no draft is in sight: those that were kept have a word, and that would tell.
  const tiles = mountTiles(root, { ...stage, texts: [figure.ndjson], asks: false });
  const { meta } = JSON.parse(figure.ndjson.slice(0, figure.ndjson.indexOf('\n')));
  const said = [ctx.t('lesson.served.unknown'), unsettledOf(meta, ctx)].filter(Boolean).join(' ');
  root.append(h('p', { class: 'sv-l-about' }, said), conditionsOf(figure, ctx));
  return tiles;
}

/** A draft of which nothing was kept brings one token, as a silent round does: which was which may stay open. */
export function unsettledOf(meta, ctx) {
  const stretches = meta.unsettled ?? [];
  if (!stretches.length) return '';
  const sum = (count) => stretches.reduce((total, each) => total + count(each), 0);
  return ctx.t('lesson.served.unsettled', {
    rounds: sum(({ first, last }) => last - first + 1),
    drafts: sum(({ drafted }) => drafted.length),
  });
}

/** Where and when the server ran. */
export function conditionsOf({ conditions }, ctx) {
  const { target, vllm, processor, cores, created, note } = conditions;
  const parts = [`vLLM ${vllm}`, target, processor, cores && ctx.t('lesson.served.cores', { cores }), created];
  return h('p', { class: 'sv-l-about', title: note }, ctx.badge('recorded'), ' ', parts.filter(Boolean).join(' · '));
}
