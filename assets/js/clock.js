/** Traces on one clock: how much each had written at any moment, by the measured times of its rounds. */

/** One lane: {trace, total, ends, tokens, writtenBy(ms)}; `total` is null where the source knows no times. */
export function laneOf(trace) {
  let until = 0;
  let tokens = 0;
  const ends = trace.rounds.map((round) => {
    until += round.total ?? 0;
    tokens += round.entries.length;
    return { until, tokens, prefill: round.prefill };
  });
  const timed = trace.rounds.length > 0 && trace.rounds.every((round) => round.total !== null);
  return {
    trace,
    ends,
    total: timed ? until : null,
    /** {tokens, rounds, speed} of the rounds that were over `ms` after the start; speed is that after the prefill. */
    writtenBy(ms) {
      const over = ends.filter((end) => end.until <= ms + 1e-6);
      const [last, start] = [over.at(-1), over.findLast((end) => end.prefill) ?? { until: 0, tokens: 0 }];
      if (!last) return { tokens: 0, rounds: 0, speed: null };
      const spent = last.until - start.until;
      return { tokens: last.tokens, rounds: over.length, speed: spent > 0 ? (last.tokens - start.tokens) / spent * 1000 : null };
    },
  };
}

/** Every moment at which a lane has written something more, in order. */
export function moments(lanes) {
  return [...new Set(lanes.flatMap((lane) => lane.ends.map((end) => end.until)))].sort((a, b) => a - b);
}
