/** What the rule did with one token, in one sentence with that token's numbers. Keys `inspector.rule.*`. */

import { number, probability, quote } from './tile.js';

/** One-hot drafts: the target draws its own token y and keeps the draft if they agree. */
const MATCHING = new Set(['match']);
const RATIO = new Set(['token']);

/** Whether no number u decides here: the target draws its own token and compares. */
export function drawsItsOwn(trace) {
  return MATCHING.has(trace.meta.rule);
}

export function judgement(trace, round, index, ctx) {
  const node = round.nodes[index];
  const { t } = ctx;
  const draft = quote(trace.text(node.id), t);
  if (node.status === 'discarded') return t('inspector.rule.discarded', { draft });
  const verdict = node.status === 'accepted' ? 'accepted' : 'rejected';
  const other = verdict === 'rejected' ? round.insteadOf(index) : null;
  const y = other ? quote(trace.text(other.id), t) : draft;
  if (trace.meta.temperature === 0) return t(`inspector.rule.greedy.${verdict}`, { draft, y });
  if (drawsItsOwn(trace)) return t(`inspector.rule.match.${verdict}`, { draft, y });
  if (RATIO.has(trace.meta.rule) && node.u != null && node.p != null && node.q > 0) return ratio(node, draft, verdict, ctx);
  if (node.u != null && node.accept != null) {
    return t(`inspector.rule.chance.${verdict}`, { draft, u: drawn(node.u, ctx), accept: probability(node.accept, ctx.lang()) });
  }
  return t(`inspector.rule.unknown.${verdict}`, { draft, y });
}

function ratio(node, draft, verdict, ctx) {
  const share = node.p / node.q;
  const key = verdict === 'accepted' && share >= 1 ? 'certain' : verdict;
  return ctx.t(`inspector.rule.token.${key}`, { draft, u: drawn(node.u, ctx, share), ratio: number(share, ctx.lang(), digits(node.u, share)) });
}

/** Enough digits to show on which side of the ratio the draw fell. */
function digits(u, share) {
  return [2, 3, 4].find((count) => u.toFixed(count) !== share.toFixed(count)) ?? 6;
}

function drawn(u, ctx, share) {
  if (u == null) return ctx.t('inspector.unknown');
  return number(u, ctx.lang(), share === undefined ? 2 : digits(u, share));
}

/** Where the target's own token of a round comes from. */
export function ownToken(trace, round, ctx) {
  const { t } = ctx;
  const own = round.emitted;
  const y = quote(trace.text(own.id), t);
  if (round.prefill) return t('inspector.rule.prefill', { y });
  if (own.kind === 'plain') return t('inspector.rule.plain', { y });
  if (own.kind === 'bonus') return t('inspector.rule.bonus', { y, n: round.accepted });
  const refused = round.nodes.find((node) => node.status === 'rejected');
  const draft = refused ? quote(trace.text(refused.id), t) : '';
  const how = trace.meta.temperature === 0 ? 'greedy' : drawsItsOwn(trace) ? 'match' : 'residual';
  return t(`inspector.rule.correction.${how}`, { y, draft });
}
