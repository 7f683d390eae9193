"""Steps of a drafter that has no keys and values of its own and asks the target's (algorithms §7.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from spec_viz.engine.device import rows, send
from spec_viz.engine.proposal import Seen


class Borrower(ABC):
    """The steps of one run: a node goes on from its parent's state, and every node asks the same entries.

    All of them ask from the place of the last committed token, which has no entry yet.
    """

    # It has no entries of its own.
    length = 0

    def __init__(self) -> None:
        # Row 0 is the target's own last state, then that behind the last token, row i + 2 is node i's.
        self._states = torch.empty(0)

    @abstractmethod
    def look(self) -> None:
        """Begin a round: find the target's entries as they are now, and the place to ask from."""

    @abstractmethod
    def ask(self, tokens: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, V) behind tokens (n,) that go on from states (n, d), and the states (n, d) there."""

    def hear(self, state: Tensor) -> None:
        """Take in the target's state (1, d) at the token before the last one that is committed."""
        self._states = state.float()

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Begin a round behind the last committed token; logits (1, V) of what follows it."""
        self.look()
        self._states = self._states[:1]
        return self._step(tokens, [0])

    @torch.inference_mode()
    def feed_tree(self, tokens: Sequence[int] | Tensor, parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Logits (keep, V) behind a tree's last nodes; their tokens may lie on the device (n,)."""
        return self._step(tokens, [parent + 2 for parent in parents[len(parents) - len(tokens) :]])[-keep:], Seen()

    def _step(self, tokens: Sequence[int] | Tensor, before: Sequence[int]) -> Tensor:
        logits, states = self.ask(send(tokens, self._states.device), rows(self._states, before))
        self._states = torch.cat([self._states, states])
        return logits

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:  # noqa: B027 - there is nothing to do
        """Nothing is kept of a draft."""

    def close(self) -> None:
        """Let go of the states."""
        self._states = torch.empty(0)
