"""EAGLE-3 as it is trained: rolled out on its own states over the real tokens, the training-time test (§6.4).

Step s stands at every anchor t at once. It reads the token s further on and the state that step s − 1 left there, and
attends as it will when it drafts: to the true pairs up to t, and to its own earlier steps at the same anchor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.eagle3 import Eagle3
from spec_viz.training.batches import Batch
from spec_viz.training.features import fused_layers
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Marks, mark, prepare, take
from spec_viz.training.recipe import Recipe, Workshop, llama, maps
from spec_viz.training.vocabulary import DraftVocabulary

# What a step counts against the one before it.
DECAY = 0.8


@dataclass(frozen=True, slots=True)
class Steps:
    """Keys and values of the earlier steps at every anchor: (B, groups, a, head_dim) each."""

    keys: list[Tensor]
    values: list[Tensor]


class Eagle3Learner(nn.Module):
    """An EAGLE-3 head between the frozen tables it reads through; `norm` (d,) is the target's last, to begin with.

    `scale` (layers, d) is the size of each channel of the features: a target's channels differ a thousandfold, and the
    optimiser would learn the largest ones first. `fold` gives the head that reads raw features.
    """

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
        super().__init__()
        self.head = Eagle3(config, len(scale))
        self.slots = slots
        # Its states are read through the target's rows, so they had better be of the size that those expect.
        with torch.no_grad():
            self.head.norm.weight.copy_(norm)
        self._vocabulary = vocabulary
        self._embedding, self._output, self._scale = embedding, output, scale

    def forward(self, batch: Batch) -> Marks:
        """Roll out over a batch."""
        head, layer = self.head, self.head.midlayer
        lesson = prepare(batch, self._vocabulary, self.slots)
        longest = batch.ids.shape[1]
        states = head.fc((batch.hidden / self._scale).flatten(2))  # (B, n, d)
        # The pair of position t holds the token behind it; the last has none, and nothing looks at it.
        tokens = nn.functional.pad(batch.ids, (0, self.slots + 1))
        positions = torch.arange(longest)[None]
        _, keys, values = layer.project(
            self._embedding[tokens[:, 1 : longest + 1]], states, head.angles(states, positions)
        )
        sees = torch.arange(longest)[None, None] <= lesson.rows[:, :, None]  # (B, a, n)
        states = take(states, lesson.rows)
        own = Steps([], [])
        losses, sums = [], []
        for step in range(self.slots):
            at = lesson.rows + step
            embedded = self._embedding[tokens.gather(1, (at + 1).clamp(max=tokens.shape[1] - 1))]
            queries, key, value = layer.project(embedded, states, head.angles(states, at))
            if step:
                # The keys of step 0 lie among the true pairs already.
                own.keys.append(key)
                own.values.append(value)
            states = layer.finish(states, self._attend(queries, keys, values, sees, own))
            loss, row = mark(lesson, step, head.norm(states), self._output)
            losses.append(DECAY**step * loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight[0].clamp(min=1), alpha, agree, weight)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, sees: Tensor, own: Steps) -> Tensor:
        """(B, a, d): attention over the true pairs that an anchor sees, and over its own earlier steps."""
        attention = self.head.midlayer.self_attn
        share = queries.shape[1] // keys.shape[1]
        keys, values = (each.repeat_interleave(share, 1) for each in (keys, values))
        queries = queries * attention.head_dim**-0.5
        scores = (queries @ keys.transpose(-1, -2)).float().masked_fill(~sees[:, None], -torch.inf)
        mine = [(queries * key.repeat_interleave(share, 1)).sum(-1, keepdim=True) for key in own.keys]
        weights = torch.cat([scores, *mine], -1).softmax(-1).to(queries.dtype)
        found = weights[..., : scores.shape[-1]] @ values
        for step, value in enumerate(own.values):
            found = found + weights[..., scores.shape[-1] + step, None] * value.repeat_interleave(share, 1)
        out: Tensor = attention.o_proj(found.transpose(1, 2).flatten(2))
        return out

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
