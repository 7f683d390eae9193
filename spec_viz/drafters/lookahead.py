"""Lookahead decoding: let the target guess far ahead in every pass, and collect the n-grams that come of it (§2.5).

A window of guesses rides along with each pass (2402.02057): `window` columns by `ngram` − 1 levels, each level one step
older. A column's diagonal and what the target says behind it are an n-gram for the pool. Pool n-grams that begin with
the last committed token are the drafts. The window follows hao-ai-lab/LookaheadDecoding, which moves it by one column
however many tokens were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_TREE, Anatomy, Family, Knob, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Needs, Outcome, Proposal

Gram = tuple[int, ...]


class Pool:
    """N-grams by their first token, of each at most `most`, the longest unseen going first."""

    def __init__(self, most: int) -> None:
        self._most = most
        # First token to (the rest, the round in which it was last collected), in the order of collection.
        self._grams: dict[int, dict[Gram, int]] = {}

    def collect(self, gram: Sequence[int], round_: int) -> None:
        """Take in an n-gram, or note that it was seen again."""
        kept = self._grams.setdefault(gram[0], {})
        kept.pop(tuple(gram[1:]), None)
        kept[tuple(gram[1:])] = round_
        if len(kept) > self._most:
            del kept[next(iter(kept))]

    def behind(self, token: int) -> list[tuple[Gram, int]]:
        """What may follow a token, with the round it was collected in, the youngest first."""
        return list(reversed(self._grams.get(token, {}).items()))


class Lookahead(Stateless):
    """Drafts what the pool knows behind the last token and sends its window along as extras.

    `_levels[0]` is a chain of window − 1 guesses behind the last committed token, which is column 0 of that level; the
    others have a guess in each column. While the first rounds fill the levels they are longer, as each round costs a
    column. What is guessed needs no law, so the target's likeliest token is taken at every temperature.
    """

    needs = Needs(logits=True)

    def __init__(self, window: int, ngram: int, guesses: int, from_prompt: bool, ends: frozenset[int]) -> None:
        self._window = window
        self._ngram = ngram
        self._from_prompt = from_prompt
        self._ends = ends
        self._pool = Pool(guesses)
        self._levels: list[list[int]] = []
        # The last committed token when the window was sent; None while no window is under way.
        self._sent_after: int | None = None
        self._round = 0
        self._read = 0

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        if not self._levels:
            # As in the published code, any tokens of the prompt are good enough to begin with.
            us = [draws.by_round("window", place) for place in range(self._window + self._ngram - 3)]
            self._levels = [[context[int(u * len(context))] for u in us]]
        self._sent_after = context[-1]
        tokens: list[int] = []
        parents: list[int] = []
        why: list[dict[str, Any]] = []
        at_step: dict[tuple[int, int], int] = {}
        for rest, collected in self._pool.behind(context[-1]):
            branch = self._until_end(rest[:gamma])
            at = ROOT
            for token in branch:
                if (at, token) not in at_step:
                    at_step[at, token] = len(tokens)
                    tokens.append(token)
                    parents.append(at)
                    why.append({"ngram": [context[-1], *branch], "age": self._round - collected})
                at = at_step[at, token]
        return Proposal(tuple(tokens), parents=tuple(parents), why=tuple(why), extra=self._extra())

    def _until_end(self, rest: Gram) -> Gram:
        end = next((place for place, token in enumerate(rest) if token in self._ends), len(rest))
        return rest[: end + 1]

    def _extra(self) -> tuple[tuple[int, int], ...]:
        """The window as (token, parent): a chain, and each further level's column behind the level before it."""
        extra = [(token, place - 1) for place, token in enumerate(self._levels[0])]
        above = list(range(ROOT, len(extra)))
        for level in self._levels[1:]:
            below = range(len(extra), len(extra) + len(level))
            extra += zip(level, above, strict=True)
            above = list(below)
        return tuple(extra)

    def observe(self, outcome: Outcome) -> None:
        if self._from_prompt:
            self._collect_text(outcome.context)
        if self._sent_after is None:
            return
        assert outcome.seen.logits is not None
        # The extras are the pass's last rows, and their last level that of the window.
        newest = outcome.seen.logits[-len(self._levels[-1]) :].argmax(-1).tolist()
        self._advance(newest, self._sent_after)
        self._sent_after = None
        self._round += 1

    def _advance(self, newest: list[int], last: int) -> None:
        if len(self._levels) < self._ngram - 1:
            # Level 0 has no guess in column 0, so what stands behind it already begins with column 1.
            newest = newest if len(self._levels) == 1 else newest[1:]
            self._levels = [*(level[1:] for level in self._levels), newest]
            return
        for gram in zip([last, *self._levels[0]], *self._levels[1:], newest, strict=True):
            self._pool.collect(gram, self._round)
        self._levels = [self._levels[1][1:], *self._levels[2:], newest]

    def _collect_text(self, text: Sequence[int]) -> None:
        ends = len(text) - self._ngram + 1
        for start in range(self._read, ends):
            self._pool.collect(text[start : start + self._ngram], self._round)
        self._read = max(self._read, ends)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """Lookahead decoding with these options; its pool lives as long as the run."""
    return Lookahead(
        int(options["window"]),
        int(options["ngram"]),
        int(options["guesses"]),
        options["pool"] == "text",
        setup.ends,
    )


FAMILY = Family(
    "lookahead",
    "one_hot",
    CHOSEN_TREE,
    build,
    (
        Knob("window", "int", 5, 2, 8),
        Knob("ngram", "int", 4, 3, 5),
        Knob("guesses", "int", 4, 1, 8),
        Knob("pool", "choice", "window", choices=("window", "text")),
    ),
    "arXiv 2402.02057",
    anatomy=Anatomy(("ids", "logits"), "lookup", "none", "none"),
)
