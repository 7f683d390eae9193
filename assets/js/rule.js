/** What the rule did with one token, in one sentence with that token's numbers. Keys `inspector.rule.*`. */

import { number, probability, quote } from './tile.js';
import { ROOT, childrenOf, isTree } from './tree.js';

/** One-hot drafts: the target draws its own token y and keeps the draft if they agree. */
const MATCHING = new Set(['match']);
const RATIO = new Set(['token']);
/** Rules with sentences of their own. */
const IN_TURN = new Set(['specinfer', 'without_replacement', 'kseq']);
const LOSSY = new Set(['typical', 'ensemble', 'synthetic']);
const KNOWN = new Set([...MATCHING, ...RATIO, ...IN_TURN, ...LOSSY, 'block']);
/** The rules of the first papers, which go without saying. */
const USUAL = new Set([...MATCHING, ...RATIO]);
/** At temperature 0 these come to "take the likeliest token"; the other lossy ones do not. */
const ARGMAX = (rule) => !LOSSY.has(rule) || rule === 'typical';

export function isLossy(rule) {
  return LOSSY.has(rule);
}

/** The rule's name as it is always said: a lossy one with that word. Null for a rule this page does not know. */
export function ruleTitle(rule, t) {
  if (!KNOWN.has(rule)) return null;
  const title = t(`rule.${rule}`);
  return isLossy(rule) ? t('rule.lossy', { title }) : title;
}

/** The rule as a run's header names it; null where it is one of the usual ones. */
export function ruleHeader({ rule }, t) {
  const title = USUAL.has(rule) ? null : ruleTitle(rule, t);
  return title === null ? null : t('rule.header', { rule: title });
}

/** Whether no number u decides here: the target draws its own token and compares. */
export function drawsItsOwn(trace) {
  return MATCHING.has(trace.meta.rule);
}

export function judgement(trace, round, index, ctx) {
  const node = round.nodes[index];
  const { t } = ctx;
  const { rule } = trace.meta;
  const draft = quote(trace.text(node.id), t);
  if (node.status === 'discarded') return neverJudged(trace, round, index, draft, ctx);
  const verdict = node.status === 'accepted' ? 'accepted' : 'rejected';
  const other = verdict === 'rejected' ? round.insteadOf(index) : null;
  const y = other ? quote(trace.text(other.id), t) : draft;
  if (trace.meta.temperature === 0 && ARGMAX(rule)) {
    const said = t(`inspector.rule.greedy.${verdict}`, { draft, y });
    return isLossy(rule) ? `${said} ${t('inspector.rule.lossy', { rule: ruleTitle(rule, t) })}` : said;
  }
  if (drawsItsOwn(trace)) return t(`inspector.rule.match.${verdict}`, { draft, y });
  if (RATIO.has(rule) && node.u != null && node.p != null && node.q > 0) return ratio(node, draft, verdict, ctx);
  if (rule === 'block' && node.u != null && node.accept != null) return block(node, draft, verdict, ctx);
  if (IN_TURN.has(rule) && node.u != null && node.accept != null) return inTurn(round, index, draft, verdict, rule, ctx);
  if (isLossy(rule) && node.accept != null) return lossy(trace, node, draft, verdict, ctx);
  if (node.u != null && node.accept != null) {
    return t(`inspector.rule.chance.${verdict}`, { draft, u: drawn(node.u, ctx), accept: probability(node.accept, ctx.lang()) });
  }
  return t(`inspector.rule.unknown.${verdict}`, { draft, y });
}

/** Why the target never got to a draft: an elder sibling was kept, its branch was not taken, or a refusal came first. */
function neverJudged(trace, round, index, draft, { t }) {
  const { parent } = round.nodes[index];
  const kept = childrenOf(round, parent).find((each) => round.nodes[each].status === 'accepted');
  if (kept !== undefined) return t('inspector.rule.tree.sibling', { draft, kept: quote(trace.text(round.nodes[kept].id), t) });
  const above = round.pathTo(index).slice(0, -1);
  if (isTree(round) && !above.some((each) => round.nodes[each].status === 'rejected')) return t('inspector.rule.tree.branch', { draft });
  if (trace.meta.rule === 'block' && trace.meta.temperature !== 0) return t('inspector.rule.block.discarded', { draft });
  return t('inspector.rule.discarded', { draft });
}

function ratio(node, draft, verdict, ctx) {
  const share = node.p / node.q;
  const key = verdict === 'accepted' && share >= 1 ? 'certain' : verdict;
  return ctx.t(`inspector.rule.token.${key}`, { draft, u: drawn(node.u, ctx, share), ratio: number(share, ctx.lang(), digits(node.u, share)) });
}

/** A prefix whose own draw failed is kept all the same when a longer one succeeds. */
function block(node, draft, verdict, ctx) {
  const key = verdict === 'accepted' && node.u >= node.accept ? 'carried' : verdict;
  return ctx.t(`inspector.rule.block.${key}`, { draft, ...against(node, ctx) });
}

/** Siblings are tried one after another, each against what the refusals before it left of p. */
function inTurn(round, index, draft, verdict, rule, ctx) {
  const family = childrenOf(round, round.nodes[index].parent);
  const args = { draft, place: family.indexOf(index) + 1, of: family.length, ...against(round.nodes[index], ctx) };
  return ctx.t(`inspector.rule.${rule}.${verdict}`, args);
}

function lossy(trace, node, draft, verdict, ctx) {
  const { rule, strength } = trace.meta;
  const args = {
    rule: ruleTitle(rule, ctx.t),
    draft,
    strength: typeof strength === 'number' ? number(strength, ctx.lang(), 2) : ctx.t('inspector.unknown'),
    p: node.p == null ? ctx.t('inspector.unknown') : probability(node.p, ctx.lang()),
    ...against(node, ctx),
  };
  // Over the bar, but not on the branch that was kept.
  const outdone = rule === 'typical' && verdict === 'rejected' && node.accept === 1;
  return ctx.t(outdone ? 'inspector.rule.typical.outdone' : `inspector.rule.${rule}.${verdict}`, args);
}

/** The draw and the chance it fell under or over, with enough digits to see which. */
function against({ u, accept }, ctx) {
  return { u: drawn(u, ctx, accept), accept: number(accept, ctx.lang(), u == null ? 2 : digits(u, accept)) };
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
  if (own.kind === 'bonus') return t(isTree(round) ? 'inspector.rule.tree.bonus' : 'inspector.rule.bonus', { y, n: round.accepted });
  const end = round.nodes.findLastIndex((node) => node.status === 'accepted');
  const refused = childrenOf(round, end < 0 ? ROOT : end).filter((child) => round.nodes[child].status === 'rejected');
  const draft = refused.map((child) => quote(trace.text(round.nodes[child].id), t)).join(', ');
  const said = t(`inspector.rule.correction.${correction(trace, refused.length)}`, { y, draft, n: refused.length });
  // A sentence may begin with the draft, and that may be "a token that the server did not name".
  return draft && said.startsWith(draft) ? said.charAt(0).toUpperCase() + said.slice(1) : said;
}

function correction({ meta: { rule, temperature } }, refused) {
  if (temperature === 0 && ARGMAX(rule)) return 'greedy';
  if (MATCHING.has(rule)) return 'match';
  if (rule === 'typical' || rule === 'synthetic') return 'plain';
  if (rule === 'block' || rule === 'kseq' || rule === 'ensemble') return rule;
  return refused > 1 ? 'turn' : 'residual';
}
