"""Medusa heads as they are trained: each says its own slot from the target's last state, in one step (§5.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spec_viz.drafters.medusa import Medusa
from spec_viz.training.batches import Batch
from spec_viz.training.lesson import Marks, mark, prepare, take
from spec_viz.training.vocabulary import DraftVocabulary

# What a head counts against the one before it (Medusa's own λ).
DECAY = 0.8


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
