"""A batch's cache as a paged server would hold it: blocks of 16 slots, step by step, from the passes of a real run.

Token counts and who was in which pass come from our engine, whose own cache is not paged; where blocks lie is reckoned
here by one rule. Before a pass every request in it gets blocks for all tokens the pass writes, drafts included, the
lowest free number first. Slots of refused drafts are written again by the next pass, and their block stays in the
request's table. A finished request gives all its blocks back. So does vLLM: `Scheduler.update_from_output` lowers
`num_computed_tokens` by the refused drafts and frees no block (vllm/v1/core/sched/scheduler.py); but its free blocks
stand in a queue, in which the one freed longest ago comes first (vllm/v1/core/block_pool.py), and for EAGLE and draft
models it reserves gamma look-ahead slots more (`num_lookahead_tokens`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from spec_viz.engine.batch import Pass
from spec_viz.engine.trace import Finish, Round
from spec_viz.lab.batch import start_batch
from spec_viz.lab.bench import SCHEMA
from spec_viz.lab.run import Request, conditions
from spec_viz.models.load import Loaded

BLOCK = 16
POOL = 24
PLACES = 3

Kind = Literal["join", "pass", "leave"]

# What is recorded: more requests than places, of different lengths. (drafter, gamma), plain decoding first.
REQUESTS = (
    ("Repeat the following sentence three times: The river runs past the old stone bridge.", 36),
    ("What is the capital of Vietnam?", 24),
    ("Write a Python function that adds two numbers and a second one that subtracts two numbers.", 48),
    ("Name three animals that live in the sea.", 28),
    (
        "Copy this list, then add one more line:\n- apples: 3\n- pears: 5\n- plums: 2\n- grapes: 7\n- lemons: 4\n"
        "- limes: 6\n- figs: 9",
        56,
    ),
    ("Why is the sky blue? Answer in one sentence.", 40),
)
RUNS = (("none", 0), ("prompt_lookup", 4), ("eagle3", 4))


# ---------------------------------------------------------------- what a run held


@dataclass(frozen=True, slots=True)
class Written:
    """One request in one pass: entries of the target's cache before it, at its peak, after the roll back."""

    request: int
    before: int
    peak: int
    after: int
    drafted: int
    kept: int


@dataclass(frozen=True, slots=True)
class Counted:
    """One target pass in numbers: who was in it, in the order of its rows, and who left after it."""

    prefill: bool
    written: tuple[Written, ...]
    finished: tuple[int, ...]


def count(each: Pass) -> Counted:
    """A pass of the batch as what it left in the cache; ValueError where a round does not say it."""
    written = tuple(_written(number, round_) for number, round_ in each.rounds.items())
    return Counted(each.prefill, written, tuple(sorted(each.finished)))


def _written(request: int, round_: Round) -> Written:
    if round_.kv.target is None:
        raise ValueError(f"round {round_.round} of request {request} does not say how long the cache was")
    return Written(request, *round_.kv.target, len(round_.nodes), len(round_.path))


# ---------------------------------------------------------------- where blocks lie


@dataclass(frozen=True, slots=True)
class Held:
    """A running request in one step: its block table (physical numbers in logical order) and its filled slots.

    The last `taken` blocks are new in this step. Slots from `before` to `peak` were written, those from `after` on
    were rolled back; a request that only waits for another's prefill has three times the same number.
    """

    request: int
    blocks: tuple[int, ...]
    taken: int
    before: int
    peak: int
    after: int
    drafted: int = 0

    @property
    def returned(self) -> int:
        return self.peak - self.after

    @property
    def wasted(self) -> int:
        """Slots of its blocks that hold nothing after the step: internal fragmentation."""
        return len(self.blocks) * BLOCK - self.after


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens to the pool: a prompt is read (join), a pass is made, or a finished request goes (leave).

    `about` names the requests it happens to, `freed` the blocks that came back, `free` how many are free after it.
    """

    kind: Kind
    number: int
    about: tuple[int, ...]
    held: tuple[Held, ...]
    freed: tuple[int, ...]
    waiting: tuple[int, ...]
    finished: tuple[int, ...]
    free: int

    @property
    def used(self) -> int:
        return sum(len(each.blocks) for each in self.held)


def place(passes: Sequence[Counted], requests: int, pool: int = POOL) -> tuple[Step, ...]:
    """The pool's steps, from the passes of a batch of so many requests; ValueError where the pool is too small."""
    free = list(range(pool))
    held: dict[int, Held] = {}
    waiting, finished = list(range(requests)), list[int]()
    steps: list[Step] = []

    def note(kind: Kind, number: int, about: Iterable[int], freed: tuple[int, ...] = ()) -> None:
        steps.append(
            Step(kind, number, tuple(about), tuple(held.values()), freed, tuple(waiting), tuple(finished), len(free))
        )

    for number, each in enumerate(passes):
        held = {request: _idle(one) for request, one in held.items()}
        for written in each.written:
            held[written.request] = _extend(held.get(written.request), written, free, number)
            if written.request in waiting:
                waiting.remove(written.request)
        if each.written:
            note("join" if each.prefill else "pass", number, (written.request for written in each.written))
        for request in each.finished:
            held = {other: _idle(one) for other, one in held.items()}
            gone = held.pop(request, None)
            if request in waiting:
                waiting.remove(request)
            free = sorted([*free, *(gone.blocks if gone else ())])
            finished.append(request)
            note("leave", number, (request,), gone.blocks if gone else ())
    return tuple(steps)


def _idle(one: Held) -> Held:
    return replace(one, taken=0, before=one.after, peak=one.after, drafted=0)


def _extend(one: Held | None, written: Written, free: list[int], number: int) -> Held:
    """The request's table with blocks for all that the pass writes; they leave `free`, the lowest number first."""
    blocks = one.blocks if one else ()
    need = max(-(-written.peak // BLOCK) - len(blocks), 0)
    if need > len(free):
        raise ValueError(f"pass {number} needs {need} blocks for request {written.request}, and {len(free)} are free")
    taken = tuple(free[:need])
    del free[:need]
    return Held(written.request, (*blocks, *taken), need, written.before, written.peak, written.after, written.drafted)


# ---------------------------------------------------------------- a recording


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request of a recorded batch. `tokens` of its prompt, `most` that it may write, `wrote` those it has written."""

    prompt: str
    tokens: int
    most: int
    wrote: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded batch and the steps of its pool. All prompts begin with the same `common` tokens."""

    conditions: Mapping[str, Any]
    block: int
    pool: int
    common: int
    requests: tuple[Recorded, ...]
    passes: tuple[Counted, ...]
    steps: tuple[Step, ...]


_RECORDING = TypeAdapter(Recording)


def run(loaded: Loaded, drafter: str, gamma: int) -> Recording:
    """Decode the six requests side by side with a drafter (γ 0 for plain decoding) and place them in blocks."""
    asked = [Request(prompt, drafter=drafter, gamma=max(gamma, 1), max_new_tokens=most) for prompt, most in REQUESTS]
    batch = start_batch(loaded, asked, PLACES)
    passes = tuple(batch.passes)
    counted = tuple(count(each) for each in passes)
    finish = {number: why for each in passes for number, why in each.finished.items()}
    wrote = [
        sum(len(each.rounds[number].committed) for each in passes if number in each.rounds)
        for number in range(len(asked))
    ]
    return Recording(
        {
            **conditions(loaded),
            "target": loaded.entry.name,
            "drafter": drafter,
            "gamma": gamma,
            "temperature": asked[0].temperature,
            "seed": asked[0].seed,
            "batch": PLACES,
            "prompts": len(asked),
        },
        BLOCK,
        POOL,
        common([header.prompt for header in batch.headers]),
        tuple(
            Recorded(request.prompt, len(header.prompt), request.max_new_tokens, wrote[number], finish[number])
            for number, (request, header) in enumerate(zip(asked, batch.headers, strict=True))
        ),
        counted,
        place(counted, len(asked)),
    )


def common(prompts: Sequence[Sequence[int]]) -> int:
    """How many ids all prompts begin with in common."""
    return sum(1 for _ in takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False)))


def record(loaded: Loaded, out: Path) -> tuple[Path, ...]:
    """Record every run of `RUNS` as <out>/<drafter>.json, a `specviz.result/1` of the kind `paging`; their paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for drafter, gamma in RUNS:
        body = {"schema": SCHEMA, "kind": "paging", **asdict(run(loaded, drafter, gamma))}
        paths.append(out / f"{drafter}.json")
        paths[-1].write_text(json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    return tuple(paths)


def read(body: Mapping[str, Any]) -> Recording:
    """A recording as its file holds it; ValueError where it is none, or its steps are not what its passes make."""
    if body.get("schema") != SCHEMA or body.get("kind") != "paging":
        raise ValueError(f"expected {SCHEMA} of the kind paging")
    found: Recording = _RECORDING.validate_python({name: body[name] for name in body if name not in ("schema", "kind")})
    if found.steps != place(found.passes, len(found.requests), found.pool):
        raise ValueError("steps: not what the passes make")
    return found
