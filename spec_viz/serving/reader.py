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

from spec_viz.engine.trace import MAX_GAMMA, Emitted, Finish, Kind, Node, Round, TokenTable, Trace
from spec_viz.lab.metrics import Ratio, Spread, percentiles
from spec_viz.serving.client import Answer
from spec_viz.serving.counters import Counts, Window
from spec_viz.serving.problems import ServerError

# Why there is no trace: no ids; not a word of speculation; sums without the lists; arrivals that settle too little;
# more of it than is drawn.
Gap = Literal["no_ids", "no_metrics", "no_lists", "coarse", "long"]
# Beyond these, laying steps over tokens takes seconds, and nobody reads the picture.
MOST_TOKENS, MOST_DRAFTED = 8192, 65_536
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
    by_position = tuple(accumulate(reversed(histogram)))[-2::-1]
    if gamma > MAX_GAMMA:
        raise _odd(f"it says that it drafts {gamma} tokens a step")
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
    if sum(sizes) != answer.tokens or min(sizes, default=0) < 1:
        raise _odd(f"its arrivals bring {sum(sizes)} tokens of {answer.tokens}")
    if answer.tokens > MOST_TOKENS or sum(step.drafted for step in steps) > MOST_DRAFTED:
        return Reading(None, told, "long")
    is_silent = may_be_silent or plain
    paths = _Paths(steps, sizes, is_silent, is_late=False)
    if not paths.is_possible:
        paths = _Paths(steps, sizes, is_silent, is_late=True)
    if not paths.is_possible:
        raise _odd("the steps that it lists cannot bring the tokens that came, as they came")
    rounds = [Round(0, emitted=Emitted(answer.ids[0], "plain"), prefill=True)]
    unsettled: list[Stretch] = []
    for before, after, is_settled in paths.parts():
        if is_settled:
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
    # A server names its reason with the last piece: without one, the answer broke off.
    finish = "error" if answer.finish is None else _FINISH.get(answer.finish)
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


@dataclass(frozen=True, slots=True)
class _Place:
    """So many tokens are out, and so many of the listed steps are done."""

    token: int
    step: int


class _Paths:
    """All ways to lay the listed steps, and silent ones between them if there may be any, over the tokens.

    The prefill brings one token, a silent step one, a step its kept drafts and one more; the last round may be cut.
    Rounds arrive whole, so none of them reaches across the end of an arrival; one arrival holds several if `is_late`.

    Bit s of a number stands for the place where s steps are done; `_live` has such a number for every count of tokens,
    of the places that some way from the start to the goal goes through. A kind of round moves all of them at once, so
    time grows with the tokens and the kinds. The ways themselves are too many to be counted.
    """

    def __init__(self, steps: Sequence[Step], arrivals: Sequence[int], is_silent: bool, is_late: bool) -> None:
        self._is_silent, self._is_late = is_silent, is_late
        self._length, self._count = sum(arrivals), len(steps)
        # The end of the arrival that the next token belongs to.
        self._until = [end for end, tokens in zip(accumulate(arrivals), arrivals, strict=True) for _ in range(tokens)]
        # By how many drafts a step kept: the places that such a step comes next at.
        self._next: dict[int, int] = {}
        for place, step in enumerate(steps):
            self._next[step.accepted] = self._next.get(step.accepted, 0) | 1 << place
        # The prefill's token, and one at least of the last step, which may be cut.
        fits = sum(step.accepted + 1 for step in steps[:-1]) + 1 + bool(steps) <= self._length
        self._live = self._mark() if fits else []

    @property
    def is_possible(self) -> bool:
        """Whether there is any way."""
        return bool(self._live and self._live[-1])

    def parts(self) -> Iterator[tuple[_Place, _Place, bool]]:
        """Neighbours among the places that every way goes through, and whether every way takes one round there."""
        # How many rounds of some way reach over a place: their starts and ends.
        over = [0] * (self._length + 1)
        choices = [0] * self._length
        for token in range(1, self._length):
            for end, places, step in self._rounds(token):
                if self._live[token] & places & (self._live[end] >> step):
                    choices[token] += 1
                    over[token + 1] += 1
                    over[end] -= 1
        sure = [
            _Place(token, live.bit_length() - 1)
            for token, (live, passing) in enumerate(zip(self._live, accumulate(over), strict=True))
            if live.bit_count() == 1 and not passing
        ]
        for before, after in pairwise(sure):
            yield before, after, choices[before.token] == 1

    def _rounds(self, token: int) -> Iterator[tuple[int, int, int]]:
        """Kinds of round that may follow so many tokens: where they end, the places they fit, the steps they do."""
        until = self._until[token]
        room = until - token - 1
        if self._is_silent and (self._is_late or not room):
            yield token + 1, -1, 0
        if not self._is_late and until < self._length:
            # Of all kinds this one ends where the arrival does.
            kinds = {room: self._next[room]} if room in self._next else {}
        else:
            kinds = self._next
        for kept, places in kinds.items():
            if kept <= room if self._is_late and until < self._length else kept >= room or self._is_late:
                yield min(token + kept + 1, until), places, 1

    def _mark(self) -> list[int]:
        there, back = [0] * (self._length + 1), [0] * (self._length + 1)
        there[1], back[self._length] = 1, 1 << self._count
        for token in range(1, self._length):
            if there[token]:
                for end, places, step in self._rounds(token):
                    there[end] |= (there[token] & places) << step
        for token in range(self._length - 1, 0, -1):
            for end, places, step in self._rounds(token):
                back[token] |= (back[end] >> step) & places
        return [ahead & behind for ahead, behind in zip(there, back, strict=True)]


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
    throughput = Ratio(sum(answer.tokens for answer in answers), seconds)
    return Latency(_spread(firsts(answers)), _spread(paces(answers)), throughput)


def firsts(answers: Sequence[Answer]) -> tuple[float, ...]:
    """TTFT of each answer that has one, in milliseconds."""
    return tuple(answer.arrivals[0].ms for answer in answers if answer.arrivals)


def paces(answers: Sequence[Answer]) -> tuple[float, ...]:
    """TPOT of each answer with tokens after its first arrival, in milliseconds."""
    return tuple(1000 * took / count for count, took in (answer.after_first for answer in answers) if count > 0)


def tau(found: Sequence[Reading], window: Window | None) -> Ratio | None:
    """Tokens after the prefills ÷ rounds, silent ones included; from the counters where an answer has no trace."""
    traces = [reading.trace for reading in found if reading.trace is not None]
    if len(traces) < len(found) or not traces:
        return None if window is None else window.tau
    return Ratio(sum(len(trace.output) - 1 for trace in traces), sum(len(trace.decoding) for trace in traces))


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(sum(values), sum(values) / len(values), *percentiles(values))
