"""The drafter that reads the target's cache, as it is trained: rolled out on its own states over the real tokens.

An anchor t knows the text up to x_{t+1}, but the target has not been fed x_{t+1}: of its cache there are the entries up
to t. They are made here again, from the input of the layer they belong to, by that layer's own norm and projections.
Step s reads the token s further on and the state that step s − 1 left, as it will when it drafts (algorithms §7.3).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.head import turn
from spec_viz.drafters.kv_sharing import KvSharing
from spec_viz.training.batches import Batch, batches
from spec_viz.training.features import fused_layers
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Marks, mark, prepare, take
from spec_viz.training.recipe import MEASURED, Recipe, Workshop, llama, maps, small_llama
from spec_viz.training.vocabulary import DraftVocabulary

# What a step counts against the one before it.
DECAY = 0.8
# Half of SmolLM2's width; three queries to each of its keys, as it has itself.
WIDTH, LAYERS = 288, 2


def asking_config(target: LlamaConfig) -> LlamaConfig:
    """A small Llama whose queries fit the target's keys, at the target's rotary angles."""
    return small_llama(
        target,
        width=min(WIDTH, target.hidden_size // 2),
        layers=LAYERS,
        heads=target.num_attention_heads,
        groups=target.num_key_value_heads,
        head_dim=target.head_dim,
    )


class KvSharingLearner(nn.Module):
    """The drafter between the target's frozen embedding (V, d), one layer's cache and its output rows (Vd, d).

    `layer` is the target's, one built like Llama's; its input is the last of the features. `scale` (d,) is the size of
    each channel of the target's last state: what goes in is brought to one size, what comes out to the target's.
    `fold` gives the drafter that does without.
    """

    def __init__(
        self,
        config: LlamaConfig,
        vocabulary: DraftVocabulary,
        embedding: Tensor,
        output: Tensor,
        layer: nn.Module,
        scale: Tensor,
        slots: int,
    ) -> None:
        super().__init__()
        self.head = KvSharing(config, embedding.shape[1])
        self.slots = slots
        self._vocabulary = vocabulary
        self._embedding, self._output, self._scale = embedding, output, scale
        self._size = float(embedding.std())
        # In a tuple, or the target's own weights would be taken for this module's.
        self._layer: tuple[Any] = (layer,)

    def forward(self, batch: Batch) -> Marks:
        """Roll out over a batch."""
        lesson = prepare(batch, self._vocabulary, self.slots)
        longest = batch.ids.shape[1]
        keys, values = self.entries(batch.hidden[:, :, -1])
        sees = (torch.arange(longest) <= lesson.rows[:, :, None])[:, None]  # (B, 1, a, n)
        hidden = take(batch.last, lesson.rows).float() / self._scale
        angles = self.head.angles(hidden, lesson.rows + 1)
        tokens = nn.functional.pad(batch.ids, (0, self.slots))
        losses, sums = [], []
        for step in range(self.slots):
            read = self._embedding[tokens.gather(1, lesson.rows + 1 + step)] / self._size
            hidden = self.head(read, hidden, keys, values, angles, sees)
            loss, row = mark(lesson, step, hidden * self._scale, self._output)
            losses.append(DECAY**step * loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight[0].clamp(min=1), alpha, agree, weight)

    @torch.no_grad()
    def entries(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's rotated keys and its values (B, groups, n, head_dim) of its inputs (B, n, d)."""
        (layer,) = self._layer
        # In the target's own precision; packed matrices know no other.
        with torch.autocast("cpu", enabled=False):
            normed = layer.input_layernorm(inputs.to(layer.input_layernorm.weight.dtype))
            shape = (*normed.shape[:2], -1, layer.self_attn.head_dim)
            keys = layer.self_attn.k_proj(normed).view(shape).transpose(1, 2)
            values = layer.self_attn.v_proj(normed).view(shape).transpose(1, 2)
            return turn(keys, self.head.angles(normed, torch.arange(normed.shape[1])[None])), values

    def fold(self) -> dict[str, Tensor]:
        """The drafter's tensors, reading embeddings and states as they are and giving states of the target's size."""
        tensors = dict(self.head.state_dict())
        size = torch.cat([torch.full_like(self._scale, self._size), self._scale])
        tensors["pre_projection.weight"] = tensors["pre_projection.weight"] / size
        tensors["post_projection.weight"] = tensors["post_projection.weight"] * self._scale[:, None]
        return tensors


def _learner(work: Workshop) -> nn.Module:
    model = work.loaded.model
    batch = next(iter(batches(work.corpus, False, MEASURED)))
    real = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
    scale = batch.last[real].float().std(0).clamp(min=1e-3)
    layer = model.model.layers[fused_layers(model.config.num_hidden_layers)[-1]]
    config = asking_config(model.config)
    return KvSharingLearner(config, work.vocabulary, work.embedding, work.output, layer, scale, slots=3)


def _keep(work: Workshop, learner: KvSharingLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = work.loaded.model.config
    kept = {"layer": fused_layers(config.num_hidden_layers)[-1], "llama": llama(asking_config(config))}
    return kept, learner.fold() | maps(work.vocabulary)


RECIPE = Recipe(Course(3, budget=3000, rate=1e-3), _learner, _keep, lambda name: "proj" in name)
