"""Bigram: a table of what followed each token in the target's own text, and how often (Leviathan et al. 2211.17192).

It looks at one token and costs nothing, so it is the floor: a trained head that does not beat it has learned no more
than which word follows which. A token that was never seen has an empty row, and the draft ends there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.model import ModelDrafter, model_drafter
from spec_viz.drafters.registry import Anatomy, Family, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Outcome, Proposal, Seen


class Table:
    """Successors `ids` (V, k) of every token and how likely each is (V, k); of a token never seen all are 0."""

    length = 0

    def __init__(self, ids: Tensor, chances: Tensor, device: torch.device) -> None:
        self._ids = ids.long()
        self._chances = chances
        self._device = device

    def knows(self, token: int) -> bool:
        """Whether anything was seen behind a token."""
        return bool(self._chances[token].any())

    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Log-probabilities (keep, V) of what follows the last tokens."""
        last = list(tokens[-keep:])
        law = self._chances.new_zeros(keep, len(self._chances))
        # Added, because a short row is filled up with some id at chance 0.
        return law.scatter_add_(1, self._ids[last], self._chances[last]).log_().to(self._device)

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        return self.feed(tokens, keep), Seen()

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """A table forgets nothing."""

    def close(self) -> None:
        """Nothing is held."""


class BigramDrafter(ModelDrafter):
    """A chain from the table, which ends behind a token that the table does not know."""

    _model: Table

    @property
    def cache_length(self) -> int | None:
        return None

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        proposal = self._stepwise(context, gamma, draws)
        before = (context[-1], *proposal.tokens[:-1])
        return replace(proposal, why=tuple({"key": [token]} for token in before[: len(proposal)]))

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        return self._model.feed(context[-1:], keep=1) if self._model.knows(context[-1]) else None

    def _stops(self, tokens: Sequence[int], raw: Sequence[Tensor], node: int) -> bool:
        return super()._stops(tokens, raw, node) or not self._model.knows(tokens[node])

    def observe(self, outcome: Outcome) -> None:
        """Nothing follows from a verdict."""


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The bigram table made for this target."""
    head = setup.head("bigram")
    table = Table(head.tensors["next"], head.tensors["chance"], setup.target.device)
    drafter = model_drafter(table, setup, 1, BigramDrafter)
    drafter.weight_bytes = head.weight_bytes
    return drafter


FAMILY = Family(
    "bigram",
    "sampled",
    ("token", "block", "match", "typical", "ensemble", "synthetic"),
    build,
    source="arXiv 2211.17192",
    head="bigram",
    anatomy=Anatomy(("ids",), "lookup", "none", "own"),
)
