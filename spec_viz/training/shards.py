"""The corpus on disk: shards of token ids, written whole or not at all, read back as one sequence after another.

A shard is a safetensors file of these arrays: `ids` (n,) uint16, all sequences one behind the other, each its prompt
and then the target's answer; `offsets` (rows + 1,) uint32, where each begins; `prompt_lengths` (rows,) uint16;
`prompts` (rows,) uint32, the prompt's number; `tasks` (rows,) uint8, an index into TASKS; `greedy` and `held_out`
(rows,) uint8, 0 or 1; `finishes` (rows,) uint8, an index into FINISHES.

A small target loops at temperature 0. An answer whose last ids come round again (`loop`) is stopped while it is
written, and the reader cuts it behind the second time round: a head still sees one repetition, which the target makes
with near certainty, and not two hundred of them. Near loops, which count or change a word each time, have no exact
period; they weigh less by their share of distinct bigrams (`weigh`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from spec_viz.training.prompts import TASKS

Finish = Literal["eos", "length", "loop"]
Ids = NDArray[np.uint16]

FINISHES: tuple[Finish, ...] = get_args(Finish)
SCHEMA = "specviz.corpus/1"
MANIFEST = "corpus.json"
# The corpus that our heads were made from.
CORPUS = Path(__file__).resolve().parents[2] / "assets" / "corpus"

# A tail loops when it holds three rounds of its period and no fewer ids than a short list takes.
LONGEST_PERIOD = 64
ROUNDS = 3
SHORTEST_TAIL = 48
# The rounds of a loop that stay in what a head learns from.
KEPT_ROUNDS = 2
# Our target's own prose has about nine distinct bigrams in ten; below half a text mostly says itself again.
FULL_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt and the target's answer to it: `ids` (n,) uint16, of which the first `prompt_length` were given.

    `prompt` is the prompt's number, `cut` the ids of a loop that were left out behind, `weight` in (0, 1] what the
    sequence counts in a loss. A loss must leave out sequences that are `held_out`.
    """

    ids: Ids
    prompt_length: int
    greedy: bool
    held_out: bool
    task: str
    finish: Finish
    prompt: int
    cut: int = 0
    weight: float = 1.0

    @property
    def answer(self) -> Ids:
        """What the target wrote."""
        return self.ids[self.prompt_length :]


# ---------------------------------------------------------------- loops


def loop(ids: Sequence[int] | Ids) -> int:
    """The shortest period with which the end of these ids comes round again, 0 where it does not."""
    tail = np.asarray(ids)
    for period in range(1, LONGEST_PERIOD + 1):
        reach = max(SHORTEST_TAIL, ROUNDS * period)
        if len(tail) < reach:
            # A period of at most a third of the shortest tail needs no more than that tail.
            return 0
        last = tail[-reach:]
        if (last[period:] == last[:-period]).all():
            return period
    return 0


def loop_end(ids: Sequence[int] | Ids) -> int:
    """How many of these ids to keep: all of them, or those up to the end of a loop's second round."""
    tail = np.asarray(ids)
    period = loop(tail)
    if not period:
        return len(tail)
    breaks = np.flatnonzero(tail[period:] != tail[:-period])
    start = int(breaks[-1]) + 1 if len(breaks) else 0
    return min(len(tail), start + KEPT_ROUNDS * period)


def distinct(ids: Sequence[int] | Ids) -> float:
    """Distinct bigrams ÷ bigrams of these ids; 1 where there are none."""
    bigrams = list(pairwise(ids))
    return len(set(bigrams)) / len(bigrams) if bigrams else 1.0


def weigh(answer: Sequence[int] | Ids) -> float:
    """What an answer counts: 1, or less in proportion where under half of its bigrams are distinct."""
    return min(1.0, distinct(answer) / FULL_WEIGHT)


# ---------------------------------------------------------------- writing


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard lies."""
    return folder / f"shard-{number:05}.safetensors"


def write_shard(folder: Path, number: int, samples: Sequence[Sample], about: dict[str, str]) -> None:
    """Write a shard under another name and rename it: whoever reads finds all of it or nothing."""
    lengths = [len(sample.ids) for sample in samples]
    arrays = {
        "ids": np.concatenate([sample.ids for sample in samples]),
        "offsets": np.cumsum([0, *lengths], dtype=np.uint32),
        "prompt_lengths": np.array([sample.prompt_length for sample in samples], np.uint16),
        "prompts": np.array([sample.prompt for sample in samples], np.uint32),
        "tasks": np.array([TASKS.index(sample.task) for sample in samples], np.uint8),
        "greedy": np.array([sample.greedy for sample in samples], np.uint8),
        "held_out": np.array([sample.held_out for sample in samples], np.uint8),
        "finishes": np.array([FINISHES.index(sample.finish) for sample in samples], np.uint8),
    }
    place = shard_path(folder, number)
    half = place.with_suffix(".tmp")
    save_file(arrays, half, {"schema": SCHEMA, **about})
    with half.open("rb") as file:
        os.fsync(file.fileno())
    half.replace(place)


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write what the corpus was made from, or check that the folder's corpus was made from the same; ValueError."""
    place = folder / MANIFEST
    manifest = {"schema": SCHEMA, **manifest}
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        half = place.with_suffix(".tmp")
        half.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        half.replace(place)
        return
    there = json.loads(place.read_text(encoding="utf-8"))
    for key, value in manifest.items():
        if there.get(key) != value:
            raise ValueError(
                f"The corpus in {folder} was made with {key} {there.get(key)}, not {value}: "
                "go on with the same settings, or choose another folder."
            )


# ---------------------------------------------------------------- reading


def shard_numbers(folder: Path) -> list[int]:
    """The shards of a folder, in order; ValueError where one is missing between others."""
    numbers = sorted(int(place.stem.partition("-")[2]) for place in folder.glob("shard-*.safetensors"))
    if numbers != list(range(len(numbers))):
        missing = min(set(range(len(numbers))) - {*numbers})
        raise ValueError(f"{shard_path(folder, missing).name} is missing in {folder}, though later shards are there.")
    return numbers


def read_shard(folder: Path, number: int, cut: bool = True) -> list[Sample]:
    """The sequences of one shard, loops cut unless `cut` is False."""
    with safe_open(shard_path(folder, number), "numpy") as file:
        if (file.metadata() or {}).get("schema") != SCHEMA:
            raise ValueError(f"{shard_path(folder, number)} is no shard of {SCHEMA}.")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    offsets = arrays["offsets"].tolist()
    samples = []
    for row, (start, end) in enumerate(pairwise(offsets)):
        length = int(arrays["prompt_lengths"][row])
        ids = arrays["ids"][start:end]
        kept = length + loop_end(ids[length:]) if cut else len(ids)
        samples.append(
            Sample(
                ids[:kept],
                length,
                bool(arrays["greedy"][row]),
                bool(arrays["held_out"][row]),
                TASKS[int(arrays["tasks"][row])],
                FINISHES[int(arrays["finishes"][row])],
                int(arrays["prompts"][row]),
                len(ids) - kept,
                weigh(ids[length:kept]),
            )
        )
    return samples


def read_corpus(folder: Path, held_out: bool | None = None) -> Iterator[Sample]:
    """Every sequence of a corpus in its order; only the held-out ones, or only the others, where `held_out` says so."""
    numbers = shard_numbers(folder)
    if not numbers:
        raise ValueError(f"There is no corpus in {folder}; `train data --out {folder}` makes one.")
    for number in numbers:
        for sample in read_shard(folder, number):
            if held_out is None or sample.held_out == held_out:
                yield sample


def count_tokens(folder: Path) -> int:
    """Ids that the target wrote, over all shards, before loops are cut."""
    total = 0
    for number in shard_numbers(folder):
        with safe_open(shard_path(folder, number), "numpy") as file:
            total += len(file.get_tensor("ids")) - int(file.get_tensor("prompt_lengths").sum(dtype=np.int64))
    return total


def summarise(folder: Path) -> list[dict[str, Any]]:
    """A row a task and temperature, and one of all: counts, and how the answers end and repeat themselves.

    Columns: sequences; prompt and answer ids (behind the cut); share of answers that end by themselves; share that
    loop; ids cut; mean share of distinct bigrams; mean weight; sequences held out.
    """
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in read_corpus(folder):
        groups.setdefault((sample.task, "0" if sample.greedy else "above 0"), []).append(sample)
    rows = [_row(*name, groups[name]) for name in sorted(groups, key=lambda name: (TASKS.index(name[0]), name[1]))]
    return [*rows, _row("all", "both", [sample for group in groups.values() for sample in group])]


def _row(task: str, temperature: str, samples: Sequence[Sample]) -> dict[str, Any]:
    count = len(samples)
    return {
        "task": task,
        "temperature": temperature,
        "sequences": count,
        "prompt": sum(sample.prompt_length for sample in samples),
        "answer": sum(len(sample.answer) for sample in samples),
        "ended": round(sum(sample.finish == "eos" for sample in samples) / count, 3),
        "looped": round(sum(sample.cut > 0 for sample in samples) / count, 3),
        "cut": sum(sample.cut for sample in samples),
        "distinct": round(sum(distinct(sample.answer) for sample in samples) / count, 3),
        "weight": round(sum(sample.weight for sample in samples) / count, 3),
        "held_out": sum(sample.held_out for sample in samples),
    }
