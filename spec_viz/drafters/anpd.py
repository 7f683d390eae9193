"""ANPD: an n-gram model that counts the text as it grows, and drafts with it one token after another.

It counts, for every context of one to N − 1 tokens, which token followed how often: first in the prompt, then in every
token that is committed (2404.08698; algorithms §2.6). Each draft is looked up under the longest context that is known,
N − 1 tokens down to one: its most frequent successor, among equals the most recent. A draft is context for the next
one, so drafts may splice places that never stood side by side, where prompt lookup copies a single span. Nothing is
counted before it is committed. The draft ends where not even its last token is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_CHAIN, FROM_TEXT, Family, Knob, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Outcome, Proposal


@dataclass(slots=True)
class Successor:
    """A token that followed a context: how many times, and where the context last began before it."""

    times: int = 0
    found: int = 0


class Counts:
    """How often each token followed each context of one to `n` − 1 tokens, in a text that only grows."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._read = 0
        self._after: dict[tuple[int, ...], dict[int, Successor]] = {}

    def read(self, text: Sequence[int]) -> None:
        """Count the tokens of the text that were not there last time."""
        for place in range(self._read, len(text)):
            for start in range(max(place - self._n + 1, 0), place):
                after = self._after.setdefault(tuple(text[start:place]), {})
                successor = after.setdefault(text[place], Successor())
                successor.times += 1
                successor.found = start
        self._read = len(text)

    def guess(self, text: Sequence[int]) -> tuple[int, dict[str, Any]] | None:
        """The token that most often followed the longest known end of a text, with its reasons; None if none is known.

        The reasons: the `key`, how many `times` of how many (`out_of`) this token followed it, and where it was last
        `found` to do so.
        """
        for size in range(min(self._n - 1, len(text)), 0, -1):
            key = tuple(text[-size:])
            if after := self._after.get(key):
                token, best = max(after.items(), key=lambda entry: (entry[1].times, entry[1].found))
                total = sum(successor.times for successor in after.values())
                return token, {"key": list(key), "times": best.times, "out_of": total, "found": best.found}
        return None


class Anpd(Stateless):
    """Drafts up to gamma tokens with counts of contexts up to n − 1 tokens long."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._counts = Counts(n)

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        recent = list(context[1 - self._n :])
        drafts: list[int] = []
        reasons: list[dict[str, Any]] = []
        while len(drafts) < gamma and (guess := self._counts.guess(recent)):
            token, why = guess
            drafts.append(token)
            reasons.append(why)
            recent = [*recent, token][1 - self._n :]
        return Proposal(tuple(drafts), why=tuple(reasons))

    def observe(self, outcome: Outcome) -> None:
        self._counts.read(outcome.context)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """An n-gram model that has counted nothing yet."""
    return Anpd(int(options["n"]))


FAMILY = Family(
    "anpd",
    "one_hot",
    CHOSEN_CHAIN,
    build,
    (Knob("n", "int", 5, 2, 8),),
    "2404.08698; algorithms §2.6",
    anatomy=FROM_TEXT,
)
