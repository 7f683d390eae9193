/** The arithmetic of one draft on a handful of tokens, and draws that can be had again. */

/** Σ min(p, q): the chance that a draft from q is kept. */
export function overlap(p, q) {
  return p.reduce((sum, value, index) => sum + Math.min(value, q[index]), 0);
}

/** Half of Σ |p − q|. */
export function distance(p, q) {
  return p.reduce((sum, value, index) => sum + Math.abs(value - q[index]), 0) / 2;
}

/** norm(max(p − q, 0)); null where p = q, since nothing is ever rejected there. */
export function residual(p, q) {
  const gains = p.map((value, index) => Math.max(value - q[index], 0));
  const total = gains.reduce((sum, value) => sum + value, 0);
  return total > 1e-12 ? gains.map((value) => value / total) : null;
}

/** The law of the token that comes out when the draft is really drawn from q: p, computed and not assumed. */
export function emitted(p, q) {
  const rest = residual(p, q);
  const refused = 1 - overlap(p, q);
  return p.map((value, index) => Math.min(value, q[index]) + (rest ? refused * rest[index] : 0));
}

/**
 * The law that comes out when the drafter always drafts its likeliest token and the rule still divides by the soft q.
 */
export function emittedByWrongRule(p, q) {
  const top = q.indexOf(Math.max(...q));
  const keep = q[top] > 0 ? Math.min(1, p[top] / q[top]) : 0;
  const rest = residual(p, q) ?? p;
  return rest.map((value, index) => (1 - keep) * value + (index === top ? keep : 0));
}

/** A law after one of its values was set: the others keep their proportions. */
export function withValue(law, index, value) {
  const set = Math.min(Math.max(value, 0), 1);
  const others = law.reduce((sum, each, other) => (other === index ? sum : sum + each), 0);
  return law.map((each, other) => {
    if (other === index) return set;
    return others > 1e-9 ? (each * (1 - set)) / others : (1 - set) / (law.length - 1);
  });
}

/** Uniform draws from a seed (mulberry32): the same seed gives the same draws in every browser. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** The index that the draw `u` picks from a law. */
export function pick(law, u) {
  const total = law.reduce((sum, value) => sum + value, 0);
  let below = 0;
  for (let index = 0; index < law.length; index += 1) {
    below += law[index] / total;
    if (u < below) return index;
  }
  return law.findLastIndex((value) => value > 0);
}

/**
 * The laws stored at one node, over the tokens that either of them names: {ids, p, q, whole}. `whole`: the stored
 * lists hold all of both laws, so that what is computed from them is exact. A drafter that looks its token up has all
 * of q on it.
 */
export function lawsOf(node) {
  const ofP = new Map(node.p_top ?? []);
  const ofQ = new Map(node.q_top ?? (node.q === 1 ? [[node.id, 1]] : []));
  if (node.p !== null && node.p !== undefined && !ofP.has(node.id)) ofP.set(node.id, node.p);
  const ids = [...new Set([...ofP.keys(), ...ofQ.keys()])].sort((a, b) => (ofP.get(b) ?? 0) - (ofP.get(a) ?? 0));
  const p = ids.map((id) => ofP.get(id) ?? 0);
  const q = ids.map((id) => ofQ.get(id) ?? 0);
  const sum = (law) => law.reduce((total, value) => total + value, 0);
  return { ids, p, q, whole: Math.abs(sum(p) - 1) < 1e-4 && Math.abs(sum(q) - 1) < 1e-4 };
}
