"""What the points of an experiment say together: rates with their intervals, predictions, what a reader saw.

Rates are ratios of totals; a speedup is the median over prompts of each prompt's median. Intervals are 95 % percentile
bootstraps over prompts (Efron, 1979), so they tell how much another handful of such prompts would move a number.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spec_viz.lab.metrics import Costs, Position, Prediction, Summary, what_if
from spec_viz.lab.sweep import Point, Sweep

RESAMPLES = 2000
LEVEL = 95
# Fewer prompts tell nothing of how prompts differ.
FEWEST_PROMPTS = 3

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, its interval (None from too few prompts), and the counts it is a ratio of where it is one."""

    value: float
    low: float | None
    high: float | None
    prompts: int
    counts: tuple[int, int] | None = None

    def above(self, other: Estimate) -> bool:
        """Whether its whole interval lies above the other's; False where one has none."""
        return self.low is not None and other.high is not None and self.low > other.high


@dataclass(frozen=True, slots=True)
class Rates:
    """What the runs of one cell say together; α is None for trees and where nothing was drafted."""

    alpha: Estimate | None
    tau: Estimate
    speedup: Estimate


@dataclass(frozen=True, slots=True)
class Series:
    """A drafter under a rule, by an axis value (γ, temperature or a task), in the order of the axis."""

    drafter: str
    rule: str
    rates: dict[Any, Rates]


def rates(points: Sequence[Point]) -> Rates:
    """The rates of some runs of one cell, which must not be empty."""
    chains = [each for each in points if not each.tree]
    return Rates(
        alpha=_ratio(chains, lambda each: (each.accepted, each.judged)),
        tau=_ratio(points, lambda each: (each.tokens, each.rounds)) or Estimate(1.0, None, None, 0),
        speedup=_median(points),
    )


def series(result: Sweep) -> list[Series]:
    """A line for every drafter and rule of a result, over γ, temperatures, tasks, or the one cell there is."""
    return [
        Series(*name, {value: rates(own) for value in _axis(result) if (own := _at(result, mine, value))})
        for name, mine in by_series(result.points).items()
    ]


def by_series(points: Iterable[Point]) -> dict[tuple[str, str], list[Point]]:
    """The points of each line."""
    found: dict[tuple[str, str], list[Point]] = {}
    for each in points:
        found.setdefault(each.series, []).append(each)
    return found


def _axis(result: Sweep) -> list[Any]:
    kind = result.experiment.kind
    if kind == "gamma":
        return sorted({each.gamma for each in result.points})
    if kind == "temperature":
        return sorted({each.temperature for each in result.points})
    return list(dict.fromkeys(each.category for each in result.points)) if kind == "task" else [None]


def _at(result: Sweep, points: Iterable[Point], value: Any) -> list[Point]:
    kind = result.experiment.kind
    if kind == "streaming":
        return list(points)
    name = "category" if kind == "task" else kind
    return [each for each in points if getattr(each, name) == value]


def _by_prompt(points: Iterable[Point]) -> list[list[Point]]:
    found: dict[int, list[Point]] = {}
    for each in points:
        found.setdefault(each.prompt, []).append(each)
    return list(found.values())


def _ratio(points: Sequence[Point], counts: Callable[[Point], tuple[int, int]]) -> Estimate | None:
    """Σ above ÷ Σ below, prompts drawn again whole."""
    sums = [[sum(each) for each in zip(*map(counts, mine), strict=True)] for mine in _by_prompt(points)]
    above, below = sum(each[0] for each in sums), sum(each[1] for each in sums)
    if not below:
        return None
    table = np.array(sums, dtype=np.float64)

    def drawn(chosen: NDArray[np.intp]) -> Numbers:
        totals = table[chosen].sum(axis=1)
        with np.errstate(invalid="ignore"):
            quotients: Numbers = totals[:, 0] / totals[:, 1]
        return quotients[np.isfinite(quotients)]

    return Estimate(above / below, *_interval(len(sums), drawn), (above, below))


def _median(points: Sequence[Point]) -> Estimate:
    """The median over prompts of a prompt's median ratio to its plain neighbours."""
    each = np.array([statistics.median(point.ratio for point in mine) for mine in _by_prompt(points)])
    return Estimate(
        float(np.median(each)), *_interval(len(each), lambda chosen: np.asarray(np.median(each[chosen], axis=1)))
    )


def _interval(prompts: int, drawn: Callable[[NDArray[np.intp]], Numbers]) -> tuple[float | None, float | None, int]:
    if prompts < FEWEST_PROMPTS:
        return None, None, prompts
    # The same points give the same interval.
    chosen = np.random.default_rng(0).integers(prompts, size=(RESAMPLES, prompts))
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(drawn(chosen), [tail, 100 - tail])
    return float(low), float(high), prompts


# ---------------------------------------------------------------- predictions


@dataclass(frozen=True, slots=True)
class Forecast:
    """Other γ as the runs at the largest one, `gamma`, predict them: by one α (i.i.d.), and position by position.

    Position by position a speedup is told as it is measured, as the median over prompts: prompts that copy and prompts
    that don't, thrown together, say what none of them does.
    """

    gamma: int
    predictions: tuple[Prediction, ...]


def forecast(points: Sequence[Point]) -> Forecast | None:
    """What one line's runs at their largest γ say of every smaller one; None for trees and where nothing was judged."""
    if not points:
        return None
    gamma = max(each.gamma for each in points)
    largest = [each for each in points if each.gamma == gamma]
    predictions = what_if(_together(largest, gamma), range(1, gamma + 1))
    if not predictions:
        return None
    each = [_speedups(_together(mine, gamma)) for mine in _by_prompt(largest)]
    middle = [statistics.median(speedups) for speedups in zip(*each, strict=True)]
    return Forecast(gamma, tuple(replace(told, speedup=own) for told, own in zip(predictions, middle, strict=True)))


def _speedups(summary: Summary) -> list[float]:
    """What one prompt's places and costs say for γ = 1, 2, … up to its own; one number where nothing was drafted."""
    told = [each.speedup for each in what_if(summary, range(1, summary.gamma + 1)) if each.speedup is not None]
    assert summary.costs is not None
    return told or [summary.costs.plain / summary.costs.round(0)] * summary.gamma


def _together(points: Sequence[Point], gamma: int) -> Summary:
    """Runs of one cell as if they were one: counts added, costs (in plain rounds) the medians."""
    deep = max((len(each.positions) for each in points), default=0)
    places = [[each.positions[at] for each in points if len(each.positions) > at] for at in range(deep)]
    step, draft, growth, other = (statistics.median(cost) for cost in zip(*(p.costs for p in points), strict=True))
    rounds = sum(each.rounds for each in points)
    # A run whose drafts end earlier still came so far, as often as it kept all it had.
    reached = [rounds, *(sum(place[3] for place in places[at]) for at in range(deep))]
    positions = tuple(
        Position(at + 1, reached[at], *(sum(place[kind] for place in places[at]) for kind in (1, 2, 3)))
        for at in range(deep)
    )
    accepted, judged, drafted = (sum(getattr(p, name) for p in points) for name in ("accepted", "judged", "drafted"))
    return Summary(
        gamma=gamma,
        accepted=accepted,
        rejected=judged - accepted,
        discarded=drafted - judged,
        emitted=sum(each.tokens for each in points),
        rounds=rounds,
        drafting_rounds=sum(each.drafting for each in points),
        is_tree=any(each.tree for each in points),
        positions=positions,
        lengths=(),
        tokens=None,
        candidates=None,
        prefill_ms=None,
        ms={},
        c=None,
        v=None,
        v_tokens=None,
        costs=Costs(step=step, plain=1.0, draft=draft, growth=growth, other=other),
        speedup=None,
    )


# ---------------------------------------------------------------- what a reader sees


@dataclass(frozen=True, slots=True)
class Stream:
    """What a reader sees of some runs, milliseconds; the wait for the first token stands apart.

    A gap lies between two tokens, so tokens that come at once have gaps of 0. A wait lies between two moments at which
    something appears. `bursts[n]` is how often n tokens came at once.
    """

    first_ms: float
    per_token_ms: float
    gaps: tuple[float, float, float]
    waits: tuple[float, float, float]
    bursts: dict[int, int]

    @property
    def burst(self) -> float:
        """Tokens that come at once, on average."""
        return sum(size * times for size, times in self.bursts.items()) / sum(self.bursts.values())


def stream(points: Sequence[Point], *, plain: bool) -> Stream:
    """What a reader sees of the speculative runs of some points, or of the plain ones beside them."""
    runs = [each.plain_arrivals if plain else each.arrivals for each in points]
    waits: list[float] = []
    gaps: list[float] = []
    bursts: dict[int, int] = {}
    for arrivals in runs:
        before = 0.0
        for at, tokens in arrivals:
            waits.append(at - before)
            gaps += [at - before, *([0.0] * (tokens - 1))]
            bursts[tokens] = bursts.get(tokens, 0) + 1
            before = at
    p50, p95, p99 = (_percentile(gaps, percent) for percent in (50, 95, 99))
    return Stream(
        first_ms=statistics.median(each.plain_first_ms if plain else each.first_ms for each in points),
        per_token_ms=sum(gaps) / len(gaps),
        gaps=(p50, p95, p99),
        waits=(_percentile(waits, 50), _percentile(waits, 95), _percentile(waits, 99)),
        bursts=dict(sorted(bursts.items())),
    )


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


# ---------------------------------------------------------------- the table


def rows(result: Sweep) -> list[dict[str, Any]]:
    """The table of a result, as the command line prints it: a row a line and axis value."""
    if not result.points:
        return []
    if result.experiment.kind == "streaming":
        return _stream_rows(result)
    kind = result.experiment.kind
    axis = {"gamma": "γ", "temperature": "T", "task": "task"}[kind]
    lines = by_series(result.points)
    table = []
    for line in series(result):
        mine = lines[line.drafter, line.rule]
        for value, each in line.rates.items():
            found = _foretold(result, mine, value)
            table.append(
                {
                    "drafter": line.drafter,
                    "rule": line.rule,
                    axis: value,
                    "prompts": each.speedup.prompts,
                    "α": _told(each.alpha),
                    "τ": _told(each.tau),
                    "÷ plain": _told(each.speedup),
                    "i.i.d.": _rounded(found.speedup_by_formula if found else None),
                    "by position": _rounded(found.speedup if found else None),
                }
            )
    return table


def _foretold(result: Sweep, points: Sequence[Point], value: Any) -> Prediction | None:
    """What one line's formula says at an axis value: over γ from the runs at the largest, else from that cell's own."""
    told = forecast(points if result.experiment.kind == "gamma" else _at(result, points, value))
    gamma = value if result.experiment.kind == "gamma" else told and told.gamma
    return next((each for each in told.predictions if each.gamma == gamma), None) if told else None


def _stream_rows(result: Sweep) -> list[dict[str, Any]]:
    lines = by_series(result.points)
    seen = [("none", stream(result.points, plain=True))]
    seen += [(name, stream(points, plain=False)) for (name, _), points in lines.items()]
    return [
        {
            "drafter": name,
            "first token ms": round(each.first_ms, 1),
            "ms/token": round(each.per_token_ms, 1),
            **{f"gap p{percent}": round(gap, 1) for percent, gap in zip((50, 95, 99), each.gaps, strict=True)},
            **{f"wait p{percent}": round(wait, 1) for percent, wait in zip((50, 95, 99), each.waits, strict=True)},
            "at once": round(each.burst, 2),
            "at most": max(each.bursts),
        }
        for name, each in seen
    ]


def _told(estimate: Estimate | None) -> str | None:
    if estimate is None:
        return None
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f}–{estimate.high:.2f})"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def conditions_line(result: Sweep) -> str:
    """The conditions in one line, to stand under the table."""
    told, asked = result.conditions, result.experiment
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    axis = "" if asked.kind == "gamma" else f"γ = {asked.gamma}, "
    axis += "" if asked.kind == "temperature" else f"T = {asked.temperature:g}, "
    return (
        f"{told['target']}, {told['device_name']}, {told['threads']} threads, {told['dtype']}, batch {told['batch']}, "
        f"{axis}{asked.max_new_tokens} tokens, {len(asked.questions)} prompts of {told['context'][0]} to "
        f"{told['context'][1]} tokens × {len(asked.seeds)} seeds × {asked.repeats}; intervals: {LEVEL} % over prompts; "
        f"{versions}; {told['created']}"
    )
