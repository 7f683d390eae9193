"""Heads that go on from their own states, as they are trained: rolled out over the real tokens (algorithms §6.4, §6.6).

Step s stands at every anchor t at once. It reads the token s further on and the state that step s − 1 left there, and
attends as it will when it drafts: to the true pairs up to t, and to its own earlier steps at the same anchor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spec_viz.drafters.rollout import Body
from spec_viz.training.batches import Batch
from spec_viz.training.lesson import Lesson, Marks, mark, prepare, take
from spec_viz.training.vocabulary import DraftVocabulary


@dataclass(frozen=True, slots=True)
class Steps:
    """Keys and values of the earlier steps at every anchor: (B, groups, a, head_dim) each."""

    keys: list[Tensor]
    values: list[Tensor]


class RolloutLearner(nn.Module, ABC):
    """A head between the frozen tables it reads through: the target's embedding (V, d) and output rows (Vd, d).

    `decay` is what a step counts against the one before it.
    """

    decay: float

    def __init__(self, head: Body, vocabulary: DraftVocabulary, embedding: Tensor, output: Tensor, slots: int) -> None:
        super().__init__()
        self.head = head
        self.slots = slots
        self._vocabulary = vocabulary
        self._embedding, self._output = embedding, output

    @abstractmethod
    def features(self, batch: Batch) -> Tensor:
        """The target's states (B, n, d), as the head's pairs take them."""

    def judge(self, lesson: Lesson, step: int, states: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a step's states (B, a, d), summed, and its row of rates as `mark` gives them."""
        return mark(lesson, step, self.head.say(states), self._output)

    def forward(self, batch: Batch) -> Marks:
        """Roll out over a batch."""
        lesson = prepare(batch, self._vocabulary, self.slots)
        losses, sums = [], []
        for step, states in enumerate(self.roll(batch, lesson.rows, self.slots)):
            loss, row = self.judge(lesson, step, states)
            losses.append(self.decay**step * loss)
            sums.append(row)
        alpha, agree, weight = torch.stack(sums, 1)
        return Marks(torch.stack(losses).sum() / weight[0].clamp(min=1), alpha, agree, weight)

    def roll(self, batch: Batch, rows: Tensor, steps: int) -> Iterator[Tensor]:
        """The states (B, a, d) of each step at the anchors (B, a)."""
        head, longest = self.head, batch.ids.shape[1]
        states = self.features(batch)
        # The pair of position t holds the token behind it; the last has none, and nothing looks at it.
        tokens = nn.functional.pad(batch.ids, (0, steps + 1))
        positions = torch.arange(longest)[None]
        _, keys, values, _ = head.project(
            self._embedding[tokens[:, 1 : longest + 1]], states, head.angles(states, positions)
        )
        sees = torch.arange(longest)[None, None] <= rows[:, :, None]  # (B, a, n)
        states = take(states, rows)
        own = Steps([], [])
        for step in range(steps):
            at = rows + step
            embedded = self._embedding[tokens.gather(1, (at + 1).clamp(max=tokens.shape[1] - 1))]
            queries, key, value, carried = head.project(embedded, states, head.angles(states, at))
            if step:
                # The keys of step 0 lie among the true pairs already.
                own.keys.append(key)
                own.values.append(value)
            states = head.finish(carried, self._attend(queries, keys, values, sees, own))
            yield states

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, sees: Tensor, own: Steps) -> Tensor:
        """(B, a, d): attention over the true pairs that an anchor sees, and over its own earlier steps."""
        attention = self.head.attention
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
