"""What a head has learned, on answers to prompts that it was never trained on: rates by slot and task, teacher-forced.

Teacher-forced means that every anchor of every answer is asked, and the text in between is the real one. On the greedy
answers that text is the target's argmax, so "agreed in every slot up to here" is just what a greedy chain keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from spec_viz.training.batches import Batch
from spec_viz.training.lesson import Marks


@dataclass(slots=True)
class Rates:
    """Sums by slot: Σ min(p, q), agreement of the argmaxes, and the anchors' weight."""

    alpha: list[float] = field(default_factory=list)
    agree: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    def add(self, marks: Marks) -> None:
        """Count a batch."""
        for name in ("alpha", "agree", "weight"):
            new = getattr(marks, name).tolist()
            old = getattr(self, name) or [0.0] * len(new)
            setattr(self, name, [one + other for one, other in zip(old, new, strict=True)])

    def table(self) -> dict[str, list[float]]:
        """The rates by slot, and the anchors they were counted on."""
        return {
            "alpha": [round(value / weight, 4) for value, weight in zip(self.alpha, self.weight, strict=True)],
            "agree": [round(value / weight, 4) for value, weight in zip(self.agree, self.weight, strict=True)],
            "anchors": [round(weight) for weight in self.weight],
        }


@torch.inference_mode()
def evaluate(learner: nn.Module, held_out: Iterable[Batch]) -> dict[str, Rates]:
    """Rates by task, and of all, of the draft vocabulary: Σ min(p, q) is α at temperature 1, agreement that at 0."""
    found: dict[str, Rates] = {}
    for batch in held_out:
        for row, task in enumerate(batch.tasks):
            marks: Marks = learner(_only(batch, row))
            for name in (task, "all"):
                found.setdefault(name, Rates()).add(marks)
    return found


def _only(batch: Batch, row: int) -> Batch:
    """One sequence of a batch, without its padding and without its weight."""
    part, length = slice(row, row + 1), int(batch.lengths[row])
    return Batch(
        batch.ids[part, :length],
        batch.lengths[part],
        batch.prompt_lengths[part],
        batch.hidden[part, :length],
        batch.last[part, :length],
        torch.ones(1),
        batch.greedy[part],
        batch.tasks[part],
    )
