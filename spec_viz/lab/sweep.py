"""Experiments: a small declaration, a runner that yields a point a run, and a `specviz.result/1` record.

Machines are noisy, so no speed stands alone: a plain run of the same prompt, temperature and seed stands between two
speculative ones, and a ratio is that of neighbours in time. Every other repeat goes backwards. All numbers come from
the traces and count after the prefill. No run remembers the one before it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from itertools import accumulate
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from spec_viz.drafters.registry import Family, Value
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Trace
from spec_viz.lab.bench import SCHEMA, Question
from spec_viz.lab.metrics import summarise
from spec_viz.lab.run import Request, RequestError, check, conditions, encode_prompt, start
from spec_viz.models.load import Loaded

Kind = Literal["gamma", "temperature", "task", "streaming"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Finish = Literal["done", "stopped"]

# As many bytes and runs as a file to look at may have.
MOST_BYTES = 4_000_000
MOST_POINTS = 5_000
MOST_VALUE = 1_000
WARM_TOKENS = 4

Count = Annotated[int, Field(ge=0, le=10**9)]
Amount = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]
MOST_LETTERS = 80
Name = Annotated[str, Field(min_length=1, max_length=MOST_LETTERS)]
Place = tuple[Count, Count, Count, Count]
Arrival = tuple[Amount, Count]
Progress = Callable[[Iterable[Any]], Iterable[Any]]
Keep = Callable[[dict[str, Any]], None]
Shape = TypeVar("Shape")


class ResultError(ValueError):
    """A result that cannot be read: `field` names the place, `problem` says in English what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


# ---------------------------------------------------------------- declaring


@dataclass(frozen=True, slots=True)
class Choice:
    """A drafter, with what is not its default: options and a rule."""

    drafter: Name
    options: Mapping[str, Value] = field(default_factory=dict)
    rule: Name | None = None

    @property
    def label(self) -> str:
        """Its name, and in brackets what was set."""
        told = [*(f"{name}={value}" for name, value in self.options.items()), *([self.rule] if self.rule else [])]
        return f"{self.drafter} ({', '.join(told)})" if told else self.drafter


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to decode: what is run once for every prompt, seed and repeat."""

    choice: Choice
    rule: str | None
    gamma: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A plain run (None in `order`) and the one or two speculative runs beside it in time."""

    question: int
    seed: int
    repeat: int
    temperature: float
    order: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is to be measured. `axis` holds γ for `gamma` and temperatures for `temperature`; the others have none."""

    kind: Kind
    drafters: tuple[Choice, ...]
    questions: tuple[Question, ...]
    axis: tuple[float, ...] = ()
    gamma: int = 4
    temperature: float = 0.0
    seeds: tuple[int, ...] = (0,)
    repeats: int = 1
    max_new_tokens: int = 48

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every way to decode, those of one temperature side by side."""
        if self.kind == "gamma":
            return tuple(Cell(c, c.rule, int(gamma), self.temperature) for gamma in self.axis for c in self.drafters)
        if self.kind == "temperature":
            return tuple(
                Cell(choice, rule, self.gamma, temperature)
                for temperature in self.axis
                for choice in self.drafters
                for rule in forms(choice)
            )
        return tuple(Cell(choice, choice.rule, self.gamma, self.temperature) for choice in self.drafters)

    @property
    def size(self) -> int:
        """How many points a whole run has."""
        return len(self.cells) * len(self.questions) * len(self.seeds) * self.repeats

    def turns(self) -> Iterable[Turn]:
        """Prompt by prompt, so that a run which is stopped early has all cells of the prompts it came to."""
        for repeat in range(self.repeats):
            for question in range(len(self.questions)):
                for seed in self.seeds:
                    turns = [
                        Turn(question, seed, repeat, pair[0].temperature, (pair[0], None, *pair[1:]))
                        for temperature in dict.fromkeys(cell.temperature for cell in self.cells)
                        for pair in _pairs([cell for cell in self.cells if cell.temperature == temperature])
                    ]
                    if repeat % 2 == 0:
                        yield from turns
                    else:
                        yield from (_backwards(turn) for turn in reversed(turns))

    def request(self, cell: Cell | None, turn: Turn) -> Request:
        """What a turn's run asks for; None is the plain run."""
        question = self.questions[turn.question]
        plain = Request(
            question.prompt,
            drafter="none",
            temperature=turn.temperature,
            seed=turn.seed,
            max_new_tokens=self.max_new_tokens,
            chat=question.chat,
        )
        if cell is None:
            return plain
        choice = cell.choice
        return replace(plain, drafter=choice.drafter, options=choice.options, rule=cell.rule, gamma=cell.gamma)


def _pairs(cells: Sequence[Cell]) -> list[Sequence[Cell]]:
    return [cells[at : at + 2] for at in range(0, len(cells), 2)]


def _backwards(turn: Turn) -> Turn:
    return replace(turn, order=turn.order[::-1])


def forms(choice: Choice) -> tuple[str | None, ...]:
    """The rules under which a drafter drafts differently: as a model that samples, and its one best token (`match`)."""
    family = _family(choice)
    return ("token", "match") if family.drafts == "sampled" and choice.rule is None else (choice.rule,)


def _family(choice: Choice) -> Family:
    return check(Request("-", choice.drafter, choice.options, choice.rule))[1]


def validate(experiment: Experiment) -> Experiment:
    """The experiment where it can be run; RequestError or ValueError where a part of it cannot."""
    if not experiment.drafters or not experiment.questions or not experiment.seeds or experiment.repeats < 1:
        raise ValueError("an experiment needs a drafter, a prompt, a seed and a repeat")
    if experiment.kind in ("gamma", "temperature") and not experiment.axis:
        raise ValueError(f"an experiment over {experiment.kind} needs values of it")
    if experiment.kind == "gamma" and not all(
        -MOST_VALUE < gamma == gamma // 1 < MOST_VALUE for gamma in experiment.axis
    ):
        raise ValueError("γ takes whole numbers")
    for what in (experiment.axis, experiment.seeds):
        check_twice(what)
    check_choices(experiment.drafters)
    check_size(experiment.size, MOST_POINTS)
    for turn in experiment.turns():
        for cell in turn.order:
            check(experiment.request(cell, turn))
    return experiment


def check_twice(values: Sequence[Any]) -> None:
    """ValueError where a value stands twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"the same value stands twice in {', '.join(map(str, values))}")


def check_choices(choices: Sequence[Choice]) -> None:
    """ValueError where these drafters cannot stand beside each other in a result."""
    if any(choice.drafter == "none" for choice in choices):
        raise ValueError("plain decoding is measured beside every drafter; it is none itself")
    labels = [choice.label for choice in choices]
    check_twice(labels)
    if long := next((label for label in labels if len(label) > MOST_LETTERS), None):
        raise ValueError(f"{long[:30]}… is longer than the {MOST_LETTERS} letters a result holds: set fewer options")


def check_size(runs: int, most: int) -> None:
    """ValueError where more would be measured than can be read again."""
    if runs > most:
        raise ValueError(f"{runs} measurements are more than the {most} that a result holds: choose fewer values")


# ---------------------------------------------------------------- running


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Point:
    """One speculative run and the plain run beside it: counts after the prefill, milliseconds, and their ratio.

    `positions` are (reached, drafted, judged, accepted) by draft position, of chains. `costs` are `metrics.Costs`'
    step, draft, growth and other in rounds of the plain run. Arrivals are (milliseconds since the first token, tokens
    that came), of the kind `streaming` only.
    """

    drafter: Name
    rule: Name
    gamma: Count
    temperature: Amount
    category: Name
    prompt: Count
    seed: Count
    repeat: Count
    context: Count
    rounds: Annotated[int, Field(ge=1, le=10**6)]
    drafting: Count
    drafted: Count
    judged: Count
    accepted: Count
    tokens: Annotated[int, Field(ge=1, le=10**6)]
    plain_tokens: Annotated[int, Field(ge=1, le=10**6)]
    ms: Positive
    plain_ms: Positive
    first_ms: Positive
    plain_first_ms: Positive
    ratio: Positive
    tree: bool
    positions: Annotated[tuple[Place, ...], Field(max_length=64)]
    costs: tuple[Amount, Amount, Amount, Amount]
    arrivals: Annotated[tuple[Arrival, ...], Field(max_length=5000)] = ()
    plain_arrivals: Annotated[tuple[Arrival, ...], Field(max_length=5000)] = ()

    @property
    def series(self) -> tuple[str, str]:
        """What is drawn as one line."""
        return self.drafter, self.rule


def run(
    loaded: Loaded, experiment: Experiment, stop: Callable[[], bool] = lambda: False, progress: Progress = iter
) -> Generator[Point]:
    """A point as soon as a run and its plain neighbour are there; ends early, with whole points, once `stop` says so.

    A prompt that the target answers with a single token has no rounds, and gives none.
    """
    turns = list(validate(experiment).turns())
    _warm(loaded, experiment, turns[0], stop)
    for turn in progress(turns):
        plain: Trace | None = None
        waiting: list[tuple[Cell, Trace]] = []
        for cell in turn.order:
            trace = None if stop() else start(loaded, experiment.request(cell, turn), stop).collect()
            if trace is None or trace.finish == "stopped":
                return
            if cell is None:
                plain = trace
            else:
                waiting.append((cell, trace))
            if plain is not None:
                for each, speculative in waiting:
                    if (found := point(experiment, turn, each, speculative, plain)) is not None:
                        yield found
                waiting.clear()


def _warm(loaded: Loaded, experiment: Experiment, turn: Turn, stop: Callable[[], bool]) -> None:
    """Everything runs once before it is timed: the first pass allocates, and a second model is read from its file."""
    seen = {cell.choice.label: cell for cell in experiment.cells}
    for cell in (None, *seen.values()):
        if not stop():
            start(loaded, replace(experiment.request(cell, turn), max_new_tokens=WARM_TOKENS), stop).collect()


def point(experiment: Experiment, turn: Turn, cell: Cell, trace: Trace, plain: Trace) -> Point | None:
    """The numbers of a run beside its plain run; None where one of them has no rounds."""
    summary, base = summarise(trace, plain), summarise(plain)
    costs, ratio = summary.costs, summary.speedup.value if summary.speedup else None
    if costs is None or not ratio or not costs.plain:
        return None
    plain_ms, streams = costs.plain, experiment.kind == "streaming"

    def share(ms: float) -> float:
        return round(ms / plain_ms, 6)

    return Point(
        drafter=cell.choice.label,
        rule=trace.meta["rule"],
        gamma=cell.gamma,
        temperature=cell.temperature,
        category=experiment.questions[turn.question].category,
        prompt=turn.question,
        seed=turn.seed,
        repeat=turn.repeat,
        context=len(trace.prompt),
        rounds=summary.rounds,
        drafting=summary.drafting_rounds,
        drafted=summary.drafted,
        judged=summary.judged,
        accepted=summary.accepted,
        tokens=summary.emitted,
        plain_tokens=base.emitted,
        ms=round(summary.ms["total"].total, 3),
        plain_ms=round(base.ms["total"].total, 3),
        first_ms=round(summary.prefill_ms or 0.0, 3),
        plain_first_ms=round(base.prefill_ms or 0.0, 3),
        ratio=round(ratio, 5),
        tree=summary.is_tree,
        positions=()
        if summary.is_tree
        else tuple((each.reached, each.drafted, each.judged, each.accepted) for each in summary.positions),
        costs=(share(costs.step), share(costs.draft), share(costs.growth), share(costs.other)),
        arrivals=arrivals(trace) if streams else (),
        plain_arrivals=arrivals(plain) if streams else (),
    )


def arrivals(trace: Trace) -> tuple[Arrival, ...]:
    """When text came: (milliseconds since the first token, tokens that came at once), a pair a round."""
    rounds = [round_ for round_ in trace.decoding if round_.committed]
    times = accumulate(round_.ms.total for round_ in rounds)
    return tuple((round(at, 2), len(round_.committed)) for at, round_ in zip(times, rounds, strict=True))


def begin(loaded: Loaded, experiment: Experiment) -> dict[str, Any]:
    """A record without points: what is measured and under which conditions. It counts as stopped until it is done."""
    lengths = lengths_of(loaded, experiment.questions, experiment.max_new_tokens)
    varied = experiment.kind
    return {
        "schema": SCHEMA,
        "kind": "sweep",
        "experiment": asdict(experiment),
        "conditions": {
            **conditions(loaded),
            "target": loaded.entry.name,
            "batch": 1,
            "context": [min(lengths), max(lengths)],
            "prompts": len(experiment.questions),
            "prompts_digest": _digest(experiment.questions),
            "seeds": list(experiment.seeds),
            "repeats": experiment.repeats,
            "max_new_tokens": experiment.max_new_tokens,
            **({} if varied == "gamma" else {"gamma": experiment.gamma}),
            **({} if varied == "temperature" else {"temperature": experiment.temperature}),
            "clock": "after the first token",
            "memory": "none",
        },
        "points": [],
        "finish": "stopped",
    }


def lengths_of(loaded: Loaded, questions: Sequence[Question], new: int) -> list[int]:
    """Tokens of each prompt; RequestError where the model's context has no room for one and `new` tokens."""
    lengths = [len(encode_prompt(loaded, Request(question.prompt, chat=question.chat))) for question in questions]
    limit = CachedModel(loaded.model).context_limit - new
    if max(lengths) > limit:
        raise RequestError("error.prompt_too_long", tokens=max(lengths), limit=limit)
    return lengths


def measure(
    loaded: Loaded,
    experiment: Experiment,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = iter,
    keep: Keep = lambda _: None,
) -> dict[str, Any]:
    """A whole experiment as a `specviz.result/1` record; what was measured before `stop` stays in it.

    `keep` gets the record however it ends, even where a run fails.
    """
    record = begin(loaded, validate(experiment))
    return gather(record, record["points"], run(loaded, experiment, stop, progress), stop, keep)


def gather(
    record: dict[str, Any], into: list[Any], found: Iterable[Any], stop: Callable[[], bool], keep: Keep
) -> dict[str, Any]:
    """Fill a list of a record with what is found, and give the record to `keep`, also where finding fails."""
    try:
        # What came before a failure is in the list already.
        into.extend(map(asdict, found))
        record["finish"] = "stopped" if stop() else "done"
    finally:
        keep(record)
    return record


def _digest(questions: Sequence[Question]) -> str:
    told = json.dumps([asdict(question) for question in questions], ensure_ascii=False)
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:12]


# ---------------------------------------------------------------- reading


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Sweep:
    """A record of an experiment, read and checked."""

    experiment: Experiment
    conditions: Mapping[str, Any]
    points: Annotated[tuple[Point, ...], Field(max_length=MOST_POINTS)]
    finish: Finish


_READER: TypeAdapter[Sweep] = TypeAdapter(Sweep)


def read(body: Any) -> Sweep:
    """A record as its file holds it; ResultError names the field that is wrong."""
    found = read_as(_READER, "sweep", body)
    for place, problem in _problems(found):
        raise ResultError(place, problem)
    return found


def read_as(reader: TypeAdapter[Shape], kind: str, body: Any) -> Shape:
    """A record of one kind in its shape; ResultError names the field that is wrong."""
    if kind_of(body) != kind:
        raise ResultError("kind", f"expected {kind}, found {str(body['kind'])[:40]}")
    try:
        return reader.validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise ResultError(".".join(map(str, first["loc"])), first["msg"]) from None


def kind_of(body: Any) -> str:
    """What a record says that it is of; ResultError where it is no record."""
    if not isinstance(body, Mapping):
        raise ResultError("file", "not a JSON object")
    if body.get("schema") != SCHEMA:
        raise ResultError("schema", f"expected {SCHEMA}, found {str(body.get('schema'))[:40]}")
    kind = body.get("kind")
    if not isinstance(kind, str):
        raise ResultError("kind", f"expected a name, found {str(kind)[:40]}")
    return kind


def _problems(found: Sweep) -> Iterable[tuple[str, str]]:
    """What no single field can tell."""
    for place, each in enumerate(found.points):
        chain = all(p[0] >= p[2] >= p[3] and p[1] >= p[2] for p in each.positions)
        if not each.accepted <= each.judged <= each.drafted or not each.drafting <= each.rounds or not chain:
            yield f"points.{place}", "more was accepted than judged, or judged than drafted"
        if each.prompt >= len(found.experiment.questions):
            yield f"points.{place}.prompt", "no such prompt"
        if found.experiment.kind == "streaming" and not (each.arrivals and each.plain_arrivals):
            yield f"points.{place}.arrivals", "missing"


class Told(Protocol):
    """A result of any kind, as far as its conditions go."""

    @property
    def conditions(self) -> Mapping[str, Any]: ...


# Where a number was measured does not tell when, and what a kind varies on purpose is no condition of it.
_UNTOLD = ("created", "schedules", "drafters")


def comparable(left: Told, right: Told) -> tuple[str, ...]:
    """The names of the conditions in which two results differ, `kind` first; empty where they may be compared."""
    kinds = () if _kind(left) == _kind(right) else ("kind",)
    before, now = _flat(left.conditions), _flat(right.conditions)
    return (*kinds, *(name for name in {**before, **now} if before.get(name) != now.get(name)))


def _kind(result: Told) -> str:
    return result.experiment.kind if isinstance(result, Sweep) else type(result).__module__


def _flat(told: Mapping[str, Any]) -> dict[str, Any]:
    versions = told.get("versions")
    plain = {name: value for name, value in told.items() if name not in (*_UNTOLD, "versions")}
    return {**plain, **(versions if isinstance(versions, Mapping) else {})}


_LEFT_OUT = ("positions", "costs", "arrivals", "plain_arrivals")


def to_csv(result: Sweep) -> str:
    """A line a run, with α, τ and the speedup beside the counts they come from."""
    names = [each.name for each in fields(Point) if each.name not in _LEFT_OUT]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "alpha", "tau"])
    for each in result.points:
        alpha = each.accepted / each.judged if each.judged and not each.tree else None
        writer.writerow([*(getattr(each, name) for name in names), alpha, each.tokens / each.rounds])
    return out.getvalue()
