"""No drafter: the baseline, one target pass a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec_viz.drafters.registry import Anatomy, Family, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import NOTHING, Drafter, Needs, Outcome, Proposal


class Stateless:
    """A drafter that keeps nothing between rounds: no cache, nothing to learn, nothing to free."""

    cache_length: int | None = None
    needs: Needs = NOTHING

    def observe(self, outcome: Outcome) -> None:
        """Nothing follows from a verdict."""

    def close(self) -> None:
        """Nothing is held."""


class NoDrafter(Stateless):
    """Proposes nothing."""

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        return Proposal()


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The baseline's drafter."""
    return NoDrafter()


FAMILY = Family("none", "none", ("match", "token"), build, anatomy=Anatomy((), "none", "none", "none"))
