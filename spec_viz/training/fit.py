"""The loop that trains a head: batches in, marks out, a checkpoint now and then.

A run that was stopped goes on from its checkpoint at the batch where it was: the order of batches follows from the seed
and the epoch alone. What it learned on the way stands in `log.jsonl`, a line every some batches: the learning curve.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from spec_viz.training.batches import batches, count_batches
from spec_viz.training.features import Corpus
from spec_viz.training.generate import quiet
from spec_viz.training.lesson import Learner, Marks
from spec_viz.training.precision import quick_dtype

BETAS = (0.9, 0.95)
DECAY = 0.01
CLIP = 1.0
# The share of all batches over which the rate grows to its height; from there it falls along a cosine to a tenth.
WARM_UP = 0.03
LEAST = 0.1
# Batches between two lines of the log, and between two checkpoints.
LOG = 20
SAVE = 200


@dataclass(frozen=True, slots=True)
class Course:
    """How a head is trained: times over the corpus, padded ids in a batch, the highest rate of AdamW, the seed."""

    epochs: int
    budget: int = 6000
    rate: float = 1e-3
    seed: int = 0


@dataclass(slots=True)
class Progress:
    """How far a run is: batches done of all there are, and the last line of its log."""

    step: int
    steps: int
    line: dict[str, Any] | None = None


def fit(
    learner: nn.Module,
    corpus: Corpus,
    folder: Path,
    course: Course,
    stop: Callable[[], bool] = lambda: False,
    hear: Callable[[Progress], None] = quiet,
) -> Progress:
    """Train until the course is over or `stop` says so; the learner then holds what it has learned.

    `folder` holds the checkpoint and the log, and a run goes on from there. Raises ValueError when the checkpoint is of
    another course.
    """
    folder.mkdir(parents=True, exist_ok=True)
    per_epoch = [count_batches(corpus, course.budget, course.seed + epoch) for epoch in range(course.epochs)]
    progress = Progress(0, sum(per_epoch))
    optimiser = torch.optim.AdamW(learner.parameters(), lr=course.rate, betas=BETAS, weight_decay=DECAY)
    about = {"course": repr(course), "steps": str(progress.steps)}
    if (folder / "checkpoint.safetensors").exists():
        progress.step = _restore(learner, optimiser, folder / "checkpoint.safetensors", about)
    hear(progress)
    since: list[Marks] = []
    for epoch in range(course.epochs):
        done = progress.step - sum(per_epoch[:epoch])
        if done >= per_epoch[epoch]:
            continue
        for batch in islice(batches(corpus, False, course.budget, course.seed + epoch), done, None):
            if stop():
                _save(learner, optimiser, folder / "checkpoint.safetensors", progress.step, about)
                return progress
            for group in optimiser.param_groups:
                group["lr"] = course.rate * _rate(progress.step / progress.steps)
            since.append(_learn(learner, optimiser, batch))
            progress.step += 1
            if progress.step % LOG == 0 or progress.step == progress.steps:
                progress.line = {"step": progress.step, "epoch": epoch, **_sum(since)}
                since = []
                with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
                    log.write(json.dumps(progress.line) + "\n")
            if progress.step % SAVE == 0 or progress.step == progress.steps:
                _save(learner, optimiser, folder / "checkpoint.safetensors", progress.step, about)
            hear(progress)
    return progress


def read_curve(folder: Path, points: int = 16) -> list[dict[str, Any]]:
    """The learning curve of a run: about so many lines of its log, evenly spaced, the last among them."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    apart = max(1, len(lines) // points)
    return lines[::-1][::apart][::-1]


def _learn(learner: Learner | nn.Module, optimiser: torch.optim.Optimizer, batch: Any) -> Marks:
    with torch.autocast("cpu", torch.bfloat16, enabled=quick_dtype() == torch.bfloat16):
        marks: Marks = learner(batch)
    optimiser.zero_grad()
    marks.loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_([weight for group in optimiser.param_groups for weight in group["params"]], CLIP)
    optimiser.step()
    return Marks(marks.loss.detach(), marks.alpha, marks.agree, marks.weight)


def _rate(done: float) -> float:
    """The rate at a share of the course, as a share of its height."""
    if done < WARM_UP:
        return (done + WARM_UP / 10) / WARM_UP / 1.1
    return LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _sum(marks: list[Marks]) -> dict[str, Any]:
    """The mean loss of some batches, and by slot α and the agreement of the argmaxes."""
    weight = torch.stack([each.weight for each in marks]).sum(0)
    alpha, agree = (torch.stack([getattr(each, name) for each in marks]).sum(0) / weight for name in ("alpha", "agree"))
    loss = sum(float(each.loss) for each in marks) / len(marks)
    rounded = {
        name: [round(value, 4) for value in rates.tolist()] for name, rates in (("alpha", alpha), ("agree", agree))
    }
    return {"loss": round(loss, 4), **rounded}


# ---------------------------------------------------------------- checkpoints


def _save(learner: nn.Module, optimiser: torch.optim.Optimizer, place: Path, step: int, about: dict[str, str]) -> None:
    tensors: dict[str, Tensor] = {}
    for name, weight in learner.named_parameters():
        state = optimiser.state.get(weight, {})
        tensors[name] = weight.detach()
        tensors |= {f"{name}@{key}": value for key, value in state.items() if isinstance(value, Tensor)}
    half = place.with_suffix(".tmp")
    save_file(tensors, half, {"step": str(step), **about})
    half.replace(place)


def _restore(learner: nn.Module, optimiser: torch.optim.Optimizer, place: Path, about: dict[str, str]) -> int:
    with safe_open(place, "pt") as file:
        there = file.metadata() or {}
        if {key: there.get(key) for key in about} != about:
            raise ValueError(f"{place} belongs to another course or corpus: choose another folder, or delete it.")
        names = set(file.keys())
        with torch.no_grad():
            for name, weight in learner.named_parameters():
                weight.copy_(file.get_tensor(name))
                keys = [key for key in names if key.startswith(f"{name}@")]
                if keys:
                    optimiser.state[weight] = {key.partition("@")[2]: file.get_tensor(key) for key in keys}
        return int(there["step"])
