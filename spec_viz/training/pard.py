"""PARD as it is trained: the draft model learns to answer behind masks, several tokens further on (algorithms §4.1).

The sequence is read once as it is, and again in `slots` − 1 copies of masks. At anchor t copy s stands at position
t + 1 + s, where it says the token after next and further; it sees the real tokens up to t + 1 and its own chain: the
masks of copies 1 to s at the same anchor. That is just what it will see when it drafts.

Later copies teach less and cost as much, so they are thinned (conditional drop): copy s keeps a share KEEP^s of the
anchors, LEAST at least, always among those that copy s − 1 kept, or its chain would have a hole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.models.heads import read_head
from spec_viz.models.weights import WeightsError
from spec_viz.training.batches import Batch
from spec_viz.training.draft_model import DraftModelLearner, small_config
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Lesson, Marks, mark, prepare, take
from spec_viz.training.recipe import Recipe, Workshop, llama, maps
from spec_viz.training.vocabulary import DraftVocabulary

# The published conditional drop.
KEEP, LEAST = 0.7, 0.2
# The trained model that it starts from, where there is one for the target.
START = "draft_model"


class PardLearner(DraftModelLearner):
    """The draft model with a mask (w,) in the place of tokens that are not known yet."""

    def __init__(
        self,
        config: LlamaConfig,
        vocabulary: DraftVocabulary,
        embedding: Tensor,
        output: Tensor,
        slots: int,
        start: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(config, vocabulary, embedding, output)
        self.slots = slots
        self.mask = nn.Parameter(torch.randn(config.hidden_size))
        self.started = start is not None
        if start is not None:
            own = {name.replace("model.", "body.", 1): tensor for name, tensor in start.items()}
            own["narrow.weight"] = own["narrow.weight"] * self._size
            self.load_state_dict(own, strict=False)

    def forward(self, batch: Batch) -> Marks:
        """All slots over a batch; while it learns, the later ones at some anchors only."""
        lesson = prepare(batch, self._vocabulary, self.slots)
        kept = self._choose(batch, lesson)
        states = self._read(batch, lesson, kept)
        losses, sums = [], []
        for slot, (anchors, said) in enumerate(zip(kept, states, strict=True)):
            # Where a slot was dropped there is no state, and nothing looks at it.
            whole = said.new_zeros(*lesson.rows.shape, said.shape[-1])
            whole = whole.scatter(1, anchors[..., None].expand_as(said), said)
            loss, row = mark(_only(lesson, slot, anchors), slot, whole, self._output)
            losses.append(loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight.sum().clamp(min=1), alpha, agree, weight)

    def _choose(self, batch: Batch, lesson: Lesson) -> list[Tensor]:
        """By slot, the anchors (B, a_s) that it keeps, as places among the lesson's; each a part of the one before."""
        rows, anchors = lesson.rows.shape
        # From the batch itself, so that a run that was stopped goes on as if it had not been.
        chance = torch.Generator().manual_seed(int(batch.ids.sum()))
        order = torch.rand(rows, anchors, generator=chance).argsort(1)
        shares = [max(KEEP**slot, LEAST) if self.training else 1.0 for slot in range(self.slots)]
        return [order[:, : max(1, round(share * anchors))] for share in shares]

    def _read(self, batch: Batch, lesson: Lesson, kept: list[Tensor]) -> list[Tensor]:
        """By slot, the widened states (B, a_s, d) at the anchors it keeps."""
        count, longest = batch.ids.shape
        sizes = [longest, *(anchors.shape[1] for anchors in kept[1:])]
        embedded = self.narrow(self._embedding[batch.ids] / self._size)
        masks = self.mask.to(embedded.dtype).expand(count, sum(sizes[1:]), -1)
        at = torch.cat([take(lesson.rows, anchors) for anchors in kept[1:]], 1) if sizes[1:] else lesson.rows[:, :0]
        slot = torch.repeat_interleave(torch.arange(self.slots), torch.tensor(sizes))[longest:]
        positions = torch.cat([torch.arange(longest).expand(count, -1), at + 1 + slot], 1)
        # (B, n + e, n + e): the real tokens among themselves, the masks on real tokens, the masks on their own chain.
        sees = torch.zeros(count, positions.shape[1], positions.shape[1], dtype=torch.bool)
        sees[:, :longest, :longest] = torch.ones(longest, longest, dtype=torch.bool).tril()
        sees[:, longest:, :longest] = torch.arange(longest) <= at[..., None] + 1
        chain = torch.cat(kept[1:], 1) if sizes[1:] else at
        sees[:, longest:, longest:] = (chain[:, :, None] == chain[:, None]) & (slot <= slot[:, None])
        states = self.body(
            inputs_embeds=torch.cat([embedded, masks], 1),
            attention_mask=sees[:, None],
            position_ids=positions,
            use_cache=False,
        ).last_hidden_state
        real, *others = states.split(sizes, 1)
        # Anchor t knows x_{t+1}: the first slot stands at that real token.
        first = take(real, take(lesson.rows, kept[0]) + 1)
        return [self.widen(states) for states in (first, *others)]

    def tensors(self) -> dict[str, Tensor]:
        """The draft model's own weights, and the mask."""
        return super().tensors() | {"mask": self.mask}


def _only(lesson: Lesson, slot: int, anchors: Tensor) -> Lesson:
    """The lesson in which a slot counts at these anchors only."""
    weight = lesson.weight.clone()
    weight[slot] *= torch.zeros_like(weight[slot]).scatter(1, anchors, 1.0)
    return replace(lesson, weight=weight)


def _start(target: str) -> Mapping[str, Tensor] | None:
    """The weights of the trained draft model; None where there is none for this target."""
    try:
        return read_head(START, target).tensors
    except WeightsError:
        return None


def _learner(work: Workshop) -> nn.Module:
    config = small_config(work.loaded.model.config)
    start = _start(work.loaded.entry.name)
    return PardLearner(config, work.vocabulary, work.embedding, work.output, slots=6, start=start)


def _keep(work: Workshop, learner: PardLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    kept = {"slots": learner.slots, "start": START if learner.started else None, "llama": llama(learner.body.config)}
    return kept, learner.tensors() | maps(work.vocabulary)


RECIPE = Recipe(
    Course(2, budget=3000, rate=1e-3),
    _learner,
    _keep,
    lambda name: "proj" in name or name in ("narrow.weight", "widen.weight"),
)
