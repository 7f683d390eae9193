"""A planted fault that must fail: DSpark with the length of its draft chosen in hindsight (2607.05147, appendix A).

The confidence of a slot is computed from the token before it. Who drafts first and looks back afterwards lets that
token decide whether it is judged itself: a token behind which the head is unsure is dropped unseen, and the target's
own draw in its place cannot make up for it (algorithms §1.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spec_viz.drafters.dspark import FAMILY, DSparkDrafter, build
from spec_viz.drafters.registry import Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Proposal
from spec_viz.lab.law import LawTest
from spec_viz.lab.law_tiny import sample_tiny

# Below this the head is unsure.
LEAST = 0.5


class Hindsight(DSparkDrafter):
    """Drafts the whole block, then drops it from the first token on behind which the head is unsure."""

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        whole = super().propose(context, gamma, draws)
        behind = enumerate(self._model.confidences[1 : len(whole) + 1])
        return whole.only(range(next((node for node, sure in behind if sure < LEAST), len(whole))))


def sample_hindsight(rounds: int) -> LawTest:
    """The fault on the tiny target."""

    def faulty(setup: Setup, options: Mapping[str, Any]) -> Drafter:
        return build(setup, options, Hindsight)

    test = sample_tiny(replace(FAMILY, build=faulty), "token", {}, rounds)
    return replace(test, name="planted · dspark's length chosen in hindsight")
