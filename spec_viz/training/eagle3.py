"""EAGLE-3 as it is trained: rolled out on its own states over the real tokens, the training-time test (§6.4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.eagle3 import Eagle3
from spec_viz.training.batches import Batch
from spec_viz.training.features import fused_layers
from spec_viz.training.fit import Course
from spec_viz.training.recipe import Recipe, Workshop, llama, maps
from spec_viz.training.rollout import RolloutLearner
from spec_viz.training.vocabulary import DraftVocabulary


class Eagle3Learner(RolloutLearner):
    """An EAGLE-3 head between the frozen tables it reads through; `norm` (d,) is the target's last, to begin with.

    `scale` (layers, d) is the size of each channel of the features: a target's channels differ a thousandfold, and the
    optimiser would learn the largest ones first. `fold` gives the head that reads raw features.
    """

    head: Eagle3
    decay = 0.8

    def __init__(
        self,
        config: LlamaConfig,
        vocabulary: DraftVocabulary,
        embedding: Tensor,
        output: Tensor,
        norm: Tensor,
        scale: Tensor,
        slots: int,
    ) -> None:
        super().__init__(Eagle3(config, len(scale)), vocabulary, embedding, output, slots)
        # Its states are read through the target's rows, so they had better be of the size that those expect.
        with torch.no_grad():
            self.head.norm.weight.copy_(norm)
        self._scale = scale

    def features(self, batch: Batch) -> Tensor:
        """The fused states of every position."""
        return self.head.take_in((batch.hidden / self._scale).flatten(2))

    def fold(self) -> dict[str, Tensor]:
        """The head's tensors, reading features as the target gives them."""
        tensors = dict(self.head.state_dict())
        tensors["fc.weight"] = tensors["fc.weight"] / self._scale.flatten()
        return tensors


def _learner(work: Workshop) -> nn.Module:
    config = work.loaded.model.config
    norm = work.loaded.model.model.norm.weight.float()
    return Eagle3Learner(config, work.vocabulary, work.embedding, work.output, norm, work.scale, slots=3)


def _keep(work: Workshop, learner: Eagle3Learner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = work.loaded.model.config
    kept = {"layers": [*fused_layers(config.num_hidden_layers)], "llama": llama(config)}
    return kept, learner.fold() | maps(work.vocabulary)


RECIPE = Recipe(Course(3, budget=3000, rate=1e-3), _learner, _keep, lambda name: "proj" in name or name == "fc.weight")
