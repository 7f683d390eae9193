"""The target answers our prompts, many at once, and the answers become the corpus.

A head learns best from what the target itself writes: then p is the law of the very text it reads (algorithms §12).
Half of the answers are greedy and half are drawn at temperature 0.8, because a head is used at both.

A shard is a function of the seed and its number alone: the batch begins empty with each, and draws are keyed. So a run
that was killed writes the same shards when it goes on, and several machines may share the work.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from torch import Tensor

from spec_viz.engine.draws import Draws
from spec_viz.engine.rows import Rows
from spec_viz.engine.warp import Warp
from spec_viz.lab.run import Request, conditions, encode_prompt, end_tokens
from spec_viz.models.load import Loaded
from spec_viz.training.prompts import Prompt
from spec_viz.training.shards import (
    Finish,
    Sample,
    count_tokens,
    loop,
    shard_numbers,
    write_manifest,
    write_shard,
)

MAX_NEW_TOKENS = 256
TEMPERATURE = 0.8
# About seven minutes of two cores at batch 64: what a kill can cost.
ROWS_PER_SHARD = 256
# A loop is looked for once in so many tokens.
LOOK = 16
# More prompts than anybody will write; keeps the seeds of different corpora apart.
SEEDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be written: greedy, or drawn with its own seed, which is also that of the same run in the app."""

    prompt: int
    ids: tuple[int, ...]
    greedy: bool
    seed: int


@dataclass(slots=True)
class Row:
    """An answer being written."""

    job: Job
    answer: list[int] = field(default_factory=list)
    finish: Finish | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How answers are written: rows side by side, the longest answer, the temperature of those that are drawn."""

    batch: int = 64
    max_new_tokens: int = MAX_NEW_TOKENS
    temperature: float = TEMPERATURE
    rows_per_shard: int = ROWS_PER_SHARD
    seed: int = 0


# ---------------------------------------------------------------- answers


def quiet(*_: object) -> None:
    """Hear what is said, and do nothing."""


def answer(
    model: Any,
    jobs: Sequence[Job],
    ends: frozenset[int],
    plan: Plan,
    stop: Callable[[], bool] = lambda: False,
    hear: Callable[[int], None] = quiet,
) -> list[Row] | None:
    """Write the answers to all jobs, at most `plan.batch` at a time, in the jobs' order; None when `stop` ended it.

    A finished row's place goes to the next job; when none is left the batch shrinks. Greedy jobs begin first: they
    are the long ones, and a batch of a few stragglers is slow. `hear` is told how many tokens each pass wrote.
    """
    rows = [Row(job) for job in jobs]
    waiting = deque(sorted(rows, key=lambda row: not row.job.greedy))
    active: list[Row] = []
    pool = Rows(model, plan.batch)
    while waiting or active:
        if stop():
            return None
        if waiting and len(active) < plan.batch:
            fresh = [waiting.popleft()]
            logits, _ = pool.read(fresh[0].job.ids)
            active += fresh
        else:
            fresh = active
            logits = pool.feed([row.answer[-1] for row in active])
        for row, token in zip(fresh, _choose(logits, fresh, plan.temperature), strict=True):
            _append(row, token, ends, plan.max_new_tokens)
        hear(len(fresh))
        for place in reversed(range(len(active))):
            if active[place].finish:
                pool.drop(place)
                active[place] = active[-1]
                active.pop()
    return rows


def _choose(logits: Tensor, rows: Sequence[Row], temperature: float) -> list[int]:
    """The next token of each row, as the app's own run with the row's seed would draw it."""
    tokens: list[int] = logits.argmax(-1).tolist()
    drawn = [place for place, row in enumerate(rows) if not row.job.greedy]
    if drawn:
        for place, law in zip(drawn, Warp(temperature).law(logits[drawn], ()), strict=True):
            job, written = rows[place].job, len(rows[place].answer)
            tokens[place] = Draws(job.seed, 0, len(job.ids) + written).own(law, 0)
    return tokens


def _append(row: Row, token: int, ends: frozenset[int], longest: int) -> None:
    row.answer.append(token)
    if token in ends:
        row.finish = "eos"
    elif len(row.answer) % LOOK == 0 and loop(row.answer):
        row.finish = "loop"
    elif len(row.answer) >= longest:
        row.finish = "length"


# ---------------------------------------------------------------- the corpus


def plan_jobs(loaded: Loaded, prompts: Sequence[Prompt], number: int, plan: Plan) -> list[Job]:
    """The jobs of a shard: the prompts in their order, greedy and drawn by turns, then all again the other way round.

    Empty behind the second time round. Raises ValueError for a prompt that leaves no room for its answer.
    """
    jobs = []
    first = number * plan.rows_per_shard
    for place in range(first, min(first + plan.rows_per_shard, 2 * len(prompts))):
        again, index = divmod(place, len(prompts))
        ids = encode_prompt(loaded, Request(prompts[index].text))
        if len(ids) + plan.max_new_tokens > loaded.model.config.max_position_embeddings:
            raise ValueError(f"Prompt {index} leaves no room for an answer of {plan.max_new_tokens} tokens.")
        jobs.append(Job(index, tuple(ids), (index + again) % 2 == 0, plan.seed * SEEDS + place))
    return jobs


def generate(
    loaded: Loaded,
    prompts: Sequence[Prompt],
    folder: Path,
    tokens: int,
    plan: Plan,
    stop: Callable[[], bool] = lambda: False,
    hear: Callable[[int, bool], None] = quiet,
) -> int:
    """Write shards until the corpus in `folder` holds so many of the target's tokens, or `stop` says so.

    Goes on where an earlier call stopped, with whole shards; returns the tokens that are now there. `hear` is told of
    tokens as they are written, and first of those that were there already, with True. Raises ValueError where the
    folder holds another corpus, another run writes into it, or the prompts do not suffice.
    """
    if loaded.model.config.vocab_size > np.iinfo(np.uint16).max + 1:
        raise ValueError(f"{loaded.entry.name} has more token ids than sixteen bits can say.")
    if min(tokens, plan.batch) < 1:
        raise ValueError("At least one token and a batch of one are needed.")
    write_manifest(folder, _manifest(loaded, prompts, plan))
    try:
        with FileLock(folder / ".lock", timeout=0):
            return _generate(loaded, prompts, folder, tokens, plan, stop, hear)
    except Timeout:
        raise ValueError(f"Another run is writing into {folder}.") from None


def _generate(
    loaded: Loaded,
    prompts: Sequence[Prompt],
    folder: Path,
    tokens: int,
    plan: Plan,
    stop: Callable[[], bool],
    hear: Callable[[int, bool], None],
) -> int:
    number, have, ends = len(shard_numbers(folder)), count_tokens(folder), end_tokens(loaded)
    hear(have, True)
    while have < tokens:
        jobs = plan_jobs(loaded, prompts, number, plan)
        if not jobs:
            raise ValueError(f"The prompts are used up after {have} tokens; the corpus cannot reach {tokens}.")
        rows = answer(loaded.model, jobs, ends, plan, stop, lambda written: hear(written, False))
        if rows is None:
            break
        about = {key: json.dumps(value) for key, value in conditions(loaded).items()} | {"batch": str(plan.batch)}
        write_shard(folder, number, [_sample(row, prompts) for row in rows], about)
        number, have = number + 1, have + sum(len(row.answer) for row in rows)
    return have


def _manifest(loaded: Loaded, prompts: Sequence[Prompt], plan: Plan) -> dict[str, Any]:
    """What decides the ids. The batch does not but for the last digits of a sum, so it may change on the way."""
    texts = sha256("\0".join(prompt.text for prompt in prompts).encode()).hexdigest()
    return {
        "target": loaded.entry.name,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "prompts": texts,
        "seed": plan.seed,
        "temperature": plan.temperature,
        "max_new_tokens": plan.max_new_tokens,
        "rows_per_shard": plan.rows_per_shard,
    }


def _sample(row: Row, prompts: Sequence[Prompt]) -> Sample:
    assert row.finish is not None
    prompt = prompts[row.job.prompt]
    ids = np.array([*row.job.ids, *row.answer], np.uint16)
    return Sample(ids, len(row.job.ids), row.job.greedy, prompt.held_out, prompt.task, row.finish, row.job.prompt)
