/**
 * The formulas of speculative decoding for sliders that answer at once: the twins of spec_viz/lab/theory.py, by the same
 * letters. α acceptance rate, γ drafts a round, c one draft ÷ one target step, v a pass over γ + 1 tokens ÷ over one.
 * A browser test holds the two together.
 */

export const MOST_GAMMA = 64;

const upTo = (most, value) => Array.from({ length: most + 1 }, (_, power) => value(power));
const total = (values) => values.reduce((sum, value) => sum + value, 0);

/** 1 + α + … + α^γ: mean tokens a round emits. */
export function expectedTokens(alpha, gamma) {
  return total(upTo(gamma, (power) => alpha ** power));
}

/** P(exactly k drafts accepted), k = 0 … γ. */
export function acceptedLengthLaw(alpha, gamma) {
  return upTo(gamma, (kept) => alpha ** kept * (kept < gamma ? 1 - alpha : 1));
}

/** Time of a round in target steps. */
export function roundCost(gamma, c, v = 1, overhead = 0) {
  return gamma * c + v + overhead;
}

/** How many times faster than plain decoding. */
export function speedup(alpha, gamma, c, v = 1, overhead = 0) {
  return expectedTokens(alpha, gamma) / roundCost(gamma, c, v, overhead);
}

/**
 * The γ from 0 (plain decoding) to `most` with the greatest speedup, and that speedup. `v(n)` is the cost of a pass;
 * without a draft there is no overhead either.
 */
export function bestGamma(alpha, c, { v = () => 1, overhead = 0, most = MOST_GAMMA } = {}) {
  let best = { gamma: 0, speedup: 1 };
  for (let gamma = 1; gamma <= most; gamma += 1) {
    const value = speedup(alpha, gamma, c, v(gamma + 1), overhead);
    if (value > best.speedup) best = { gamma, speedup: value };
  }
  return best;
}

/** The smallest α from which γ drafts are no slower than plain decoding; null when even α = 1 is slower. */
export function breakEven(gamma, c, v = 1, overhead = 0) {
  if (speedup(1, gamma, c, v, overhead) < 1) return null;
  if (speedup(0, gamma, c, v, overhead) >= 1) return 0;
  let [low, high] = [0, 1];
  for (let halving = 0; halving < 50; halving += 1) {
    const middle = (low + high) / 2;
    if (speedup(middle, gamma, c, v, overhead) < 1) low = middle;
    else high = middle;
  }
  return high;
}

/** Arithmetic of speculative ÷ plain decoding; `cOps` is the drafter's ÷ the target's per token. */
export function operationsRatio(alpha, gamma, cOps) {
  return (gamma * cOps + gamma + 1) / expectedTokens(alpha, gamma);
}

/** The wrong formula 1 / (1 − α^γ), to be shown failing. */
export function wrongExpectedTokens(alpha, gamma) {
  return 1 / (1 - alpha ** gamma);
}

/** Tokens in one pass at which arithmetic takes as long as reading the weights once. */
export function ridgeTokens(flops, bytesPerSecond, bytesPerParameter) {
  return (flops * bytesPerParameter) / (2 * bytesPerSecond);
}
