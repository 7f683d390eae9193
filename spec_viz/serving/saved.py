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
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from spec_viz.engine.trace import Anything, TokenTable
from spec_viz.serving.client import Answer
from spec_viz.serving.counters import Scrape, Window, between
from spec_viz.serving.reader import Latency, Reading, latency, read

SCHEMA: Literal["specviz.served/1"] = "specviz.served/1"
SERVED = Path(__file__).parents[2] / "assets" / "served"
MAX_BYTES = 1_000_000
# A lookup finds nothing now and then; a model always drafts.
_MAY_BE_SILENT = ("ngram",)


class SavedError(ValueError):
    """A saved run that cannot be read: `field` names the place, `problem` says what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and its answer: when it was sent, in milliseconds after its pass began, and the task it is of."""

    task: str
    prompt: str
    began_ms: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class Pass:
    """All questions once, so many of them side by side; the counters before and after; the server's own log lines.

    `log` are its lines about speculation that count this pass, and nothing but it; more than one where it was long.
    """

    concurrency: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(gt=0)]
    before: Scrape
    after: Scrape
    log: tuple[str, ...]
    asked: tuple[Asked, ...]

    @property
    def window(self) -> Window:
        """What the counters rose by during the pass."""
        return between(self.before, self.after)

    @property
    def latency(self) -> Latency:
        """Times as the client saw them."""
        return latency([each.answer for each in self.asked], self.seconds)


@dataclass(frozen=True, slots=True)
class Saved:
    """A server that ran, and its passes.

    In `command`, TARGET and HEAD stand for the folders of the target and of the draft model or head, PORT for the
    port. `speculative` is the config as it was given, None for the baseline; `head` the sha256 of the head's weights.
    `machine` says what it ran on and what else ran there; `tokens` are the texts of all ids.
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


_SAVED = TypeAdapter(Saved)


def path_of(method: str) -> Path:
    """The file of a method's saved run."""
    return SERVED / f"{method}.json"


def write(saved: Saved, path: Path) -> None:
    """Write a saved run."""
    text = json.dumps(_SAVED.dump_python(saved, mode="json"), ensure_ascii=False, separators=(",", ":")) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def load(path: Path) -> Saved:
    """Read a saved run; SavedError names the field that is wrong."""
    text = path.read_text(encoding="utf-8")
    if len(text) > MAX_BYTES:
        raise SavedError("file", f"larger than {MAX_BYTES // 1_000_000} MB")
    try:
        return _SAVED.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SavedError(".".join(map(str, first["loc"])) or "file", first["msg"]) from None


def readings(saved: Saved, asked: Sequence[Asked]) -> Iterator[Reading]:
    """What each answer of a saved run tells, with its trace."""
    speculative = saved.speculative or {}
    for number, each in enumerate(asked):
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
        yield read(
            each.answer,
            meta,
            tokens,
            run=run,
            plain=saved.speculative is None,
            may_be_silent=saved.method in _MAY_BE_SILENT,
        )
