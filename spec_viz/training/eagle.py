"""EAGLE-1 as it is trained: to say the target's next last state, and the law that the target reads off it (§6.1).

What differs from the paper, and why. The paper weighs regression against cross entropy ten to one, after twenty epochs
over tens of millions of tokens; with a thousandth of that the law is what must be learned first, so here both count the
same. Regression is in units of each channel's own spread, because the largest of this target's channels are ten times
the others and would be all that is learned; so is the noise on the features. The paper trains on the target's features
alone; here a second step reads what the first one said, as in HASS (2408.15766), or every draft but the first would
stand on states that the head has never seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss
from transformers import LlamaConfig

from spec_viz.drafters.eagle import Eagle
from spec_viz.training.batches import Batch, batches
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Lesson
from spec_viz.training.ranks import count_right
from spec_viz.training.recipe import MEASURED, Recipe, Workshop, llama, maps
from spec_viz.training.rollout import RolloutLearner
from spec_viz.training.vocabulary import DraftVocabulary

# Half the width of the noise on a feature, in its channel's spread: the paper's at a length of 512 ids.
NOISE = 0.1
# How deep a static tree goes, and how many guesses it may use behind a node; the published one has 5 and 4.
DEPTH, RANKS = 5, 10


class Eased(Eagle):
    """A head whose fc reads its inputs in units of their own size (2d,), so that none is learned before the others."""

    def __init__(self, config: LlamaConfig, size: Tensor) -> None:
        super().__init__(config)
        self._size = size

    def join(self, embedded: Tensor, states: Tensor) -> Tensor:
        """Embeddings and features, both (B, n, d), as one (B, n, d)."""
        joined: Tensor = self.fc(torch.cat([embedded, states], -1) / self._size)
        return joined

    def fold(self) -> dict[str, Tensor]:
        """The tensors of the head that reads both as the target gives them."""
        tensors = dict(self.state_dict())
        tensors["fc.weight"] = tensors["fc.weight"] / self._size
        return tensors


class EagleLearner(RolloutLearner):
    """An EAGLE head; `mean` and `spread` (d,) are those of the target's last states, channel by channel."""

    head: Eased
    decay = 0.8

    def __init__(
        self,
        config: LlamaConfig,
        vocabulary: DraftVocabulary,
        embedding: Tensor,
        output: Tensor,
        mean: Tensor,
        spread: Tensor,
        slots: int,
    ) -> None:
        size = torch.cat([embedding.std().expand_as(spread), spread])
        super().__init__(Eased(config, size), vocabulary, embedding, output, slots)
        # So that it begins with a state that the rows know, and the optimiser need not climb there.
        with torch.no_grad():
            self.head.fc.bias.copy_(mean)
        self._spread = spread

    def features(self, batch: Batch) -> Tensor:
        """The target's last states, blurred while learning: the head's own will not be exact either."""
        last = batch.last.float()
        if self.training:
            last = last + (2 * torch.rand_like(last) - 1) * NOISE * self._spread
        return last

    def judge(self, lesson: Lesson, step: int, states: Tensor) -> tuple[Tensor, Tensor]:
        """Cross entropy as every head has it, and the distance from the target's own next state."""
        loss, row = super().judge(lesson, step, states)
        weight = lesson.weight[step]
        counted = weight > 0
        theirs = lesson.states[:, step : step + lesson.rows.shape[1]][counted].float()
        apart = smooth_l1_loss(states[counted] / self._spread, theirs / self._spread, reduction="none").mean(-1)
        return loss + (weight[counted] * apart).sum(), row

    def calibrate(self, held_out: Any) -> list[list[float]]:
        """How often each guess is right, by depth and rank, where every token before it was the real one."""
        return count_right(
            lambda batch, lesson: self.roll(batch, lesson.rows, DEPTH),
            held_out,
            self._vocabulary,
            self._output,
            DEPTH,
            RANKS,
        )


def measure_last(work: Workshop) -> tuple[Tensor, Tensor]:
    """Mean and spread of the target's last states, channel by channel, (d,) each."""
    batch = next(iter(batches(work.corpus, False, MEASURED)))
    last = batch.last[torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]].float()
    return last.mean(0), last.std(0).clamp(min=1e-3)


def _learner(work: Workshop) -> nn.Module:
    mean, spread = measure_last(work)
    config = work.loaded.model.config
    return EagleLearner(config, work.vocabulary, work.embedding, work.output, mean, spread, slots=2)


def _keep(work: Workshop, learner: EagleLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    accuracies = learner.calibrate(batches(work.corpus, True, Course(1).budget))
    kept = {"llama": llama(work.loaded.model.config), "accuracies": accuracies}
    return kept, learner.head.fold() | maps(work.vocabulary)


RECIPE = Recipe(Course(3, budget=3000, rate=1e-3), _learner, _keep, lambda name: "proj" in name or name == "fc.weight")
