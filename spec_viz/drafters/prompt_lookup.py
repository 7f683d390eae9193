"""Prompt lookup: copy what followed an earlier occurrence of the last n tokens (algorithms §2.1).

The method is apoorvumang/prompt-lookup-decoding's. transformers' variant differs in one thing that counts here: near
the end of the text it takes the shorter span that is there, where the original refuses a match without all gamma
tokens, or one whose copy would begin inside the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_CHAIN, FROM_TEXT, Family, Knob, OptionError, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Proposal


@dataclass(frozen=True, slots=True)
class PromptLookup(Stateless):
    """Look for the longest key first, from max_ngram tokens down to min_ngram, and copy what follows its match.

    `which` takes the first or the most recent match, `where` searches the prompt alone or also what was generated.
    """

    prompt_length: int
    max_ngram: int
    min_ngram: int
    near_end: str
    which: str
    where: str

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        text = list(context[: self.prompt_length] if self.where == "prompt" else context)
        for size in range(min(self.max_ngram, len(context) - 1), self.min_ngram - 1, -1):
            key = list(context[-size:])
            for start in self._matches(text, key):
                # The key itself, at the very end, has nothing behind it.
                follows = start + size
                drafts = text[follows : follows + gamma]
                whole = len(drafts) == gamma and follows < len(context) - size
                if drafts and (whole or self.near_end == "shorter"):
                    why = {"key": key, "found": start, "copied": follows}
                    return Proposal(tuple(drafts), why=(why,) * len(drafts))
        return Proposal()

    def _matches(self, text: list[int], key: list[int]) -> Iterable[int]:
        starts = range(len(text) - len(key) + 1)
        for start in starts if self.which == "first" else reversed(starts):
            if text[start] == key[0] and text[start : start + len(key)] == key:
                yield start


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """Prompt lookup with these options; ValueError when the shortest key is longer than the longest."""
    if options["min_ngram"] > options["max_ngram"]:
        problem = "min_ngram must not be larger than max_ngram"
        raise OptionError("error.option_order", problem, small="min_ngram", large="max_ngram")
    return PromptLookup(setup.prompt_length, **options)


FAMILY = Family(
    "prompt_lookup",
    "one_hot",
    CHOSEN_CHAIN,
    build,
    (
        Knob("max_ngram", "int", 3, 1, 8),
        Knob("min_ngram", "int", 1, 1, 8),
        Knob("near_end", "choice", "shorter", choices=("shorter", "refuse")),
        Knob("which", "choice", "first", choices=("first", "recent")),
        Knob("where", "choice", "all", choices=("all", "prompt")),
    ),
    "algorithms §2.1",
    anatomy=FROM_TEXT,
)
