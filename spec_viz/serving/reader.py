"""From a server's streamed answer to a trace: what it told, round by round, and None for what it did not tell.

vLLM's per-request lists (`--enable-per-request-metrics --per-request-spec-decode-metrics detailed`) say of every step
that carried a draft how many tokens were drafted and kept. They say nothing of p, q and the draws, do not name the
refused tokens, and leave out steps without any draft. A step's tokens arrive together, so the arrivals say where such
silent steps lie, except beside a step that kept nothing: both bring one token. What stays open is told as `unsettled`.
A late look at the stream finds several rounds in one arrival; that is assumed only where one each does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

from spec_viz.engine.trace import Emitted, Finish, Kind, Node, Round, TokenTable, Trace
from spec_viz.lab.metrics import Ratio, Spread, percentiles
from spec_viz.serving.client import Answer, ServerError
from spec_viz.serving.counters import Counts

# Why there is no trace: no ids; not a word of speculation; sums without the lists; arrivals that settle too little.
Gap = Literal["no_ids", "no_metrics", "no_lists", "coarse"]
_FINISH: Mapping[str, Finish] = {"stop": "eos", "length": "length"}


@dataclass(frozen=True, slots=True)
class Step:
    """A verification that carried a draft."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a server says speculation did for one request; `steps` is None where it gives sums only."""

    gamma: int
    counts: Counts
    steps: tuple[Step, ...] | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rounds, the last one included, among which these steps lie, in this order and in rounds that are not known."""

    first: int
    last: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer, read: the trace, or the `gap` that leaves none; what was told; and what stays open in the trace.

    In an unsettled stretch every round brings one token and is drawn without a draft, so rates must come from
    `told.counts`; text, number of rounds and all other rounds are exact.
    """

    trace: Trace | None
    told: Told | None
    gap: Gap | None = None
    unsettled: tuple[Stretch, ...] = ()


def read_told(metrics: Mapping[str, Any] | None) -> Told | None:
    """The speculation in an answer's metrics, None where there is none; ServerError where it contradicts itself."""
    body = (metrics or {}).get("speculative_decoding")
    if body is None:
        return None
    try:
        gamma, histogram = _count(body["num_spec_tokens"]), [_count(each) for each in body["acceptance_histogram"]]
        drafts, drafted, accepted = (
            _count(body[f"num_{name}"]) for name in ("spec_steps", "draft_tokens", "accepted_draft_tokens")
        )
        # Both lists are left out where the request drafted nothing, and where only sums were asked for.
        lists = [body.get("per_step_drafted"), body.get("per_step_accepted")]
        steps: tuple[Step, ...] | None
        if lists == [None, None]:
            steps = None if drafts else ()
        else:
            pairs = zip(*([_count(each) for each in list_] for list_ in lists), strict=True)
            steps = tuple(Step(drafted, kept) for drafted, kept in pairs)
    except (KeyError, TypeError, ValueError) as problem:
        raise _odd(f"its account of the drafts cannot be read ({problem})") from problem
    by_position = tuple(sum(histogram[place + 1 :]) for place in range(len(histogram) - 1))
    if len(histogram) != gamma + 1 or sum(histogram) != drafts or sum(by_position) != accepted:
        raise _odd("its histogram does not add up to its sums")
    if steps is not None:
        if (len(steps), sum(s.drafted for s in steps), sum(s.accepted for s in steps)) != (drafts, drafted, accepted):
            raise _odd("its lists do not add up to its sums")
        if any(not step.accepted <= step.drafted <= gamma or not step.drafted for step in steps):
            raise _odd("a step kept more than it drafted, or drafted nothing or too much")
    elif not accepted <= drafted <= gamma * drafts:
        raise _odd("it kept more than it drafted, or drafted too much")
    return Told(gamma, Counts(drafts, drafted, accepted, by_position), steps)


def read(
    answer: Answer,
    meta: Mapping[str, Any],
    tokens: TokenTable,
    *,
    run: str,
    plain: bool = False,
    may_be_silent: bool = True,
) -> Reading:
    """What an answer tells, as a trace of origin "server"; ServerError where lists and tokens contradict each other.

    `plain` says that the server is known to run without speculation; without lists nothing else says so. A drafter
    that is known to draft at every step, as a model does and a lookup does not, is told by `may_be_silent` False.
    `meta` and `tokens` (the texts of ids) go into the trace as they are.
    """
    told = read_told(answer.metrics)
    if plain and told is not None and told.counts.drafts:
        raise _odd("it drafted, and was said to run without speculation")
    steps = () if plain else None if told is None else told.steps
    if answer.ids is None or answer.prompt is None or not answer.ids:
        return Reading(None, told, "no_ids")
    if len(answer.ids) != answer.tokens:
        raise _odd(f"{len(answer.ids)} tokens came and it counted {answer.tokens}")
    if steps is None:
        return Reading(None, told, "no_metrics" if told is None else "no_lists")
    sizes = [arrival.tokens for arrival in answer.arrivals]
    is_silent = may_be_silent or plain
    paths = _Paths(steps, sizes, is_silent, is_late=False)
    if not paths.total:
        paths = _Paths(steps, sizes, is_silent, is_late=True)
    if not paths.total:
        raise _odd("the steps that it lists cannot bring the tokens that came, as they came")
    rounds = [Round(0, emitted=Emitted(answer.ids[0], "plain"), prefill=True)]
    unsettled: list[Stretch] = []
    for before, after in paths.parts():
        if paths.is_settled(before, after):
            rounds.append(_round(len(rounds), steps[before.step : after.step], answer.ids[before.token : after.token]))
            continue
        inside = steps[before.step : after.step]
        if any(step.accepted for step in inside):
            # Not even the number of tokens of each round is known.
            return Reading(None, told, "coarse")
        first = len(rounds)
        rounds += [_round(first + i, (), (id_,)) for i, id_ in enumerate(answer.ids[before.token : after.token])]
        unsettled.append(Stretch(first, len(rounds) - 1, inside))
    extra = {
        "arrivals": [[round(arrival.ms, 3), arrival.tokens] for arrival in answer.arrivals],
        "unsettled": [
            {"first": each.first, "last": each.last, "drafted": [step.drafted for step in each.steps]}
            for each in unsettled
        ],
    }
    finish = _FINISH.get(answer.finish or "")
    trace = Trace(run, "server", {**meta, **extra}, answer.prompt, tokens, tuple(rounds), finish)
    return Reading(trace, told, None, tuple(unsettled))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _odd(problem: str) -> ServerError:
    return ServerError("error.server_contradicts", problem, problem=problem)


def _round(number: int, steps: Sequence[Step], ids: Sequence[int]) -> Round:
    """One round of at most one step; where an answer's end cut it, the kept drafts behind the end have no ids."""
    if not steps:
        return Round(number, emitted=Emitted(ids[0], "plain"))
    (step,) = steps
    kept = ids[: step.accepted]
    nodes = [Node(id_, place - 1, place + 1, "accepted") for place, id_ in enumerate(kept)]
    was_cut = len(ids) <= step.accepted
    for place in range(len(kept), step.drafted):
        refused = place == step.accepted and not was_cut
        nodes.append(Node(None, place - 1, place + 1, "rejected" if refused else "discarded"))
    kind: Kind = "bonus" if step.accepted == step.drafted else "correction"
    return Round(number, tuple(nodes), None if was_cut else Emitted(ids[-1], kind))


# ---------------------------------------------------------------- which tokens are whose


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """So many tokens are out, and so many of the listed steps are done."""

    token: int
    step: int


class _Paths:
    """All ways to lay the listed steps, and silent ones between them if there may be any, over the tokens.

    The prefill brings one token, a silent step one, a step its kept drafts and one more; the last round may be cut.
    Rounds arrive whole, so none of them reaches across the end of an arrival; one arrival holds several if `is_late`.
    """

    def __init__(self, steps: Sequence[Step], arrivals: Sequence[int], is_silent: bool, is_late: bool) -> None:
        self._steps, self._is_silent, self._is_late = steps, is_silent, is_late
        self._ends = list(accumulate(arrivals))
        self._length = self._ends[-1]
        # The end of the arrival that the next token belongs to.
        self._until = [next(end for end in self._ends if end > token) for token in range(self._length)]
        self._goal = _Place(self._length, len(steps))
        self._before = self._count_from_start()
        self._after = self._count_to_goal()

    @property
    def total(self) -> int:
        """How many ways there are."""
        return self._before.get(self._goal, 0)

    def is_settled(self, before: _Place, after: _Place) -> bool:
        """Whether every way goes from one place to the other in one round."""
        return after in self._next(before) and self._before[before] * self._after[after] == self.total

    def parts(self) -> Iterator[tuple[_Place, _Place]]:
        """Neighbours among the places that every way goes through."""
        sure = [place for place in sorted(self._before) if self._ways(place) == self.total]
        return pairwise(sure)

    def _ways(self, place: _Place) -> int:
        return self._before[place] * self._after.get(place, 0)

    def _next(self, place: _Place) -> list[_Place]:
        if place.token == self._length:
            return []
        until = self._until[place.token]
        found = [_Place(place.token + 1, place.step)] if self._is_silent else []
        if place.step < len(self._steps):
            end = place.token + self._steps[place.step].accepted + 1
            if until == self._length:
                end = min(end, until)
            found.append(_Place(end, place.step + 1))
        return [each for each in found if each.token == until or (self._is_late and each.token < until)]

    def _count_from_start(self) -> dict[_Place, int]:
        counts = {_Place(1, 0): 1}
        ahead = [_Place(1, 0)]
        while ahead:
            # By token: all ways into a place are counted before any goes on from it.
            ahead.sort(reverse=True)
            place = ahead.pop()
            for following in self._next(place):
                if following not in counts:
                    counts[following] = 0
                    ahead.append(following)
                counts[following] += counts[place]
        return counts

    def _count_to_goal(self) -> dict[_Place, int]:
        counts: dict[_Place, int] = {self._goal: 1}
        for place in sorted(self._before, reverse=True):
            if place != self._goal:
                counts[place] = sum(counts.get(following, 0) for following in self._next(place))
        return counts


# ---------------------------------------------------------------- time as the client saw it


@dataclass(frozen=True, slots=True)
class Latency:
    """Over several answers, in milliseconds: to the first token, and a token after that; tokens a second of all.

    A step's tokens arrive at once, so the gap between arrivals is no time per token: that is taken of whole answers.
    None where no answer had what it takes.
    """

    first: Spread | None
    token: Spread | None
    throughput: Ratio


def latency(answers: Sequence[Answer], seconds: float) -> Latency:
    """TTFT, TPOT and throughput of answers that came within `seconds`."""
    firsts = [answer.arrivals[0].ms for answer in answers if answer.arrivals]
    after = [answer.after_first for answer in answers]
    tokens = [1000 * took / count for count, took in after if count]
    return Latency(_spread(firsts), _spread(tokens), Ratio(sum(answer.tokens for answer in answers), seconds))


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(sum(values), sum(values) / len(values), *percentiles(values))
