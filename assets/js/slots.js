/**
 * Slots side by side: what each held by itself, the drafts that came of it, and where two first choices do not go
 * together. With a correction, the same slots again once the token before was known, and how sure the drafter was.
 */

import { h } from './dom.js';
import { correctionsOf, joinsOf, lengthOf, slotsOf } from './reasons.js';
import { LOOKS, drawToken, make, probability, quote } from './tile.js';

/**
 * The picture of one round, or null. `judged`: what the target made of it may be seen. ctx = {t, lang}.
 */
export function drawSlots(trace, round, ctx, { judged = true } = {}) {
  const length = lengthOf(trace, round);
  const slots = slotsOf(round);
  if (!slots && !length) return null;
  const { t } = ctx;
  const box = h('figure', { class: 'sv-slots' });
  if (!slots) {
    box.append(h('p', { class: 'sv-slots-said' }, lengthSaid(length, ctx)));
    return box;
  }
  const corrected = slots.some((slot) => slot.corrected);
  const joins = joinsOf(round);
  const list = h('ol', { class: 'sv-slots-row', 'aria-label': t('slots.title', { round: round.round }) });
  for (const slot of slots) list.append(drawSlot(trace, round, slot, joins, ctx, judged));
  box.append(h('figcaption', {}, t(corrected ? 'slots.caption.corrected' : 'slots.caption')), list);
  const sentences = [
    ...(corrected ? correctionsOf(round).map((each) => correctionSaid(trace, round, each, ctx, judged)) : []),
    ...(judged && !corrected ? joinsSaid(trace, round, joins, ctx) : []),
    ...(length ? [lengthSaid(length, ctx)] : []),
  ];
  if (sentences.length) box.append(h('ul', { class: 'sv-slots-said' }, ...sentences.map((each) => h('li', {}, each))));
  return box;
}

function drawSlot(trace, round, slot, joins, ctx, judged) {
  const { t, lang } = ctx;
  const item = h('li', { class: 'sv-slots-one', 'data-at': `${round.round}.${slot.nodes[0]}` });
  const drafts = h('span', { class: 'sv-slots-drafts' });
  // In a tree a slot's guesses stand behind every guess of the slot before; each is shown once.
  const shown = new Map();
  for (const node of slot.nodes) {
    const { id, status } = round.nodes[node];
    if (!shown.has(id) || status === 'accepted') shown.set(id, node);
  }
  for (const [id, node] of [...shown].slice(0, slot.guesses.length)) {
    const fate = judged ? round.nodes[node].status : 'draft';
    const tile = make('span', `sv-tile sv-tile--sample ${LOOKS[fate].className}`);
    tile.append(drawToken(trace.text(id)), make('span', 'sv-tile-glyph', LOOKS[fate].glyph));
    tile.lastChild.setAttribute('aria-hidden', 'true');
    tile.append(h('span', { class: 'sv-hush' }, ` ${t(`legend.${fate}`)}`));
    drafts.append(tile);
  }
  item.append(h('span', { class: 'sv-slots-name' }, t('slots.slot', { n: slot.number })), drafts);
  const chosen = new Set(slot.nodes.map((node) => round.nodes[node].id));
  if (slot.corrected) item.append(h('span', { class: 'sv-slots-when' }, t('slots.before')));
  item.append(drawGuesses(trace, slot.guesses, slot.corrected ? new Set() : chosen, ctx));
  if (slot.corrected) {
    const left = slot.nodes[0] > 0 ? round.nodes[round.nodes[slot.nodes[0]].parent].id : beforeOf(trace, round);
    const when = left === null ? t('slots.after') : t('slots.after.token', { token: quote(trace.text(left), t) });
    item.append(h('span', { class: 'sv-slots-when' }, when), drawGuesses(trace, slot.corrected, chosen, ctx));
  }
  if (slot.confidence !== null && slot.survival !== null) item.append(drawConfidence(slot, trace, ctx));
  const join = joins.find((each) => slot.nodes.includes(each.right));
  if (join && judged && !slot.corrected) {
    const args = { left: quote(trace.text(round.nodes[join.left].id), t), chance: tiny(join.chance, lang()) };
    const mark = h('span', { class: 'sv-slots-sign', 'aria-hidden': 'true' }, join.wrong ? '≠' : '→');
    item.append(h('p', { class: `sv-slots-join${join.wrong ? ' sv-slots-join--wrong' : ''}` }, mark, ' ', t('slots.join', args)));
  }
  return item;
}

function beforeOf(trace, round) {
  return trace.entries.findLast((entry) => entry.round < round.round)?.id ?? trace.prompt.at(-1) ?? null;
}

function drawGuesses(trace, guesses, chosen, { t, lang }) {
  const list = make('ol', 'sv-slots-guesses');
  for (const { id, chance } of guesses) {
    const line = make('li', `sv-slots-guess${chosen.has(id) ? ' sv-slots-guess--chosen' : ''}`);
    const fill = make('i', '');
    fill.style.width = `${chance * 100}%`;
    const name = make('span', 'sv-slots-token');
    name.append(drawToken(trace.text(id)));
    line.append(name, make('span', 'sv-slots-chance', probability(chance, lang())), fill);
    if (chosen.has(id)) line.append(make('span', 'sv-hush', ` ${t('slots.drafted')}`));
    list.append(line);
  }
  return list;
}

/** Two numbers on one track: sure of this slot, and of all up to here; a mark where drafting would have ended. */
function drawConfidence({ confidence, survival }, trace, { t, lang }) {
  const box = make('div', 'sv-slots-sure');
  const threshold = (trace.meta.drafter_options?.confidence ?? 0) / 100;
  for (const [name, value] of [['confidence', confidence], ['survival', survival]]) {
    const line = make('div', `sv-slots-guess sv-slots-guess--${name}`);
    const fill = make('i', '');
    fill.style.width = `${value * 100}%`;
    line.append(make('span', 'sv-slots-token', t(`slots.${name}`)), make('span', 'sv-slots-chance', probability(value, lang())), fill);
    if (name === 'survival' && threshold) {
      const mark = make('b', 'sv-slots-threshold');
      mark.style.left = `${threshold * 100}%`;
      line.append(mark);
    }
    box.append(line);
  }
  return box;
}

// ------------------------------------------------------------ sentences

/** The wrong joins that the target came to: what it preferred is known there alone. The others are marked below. */
function joinsSaid(trace, round, joins, { t, lang }) {
  return joins.filter((join) => join.wrong && join.instead?.p_raw != null).map(({ left, right, chance, instead }) =>
    t('slots.wrong', {
      left: quote(trace.text(round.nodes[left].id), t),
      right: quote(trace.text(round.nodes[right].id), t),
      chance: tiny(chance, lang()),
      instead: quote(trace.text(instead.id), t),
      p: probability(instead.p_raw, lang()),
    }));
}

/** A softmax leaves nothing without a chance: what a trace's six digits show as 0 is only too small for them. */
function tiny(chance, lang) {
  return probability(Math.max(chance, 5e-7), lang);
}

function correctionSaid(trace, round, { slot, from, to }, { t }, judged) {
  const node = slot.nodes[0];
  const fate = judged && round.nodes[node].id === to ? round.nodes[node].status : 'draft';
  const args = { n: slot.number, from: quote(trace.text(from), t), to: quote(trace.text(to), t) };
  return t(`slots.turned.${fate}`, args);
}

function lengthSaid({ asked, drafted, threshold, below }, { t, lang }) {
  const args = { asked, drafted, next: drafted + 1, threshold: probability(threshold, lang()) };
  if (drafted === 0) return t('slots.length.none', args);
  return below === null ? t('slots.length.whole', args) : t('slots.length.ended', { ...args, below: probability(below, lang()) });
}
