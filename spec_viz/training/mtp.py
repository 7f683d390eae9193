"""An MTP module as it is trained beside a finished target: cross entropy over three steps of itself (§7.1, §7.2).

As FastMTP does it (2509.18362): the target stays as it is, the module reads its own output from the second step on, and
a step counts 0.6 of the one before it. DeepSeek trains its modules together with the model, each on its own step, with
hard tokens; here the target's whole law is there to learn from.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.mtp import Mtp
from spec_viz.training.batches import Batch
from spec_viz.training.eagle import measure_last
from spec_viz.training.fit import Course
from spec_viz.training.recipe import Recipe, Workshop, llama, maps
from spec_viz.training.rollout import RolloutLearner
from spec_viz.training.vocabulary import DraftVocabulary


class MtpLearner(RolloutLearner):
    """An MTP module; `norm` and `spread` (d,) are the target's final norm and what its last states spread over.

    Both are where its own norms begin: its states are read through the target's rows, and a channel that is ten times
    the others would drown them.
    """

    head: Mtp
    decay = 0.6

    def __init__(
        self,
        config: LlamaConfig,
        vocabulary: DraftVocabulary,
        embedding: Tensor,
        output: Tensor,
        norm: Tensor,
        spread: Tensor,
        slots: int,
    ) -> None:
        super().__init__(Mtp(config), vocabulary, embedding, output, slots)
        with torch.no_grad():
            self.head.shared_head.norm.weight.copy_(norm)
            # RMSNorm divides by the size of the whole state.
            self.head.hnorm.weight.copy_(spread.square().mean().sqrt() / spread)

    def features(self, batch: Batch) -> Tensor:
        """The target's last states."""
        return batch.last.float()


def _learner(work: Workshop) -> nn.Module:
    _, spread = measure_last(work)
    model = work.loaded.model
    return MtpLearner(
        model.config, work.vocabulary, work.embedding, work.output, model.model.norm.weight.float(), spread, slots=3
    )


def _keep(work: Workshop, learner: MtpLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return {"llama": llama(work.loaded.model.config)}, dict(learner.head.state_dict()) | maps(work.vocabulary)


RECIPE = Recipe(Course(2, budget=3000, rate=1e-3), _learner, _keep, lambda name: "proj" in name)
