"""Suffix decoding: count what followed the end of the text wherever it occurred before (2411.04975; algorithms §3).

Two trees of counted stretches of text: a local one of this run, a global one of the visitor's earlier outputs. A longer
match earns a longer draft, and of all matches the one counts whose draft promises the most accepted tokens. The method
is checked against ArcticInference's own tree; a plain trie stands here for their compressed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from typing import Any

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_TREE, FROM_TEXT, Family, Knob, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Outcome, Proposal


class Stretch:
    """A node: how often the tokens from the root down to here occur, and what follows them."""

    __slots__ = ("count", "next")

    def __init__(self) -> None:
        self.count = 0
        self.next: dict[int, Stretch] = {}


class SuffixTree:
    """Every stretch of at most `depth` tokens of the texts that were read, with its count."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._root = Stretch()
        # Where the last 1, 2, … tokens of the text being read end, the longest stretch first.
        self._ends: list[Stretch] = []

    def begin(self) -> None:
        """What is read from here on is another text."""
        self._ends = []

    def read(self, tokens: Sequence[int]) -> None:
        """Read on: every stretch that ends at one of these tokens counts one more."""
        for token in tokens:
            self._ends = [self._step(end, token) for end in [*self._ends, self._root][-self.depth :]]

    @staticmethod
    def _step(node: Stretch, token: int) -> Stretch:
        following = node.next.get(token)
        if following is None:
            following = node.next[token] = Stretch()
        following.count += 1
        return following

    def find(self, tokens: Sequence[int]) -> Stretch | None:
        """The node of these tokens, None where they never occurred."""
        node: Stretch | None = self._root
        for token in tokens:
            if node is None:
                return None
            node = node.next.get(token)
        return node


@dataclass(frozen=True, slots=True)
class Measure:
    """How much may be drafted: `most` nodes, `depth` deep, factor·match + offset nodes for a match of that length.

    A node whose path has a chance below `min_percent` is left out. `branches` is how many followers of a node are
    looked at: 1 makes a path, None a tree.
    """

    most: int
    depth: int
    factor: int = 1
    offset: int = 0
    min_percent: int = 10
    branches: int | None = 1


@dataclass(slots=True)
class Guess:
    """A draft by counts: how long the match was and how often it occurs; the nodes, and how often each occurs."""

    match: int = 0
    occurs: int = 1
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def before(self, node: int) -> int:
        """How often the node's parent occurs, or the match itself for a first node."""
        parent = self.parents[node]
        return self.occurs if parent == ROOT else self.counts[parent]

    @property
    def score(self) -> Fraction:
        """The accepted tokens that the counts promise: the sum of the nodes' path probabilities.

        Along a path the ratios count(child)/count(parent) multiply to count(node)/count(match), so that the score and
        its ties are exact.
        """
        return Fraction(sum(self.counts), self.occurs)


def best_guess(tree: SuffixTree, context: Sequence[int], measure: Measure) -> Guess:
    """The draft with the best score over all matches of the context's end, of equals the one of the longest match."""
    best = Guess()
    # A match as long as the tree is deep has nothing behind it.
    for match in range(1, min(len(context), tree.depth)):
        node = tree.find(context[-match:])
        if node is None:
            break
        guess = _grow(node, match, measure)
        if guess.score >= best.score:
            best = guess
    return best


def _grow(start: Stretch, match: int, measure: Measure) -> Guess:
    """The most frequent nodes behind a match, best first, which are the most probable."""
    guess = Guess(match, start.count)
    budget = min(measure.most, measure.factor * match + measure.offset)
    # (minus the count, order, token, node, parent, depth): order breaks ties, nodes don't compare.
    heap: list[tuple[int, int, int, Stretch, int, int]] = []
    order = count()

    def offer(node: Stretch, parent: int, depth: int) -> None:
        # Equal counts keep the order in which they were first read.
        often = sorted(node.next.items(), key=lambda item: -item[1].count)
        for token, child in often[: measure.branches]:
            if depth <= measure.depth and 100 * child.count >= measure.min_percent * start.count:
                heappush(heap, (-child.count, next(order), token, child, parent, depth))

    offer(start, ROOT, 1)
    while heap and len(guess.tokens) < budget:
        _, _, token, node, parent, depth = heappop(heap)
        guess.tokens.append(token)
        guess.parents.append(parent)
        guess.counts.append(node.count)
        offer(node, len(guess.tokens) - 1, depth + 1)
    return guess


class Suffix(Stateless):
    """Drafts from the local or the global tree, whichever promises more; local on ties.

    `earlier` holds the visitor's earlier outputs, the oldest first; when the run closes its output joins them and the
    oldest beyond `outputs` go. Only tokens are kept: the global tree is counted anew for every run.
    """

    def __init__(self, setup: Setup, options: Mapping[str, Any]) -> None:
        depth = int(options["depth"])
        self._earlier: list[tuple[int, ...]] = setup.memory.setdefault("suffix", [])
        self._kept = int(options["outputs"])
        self._local, self._global = SuffixTree(depth), SuffixTree(depth)
        for output in self._earlier[max(len(self._earlier) - self._kept, 0) :]:
            self._global.begin()
            self._global.read(output)
        self._options = options
        self._prompt_length = setup.prompt_length
        self._text: list[int] = []

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        options = self._options
        path = options["mode"] == "path"
        measure = Measure(
            gamma if path else options["nodes"],
            gamma,
            options["factor"],
            options["offset"],
            options["min_percent"],
            1 if path else None,
        )
        here, before = (best_guess(tree, context, measure) for tree in (self._local, self._global))
        guess = here if here.score >= before.score else before
        key = list(context[len(context) - guess.match :])
        why = tuple(
            {
                "key": key,
                "match": guess.match,
                "path_chance": often / guess.occurs,
                "followed": often,
                "occurred": guess.before(node),
                "earlier_run": guess is before,
            }
            for node, often in enumerate(guess.counts)
        )
        return Proposal(tuple(guess.tokens), parents=tuple(guess.parents), why=why)

    def observe(self, outcome: Outcome) -> None:
        new = outcome.context[len(self._text) :]
        self._local.read(new)
        self._text += new

    def close(self) -> None:
        if output := tuple(self._text[self._prompt_length :]):
            self._earlier.append(output)
            del self._earlier[: max(len(self._earlier) - self._kept, 0)]
        self._text = []


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """Suffix decoding with these options, on what the visitor's memory holds."""
    return Suffix(setup, options)


FAMILY = Family(
    "suffix",
    "one_hot",
    CHOSEN_TREE,
    build,
    (
        Knob("mode", "choice", "path", choices=("path", "tree")),
        Knob("depth", "int", 16, 2, 24),
        Knob("factor", "int", 1, 1, 8),
        Knob("offset", "int", 0, 0, 8),
        Knob("min_percent", "int", 10, 0, 100),
        Knob("nodes", "int", 16, 1, 64),
        Knob("outputs", "int", 16, 0, 64),
    ),
    "arXiv 2411.04975",
    anatomy=FROM_TEXT,
)
