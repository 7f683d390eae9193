"""Saved runs of a real server: what it was asked, what came and when, and what its counters and its log said.

One file a method in `assets/served`: one JSON document, the fields of `Saved`. It holds what the server sent and
nothing that was worked out of it: traces, rates and latencies are made by `readings`, `Pass.window` and `Pass.latency`
whenever they are wanted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from spec_viz.engine.trace import Anything, Milliseconds, TokenTable
from spec_viz.serving.client import Answer
from spec_viz.serving.counters import Scrape, Window, between
from spec_viz.serving.problems import Problem
from spec_viz.serving.reader import Latency, Reading, latency, read

Shape = TypeVar("Shape")

SCHEMA: Literal["specviz.served/1"] = "specviz.served/1"
SERVED = Path(__file__).parents[2] / "assets" / "served"
MAX_BYTES = 1_000_000
# A model always drafts; a lookup finds nothing now and then, and of what is not known so may anything.
_ALWAYS_DRAFTS = ("draft_model", "eagle3")


class SavedError(ValueError):
    """A saved run that cannot be read: `field` names the place, `problem` says what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and its answer: when it was sent, in milliseconds after its pass began, and the task it is of.

    `problem` is why the answer broke off, or never came; what had come stands in `answer`.
    """

    task: str
    prompt: str
    began_ms: Milliseconds
    answer: Answer
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """All questions once, so many of them side by side; the counters before and after; the server's own log lines.

    Of several servers that take turns, `seconds` and the clocks are those of this one's own turns. `log` are its lines
    about speculation that count this pass, and nothing but it; more than one where it was long.
    """

    concurrency: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    before: Scrape | None
    after: Scrape | None
    log: tuple[str, ...]
    asked: tuple[Asked, ...]

    @property
    def window(self) -> Window | None:
        """What the counters rose by during the pass; None where the server does not show them."""
        return between(self.before, self.after) if self.before and self.after else None

    @property
    def whole(self) -> tuple[Asked, ...]:
        """The questions whose answer came to its end."""
        return tuple(each for each in self.asked if each.problem is None)

    @property
    def latency(self) -> Latency:
        """Times as the client saw them, of whole answers."""
        return latency([each.answer for each in self.whole], self.seconds)


@dataclass(frozen=True, slots=True)
class Saved:
    """A server that ran, and its passes.

    In `command`, TARGET and HEAD stand for the folders of the target and of the draft model or head, PORT for the
    port. `speculative` is the config as it was given, None for the baseline; `head` the sha256 of the head's weights.
    `machine` says what it ran on and what else ran there; `tokens` are the texts of all ids.

    Of a server that somebody else started (`compare`), `method` is the name it was given here and `target` the model
    it names; `command` and `machine` are empty, and `speculative` has what its answers tell, an empty one nothing.
    """

    schema: Literal["specviz.served/1"]
    method: str
    created: str
    versions: dict[str, str]
    machine: dict[str, str | int]
    target: str
    command: tuple[str, ...]
    environment: dict[str, str]
    speculative: Anything | None
    head: str | None
    max_tokens: int
    warm_up: int
    tokens: TokenTable
    passes: tuple[Pass, ...]

    def at(self, concurrency: int) -> Pass:
        """The pass with so many questions side by side; KeyError where there is none."""
        found = next((each for each in self.passes if each.concurrency == concurrency), None)
        if found is None:
            raise KeyError(f"{self.method} has no pass with {concurrency} side by side")
        return found


SAVED = TypeAdapter(Saved)


def path_of(method: str) -> Path:
    """The file of a method's saved run."""
    return SERVED / f"{method}.json"


def write(saved: Saved, path: Path) -> None:
    """Write a saved run."""
    text = json.dumps(SAVED.dump_python(saved, mode="json"), ensure_ascii=False, separators=(",", ":")) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def load(path: Path) -> Saved:
    """Read a saved run; SavedError names the field that is wrong."""
    return validate(path.read_text(encoding="utf-8"), SAVED)


def validate(text: str, kind: TypeAdapter[Shape], most: int = MAX_BYTES) -> Shape:
    """Saved runs of this shape, from a text of at most so many letters; SavedError names the field that is wrong."""
    if len(text) > most:
        raise SavedError("file", f"larger than {most // 1_000_000} MB")
    try:
        return kind.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SavedError(".".join(map(str, first["loc"])) or "file", first["msg"]) from None


def readings(saved: Saved, asked: Sequence[Asked]) -> Iterator[Reading]:
    """What each answer of a saved run tells, with its trace; ServerError at one that contradicts itself."""
    return (reading(saved, each, number) for number, each in enumerate(asked))


def reading(saved: Saved, each: Asked, number: int) -> Reading:
    """What one answer of a saved run tells, with its trace; ServerError where it contradicts itself."""
    speculative = saved.speculative or {}
    meta = {
        "target": saved.target,
        "drafter": "none" if saved.speculative is None else saved.method,
        "gamma": speculative.get("num_speculative_tokens"),
        "temperature": 0.0,
        "max_new_tokens": saved.max_tokens,
        "chat": True,
        "prompt_text": each.prompt,
        "task": each.task,
        "versions": saved.versions,
        "created": saved.created,
    }
    ids = {*(each.answer.ids or ()), *(each.answer.prompt or ())}
    tokens = {id_: text for id_, text in saved.tokens.items() if id_ in ids}
    run = f"served-{saved.method}-{number}"
    return read(
        each.answer,
        meta,
        tokens,
        run=run,
        plain=saved.speculative is None,
        may_be_silent=speculative.get("method") not in _ALWAYS_DRAFTS,
    )
