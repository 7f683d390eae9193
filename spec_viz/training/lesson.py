"""What a head is taught: at every anchor of an answer, the target's own law of the next tokens.

An anchor t is a place at which the text is known up to x_{t+1}. Slot s (from 0) is what a head says there of x_{t+2+s};
the target's law of that token stands at position t + 1 + s. The text in between is always the real one.

Losses and rates are of the draft vocabulary: the target's law is restricted to it and renormalised (algorithms §6.8).
Slots whose real token cannot be drafted count in no loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from spec_viz.training.batches import Batch
from spec_viz.training.precision import quick_dtype
from spec_viz.training.vocabulary import DraftVocabulary


@dataclass(frozen=True, slots=True)
class Lesson:
    """The anchors of a batch, and what the target says behind each.

    `rows` (B, a) are the anchors' positions, those behind an answer's end repeat its last. `states` (B, a + slots − 1,
    d) are the target's last states behind anchor 0 and on: slot s reads its law from s. `weight` (slots, B, a) is what
    an anchor counts in a slot's loss, 0 where the text has ended.
    """

    rows: Tensor
    states: Tensor
    weight: Tensor


@dataclass(frozen=True, slots=True)
class Marks:
    """What a head made of a batch: the loss to go down, and by slot Σ min(p, q), agreement of the argmaxes, weight."""

    loss: Tensor
    alpha: Tensor
    agree: Tensor
    weight: Tensor


class Learner(Protocol):
    """A head as it is trained: it reads a batch and gets its marks."""

    slots: int

    def __call__(self, batch: Batch) -> Marks: ...


def prepare(batch: Batch, vocabulary: DraftVocabulary, slots: int) -> Lesson:
    """The lesson of a batch for so many slots."""
    longest = int((batch.lengths - batch.prompt_lengths).max())
    first = batch.prompt_lengths[:, None] - 1
    anchors = torch.minimum(first + torch.arange(longest), batch.lengths[:, None] - 2)
    # A slot behind the end of the longest answer reads the last state again; its weight is 0.
    at = first + 1 + torch.arange(longest + slots - 1)
    states = take(batch.last, at.clamp(max=batch.last.shape[1] - 1))
    labels = pad(batch.ids, (0, slots + 1))
    weight = []
    for slot in range(slots):
        place = first + 2 + slot + torch.arange(longest)
        token = labels.gather(1, place.clamp(max=labels.shape[1] - 1))
        weight.append((place < batch.lengths[:, None]) * vocabulary.t2d[token] * batch.weight[:, None])
    return Lesson(anchors, states, torch.stack(weight).float())


def mark(lesson: Lesson, slot: int, states: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Loss Σ weight · −Σ p log q of a slot, and its [Σ min(p, q), agreement, weight] summed.

    `states` (B, a, d) are the head's, read through the target's output rows (Vd, d) as the target's own are.
    """
    weight = lesson.weight[slot]
    counted = weight > 0
    theirs = lesson.states[:, slot : slot + lesson.rows.shape[1]][counted]
    weight = weight[counted]
    loss, alpha, agree = _SoftCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states[counted], theirs, output, weight
    )
    return loss, torch.stack([(weight * alpha).sum(), (weight * agree).sum(), weight.sum()])


class _SoftCrossEntropy(torch.autograd.Function):
    """Σ weight · −Σ p log q over rows, p and q being softmaxes of states read through the same output rows.

    The gradient of a row is (q − p) times the output rows, so forward does it too, some rows at a time: what they make
    of eight thousand columns then never leaves the processor's cache, where it would otherwise cost more than the head.
    """

    ROWS = 64

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, theirs: Tensor, output: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        # All in one precision from the start: autocast would convert the output rows again for each part.
        ours, theirs, output = (each.to(quick_dtype()) for each in (states, theirs, output))
        gradient = torch.empty_like(ours)
        losses, alpha, agree = (torch.empty(len(states)) for _ in range(3))
        for first in range(0, len(states), _SoftCrossEntropy.ROWS):
            part = slice(first, first + _SoftCrossEntropy.ROWS)
            logs = linear(ours[part], output).float().log_softmax(-1)
            p = linear(theirs[part], output).float().softmax(-1)
            q = logs.exp()
            losses[part] = -(p * logs).sum(-1)
            alpha[part] = torch.minimum(p, q).sum(-1)
            agree[part] = (p.argmax(-1) == q.argmax(-1)).float()
            gradient[part] = (q - p).mul_(weight[part, None]).to(ours.dtype) @ output
        ctx.save_for_backward(gradient.to(states.dtype))
        ctx.mark_non_differentiable(alpha, agree)
        return (weight * losses).sum(), alpha, agree

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None, None


def take(states: Tensor, rows: Tensor) -> Tensor:
    """The states (B, r, …) at rows (B, r)."""
    return states[torch.arange(len(rows))[:, None], rows]
