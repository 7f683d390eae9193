"""What a drafter says (`Proposal`), what it hears back (`Outcome`), and the two verbs it has (`Drafter`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from torch import Tensor

from spec_viz.engine.draws import Draws

Drawn = Literal["one_hot", "sampled"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A chain of drafted tokens.

    `drawn` says how they came about: `one_hot` drafts are chosen (q is 1 on the draft), `sampled` drafts were drawn
    from the rows of `q` (n, V), which is the warped law they were really drawn from. `q_raw` (n, V) is the same law at
    temperature 1. `why` explains each draft to the learner.
    """

    tokens: tuple[int, ...] = ()
    drawn: Drawn = "one_hot"
    q: Tensor | None = None
    q_raw: Tensor | None = None
    why: tuple[dict[str, Any] | None, ...] = ()

    def __post_init__(self) -> None:
        if self.drawn == "sampled" and (self.q is None or len(self.q) != len(self.tokens)):
            raise ValueError("a sampled proposal carries one row of q for every draft")

    def __len__(self) -> int:
        return len(self.tokens)

    def cut_after(self, ends: Collection[int]) -> Proposal:
        """Drop drafts behind the first end-of-text: nothing is ever emitted after it.

        The end token itself stays, so whether a draft is judged never depends on its own value (algorithms §1.7).
        """
        for index, token in enumerate(self.tokens):
            if token in ends:
                return self._first(index + 1)
        return self

    def _first(self, count: int) -> Proposal:
        return replace(
            self,
            tokens=self.tokens[:count],
            q=None if self.q is None else self.q[:count],
            q_raw=None if self.q_raw is None else self.q_raw[:count],
            why=self.why[:count],
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict as the drafter hears it: how many drafts were kept, and all committed ids after the round."""

    accepted: int
    context: Sequence[int]


class Drafter(Protocol):
    """Whatever proposes tokens."""

    @property
    def cache_length(self) -> int | None:
        """Entries in the drafter's own KV cache; None when it has none."""

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        """Draft at most gamma tokens after the committed ids."""

    def observe(self, outcome: Outcome) -> None:
        """Hear the verdict (after the prefill: the prompt and the first token) and get ready for the next round."""

    def close(self) -> None:
        """Free what the run held."""
