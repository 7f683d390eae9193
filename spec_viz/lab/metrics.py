"""Every number of a run, from its rounds, by one function; of several runs, and of another γ, by two more.

Words are those of the glossary: *judged* = accepted + rejected. The prefill is never counted; costs are means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev

import numpy as np

from spec_viz.engine.trace import Round, Trace
from spec_viz.lab import theory

PARTS = ("propose", "verify", "judge", "rollback")
PERCENTILES = (50, 95, 99)
_SAME_CONDITIONS = ("target", "device", "device_name", "dtype", "threads")


@dataclass(frozen=True, slots=True)
class Ratio:
    """A number with its fraction kept: print both."""

    numerator: float
    denominator: float

    @property
    def value(self) -> float | None:
        """The quotient; None where nothing was counted below the line."""
        return self.numerator / self.denominator if self.denominator else None


@dataclass(frozen=True, slots=True)
class Position:
    """Draft position `depth` over all decoding rounds; each count is a number of rounds.

    `reached`: every position before was accepted. `drafted`: the draft went this deep. `judged`: reached and drafted.
    """

    depth: int
    reached: int
    drafted: int
    judged: int
    accepted: int

    @property
    def conditional(self) -> Ratio:
        """a_i: accepted given that all before it were, of those judged."""
        return Ratio(self.accepted, self.judged)

    @property
    def survival(self) -> Ratio:
        """As a_i, but a round that drafted nothing here counts as stopped: the product over i gives the exact mean."""
        return Ratio(self.accepted, self.reached)


@dataclass(frozen=True, slots=True)
class Spread:
    """Something every decoding round has, milliseconds or tokens: sum, mean and percentiles over the rounds."""

    total: float
    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What a round costs, in milliseconds, from a run and its baseline.

    `step` is a target pass over one token and `plain` a whole round of the baseline; `draft` is per drafted token,
    `growth` what a pass takes longer for each further token (a straight line through both runs), `other` the rest.
    """

    step: float
    plain: float
    draft: float
    growth: float
    other: float

    def round(self, drafted: float) -> float:
        """Milliseconds of a round that drafts so many tokens."""
        return drafted * (self.draft + self.growth) + self.step + self.other

    def terms(self, gamma: int) -> tuple[float, float, float]:
        """c, v(γ+1) and the overhead in plain rounds: what `theory.speedup` takes after α and γ."""
        return self.draft / self.plain, (self.step + gamma * self.growth) / self.plain, self.other / self.plain


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts, rates and times of one run. None where the trace does not tell (no times, no baseline, a tree's α).

    `lengths[k]` is how many drafting rounds kept k drafts, `tokens` what a round emits. `candidates` is the candidate
    coverage: Σ p over the drafts that follow a place, a mean over the places the rule came to (algorithms §11.2).
    """

    gamma: int
    accepted: int
    rejected: int
    discarded: int
    emitted: int
    rounds: int
    drafting_rounds: int
    is_tree: bool
    positions: tuple[Position, ...]
    lengths: tuple[int, ...]
    tokens: Spread | None
    candidates: Ratio | None
    prefill_ms: float | None
    ms: dict[str, Spread]
    c: Ratio | None
    v: Ratio | None
    v_tokens: int | None
    costs: Costs | None
    speedup: Ratio | None

    @property
    def judged(self) -> int:
        return self.accepted + self.rejected

    @property
    def drafted(self) -> int:
        return self.judged + self.discarded

    @property
    def alpha(self) -> Ratio | None:
        """Acceptance rate: accepted ÷ judged. Defined for chains."""
        return None if self.is_tree else Ratio(self.accepted, self.judged)

    @property
    def efficiency(self) -> Ratio:
        """Draft efficiency: accepted ÷ drafted."""
        return Ratio(self.accepted, self.drafted)

    @property
    def tau(self) -> Ratio:
        """Acceptance length: tokens emitted ÷ rounds, rounds without a draft included."""
        return Ratio(self.emitted, self.rounds)

    @property
    def coverage(self) -> Ratio:
        """Rounds in which the drafter proposed anything ÷ rounds."""
        return Ratio(self.drafting_rounds, self.rounds)

    @property
    def tokens_per_second(self) -> Ratio | None:
        """Tokens after the prefill ÷ seconds after the prefill."""
        return Ratio(self.emitted, self.ms["total"].total / 1000) if "total" in self.ms else None

    def unconditional(self, position: Position) -> Ratio:
        """Accepted at this position ÷ rounds that drafted: never rises with depth."""
        return Ratio(position.accepted, self.drafting_rounds)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A rate over several runs: total ÷ total, and beside it each run's own rate (runs that have none left out).

    The mean of the runs' rates is another number than the rate of the totals; print the totals and the spread.
    """

    total: Ratio
    each: tuple[float, ...]

    @property
    def low(self) -> float | None:
        return min(self.each, default=None)

    @property
    def high(self) -> float | None:
        return max(self.each, default=None)

    @property
    def mean(self) -> float | None:
        """The mean of the runs' own rates."""
        return sum(self.each) / len(self.each) if self.each else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the runs' own rates; None for fewer than two."""
        return stdev(self.each) if len(self.each) > 1 else None


@dataclass(frozen=True, slots=True)
class Pool:
    """The rates of several runs together. None where one of them has none (a tree's α, a run without times)."""

    runs: int
    alpha: Pooled | None
    efficiency: Pooled
    tau: Pooled
    coverage: Pooled
    candidates: Pooled | None
    tokens_per_second: Pooled | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Another γ for the same run: tokens a round and speedup, from its per-position rates and from its α alone.

    `alpha` is the run's own rate over the first γ positions, `break_even` what it must be for γ drafts to pay.
    `by_formula` values are those of `theory` (i.i.d., every round drafts γ); speeds are None without a baseline.
    """

    gamma: int
    alpha: float | None
    tokens: float
    tokens_by_formula: float | None
    speedup: float | None
    speedup_by_formula: float | None
    break_even: float | None


def find_baseline(trace: Trace, traces: Iterable[Trace]) -> Trace | None:
    """The plain run among `traces` that was made under this run's own conditions, if there is one."""
    conditions = [trace.meta.get(key) for key in _SAME_CONDITIONS]
    for other in traces:
        if (
            other is not trace
            and other.meta.get("drafter") == "none"
            and [other.meta.get(key) for key in _SAME_CONDITIONS] == conditions
        ):
            return other
    return None


def summarise(trace: Trace, baseline: Trace | None = None) -> Summary:
    """All numbers of a run; c, v and the speedup need the plain run of the same request on the same machine."""
    rounds = trace.decoding
    nodes = [node for round_ in rounds for node in round_.nodes]
    statuses = Counter(node.status for node in nodes)
    drafting = [round_ for round_ in rounds if round_.nodes]
    lengths = Counter(len(round_.path) for round_ in drafting)
    ms = _times(rounds)
    plain = _times(baseline.decoding) if baseline else {}
    costs = _costs(ms, plain, len(nodes), len(rounds))
    v_tokens, v = _pass_ratio(drafting, costs)
    tokens = [len(round_.committed) for round_ in rounds]
    emitted = sum(tokens)
    return Summary(
        gamma=_gamma(trace, rounds),
        accepted=statuses["accepted"],
        rejected=statuses["rejected"],
        discarded=statuses["discarded"],
        emitted=emitted,
        rounds=len(rounds),
        drafting_rounds=len(drafting),
        is_tree=any(node.parent != place - 1 for round_ in rounds for place, node in enumerate(round_.nodes)),
        positions=_positions(rounds),
        lengths=tuple(lengths[length] for length in range(max(lengths, default=-1) + 1)),
        tokens=_spread(tokens) if tokens else None,
        candidates=_candidates(drafting),
        prefill_ms=next((r.ms.total for r in trace.rounds if r.prefill and r.ms.verify is not None), None),
        ms=ms,
        c=Ratio(costs.draft, costs.step) if costs and nodes else None,
        v=v,
        v_tokens=v_tokens,
        costs=costs,
        speedup=_speedup(emitted, ms, baseline, plain),
    )


def pool(traces: Iterable[Trace]) -> Pool:
    """The rates of several runs: ratios of totals, with the spread of the runs beside them (algorithms §11.2)."""
    summaries = [summarise(trace) for trace in traces]
    return Pool(
        runs=len(summaries),
        alpha=_pooled([summary.alpha for summary in summaries]),
        efficiency=_totals([summary.efficiency for summary in summaries]),
        tau=_totals([summary.tau for summary in summaries]),
        coverage=_totals([summary.coverage for summary in summaries]),
        candidates=_pooled([summary.candidates for summary in summaries]),
        tokens_per_second=_pooled([summary.tokens_per_second for summary in summaries]),
    )


def _pooled(ratios: Sequence[Ratio | None]) -> Pooled | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return _totals(known) if len(known) == len(ratios) else None


def _totals(ratios: Sequence[Ratio]) -> Pooled:
    total = Ratio(sum(ratio.numerator for ratio in ratios), sum(ratio.denominator for ratio in ratios))
    return Pooled(total, tuple(ratio.value for ratio in ratios if ratio.value is not None))


def what_if(summary: Summary, gammas: Iterable[int]) -> tuple[Prediction, ...]:
    """Tokens a round and speedup this run would have had with each γ; empty for trees and runs without a draft."""
    if summary.is_tree or not summary.accepted + summary.rejected:
        return ()
    return tuple(_predict(summary, gamma) for gamma in gammas)


def survival_rates(summary: Summary, gamma: int) -> list[float]:
    """Rates s_1 … s_γ whose running product is the chance to keep i drafts.

    Measured up to the γ of the run; beyond it the pooled rate of all positions stands in (i.i.d.).
    """
    measured = [position.survival.value or 0.0 for position in summary.positions[:gamma]]
    pooled = Ratio(summary.accepted, sum(position.reached for position in summary.positions)).value or 0.0
    # A drafter that was asked for more and gave less has no chance there.
    unused = [0.0] * (min(gamma, summary.gamma) - len(measured))
    return measured + unused + [pooled] * (gamma - summary.gamma)


def _predict(summary: Summary, gamma: int) -> Prediction:
    alpha, costs = (summary.alpha.value if summary.alpha else None), summary.costs
    tokens = theory.expected_tokens_by_position(survival_rates(summary, gamma))
    terms = costs.terms(gamma) if costs else None
    shallow = summary.positions[:gamma]
    return Prediction(
        gamma=gamma,
        alpha=Ratio(sum(p.accepted for p in shallow), sum(p.judged for p in shallow)).value,
        tokens=tokens,
        tokens_by_formula=None if alpha is None else theory.expected_tokens(alpha, gamma),
        speedup=tokens * costs.plain / costs.round(_drafted_per_round(summary, gamma)) if costs else None,
        speedup_by_formula=None if alpha is None or terms is None else theory.speedup(alpha, gamma, *terms),
        break_even=theory.break_even(gamma, *terms) if terms else None,
    )


def _drafted_per_round(summary: Summary, gamma: int) -> float:
    drafted = [position.drafted for position in summary.positions]
    # The rounds that drafted all they were asked for would have gone on.
    full = drafted[-1] if len(drafted) == summary.gamma else 0
    return (sum(drafted[:gamma]) + full * max(gamma - summary.gamma, 0)) / summary.rounds


def _gamma(trace: Trace, rounds: Sequence[Round]) -> int:
    depth = max((node.depth for round_ in rounds for node in round_.nodes), default=0)
    asked = trace.meta.get("gamma")
    return asked if isinstance(asked, int) and asked >= depth else depth


def _positions(rounds: Sequence[Round]) -> tuple[Position, ...]:
    drafted, judged, accepted = Counter[int](), Counter[int](), Counter[int]()
    for round_ in rounds:
        drafted.update({node.depth for node in round_.nodes})
        judged.update({node.depth for node in round_.nodes if node.status != "discarded"})
        accepted.update(node.depth for node in round_.path)
    accepted[0] = len(rounds)
    depths = range(max(drafted, default=0) + 1)
    return tuple(
        Position(depth, accepted[before], drafted[depth], judged[depth], accepted[depth])
        for before, depth in pairwise(depths)
    )


def _candidates(drafting: Sequence[Round]) -> Ratio | None:
    """Σ p over the drafts that follow a place ÷ such places: the root, and kept drafts that others follow."""
    total, places = 0.0, 0
    for round_ in drafting:
        chances: dict[int, dict[int | None, float]] = {}
        for node in round_.nodes:
            if node.parent < 0 or round_.nodes[node.parent].status == "accepted":
                if node.p is None:
                    return None
                # Two children that say the same cover it once.
                chances.setdefault(node.parent, {})[node.id] = node.p
        total += sum(sum(place.values()) for place in chances.values())
        places += len(chances)
    return Ratio(total, places)


def _times(rounds: Sequence[Round]) -> dict[str, Spread]:
    """Spreads by part and of the whole round; empty when a round's target pass was not timed."""
    if not rounds or any(round_.ms.verify is None for round_ in rounds):
        return {}
    columns = {part: [getattr(round_.ms, part) or 0.0 for round_ in rounds] for part in PARTS}
    columns["total"] = [round_.ms.total for round_ in rounds]
    return {part: _spread(values) for part, values in columns.items()}


def _spread(values: Sequence[float]) -> Spread:
    return Spread(sum(values), sum(values) / len(values), *percentiles(values))


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95 and p99."""
    p50, p95, p99 = (float(value) for value in np.percentile(values, PERCENTILES))
    return p50, p95, p99


def _costs(ms: dict[str, Spread], plain: dict[str, Spread], drafted: int, rounds: int) -> Costs | None:
    if not ms or not plain or not plain["verify"].mean:
        return None
    step, each_round = plain["verify"].mean, drafted / rounds
    # Two noisy clocks can make a longer pass look shorter; extrapolating that to γ = 12 would be nonsense.
    growth = max(ms["verify"].mean - step, 0.0) / each_round if drafted else 0.0
    return Costs(
        step=step,
        plain=plain["total"].mean,
        draft=ms["propose"].mean / each_round if drafted else 0.0,
        growth=growth,
        other=ms["judge"].mean + ms["rollback"].mean,
    )


def _pass_ratio(drafting: Sequence[Round], costs: Costs | None) -> tuple[int | None, Ratio | None]:
    """v(n) at the n that most drafting rounds had (the wider of two equals)."""
    if costs is None or not drafting:
        return None, None
    widths = Counter(map(_rows, drafting))
    width = max(widths, key=lambda rows: (widths[rows], rows))
    passes = [round_.ms.verify or 0.0 for round_ in drafting if _rows(round_) == width]
    return width, Ratio(sum(passes) / len(passes), costs.step)


def _rows(round_: Round) -> int:
    """Tokens in a round's pass: what the cache grew by, which counts lookahead's window too; else drafts and one."""
    target = round_.kv.target
    return len(round_.nodes) + 1 if target is None else target[1] - target[0]


def _speedup(emitted: int, ms: dict[str, Spread], baseline: Trace | None, plain: dict[str, Spread]) -> Ratio | None:
    """Tokens a second of the run ÷ of its baseline, both after the prefill."""
    if baseline is None or not ms or not plain or not ms["total"].total or not plain["total"].total:
        return None
    plain_emitted = sum(len(round_.committed) for round_ in baseline.decoding)
    return Ratio(emitted / ms["total"].total * 1000, plain_emitted / plain["total"].total * 1000)
