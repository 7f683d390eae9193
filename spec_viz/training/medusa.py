"""Medusa heads as they are trained: each says its own slot from the target's last state, in one step (§5.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spec_viz.drafters.medusa import Medusa
from spec_viz.training.batches import Batch, batches
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Marks, mark, prepare, take
from spec_viz.training.recipe import Recipe, Workshop, maps
from spec_viz.training.vocabulary import DraftVocabulary

# What a head counts against the one before it (Medusa's own λ).
DECAY = 0.8
# Guesses of a head that its tree may use.
RANKS = 10


class MedusaLearner(nn.Module):
    """`slots` heads over the target's last state, read through its own output rows (Vd, d), frozen."""

    def __init__(self, vocabulary: DraftVocabulary, output: Tensor, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.heads = Medusa(output.shape[1], slots)
        self._vocabulary, self._output = vocabulary, output

    def forward(self, batch: Batch) -> Marks:
        """All heads over a batch."""
        lesson = prepare(batch, self._vocabulary, self.slots)
        states = self.heads(take(batch.last, lesson.rows).float())  # (B, a, heads, d)
        losses, sums = [], []
        for slot in range(self.slots):
            loss, row = mark(lesson, slot, states[..., slot, :], self._output)
            losses.append(DECAY**slot * loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight[0].clamp(min=1), alpha, agree, weight)


@torch.inference_mode()
def calibrate(
    learner: MedusaLearner, held_out: Iterable[Batch], vocabulary: DraftVocabulary, output: Tensor, ranks: int
) -> list[list[float]]:
    """How often each of a head's best guesses is the target's argmax, by head and rank (Medusa's node choice, §5.1).

    Counted on the greedy answers, on held-out data: on its training data a head looks surer than it is.
    """
    right = torch.zeros(learner.slots, ranks)
    seen = torch.zeros(learner.slots)
    for batch in held_out:
        lesson = prepare(batch, vocabulary, learner.slots)
        states = learner.heads(take(batch.last, lesson.rows).float())
        for slot in range(learner.slots):
            counted = (lesson.weight[slot] > 0) & batch.greedy[:, None]
            theirs = lesson.states[:, slot : slot + lesson.rows.shape[1]][counted].float()
            best = linear(theirs, output).argmax(-1)
            guesses = linear(states[..., slot, :][counted], output).topk(ranks).indices
            right[slot] += (guesses == best[:, None]).sum(0)
            seen[slot] += len(best)
    accuracies: list[Any] = (right / seen[:, None].clamp(min=1)).tolist()
    return [[round(value, 4) for value in row] for row in accuracies]


def _learner(work: Workshop) -> nn.Module:
    return MedusaLearner(work.vocabulary, work.output, slots=4)


def _keep(work: Workshop, learner: MedusaLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    held_out = batches(work.corpus, True, Course(1).budget)
    accuracies = calibrate(learner, held_out, work.vocabulary, work.output, RANKS)
    return {"heads": learner.slots, "accuracies": accuracies}, dict(learner.heads.state_dict()) | maps(work.vocabulary)


RECIPE = Recipe(Course(2, budget=3000, rate=1e-3), _learner, _keep)
