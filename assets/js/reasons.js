/**
 * What a trace tells of how a round's draft came about, as plain data for pictures. A method is known by what its
 * reasons hold, not by its name; what comes from a file is checked, and null stands where there is nothing to draw.
 */

import { ROOT, depthOf } from './tree.js';

/** A join of two first choices is called wrong when the target gives the right one less than this behind the left one. */
export const RARE = 0.01;

const isCount = (value) => Number.isInteger(value) && value >= 0;
const isShare = (value) => typeof value === 'number' && value >= 0 && value <= 1;

/** [{id, chance}] of a reason that is rows [id, probability]; null where it is anything else. */
function guesses(rows) {
  if (!Array.isArray(rows) || !rows.length) return null;
  if (!rows.every((row) => Array.isArray(row) && isCount(row[0]) && isShare(row[1]))) return null;
  return rows.map(([id, chance]) => ({ id, chance }));
}

// ------------------------------------------------------------ slots that are filled in side by side

/**
 * The slots of a draft that came out of one pass, or null. Each: {number, nodes: the drafts that stand there, guesses,
 * corrected | null, confidence | null, survival | null}.
 */
export function slotsOf(round) {
  const slots = [];
  for (const [index, node] of round.nodes.entries()) {
    const why = node.why ?? {};
    const number = why.slot ?? why.head;
    if (!isCount(number) || number < 1) return null;
    const found = guesses(why.candidates);
    if (!slots[number - 1]) {
      if (!found || number !== slots.length + 1) return null;
      slots.push({
        number,
        nodes: [],
        guesses: found,
        corrected: guesses(why.corrected),
        confidence: isShare(why.confidence) ? why.confidence : null,
        survival: isShare(why.survival) ? why.survival : null,
      });
    }
    slots[number - 1].nodes.push(index);
  }
  return slots.length ? slots : null;
}

/**
 * Where the first choices of two neighbouring slots stand in a row: {left, right: nodes, chance: the target's probability
 * of the right one behind the text and the drafts before it, wrong, instead: what the target wrote there or null}.
 */
export function joinsOf(round) {
  const slots = slotsOf(round);
  if (!slots) return [];
  const slotOf = new Map(slots.flatMap((slot) => slot.nodes.map((node) => [node, slot])));
  const isFirst = (index) => slotOf.get(index).guesses[0].id === round.nodes[index].id;
  return round.nodes.flatMap((node, right) => {
    const left = node.parent;
    if (left === ROOT || !isFirst(left) || !isFirst(right) || !isShare(node.p_raw)) return [];
    const instead = node.status === 'rejected' ? round.insteadOf(right) : null;
    return [{ left, right, chance: node.p_raw, wrong: node.p_raw < RARE, instead }];
  });
}

/** Slots whose first choice another one took the place of, once the token before was known: {slot, from, to: ids}. */
export function correctionsOf(round) {
  return (slotsOf(round) ?? [])
    .filter((slot) => slot.corrected && slot.corrected[0].id !== slot.guesses[0].id)
    .map((slot) => ({ slot, from: slot.guesses[0].id, to: slot.corrected[0].id }));
}

/**
 * How long a draft was let grow by its own confidence: {asked: γ, drafted, threshold, below: the survival that ended it
 * or null where it is not told}; null where no threshold was asked for, or something else ended the draft.
 */
export function lengthOf(trace, round) {
  const percent = trace.meta.drafter_options?.confidence;
  if (!isCount(percent) || percent === 0 || round.prefill) return null;
  const drafted = round.nodes.length;
  const last = round.nodes.at(-1)?.why ?? {};
  const asked = trace.meta.gamma;
  if (drafted && !slotsOf(round)?.every((slot) => slot.survival !== null)) return null;
  if (isShare(last.stopped_at)) return { asked, drafted, threshold: percent / 100, below: last.stopped_at };
  const written = trace.entries.filter((entry) => entry.round < round.round).length;
  // With room for one token more nothing is drafted, whatever the confidence.
  if (!drafted && trace.meta.max_new_tokens - written > 1) return { asked, drafted, threshold: percent / 100, below: null };
  return drafted === asked ? { asked, drafted, threshold: percent / 100, below: null } : null;
}

// ------------------------------------------------------------ a survival that was said, against what happened

/**
 * Drafts by the survival that was said of them, in `count` equal bins, the empty ones left out: {from, to, said: mean,
 * kept, drafts}. A draft behind a refused one has not survived.
 */
export function binsOf(rounds, count) {
  const bins = Array.from({ length: count }, (_, at) => ({ from: at / count, to: (at + 1) / count, said: 0, kept: 0, drafts: 0 }));
  for (const node of rounds.flatMap((round) => round.nodes)) {
    const said = node.why?.survival;
    if (!isShare(said)) continue;
    const bin = bins[Math.min(Math.floor(said * count), count - 1)];
    bin.said += said;
    bin.kept += node.status === 'accepted' ? 1 : 0;
    bin.drafts += 1;
  }
  return bins.filter((bin) => bin.drafts).map((bin) => ({ ...bin, said: bin.said / bin.drafts }));
}

// ------------------------------------------------------------ a tree that grew, and what was kept of it

/**
 * A dynamic tree as it was grown, or null: {nodes, depth, grown, told}. A node: {id, parent: its place in `nodes`,
 * depth, chance: probability of its path, kept, node: its index in the round or null}. Kept ones come first, `told` of
 * the `grown` are listed.
 */
export function growthOf(round) {
  const [first] = round.nodes;
  if (!first || !round.nodes.every(({ why }) => isShare(why?.path_q) && isCount(why?.grown))) return null;
  const nodes = round.nodes.map((node, index) => ({
    id: node.id, parent: node.parent, depth: depthOf(round, index), chance: node.why.path_q, kept: true, node: index,
  }));
  const dropped = Array.isArray(first.why.dropped) ? first.why.dropped : [];
  for (const row of dropped) {
    if (!Array.isArray(row) || !isCount(row[0]) || !isShare(row[2])) return null;
    const [id, parent, chance] = row;
    if (!Number.isInteger(parent) || parent < ROOT || parent >= nodes.length) return null;
    nodes.push({ id, parent, depth: parent === ROOT ? 1 : nodes[parent].depth + 1, chance, kept: false, node: null });
  }
  const depth = Math.max(...nodes.map((node) => node.depth));
  return { nodes, depth, grown: Math.max(first.why.grown, nodes.length), told: nodes.length };
}
