"""The kinds of figure a lesson's step may show, each with its settings: the whole list, and the check of their form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Index = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Span = tuple[Index, Index]
# Beside the method's name, which always stands first.
FamilyColumn = Literal["reads", "order", "parameters", "c", "slots", "alpha", "tau", "speedup", "published"]
Law = Annotated[tuple[Share, ...], Field(min_length=2, max_length=5)]


@dataclass(frozen=True, slots=True)
class Text:
    """Words alone."""

    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Tiles:
    """Rounds `from` … `to` of a trace, both included, on the board; fates shown at once or hidden until asked for."""

    kind: Literal["tiles"]
    trace: Name
    rounds: Span | None = None
    start: Literal["hidden", "shown"] = "shown"


@dataclass(frozen=True, slots=True)
class Certainty:
    """The target's own probability of each token it wrote."""

    kind: Literal["certainty"]
    trace: Name


@dataclass(frozen=True, slots=True)
class Cost:
    """Measured v(n), and c of drafters."""

    kind: Literal["cost"]
    result: Name


@dataclass(frozen=True, slots=True)
class Experiment:
    """A recorded experiment as the Lab draws it; `charts` names those of its charts that are shown, all when empty."""

    kind: Literal["experiment"]
    result: Name
    charts: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """min(p, q) + (p − q)₊ = p, bar by bar, from the laws stored at one node."""

    kind: Literal["law"]
    trace: Name
    round: Index
    node: Index


@dataclass(frozen=True, slots=True)
class Drag:
    """Bars of p and q to pull: β, residual, distance and the emitted law; `wrong`: at its end the wrong rule is on."""

    kind: Literal["drag"]
    p: Law
    q: Law
    labels: Annotated[tuple[str, ...], Field(min_length=2, max_length=5)]
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Reroll:
    """One round again `n` times from its stored laws."""

    kind: Literal["reroll"]
    trace: Name
    round: Index
    n: Annotated[int, Field(ge=1, le=100_000)] = 1000


@dataclass(frozen=True, slots=True)
class Cache:
    """The KV strips of target and drafter."""

    kind: Literal["kv"]
    trace: Name
    rounds: Span | None = None


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A drawing of a round of this method: draft, verify, accept, roll back."""

    kind: Literal["anatomy"]
    method: Name


@dataclass(frozen=True, slots=True)
class Family:
    """The table of drafters that learn from the target; all methods and columns where none are named.

    `sort` is the column it begins sorted by, the largest first; otherwise it stands in the order in which ideas came.
    """

    kind: Literal["family"]
    methods: tuple[Name, ...] = ()
    columns: tuple[FamilyColumn, ...] = ()
    sort: FamilyColumn | None = None


@dataclass(frozen=True, slots=True)
class Slots:
    """What each slot of a parallel draft held, side by side, and which first choices do not go together."""

    kind: Literal["slots"]
    trace: Name
    round: Index


@dataclass(frozen=True, slots=True)
class Growth:
    """A dynamic tree as it grew in one round, and what the rerank kept of it."""

    kind: Literal["grown"]
    trace: Name
    round: Index


@dataclass(frozen=True, slots=True)
class Calibration:
    """How likely a run's drafts were said to survive, against how many did."""

    kind: Literal["calibration"]
    trace: Name


@dataclass(frozen=True, slots=True)
class Formula:
    """The speedup formula with sliders; `wrong` lays the formula 1 / (1 − α^γ) over it."""

    kind: Literal["formula"]
    alpha: Share
    gamma: Annotated[int, Field(ge=1, le=12)]
    c: Annotated[float, Field(ge=0.0)]
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Race:
    """The run beside its baseline on one clock."""

    kind: Literal["race"]
    trace: Name


@dataclass(frozen=True, slots=True)
class Here:
    """A run on the formula, from the theorem to what was measured: the learner's own last one, else the recorded."""

    kind: Literal["here"]
    trace: Name


@dataclass(frozen=True, slots=True)
class Compare:
    """Two runs' texts, token by token."""

    kind: Literal["compare"]
    traces: tuple[Name, Name]


@dataclass(frozen=True, slots=True)
class Survey:
    """The questions asked before the lesson and again after it."""

    kind: Literal["survey"]
    phase: Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Quiz:
    """Check questions, each with its reasons."""

    kind: Literal["quiz"]


@dataclass(frozen=True, slots=True)
class Analogy:
    """Two columns of words: where a likeness carries and where it breaks."""

    kind: Literal["analogy"]


@dataclass(frozen=True, slots=True)
class End:
    """What the learner can now explain, a task for the Lab, sources."""

    kind: Literal["end"]


@dataclass(frozen=True, slots=True)
class Command:
    """The command that started a saved server run; the words' section `keys` explains its keys one by one."""

    kind: Literal["command"]
    run: Name


@dataclass(frozen=True, slots=True)
class Reported:
    """What a saved server said: with an answer, in its counters (before → after the pass), or in its log."""

    kind: Literal["reported"]
    run: Name
    show: Literal["answer", "counters", "log"]
    answer: Index = 0
    concurrency: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class Served:
    """One answer of a saved server run on the board, as `tiles`; what a server does not tell stays open."""

    kind: Literal["served"]
    run: Name
    answer: Index
    rounds: Span | None = None
    start: Literal["hidden", "shown"] = "shown"
    concurrency: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class Runs:
    """Saved server runs side by side, one measure of all answers of a pass."""

    kind: Literal["runs"]
    show: Literal["ttft", "tpot", "throughput", "tau", "positions"]
    runs: Annotated[tuple[Name, ...], Field(min_length=1)]
    concurrency: Annotated[int, Field(ge=1)] = 1


Figure = Annotated[
    Text
    | Tiles
    | Certainty
    | Cost
    | Experiment
    | Proof
    | Drag
    | Reroll
    | Cache
    | Anatomy
    | Family
    | Slots
    | Growth
    | Calibration
    | Formula
    | Race
    | Here
    | Compare
    | Survey
    | Quiz
    | Analogy
    | End
    | Command
    | Reported
    | Served
    | Runs,
    Field(discriminator="kind"),
]

for _class in (
    Text,
    Tiles,
    Certainty,
    Cost,
    Experiment,
    Proof,
    Drag,
    Reroll,
    Cache,
    Anatomy,
    Family,
    Slots,
    Growth,
    Calibration,
    Formula,
    Race,
    Here,
    Compare,
    Survey,
    Quiz,
    Analogy,
    End,
    Command,
    Reported,
    Served,
    Runs,
):
    _class.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[union-attr]

# Words a step needs beside its body, by the kind of its figure.
PARTS: dict[str, tuple[str, ...]] = {
    "analogy": ("carries", "breaks"),
    "end": ("explain", "task"),
    "command": ("keys",),
    "reported": ("keys",),
}


def traces_of(figure: Figure) -> tuple[str, ...]:
    """Names of the traces a figure is drawn from, the main one first."""
    if isinstance(figure, Compare):
        return figure.traces
    name = getattr(figure, "trace", None)
    return () if name is None else (name,)
