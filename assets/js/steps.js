/** Stepping as arithmetic: a position counts the steps already shown, from 0 (nothing) to `total` (everything). */

/** The steps of a round: the drafts appear, each judged draft gets its verdict, the target's own token is written. */
export function stepsOf(round) {
  const steps = [];
  if (round.nodes.length) steps.push({ kind: 'drafted' });
  for (const node of round.judged) steps.push({ kind: 'judged', node });
  if (round.emitted !== null) steps.push({ kind: 'emitted' });
  return steps;
}

export class Steps {
  #steps = [];
  #ends = [];

  add(round) {
    const steps = stepsOf(round);
    this.#steps.push(steps);
    this.#ends.push(this.total + steps.length);
  }

  get total() {
    return this.#ends.at(-1) ?? 0;
  }

  start(round) {
    return round > 0 ? this.#ends[round - 1] : 0;
  }

  end(round) {
    return this.#ends[round];
  }

  /** How many steps of `round` are shown at `position`. */
  shown(round, position) {
    return Math.min(Math.max(position - this.start(round), 0), this.#steps[round].length);
  }

  /** The step that led to `position`: {round, kind, node}; null at 0. */
  last(position) {
    if (position < 1) return null;
    const round = this.#roundOf(position);
    return { round, ...this.#steps[round][position - this.start(round) - 1] };
  }

  /** What `shown` steps of `round` let the learner see. */
  view(round, shown) {
    const steps = this.#steps[round];
    const drafted = steps[0]?.kind === 'drafted';
    const emits = steps.at(-1)?.kind === 'emitted';
    const judgements = steps.length - Number(drafted) - Number(emits);
    const verdicts = Math.min(Math.max(shown - Number(drafted), 0), judgements);
    return { drafted: shown > 0, verdicts, judged: drafted && verdicts === judgements && shown > 0, whole: shown === steps.length };
  }

  #roundOf(position) {
    let low = 0;
    let high = this.#ends.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ends[middle] >= position) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
