"""DFlash as it is trained: blocks at anchors drawn from the answers, all of them in one pass (algorithms §8.1).

The anchor's token is the last that is known, x_{t+1} in the words of `lesson`; its block sees what the target computed
up to t, and itself. Slot s fills in x_{t+2+s}.

Blocks cost more than single drafts, so while it learns an epoch takes every third anchor of an answer. Which third
follows from the batch alone: a run that was stopped goes on with the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.dflash import DFlash, Layer
from spec_viz.training.batches import Batch
from spec_viz.training.features import fused_layers
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Lesson, Marks, mark, prepare, take
from spec_viz.training.recipe import Recipe, Workshop, llama, maps
from spec_viz.training.vocabulary import DraftVocabulary

BLOCK = 6
LAYERS = 2
# Anchors of an answer of which one is taken.
APART = 3


def decay(slot: int) -> float:
    """What a slot counts, from 0: exp(−s/4), the paper's for short blocks."""
    return exp(-slot / 4)


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What a block reads through, frozen: the target's embedding (V, d) and its output rows (Vd, d).

    `norm` (d,) is the target's last, for the head's own to begin with; `scale` (layers, d) is the size of each channel
    of the features, as for EAGLE-3.
    """

    vocabulary: DraftVocabulary
    embedding: Tensor
    output: Tensor
    norm: Tensor
    scale: Tensor


class BlockLearner(nn.Module):
    """A block's backbone between its tables."""

    head: DFlash

    def __init__(self, head: DFlash, tables: Tables, slots: int, block: int) -> None:
        super().__init__()
        self.head, self.slots, self.block, self.tables = head, slots, block, tables
        with torch.no_grad():
            head.norm.weight.copy_(tables.norm)
            # As large as what stands in the other places of a block.
            nn.init.normal_(head.mask, std=float(tables.embedding.std()))

    def anchors(self, batch: Batch) -> tuple[Lesson, Tensor]:
        """The lesson of the anchors taken, with the states (slots, B, a, d) from which the target's laws are read."""
        lesson = prepare(batch, self.tables.vocabulary, self.slots)
        taken = torch.arange(lesson.rows.shape[1])[None].expand(len(lesson.rows), -1)
        if self.training:
            seed = int(batch.ids.sum())
            first = torch.randint(APART, (len(taken), 1), generator=torch.Generator().manual_seed(seed))
            taken = taken[:, : -(-taken.shape[1] // APART)] * APART + first
        here = taken.clamp(max=lesson.rows.shape[1] - 1)
        theirs = torch.stack([take(lesson.states, here + slot) for slot in range(self.slots)])
        weight = torch.stack([each.gather(1, here) for each in lesson.weight]) * (taken == here)
        return Lesson(lesson.rows.gather(1, here), lesson.states, weight), theirs

    def fill_in(self, batch: Batch, rows: Tensor) -> Tensor:
        """The normed states (B, a, block, d) of blocks behind the rows (B, a)."""
        head = self.head
        context = head.context((batch.hidden / self.tables.scale).flatten(2))  # (B, n, d)
        n, a = context.shape[1], rows.shape[1]
        tokens = batch.ids.gather(1, (rows + 1).clamp(max=n - 1))
        states = head.fill(self.tables.embedding[tokens], self.block).flatten(1, 2)  # (B, a · block, d)
        places = (rows[..., None] + 1 + torch.arange(self.block)).flatten(1)
        angles = head.angles(states, places)
        behind = head.angles(context, torch.arange(n)[None])
        hidden = (torch.arange(n) > rows[..., None]).repeat_interleave(self.block, 1)  # (B, a · block, n)
        for each in head.layers:
            layer = cast(Layer, each)
            inputs = layer.input_layernorm(states)
            seen = layer.self_attn.offer(context, behind)
            own = layer.self_attn.offer(inputs, angles)
            states = layer.finish(states, self._attend(layer, layer.self_attn.ask(inputs, angles), seen, own, hidden))
        filled: Tensor = head.norm(states)
        return filled.view(len(rows), a, self.block, -1)

    def _attend(
        self, layer: Layer, queries: Tensor, seen: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], hidden: Tensor
    ) -> Tensor:
        """(B, a · block, d): attention over the target's states that an anchor sees, and over its own block."""
        share = queries.shape[1] // seen[0].shape[1]
        keys, values = (each.repeat_interleave(share, 1) for each in seen)  # (B, heads, n, head_dim)
        my_keys, my_values = (self._by_block(each.repeat_interleave(share, 1)) for each in own)
        queries = queries * layer.self_attn.head_dim**-0.5
        scores = (queries @ keys.transpose(-1, -2)).float().masked_fill(hidden[:, None], -torch.inf)
        mine = (self._by_block(queries) @ my_keys.transpose(-1, -2)).float().flatten(2, 3)
        weights = torch.cat([scores, mine], -1).softmax(-1).to(queries.dtype)
        n = scores.shape[-1]
        blocks = self._by_block(weights[..., n:]) @ my_values
        found = weights[..., :n] @ values + blocks.flatten(2, 3)
        out: Tensor = layer.self_attn.o_proj(found.transpose(1, 2).flatten(2))
        return out

    def _by_block(self, states: Tensor) -> Tensor:
        """(B, heads, a · block, w) → (B, heads, a, block, w)."""
        return states.reshape(*states.shape[:2], -1, self.block, states.shape[-1])

    def fold(self) -> dict[str, Tensor]:
        """The head's tensors, reading features as the target gives them."""
        tensors = dict(self.head.state_dict())
        tensors["fc.weight"] = tensors["fc.weight"] / self.tables.scale.flatten()
        return tensors


class DFlashLearner(BlockLearner):
    """Every slot behind the anchor's, read through the target's own output rows."""

    def forward(self, batch: Batch) -> Marks:
        """Fill in the blocks of a batch."""
        lesson, theirs = self.anchors(batch)
        states = self.fill_in(batch, lesson.rows)
        losses, sums = [], []
        for slot in range(self.slots):
            mine = Lesson(lesson.rows, theirs[slot], lesson.weight[slot, None])
            loss, row = mark(mine, 0, states[..., slot + 1, :], self.tables.output)
            losses.append(decay(slot) * loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight[0].clamp(min=1), alpha, agree, weight)


def small(config: Any) -> dict[str, Any]:
    """Layers of the target's width with half its inner one.

    A single layer's queries would be the same in every text, and two whole ones are more than fits.
    """
    return llama(config) | {"num_hidden_layers": LAYERS, "intermediate_size": config.intermediate_size // 2}


def tables(work: Workshop) -> Tables:
    """What every block's learner reads through."""
    norm = work.loaded.model.model.norm.weight.float()
    return Tables(work.vocabulary, work.embedding, work.output, norm, work.scale)


def kept(work: Workshop) -> dict[str, Any]:
    """A block's config.

    `layers` are indices into the target's hidden states, so what goes into those layers. Published configs number the
    layers whose output it is: their `target_layer_ids` are one less.
    """
    config = work.loaded.model.config
    return {"layers": [*fused_layers(config.num_hidden_layers)], "llama": small(config), "block": BLOCK}


def rounded(name: str) -> bool:
    """The matrices of the backbone."""
    return name == "fc.weight" or ("proj.weight" in name and "confidence" not in name)


def _learner(work: Workshop) -> nn.Module:
    config = LlamaConfig(**small(work.loaded.model.config))
    head = DFlash(config, len(work.scale))
    return DFlashLearner(head, tables(work), slots=BLOCK - 1, block=BLOCK)


def _keep(work: Workshop, learner: DFlashLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return kept(work), learner.fold() | maps(work.vocabulary)


RECIPE = Recipe(Course(3, budget=3000, rate=1e-3), _learner, _keep, rounded)
