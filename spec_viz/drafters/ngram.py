"""vLLM's n-gram proposer: copy what followed the earliest occurrence of the longest suffix that occurred before.

The method is `vllm/v1/spec_decode/ngram_proposer.py` (`min_n` and `max_n` are what vLLM calls `prompt_lookup_min` and
`prompt_lookup_max`; algorithms §2.1). What sets it apart from `prompt_lookup`:

- One pass over the text finds the longest suffix, its length capped at max_n, by a failure table as Knuth, Morris and
  Pratt have it: O(len) for any max_n. Prompt lookup scans the text once for every length.
- It has one behaviour where the other has choices: the earliest match, in prompt and output alike, cut to the tokens
  that are there. With `which=first`, `where=all`, `near_end=shorter` and the same lengths both draft the same tokens.
  The original prompt lookup does not: it passes over a match near the end that has fewer than gamma tokens behind it.
- The shortest length is meant to be more than 1. vLLM takes 5 for both where neither is given, its documentation shows
  2 to 5, which are the defaults here: longer keys draft less often and are right more often.

vLLM also stops at the longest text its model takes; here the loop does that for every drafter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_CHAIN, FROM_TEXT, Family, Knob, OptionError, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Proposal


def longest_suffix(text: Sequence[int], longest: int) -> tuple[int, int]:
    """The length, at most `longest`, of the longest suffix that also begins earlier, and the earliest such beginning.

    (0, 0) where not even the last token occurred before. The two occurrences may overlap. O(len(text)).
    """
    # Read backwards a suffix is a prefix, and a pattern searched in its own text is what the failure table is for.
    back = text[::-1]
    # borders[i]: the longest proper prefix of back[: i + 1] that is also its suffix; a match that fails goes on there.
    borders = [0] * longest
    length, end, matched = 0, 0, 0
    for place in range(1, len(back)):
        while matched and back[matched] != back[place]:
            matched = borders[matched - 1]
        if back[matched] == back[place]:
            matched += 1
        if place < longest:
            borders[place] = matched
        # Equal lengths overwrite: further along backwards is earlier in the text.
        if matched and matched >= length:
            length, end = matched, place
        if matched == longest:
            matched = borders[longest - 1]
    return length, len(text) - 1 - end if length else 0


@dataclass(frozen=True, slots=True)
class Ngram(Stateless):
    """Copies up to gamma tokens from behind the match; silent when the longest one is shorter than min_n."""

    min_n: int
    max_n: int

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        length, found = longest_suffix(context, self.max_n)
        if length < self.min_n:
            return Proposal()
        copied = found + length
        drafts = tuple(context[copied : copied + gamma])
        why = {"key": list(context[found:copied]), "found": found, "copied": copied}
        return Proposal(drafts, why=(why,) * len(drafts))


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The n-gram proposer with these options; OptionError when the shortest key is longer than the longest."""
    if options["min_n"] > options["max_n"]:
        problem = "min_n must not be larger than max_n"
        raise OptionError("error.option_order", problem, small="min_n", large="max_n")
    return Ngram(**options)


FAMILY = Family(
    "ngram",
    "one_hot",
    CHOSEN_CHAIN,
    build,
    (Knob("min_n", "int", 2, 1, 16), Knob("max_n", "int", 5, 1, 16)),
    "algorithms §2.1; vLLM n-gram proposer",
    anatomy=FROM_TEXT,
)
