/**
 * Pictures of a drafter's reasons (`why`), for the inspector. A picture is known by what the reasons hold, not by the
 * drafter's name, so that any drafter that gives such reasons gets it. What comes from a file is checked before it is drawn.
 */

import { growthOf, slotsOf } from './reasons.js';
import { drawToken, make, number, probability, quote } from './tile.js';
import { childrenOf } from './tree.js';

const AROUND = 4; // tokens shown before a place, and behind what is copied from it
const MOST = 12; // as many places as PLD+ tells

/** {element, told: the reasons that the picture tells}, or null where there is none. */
export function pictureOf(trace, round, index, ctx) {
  const why = round.nodes[index].why;
  for (const draw of [places, counts, slot, path, successors, pool]) {
    const picture = draw(trace, round, index, why, ctx);
    if (picture) return picture;
  }
  return null;
}

const isCount = (value) => Number.isInteger(value) && value >= 0;

function figure(caption) {
  const box = make('figure', 'sv-picture');
  box.append(make('figcaption', '', caption));
  return box;
}

function chip(trace, id, more = '') {
  const token = make('span', `sv-chip${more}`);
  token.append(drawToken(trace.text(id)));
  return token;
}

function track(share) {
  const box = make('span', 'sv-bar-track');
  const fill = make('span', 'sv-bar-fill sv-bar--r');
  fill.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
  box.append(fill);
  return box;
}

// ------------------------------------------------------------ PLD+: places in the text, each with its score

function places(trace, round, index, why, ctx) {
  const found = Array.isArray(why.places) ? why.places.slice(0, MOST) : [];
  const text = [...trace.prompt, ...trace.entries.filter((entry) => entry.round < round.round).map((entry) => entry.id)];
  if (!found.length || !found.every((each) => Array.isArray(each) && isCount(each[0]) && each[0] < text.length && Number.isFinite(each[1]))) return null;
  const { t, lang } = ctx;
  const chosen = isCount(why.found) && why.found < text.length ? why.found : found[0][0];
  const length = round.nodes.length;
  const box = figure(t('picture.places', { n: isCount(why.occurrences) ? why.occurrences : found.length, token: quote(trace.text(text[chosen]), t) }));
  box.append(marked(trace, text, found, chosen, length));
  const top = Math.max(...found.map(([, score]) => score), Number.MIN_VALUE);
  const list = make('ol', 'sv-picture-scores');
  found.forEach(([place, score], rank) => {
    const line = make('li', place === chosen ? 'sv-picture-score sv-picture-score--chosen' : 'sv-picture-score');
    const name = make('span', 'sv-picture-name', String(rank + 1));
    const where = place < trace.prompt.length ? t('inspector.why.prompt', { at: place }) : t('inspector.why.output', { at: place - trace.prompt.length });
    line.title = where;
    line.append(name, track(score / top), make('span', 'sv-bar-value', number(score, lang(), 3)), make('span', 'sv-hush', ` ${where}${place === chosen ? `, ${t('picture.chosen')}` : ''}`));
    list.append(line);
  });
  box.append(list);
  const names = { hidden: 'knob.pld_plus.rank.hidden', attention: 'knob.pld_plus.rank.attention' };
  const by = Object.hasOwn(names, why.ranked_by) ? t(names[why.ranked_by]) : String(why.ranked_by ?? '');
  box.append(make('p', 'sv-inspector-note', t('picture.places.by', { by, layer: isCount(why.layer) ? why.layer : '?' })));
  return { element: box, told: ['key', 'places', 'occurrences', 'likeness', 'found', 'copied', 'ranked_by', 'layer'] };
}

/** The stretches of text around the places, in the order of the text, each place with its rank. */
function marked(trace, text, found, chosen, length) {
  const rank = new Map(found.map(([place], at) => [place, at + 1]));
  const near = new Set(found.flatMap(([place]) => range(place - AROUND, place + 1 + (place === chosen ? length : 2) + 1)));
  const box = make('p', 'sv-picture-text');
  let last = -1;
  for (const at of [...near].filter((each) => each >= 0 && each < text.length).sort((a, b) => a - b)) {
    if (at !== last + 1) box.append(make('span', 'sv-picture-gap', ' … '));
    last = at;
    const copied = at > chosen && at <= chosen + length;
    const piece = make(rank.has(at) ? 'mark' : 'span', rank.has(at) ? `sv-picture-place${at === chosen ? ' sv-picture-place--chosen' : ''}` : copied ? 'sv-picture-copied' : '');
    if (rank.has(at)) piece.append(make('sup', '', String(rank.get(at))));
    piece.append(drawToken(trace.text(text[at])));
    // Spaces are drawn as signs, so a line needs to be told where it may end.
    box.append(document.createElement('wbr'), piece);
  }
  if (last < text.length - 1) box.append(make('span', 'sv-picture-gap', ' …'));
  return box;
}

function range(from, to) {
  return Array.from({ length: Math.max(to - from, 0) }, (_, step) => from + step);
}

// ------------------------------------------------------------ suffix: the match, and the counts along the path

function counts(trace, round, index, why, ctx) {
  const path = round.pathTo(index);
  const steps = path.map((node) => round.nodes[node].why);
  if (!steps.every((step) => isCount(step?.followed) && isCount(step.occurred) && step.occurred > 0)) return null;
  const { t, lang } = ctx;
  const box = figure(t('picture.counts', { n: steps[0].occurred }));
  const line = make('ol', 'sv-picture-path');
  const start = make('li', 'sv-picture-step');
  const match = make('span', 'sv-picture-match');
  for (const id of Array.isArray(why.key) ? why.key.filter(isCount) : []) match.append(drawToken(trace.text(id)));
  start.append(match, make('span', 'sv-picture-times', t('picture.times', { n: steps[0].occurred })));
  line.append(start);
  path.forEach((node, at) => {
    const { followed, occurred } = steps[at];
    const step = make('li', 'sv-picture-step');
    step.append(track(followed / occurred), chip(trace, round.nodes[node].id, node === index ? ' sv-chip--here' : ''), make('span', 'sv-picture-times', `${followed}/${occurred}`));
    line.append(step);
  });
  box.append(line);
  const chance = typeof why.path_chance === 'number' ? why.path_chance : steps.reduce((product, step) => (product * step.followed) / step.occurred, 1);
  box.append(make('p', 'sv-inspector-note', t('picture.counts.chance', { chance: probability(chance, lang()) })));
  box.append(make('p', 'sv-inspector-note', t(why.earlier_run === true ? 'picture.counts.earlier' : 'picture.counts.here')));
  return { element: box, told: ['key', 'match', 'path_chance', 'followed', 'occurred', 'earlier_run'] };
}

// ------------------------------------------------------------ one slot of a draft that came out of one pass

function slot(trace, round, index, why, { t, lang }) {
  const found = slotsOf(round)?.find((each) => each.nodes.includes(index));
  if (!found) return null;
  const box = figure(t(found.corrected ? 'picture.slot.corrected' : 'picture.slot'));
  for (const guesses of [found.guesses, found.corrected].filter(Boolean)) {
    const list = make('ol', 'sv-picture-path');
    for (const { id, chance } of guesses) {
      const line = make('li', 'sv-picture-step sv-picture-step--plain');
      const here = id === round.nodes[index].id && guesses === (found.corrected ?? found.guesses);
      line.append(track(chance), chip(trace, id, here ? ' sv-chip--here' : ''), make('span', 'sv-picture-times', probability(chance, lang())));
      list.append(line);
    }
    box.append(list);
  }
  if (found.confidence !== null && found.survival !== null) {
    const args = { confidence: probability(found.confidence, lang()), survival: probability(found.survival, lang()) };
    box.append(make('p', 'sv-inspector-note', t('picture.slot.sure', args)));
  }
  if (typeof why.stopped_at === 'number' && typeof why.threshold === 'number') {
    const args = { below: probability(why.stopped_at, lang()), threshold: probability(why.threshold, lang()) };
    box.append(make('p', 'sv-inspector-note', t('picture.slot.ended', args)));
  }
  return { element: box, told: ['candidates', 'corrected', 'confidence', 'survival', 'stopped_at', 'threshold'] };
}

// ------------------------------------------------------------ a dynamic tree: the path to this node

function path(trace, round, index, why, { t, lang }) {
  const growth = growthOf(round);
  if (!growth) return null;
  const box = figure(t('picture.grown'));
  const line = make('ol', 'sv-picture-path');
  for (const node of round.pathTo(index)) {
    const { id, chance } = growth.nodes[node];
    const step = make('li', 'sv-picture-step sv-picture-step--plain');
    step.append(track(chance), chip(trace, id, node === index ? ' sv-chip--here' : ''), make('span', 'sv-picture-times', probability(chance, lang())));
    line.append(step);
  }
  box.append(line, make('p', 'sv-inspector-note', t('picture.grown.note', { grown: growth.grown, kept: round.nodes.length })));
  return { element: box, told: ['path_q', 'grown', 'dropped'] };
}

// ------------------------------------------------------------ token recycling: the rank among the successors

function successors(trace, round, index, why, { t }) {
  const before = Array.isArray(why.key) ? why.key.at(-1) : undefined;
  if (!isCount(why.rank) || !isCount(before)) return null;
  const { parent } = round.nodes[index];
  const box = figure(t('picture.rank', { rank: why.rank }));
  const line = make('div', 'sv-picture-rank');
  line.append(chip(trace, before, ' sv-chip--before'));
  const list = make('ol', 'sv-picture-ranks');
  for (const node of childrenOf(round, parent)) {
    const rank = round.nodes[node].why?.rank;
    if (!isCount(rank)) continue;
    const item = make('li', '');
    item.append(make('span', 'sv-picture-name', String(rank)), chip(trace, round.nodes[node].id, node === index ? ' sv-chip--here' : ''));
    list.append(item);
  }
  line.append(list);
  box.append(line, make('p', 'sv-inspector-note', t('picture.rank.note')));
  return { element: box, told: ['key', 'rank'] };
}

// ------------------------------------------------------------ lookahead: the n-gram of the pool

function pool(trace, round, index, why, { t }) {
  if (!Array.isArray(why.ngram) || why.ngram.length < 2 || !why.ngram.every(isCount)) return null;
  const depth = round.pathTo(index).length;
  const box = figure(t('picture.pool'));
  const line = make('p', 'sv-picture-pool');
  why.ngram.forEach((id, at) => line.append(chip(trace, id, at === 0 ? ' sv-chip--before' : at === depth ? ' sv-chip--here' : '')));
  box.append(line);
  if (isCount(why.age)) box.append(make('p', 'sv-inspector-note', t('picture.pool.age', { age: why.age })));
  return { element: box, told: ['ngram', 'age'] };
}

