"""Several running servers asked the same questions by turns, and runs, live or saved, held side by side.

A turn is as many questions as there are side by side, or somewhat more; the servers take it one after another, each
second time in the other order, so that a machine that grows slow slows all of them. The first answers are dropped.
Between two turns a server is asked for the texts of tokens that it has not named yet, so that a run that ends early has
them. What comes out is `Saved`, as a recorded run is, so that one code reads and draws both.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from spec_viz.engine.trace import MAX_GAMMA, TokenTable
from spec_viz.lab.metrics import Ratio, Spread
from spec_viz.serving.client import Answer, BrokenOffError, Server
from spec_viz.serving.connect import glance
from spec_viz.serving.counters import NOTHING, Counts, Scrape, Window
from spec_viz.serving.gate import Place, is_loopback
from spec_viz.serving.problems import Problem, ServerError
from spec_viz.serving.reader import Reading, firsts, paces, read_told, tau
from spec_viz.serving.saved import SCHEMA, Asked, Pass, Saved, SavedError, reading, validate
from spec_viz.serving.wire import Stop, never

WIDTHS = (1, 4, 16)
LEAST, MOST = 2, 4
MOST_QUESTIONS, MOST_LETTERS, MOST_TOKENS, MOST_WARM_UP, MOST_SECONDS = 64, 8000, 512, 8, 7200
MOST_NAME = 60
# Answers that fail one after another until a server is left out.
GIVES_UP = 3
# Of so many different tokens a server is asked for their texts, one by one; and so many seconds, once it was stopped.
MOST_TEXTS, GRACE = 1000, 1.5
SEVERAL: Literal["specviz.compared/1"] = "specviz.compared/1"
# Of a file: what a comparison comes to at most, so that to read one takes seconds.
MAX_BYTES = 8_000_000
MOST_PASSES, MOST_IN_ALL = 8, MOST * len(WIDTHS) * MOST_QUESTIONS * MOST_TOKENS
LEAST_SECONDS = 1e-6
_NO_ANSWER = Answer("", None, (), 0, None)

Stage = Literal["looking", "warming", "asking", "done", "stopped", "late"]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A server by a name of one's own; without a model, the first that it serves."""

    name: str
    place: Place
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What all of them are asked: (task, text) of every question, and how many side by side, pass by pass.

    The first `warm_up` questions are asked before, and those answers dropped. After `seconds` it ends with what it has.
    """

    questions: tuple[tuple[str, str], ...]
    max_tokens: int = 64
    widths: tuple[int, ...] = (1, 4)
    warm_up: int = 2
    seconds: float = 1800.0


@dataclass(frozen=True, slots=True)
class State:
    """How far a comparison is: who is asked how many side by side, answers so far, and the runs as they are by now.

    `problems` have the name of the server; the last state's stage is done, stopped or late.
    """

    stage: Stage
    name: str
    width: int
    done: int
    total: int
    runs: tuple[Saved, ...]
    problems: tuple[tuple[str, Problem], ...]


def check(entrants: Sequence[Entrant], plan: Plan) -> None:
    """ServerError says what of this cannot be done."""
    if not LEAST <= len(entrants) <= MOST:
        raise ServerError("error.compare_servers", "too few servers, or too many", low=LEAST, high=MOST)
    names = [each.name for each in entrants]
    fit = all(name.strip() and name.isprintable() and len(name) <= MOST_NAME for name in names)
    if len(set(names)) < len(names) or not fit:
        raise ServerError("error.compare_names", "names that are not one each")
    longest = max((len(text) for _, text in plan.questions), default=0)
    for name, value, low, high in (
        ("questions", len(plan.questions), 1, MOST_QUESTIONS),
        ("max_tokens", plan.max_tokens, 1, MOST_TOKENS),
        ("warm_up", plan.warm_up, 0, MOST_WARM_UP),
        ("seconds", plan.seconds, 1, MOST_SECONDS),
        ("letters", longest, 1, MOST_LETTERS),
    ):
        if not low <= value <= high:
            said = {"key": f"error.bound.{name}", "args": {}}
            raise ServerError("error.compare_bounds", f"{name} is {value}", name=said, low=low, high=high)
    if not plan.widths or not set(plan.widths) <= set(WIDTHS) or len(set(plan.widths)) < len(plan.widths):
        raise ServerError("error.compare_widths", "no such concurrency", widths=", ".join(map(str, WIDTHS)))
    if max(plan.widths) > len(plan.questions):
        few = {"width": max(plan.widths), "count": len(plan.questions)}
        raise ServerError("error.compare_few", "fewer questions than places", **few)


def compare(entrants: Sequence[Entrant], plan: Plan, stop: Stop = never) -> Generator[State]:
    """Ask all of them; a state after every turn. ServerError only for what `check` refuses, before the first state.

    To close the generator between two turns ends it too. A server that fails is left out, and the others go on.
    """
    check(entrants, plan)
    return _Comparison(entrants, plan, stop).states()


@dataclass(slots=True)
class _Lane:
    """One server and what it has answered so far."""

    entrant: Entrant
    server: Server | None = None
    version: str | None = None
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    # Whether it speculates, by its counters; and as deep as its answers say.
    speculates: bool | None = None
    gamma: int | None = None
    passes: list[Pass] = field(default_factory=list)
    width: int = 0
    seconds: float = 0.0
    before: Scrape | None = None
    asked: list[Asked] = field(default_factory=list)
    failed: int = 0
    problem: Problem | None = None
    # The texts of tokens, and whose were asked for.
    tokens: TokenTable = field(default_factory=dict)
    named: set[int] = field(default_factory=set)

    @property
    def is_on(self) -> bool:
        return self.server is not None and self.failed < GIVES_UP

    def saved(self, plan: Plan) -> Saved | None:
        """Its run, with the pass that is under way."""
        if self.server is None:
            return None
        now = [self._pass(None)] if self.asked else []
        host = self.entrant.place.host
        speculative: dict[str, Any] | None = None
        if self.speculates is not False:
            speculative = {} if self.gamma is None else {"num_speculative_tokens": self.gamma}
        return Saved(
            schema=SCHEMA,
            method=self.entrant.name,
            created=self.created,
            versions={"vllm": self.version} if self.version else {},
            # However it was typed, it is the machine that the page runs on.
            machine={"host": "localhost" if is_loopback(host) else host},
            target=self.server.model,
            command=(),
            environment={},
            speculative=speculative,
            head=None,
            max_tokens=plan.max_tokens,
            warm_up=plan.warm_up,
            tokens=dict(self.tokens),
            passes=(*self.passes, *now),
        )

    def _pass(self, after: Scrape | None) -> Pass:
        if self.before is not None and after is not None:
            # The clock of its own turns, as `seconds` is.
            after = replace(after, seconds=self.before.seconds + self.seconds)
        return Pass(self.width, self.seconds, self.before, after, (), tuple(self.asked))

    def name(self, asked: Sequence[Asked], stop: Stop) -> None:
        """Learn the texts of tokens that no earlier answer had, those of the answers first."""
        answers = [each.answer for each in asked]
        ids = [id_ for part in ("ids", "prompt") for answer in answers for id_ in getattr(answer, part) or ()]
        new = [id_ for id_ in dict.fromkeys(ids) if id_ not in self.named][: MOST_TEXTS - len(self.named)]
        if new and self.server is not None:
            self.named.update(new)
            self.tokens |= self.server.texts(new, stop)

    def begin(self, width: int, before: Scrape | None) -> None:
        self.width, self.seconds, self.before, self.asked = width, 0.0, before, []

    def end(self, after: Scrape | None) -> None:
        if self.asked:
            self.passes.append(self._pass(after))
        self.asked = []


class _Comparison:
    """A comparison under way."""

    def __init__(self, entrants: Sequence[Entrant], plan: Plan, stop: Stop) -> None:
        self._plan, self._stop = plan, stop
        self._lanes = [_Lane(entrant) for entrant in entrants]
        self._ends = time.monotonic() + plan.seconds
        self._done = 0

    def states(self) -> Generator[State]:
        for lane in self._lanes:
            yield self._state("looking", lane)
            self._guard(lane, self._look)
        for lane in self._on():
            yield self._state("warming", lane)
            self._guard(lane, self._warm_up)
        for place, width in enumerate(self._plan.widths):
            yield from self._pass(width, place % 2)
        yield self._state("late" if self._is_late() else "stopped" if self._stop() else "done", self._lanes[-1])

    def _pass(self, width: int, shift: int) -> Iterator[State]:
        for lane in self._on():
            self._guard(lane, lambda lane: lane.begin(width, glance(lane.entrant.place, self._over)))
        for number, turn in enumerate(_turns(self._plan.questions, width), shift):
            for lane in self._on()[:: -1 if number % 2 else 1]:
                if not self._over():
                    self._take(lane, turn, width)
                    yield self._state("asking", lane)
        for lane in self._lanes:
            if lane.asked and not self._over():
                self._guard(lane, lambda lane: lane.end(glance(lane.entrant.place, self._over)))
            # One that is gone by now has its answers all the same.
            lane.end(None)

    def _take(self, lane: _Lane, turn: Sequence[tuple[str, str]], width: int) -> None:
        began = time.perf_counter()
        gone = 1000 * lane.seconds

        def ask(question: tuple[str, str]) -> Asked | None:
            if self._over() or lane.server is None:
                return None
            task, prompt = question
            sent = round(gone + 1000 * (time.perf_counter() - began), 3)
            try:
                return Asked(task, prompt, sent, lane.server.ask(prompt, self._plan.max_tokens, stop=self._over))
            except BrokenOffError as problem:
                return Asked(task, prompt, sent, problem.answer, problem.told)
            except ServerError as problem:
                return None if _is_stop(problem.told) else Asked(task, prompt, sent, _NO_ANSWER, problem.told)

        with ThreadPoolExecutor(width) as pool:
            asked = [each for each in pool.map(ask, turn) if each is not None]
        lane.seconds += time.perf_counter() - began
        lane.asked += asked
        self._done += len(asked)
        for each in asked:
            if each.problem is None or not _is_stop(each.problem):
                lane.failed = lane.failed + 1 if each.problem else 0
                lane.problem = each.problem or lane.problem
            lane.gamma = _gamma(each.answer) or lane.gamma
        ends = time.monotonic() + GRACE
        lane.name(asked, lambda: self._over() and time.monotonic() > ends)

    def _look(self, lane: _Lane) -> None:
        server = Server(lane.entrant.place, lane.entrant.model)
        lane.version = server.version(self._over)
        counted = glance(lane.entrant.place, self._over)
        lane.speculates = None if counted is None else counted.speculation is not None
        lane.server = server

    def _warm_up(self, lane: _Lane) -> None:
        for _, prompt in self._plan.questions[: self._plan.warm_up]:
            if lane.server is not None:
                lane.server.ask(prompt, self._plan.max_tokens, stop=self._over)

    def _guard(self, lane: _Lane, do: Callable[[_Lane], None]) -> None:
        """Do it; a server that cannot is left out from here on, with its reason."""
        if self._over():
            return
        try:
            do(lane)
        except ServerError as problem:
            if not _is_stop(problem.told):
                lane.problem, lane.failed = problem.told, GIVES_UP

    def _on(self) -> list[_Lane]:
        return [lane for lane in self._lanes if lane.is_on]

    def _is_late(self) -> bool:
        return time.monotonic() > self._ends

    def _over(self) -> bool:
        return self._stop() or self._is_late()

    def _state(self, stage: Stage, lane: _Lane) -> State:
        runs = [lane.saved(self._plan) for lane in self._lanes]
        return State(
            stage,
            lane.entrant.name,
            lane.width,
            self._done,
            len(self._lanes) * len(self._plan.widths) * len(self._plan.questions),
            tuple(run for run in runs if run is not None),
            tuple((lane.entrant.name, lane.problem) for lane in self._lanes if lane.problem is not None),
        )


def _is_stop(problem: Problem) -> bool:
    """Whether it is no fault of the server's."""
    return problem.key == "error.server_stopped"


def _turns(questions: Sequence[tuple[str, str]], width: int) -> list[Sequence[tuple[str, str]]]:
    """The questions in turns of at least `width`, as many as there can be and as even as they can be."""
    count = len(questions) // width
    bounds = [round(number * len(questions) / count) for number in range(count + 1)]
    return [questions[low:high] for low, high in pairwise(bounds)]


def _gamma(answer: Answer) -> int | None:
    try:
        told = read_told(answer.metrics)
    except ServerError:
        # `sides` says so.
        return None
    return None if told is None else told.gamma


# ---------------------------------------------------------------- side by side


@dataclass(frozen=True, slots=True)
class Side:
    """A run at one concurrency, in the numbers that are compared; None where it does not tell.

    `counts` are sums of the answers' own accounts or, where one has none, the counters' difference: `source`. `first`
    and `token` are the spreads of TTFT and TPOT in milliseconds, `firsts` and `paces` the values themselves. `failed`
    answers broke off, `odd` ones contradict themselves; `shared` says that the server answered others meanwhile.
    """

    name: str
    concurrency: int
    counts: Counts | None
    source: Literal["answers", "counters"] | None
    tau: Ratio | None
    first: Spread | None
    token: Spread | None
    firsts: tuple[float, ...]
    paces: tuple[float, ...]
    throughput: Ratio
    answers: int
    failed: int
    odd: int
    shared: bool


def sides(runs: Sequence[Saved]) -> tuple[Side, ...]:
    """Every pass of every run, read."""
    return tuple(_side(run, each) for run in runs for each in run.passes)


def _side(run: Saved, each: Pass) -> Side:
    found: list[Reading] = []
    odd = 0
    for number, asked in enumerate(each.asked):
        if asked.problem is None:
            try:
                found.append(reading(run, asked, number))
            except ServerError:
                odd += 1
    window, shared = _window(each)
    told = [one.told.counts for one in found if one.told is not None]
    counts: Counts | None = None
    source: Literal["answers", "counters"] | None = None
    if told and len(told) == len(each.whole):
        counts, source = sum(told, NOTHING), "answers"
    elif window is not None and window.speculation is not None and not shared:
        counts, source = window.speculation, "counters"
    times = each.latency
    answers = [asked.answer for asked in each.whole]
    return Side(
        run.method,
        each.concurrency,
        counts,
        source,
        None if odd else tau(found, None if shared else window),
        times.first,
        times.token,
        firsts(answers),
        paces(answers),
        times.throughput,
        len(answers),
        len(each.asked) - len(answers),
        odd,
        shared,
    )


def _window(each: Pass) -> tuple[Window | None, bool]:
    """The counters' difference, where it can be; and whether it counts others' answers as well."""
    try:
        window = each.window
    except ServerError:
        return None, False
    if window is None or (window.speculation is not None and not window.speculation.adds_up):
        return None, False
    if len(each.whole) < len(each.asked):
        # It counts what broke off as well, as far as that came.
        return None, False
    own = (len(each.asked), sum(one.answer.tokens for one in each.asked))
    return window, (window.answers, window.generated) != own


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which runs differ, with what each has; where it is `grave`, their numbers do not compare."""

    name: Literal["target", "prompts", "max_tokens", "machine", "vllm", "concurrency", "failed", "shared"]
    values: tuple[str, ...]
    grave: bool


def differences(runs: Sequence[Saved]) -> tuple[Difference, ...]:
    """In what these runs differ besides the server; empty where they compare."""
    found = sides(runs)
    failed = {run.method: sum(side.failed + side.odd for side in found if side.name == run.method) for run in runs}
    shared = {run.method: any(side.shared for side in found if side.name == run.method) for run in runs}
    told: list[Difference] = []

    def hold(name: Any, keys: Sequence[object], values: Sequence[object], grave: bool) -> None:
        if len(set(keys)) > 1:
            told.append(Difference(name, tuple(map(str, values)), grave))

    asked = [tuple(sorted({one.prompt for each in run.passes for one in each.asked})) for run in runs]
    machines = [", ".join(str(value) for name, value in run.machine.items() if name != "note") for run in runs]
    versions = [run.versions.get("vllm", "–") for run in runs]
    widths = [", ".join(str(each.concurrency) for each in run.passes) or "–" for run in runs]
    tokens = [run.max_tokens for run in runs]
    hold("target", [run.target for run in runs], [run.target for run in runs], True)
    hold("prompts", asked, [len(prompts) for prompts in asked], True)
    hold("max_tokens", tokens, tokens, True)
    hold("machine", machines, machines, True)
    hold("vllm", versions, versions, False)
    hold("concurrency", widths, widths, False)
    if any(failed.values()):
        told.append(Difference("failed", tuple(str(failed[run.method]) for run in runs), False))
    if any(shared.values()):
        told.append(Difference("shared", tuple("1" if shared[run.method] else "0" for run in runs), True))
    return tuple(told)


# ---------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class _Several:
    schema: Literal["specviz.compared/1"]
    runs: tuple[Saved, ...]


_SEVERAL = TypeAdapter(_Several)
_FILE: TypeAdapter[_Several | Saved] = TypeAdapter(Annotated[_Several | Saved, Field(discriminator="schema")])


def to_json(runs: Sequence[Saved]) -> str:
    """Runs as one document that `parse` reads again."""
    body = _SEVERAL.dump_python(_Several(SEVERAL, tuple(runs)), mode="json")
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse(text: str) -> tuple[Saved, ...]:
    """The runs of such a document, or the one of a saved run; SavedError names the field that is wrong."""
    told = validate(text, _FILE, MAX_BYTES)
    runs = told.runs if isinstance(told, _Several) else (told,)
    for field_, problem in _faults(runs):
        raise SavedError(field_, problem)
    return runs


def _faults(runs: Sequence[Saved]) -> Iterator[tuple[str, str]]:
    """What no comparison comes to, though every field is of its kind: where, and what is wrong there."""
    if not 1 <= len(runs) <= MOST:
        yield "runs", f"1 to {MOST} of them"
    if len({run.method for run in runs}) < len(runs):
        yield "runs", "two of one name"
    room = MOST_IN_ALL
    for number, run in enumerate(runs):
        where = f"runs.{number}"
        if not run.method.strip() or len(run.method) > MOST_NAME:
            yield f"{where}.method", "no name"
        gamma = (run.speculative or {}).get("num_speculative_tokens")
        if gamma is not None and not (type(gamma) is int and 1 <= gamma <= MAX_GAMMA):
            yield f"{where}.speculative.num_speculative_tokens", "no length of a draft"
        levels = [each.concurrency for each in run.passes]
        if len(set(levels)) < len(levels) or len(levels) > MOST_PASSES:
            yield f"{where}.passes", "one for every concurrency"
        for place, each in enumerate(run.passes):
            here = f"{where}.passes.{place}"
            if each.seconds < LEAST_SECONDS:
                yield f"{here}.seconds", "no time in which a question is answered"
            if len(each.asked) > MOST_QUESTIONS:
                yield f"{here}.asked", f"{MOST_QUESTIONS} questions at most"
            counted = [look.speculation for look in (each.before, each.after) if look and look.speculation]
            if any(len(counts.by_position) > MAX_GAMMA for counts in counted):
                yield f"{here}.after", "more positions than a draft has"
            for asked in each.asked:
                times = [arrival.ms for arrival in asked.answer.arrivals]
                if times != sorted(times):
                    yield f"{here}.asked", "arrivals that go back in time"
                room -= max(len(asked.answer.ids or ()), len(times))
    if room < 0:
        yield "runs", "more tokens than a comparison has"


def to_csv(runs: Sequence[Saved]) -> str:
    """The numbers that are compared, a row for every run and concurrency; the same row for live and saved runs."""
    written = io.StringIO()
    by_name = {run.method: run for run in runs}
    rows = [_row(by_name[side.name], side) for side in sides(runs)]
    if rows:
        # The deepest drafts have the most columns.
        names = max((list(row) for row in rows), key=len)
        table = csv.DictWriter(written, names, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return written.getvalue()


def _row(run: Saved, side: Side) -> dict[str, Any]:
    counts = side.counts
    row: dict[str, Any] = {
        "server": side.name,
        "model": run.target,
        "vllm": run.versions.get("vllm"),
        "host": run.machine.get("host") or run.machine.get("processor"),
        "created": run.created,
        "max_tokens": run.max_tokens,
        "concurrency": side.concurrency,
        "answers": side.answers,
        "failed": side.failed,
        "contradictory": side.odd,
        "others_asked": side.shared,
        "tokens_per_second": _rounded(side.throughput.value, 3),
        "tau": _rounded(side.tau.value if side.tau else None, 4),
    }
    for name, spread in (("ttft_ms", side.first), ("tpot_ms", side.token)):
        for percentile in ("p50", "p95", "p99"):
            row[f"{name}_{percentile}"] = _rounded(getattr(spread, percentile) if spread else None, 3)
    row |= {
        "counts_from": side.source,
        "drafts": counts and counts.drafts,
        "drafted": counts and counts.drafted,
        "accepted": counts and counts.accepted,
        "acceptance_length": _rounded(counts.length.value if counts else None, 4),
    }
    for place, ratio in enumerate(counts.positions if counts else (), 1):
        row[f"position_{place}"] = _rounded(ratio.value, 4)
    return row


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _cell(value: Any) -> Any:
    # A server names its own model, and a spreadsheet reads these first letters as a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
