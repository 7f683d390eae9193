"""How often a head's best guesses are right, by how far ahead and by rank: what a static tree's shape follows from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from spec_viz.training.batches import Batch
from spec_viz.training.lesson import Lesson, prepare
from spec_viz.training.vocabulary import DraftVocabulary


@torch.inference_mode()
def count_right(
    say: Callable[[Batch, Lesson], Iterable[Tensor]],
    held_out: Iterable[Batch],
    vocabulary: DraftVocabulary,
    output: Tensor,
    slots: int,
    ranks: int,
) -> list[list[float]]:
    """The share of anchors at which each of the best guesses of a slot is the target's argmax, by slot and rank (§5.1).

    `say` gives each slot's states (B, a, d), as the output rows (Vd, d) read them. Counted on the greedy answers, on
    held-out data: on its training data a head looks surer than it is.
    """
    right = torch.zeros(slots, ranks)
    seen = torch.zeros(slots)
    for batch in held_out:
        lesson = prepare(batch, vocabulary, slots)
        for slot, states in enumerate(say(batch, lesson)):
            counted = (lesson.weight[slot] > 0) & batch.greedy[:, None]
            theirs = lesson.states[:, slot : slot + lesson.rows.shape[1]][counted].float()
            best = linear(theirs, output).argmax(-1)
            guesses = linear(states[counted], output).topk(ranks).indices
            right[slot] += (guesses == best[:, None]).sum(0)
            seen[slot] += len(best)
    accuracies: list[Any] = (right / seen[:, None].clamp(min=1)).tolist()
    return [[round(value, 4) for value in row] for row in accuracies]
