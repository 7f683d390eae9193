"""Scripted: a text that somebody typed, drafted token by token and judged by the real target ("you are the drafter").

The script has a part for each round, parts separated by `|`. A part longer than gamma goes on in the next round as long
as the target has followed it to the letter; otherwise the next part begins. Round 0 drafts nothing: the first generated
token comes from the prefill, so the first part continues the text *after* that token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_CHAIN, FROM_TEXT, Family, Knob, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Outcome, Proposal

SEPARATOR = "|"


class Scripted(Stateless):
    """Drafts what is left of the current part; `parts` are token ids."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self._parts = [list(part) for part in parts if part]
        self._drafted: list[int] = []

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        self._drafted = self._parts[0][:gamma] if self._parts else []
        return Proposal(tuple(self._drafted), why=({"script": True},) * len(self._drafted))

    def observe(self, outcome: Outcome) -> None:
        if not self._drafted:
            return
        written = [*self._drafted[: outcome.accepted], outcome.context[-1]]
        part, self._drafted = self._parts.pop(0), []
        if len(part) > len(written) and part[: len(written)] == written:
            self._parts.insert(0, part[len(written) :])


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The typed text as a drafter."""
    return Scripted([setup.encode(part) for part in str(options["script"]).split(SEPARATOR)])


FAMILY = Family("scripted", "one_hot", CHOSEN_CHAIN, build, (Knob("script", "text", ""),), anatomy=FROM_TEXT)
