"""Medusa heads as they are trained: each says its own slot from the target's last state, in one step (§5.1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from spec_viz.drafters.medusa import Medusa
from spec_viz.training.batches import Batch, batches
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Lesson, Marks, mark, prepare, take
from spec_viz.training.ranks import count_right
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
        losses, sums = [], []
        for slot, states in enumerate(self.say(batch, lesson)):
            loss, row = mark(lesson, slot, states, self._output)
            losses.append(DECAY**slot * loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight[0].clamp(min=1), alpha, agree, weight)

    def say(self, batch: Batch, lesson: Lesson) -> tuple[Tensor, ...]:
        """The states (B, a, d) of each head at the anchors."""
        states: Tensor = self.heads(take(batch.last, lesson.rows).float())  # (B, a, heads, d)
        return states.unbind(-2)


def _learner(work: Workshop) -> nn.Module:
    return MedusaLearner(work.vocabulary, work.output, slots=4)


def _keep(work: Workshop, learner: MedusaLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    held_out = batches(work.corpus, True, Course(1).budget)
    accuracies = count_right(learner.say, held_out, work.vocabulary, work.output, learner.slots, RANKS)
    return {"heads": learner.slots, "accuracies": accuracies}, dict(learner.heads.state_dict()) | maps(work.vocabulary)


RECIPE = Recipe(Course(2, budget=3000, rate=1e-3), _learner, _keep)
