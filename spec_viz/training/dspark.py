"""DSpark as it is trained: DFlash's blocks, the Markov correction by the real token before, and the confidence head.

Loss .1 CE + .9 L1 of the corrected laws + 1 BCE of the confidences against 1 − ½‖p − q‖₁, all weighted by slot as the
paper has it, but for one thing: its cross entropy is against the written token, ours against the target's whole law,
which the cached states give for nothing (algorithms §8.2).

Confidences are of the draft vocabulary while they are learned. Their temperatures, one a slot, are fitted against what
the target's whole law would keep, in every second held-out batch, slot by slot on the survival of the draft up to there
(the paper's sequential temperature scaling); the calibration that is reported is of the batches between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear
from transformers import LlamaConfig

from spec_viz.drafters.dspark import DSpark, Words
from spec_viz.drafters.head import output_rows
from spec_viz.training.batches import Batch, batches
from spec_viz.training.dflash import BLOCK, BlockLearner, Tables, decay, kept, rounded, small, tables
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Marks
from spec_viz.training.recipe import Recipe, Workshop, maps

RANK = 32
# What each part of the loss counts.
CROSS_ENTROPY, L1, CONFIDENCE = 0.1, 0.9, 1.0
# Temperatures that are tried for a slot.
TEMPERATURES = torch.logspace(-1, 1, 81, base=4)
TENTHS = 10


class DSparkLearner(BlockLearner):
    """All slots of a block, each corrected by the real token before it."""

    head: DSpark

    def __init__(self, head: DSpark, tables: Tables, block: int) -> None:
        super().__init__(head, tables, slots=block, block=block)
        # Corrections begin at nothing.
        nn.init.normal_(head.markov_head.markov_w1.weight, std=0.1)
        nn.init.zeros_(head.markov_head.markov_w2.weight)
        self._words = Words.of(tables.vocabulary.ids, len(tables.embedding))

    def forward(self, batch: Batch) -> Marks:
        """Fill in the blocks of a batch."""
        lesson, theirs = self.anchors(batch)
        states, before = self.corrected(batch, lesson.rows)
        counted = lesson.weight > 0  # (slots, B, a)
        slot = counted.nonzero()[:, 0]
        weight = lesson.weight[counted]
        decayed = weight * torch.tensor([decay(each) for each in range(self.slots)])[slot]
        states, before = states[counted], before[counted]
        loss, alpha, agree = _Corrected.apply(  # type: ignore[no-untyped-call]
            states, before, self.head.markov_head.markov_w2.weight, theirs[counted], self.tables.output, decayed
        )
        sure = self.head.confidence_head(states, before).float()
        loss = loss + CONFIDENCE * (decayed * binary_cross_entropy_with_logits(sure, alpha, reduction="none")).sum()
        sums = [torch.zeros(self.slots).index_add(0, slot, weight * each) for each in (alpha, agree, torch.ones(()))]
        return Marks(loss / sums[2][0].clamp(min=1), *sums)

    def corrected(self, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
        """States (slots, B, a, d) of the blocks behind the rows (B, a), and the Markov rows of the tokens before.

        The latter are (slots, B, a, r).
        """
        states = self.fill_in(batch, rows)
        at = (rows[..., None] + 1 + torch.arange(self.slots)).clamp(max=batch.ids.shape[1] - 1)
        tokens = batch.ids.gather(1, at.flatten(1)).view(at.shape)
        before = self.head.markov_head.markov_w1(self._words.rows[tokens])
        return states.permute(2, 0, 1, 3), before.permute(2, 0, 1, 3)


class _Corrected(torch.autograd.Function):
    """Σ weight · (.1 CE + .9 L1) over rows, of q from states and the corrections, and p from the target's states.

    With z the logits of q: ∂CE/∂z = q − p, ∂L1/∂z = q · (s − Σ s q) for the sign s of q − p. Done forward, some rows at
    a time, as in `lesson`. Also Σ min(p, q) = 1 − ½‖p − q‖₁ and agreement, by row.
    """

    ROWS = 64

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, before: Tensor, second: Tensor, theirs: Tensor, output: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        kind = theirs.dtype
        mine, rows, correct, read = (each.to(kind) for each in (states, before, second, output))
        to_states, to_rows = torch.empty_like(mine), torch.empty_like(rows)
        to_second = torch.zeros(second.shape)
        losses, alpha, agree = (torch.empty(len(states)) for _ in range(3))
        for first in range(0, len(states), _Corrected.ROWS):
            part = slice(first, first + _Corrected.ROWS)
            logs = (linear(mine[part], read) + linear(rows[part], correct)).float().log_softmax(-1)
            p = linear(theirs[part], read).float().softmax(-1)
            q = logs.exp()
            apart = q - p
            losses[part] = -CROSS_ENTROPY * (p * logs).sum(-1) + L1 * apart.abs().sum(-1)
            alpha[part] = torch.minimum(p, q).sum(-1)
            agree[part] = (p.argmax(-1) == q.argmax(-1)).float()
            sign = apart.sign()
            slope = apart.mul_(CROSS_ENTROPY).add_(L1 * q * (sign - (sign * q).sum(-1, keepdim=True)))
            gradient = slope.mul_(weight[part, None]).to(kind)
            to_states[part] = gradient @ read
            to_rows[part] = gradient @ correct
            to_second += gradient.T @ rows[part]
        ctx.save_for_backward(to_states.to(states.dtype), to_rows.to(before.dtype), to_second.to(second.dtype))
        ctx.mark_non_differentiable(alpha, agree)
        return (weight * losses).sum(), alpha, agree

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (*(each * gradients[0] for each in ctx.saved_tensors), None, None, None)


# ---------------------------------------------------------------- confidences


@torch.inference_mode()
def confess(learner: DSparkLearner, held_out: Iterable[Batch], all_rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """By batch: the confidences' logits, and how much of each draft the target would keep, (anchors, slots) both.

    Every anchor with a whole block behind it is asked. `all_rows` (V, d) are the target's output rows of its whole
    vocabulary: what a head cannot draft the target cannot keep.
    """
    found = []
    for batch in held_out:
        lesson, theirs = learner.anchors(batch)
        states, before = learner.corrected(batch, lesson.rows)
        whole = (lesson.weight > 0).all(0)  # (B, a)
        states, before, theirs = states[:, whole], before[:, whole], theirs[:, whole].float()
        sure = learner.head.confidence_head(states, before)
        kept = torch.empty(sure.shape)
        for slot in range(learner.slots):
            for part in torch.split(torch.arange(states.shape[1]), _Corrected.ROWS):
                logits = linear(states[slot, part], learner.tables.output)
                q = (logits + learner.head.markov_head.markov_w2(before[slot, part])).softmax(-1)
                p = linear(theirs[slot, part], all_rows).softmax(-1)[:, learner.tables.vocabulary.ids]
                kept[slot, part] = torch.minimum(p, q).sum(-1)
        found.append((sure.T, kept.T))
    return found


def fit_temperatures(sure: Tensor, kept: Tensor) -> list[float]:
    """One temperature a slot, each the best for the survival up to its slot given those before it.

    `sure` are logits and `kept` shares, (anchors, slots) both. Best is the lowest cross entropy of the survival.
    """
    temperatures: list[float] = []
    before = torch.ones(len(sure))
    survived = kept.cumprod(1)
    for slot in range(sure.shape[1]):
        chances = before[:, None] * (sure[:, slot, None] / TEMPERATURES).sigmoid()  # (anchors, tried)
        chances = chances.clamp(1e-6, 1 - 1e-6)
        truth = survived[:, slot, None]
        loss = -(truth * chances.log() + (1 - truth) * (1 - chances).log()).mean(0)
        best = int(loss.argmin())
        temperatures.append(round(float(TEMPERATURES[best]), 4))
        before = before * (sure[:, slot] / temperatures[-1]).sigmoid()
    return temperatures


def reliability(sure: Tensor, kept: Tensor, temperatures: list[float]) -> dict[str, Any]:
    """How far the survivals can be believed: by tenth of the survival said, (said, kept, drafts); the expected error.

    `error_before` is that of the same confidences at temperature 1.
    """
    survived = kept.cumprod(1).flatten()
    said = (sure / torch.tensor(temperatures)).sigmoid().cumprod(1).flatten()
    table = _tenths(said, survived)
    plain = _tenths(sure.sigmoid().cumprod(1).flatten(), survived)
    return {"tenths": table, "error": _error(table), "error_before": _error(plain)}


def _tenths(said: Tensor, kept: Tensor) -> list[list[float]]:
    place = (said * TENTHS).long().clamp(max=TENTHS - 1)
    rows = [place == tenth for tenth in range(TENTHS)]
    return [
        [round(float(said[row].mean()), 4), round(float(kept[row].mean()), 4), int(row.sum())]
        for row in rows
        if bool(row.any())
    ]


def _error(table: list[list[float]]) -> float:
    drafts = sum(row[2] for row in table)
    return round(sum(abs(said - kept) * count for said, kept, count in table) / max(1, drafts), 4)


def calibrate(learner: DSparkLearner, held_out: Iterable[Batch], all_rows: Tensor) -> dict[str, Any]:
    """The temperatures, and the calibration on held-out answers that they were not fitted on."""
    found = confess(learner, held_out, all_rows)
    (sure, kept_), (fresh, truth) = (
        tuple(torch.cat(parts) for parts in zip(*half, strict=True)) for half in (found[::2], found[1::2] or found)
    )
    temperatures = fit_temperatures(sure, kept_)
    return {"temperatures": temperatures, "calibration": reliability(fresh, truth, temperatures)}


def _learner(work: Workshop) -> nn.Module:
    config = LlamaConfig(**small(work.loaded.model.config))
    head = DSpark(config, len(work.scale), len(work.vocabulary.ids), RANK)
    return DSparkLearner(head, tables(work), block=BLOCK)


def _keep(work: Workshop, learner: DSparkLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    all_rows = output_rows(work.loaded.model, torch.arange(len(work.embedding))).float()
    found = calibrate(learner, batches(work.corpus, True, Course(1).budget // 4), all_rows)
    return kept(work) | {"markov_rank": RANK, **found}, learner.fold() | maps(work.vocabulary)


RECIPE = Recipe(
    Course(3, budget=3000, rate=1e-3),
    _learner,
    _keep,
    lambda name: rounded(name) or "markov" in name,
    papers=("calibration",),
)
