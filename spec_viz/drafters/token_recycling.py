"""Token recycling: what the target last thought might follow each token, tried again as a tree (2408.08696; §2.4).

A matrix keeps, for every token, the eight likeliest successors of the last pass in which it stood. Nothing is thrown
away: rejected drafts teach as much as kept ones. The published code starts from an empty matrix too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.none import Stateless
from spec_viz.drafters.registry import CHOSEN_TREE, Anatomy, Family, Knob, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Needs, Outcome, Proposal

RANKS = 8
# What a step to the successor of each rank costs. Fitted: the 80 cheapest paths of at most six steps share 75 nodes
# with the 80 of the paper's static tree (8, 21, 25, 15, 8, 3 by depth), which is too dear for a CPU.
COSTS = (4, 13, 15, 17, 19, 20, 20, 20)
DEEPEST = 6
MEMORY = "token_recycling"


@cache
def shape(nodes: int, depth: int) -> tuple[tuple[int, int], ...]:
    """The static tree: (parent, rank) of the cheapest paths of at most `depth` steps, parents before children."""
    found: list[tuple[int, int]] = []
    heap: list[tuple[int, tuple[int, ...], int]] = [(cost, (rank,), ROOT) for rank, cost in enumerate(COSTS)]
    while heap and len(found) < nodes:
        cost, path, parent = heappop(heap)
        found.append((parent, path[-1]))
        if len(path) < depth:
            for rank, step in enumerate(COSTS):
                heappush(heap, (cost + step, (*path, rank), len(found) - 1))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a matrix of so many rows between runs: those that are known, a few hundred of fifty thousand."""

    vocabulary: int
    tokens: Tensor  # (n,)
    rows: Tensor  # (n, 8), int32

    def matrix(self) -> Tensor:
        """The matrix again, (V, 8)."""
        matrix = torch.zeros(self.vocabulary, self.rows.shape[1], dtype=torch.int32)
        matrix[self.tokens] = self.rows
        return matrix


class TokenRecycling(Stateless):
    """Fills the static tree from the matrix (V, 8), int32; a token that was never seen has a row of zeros.

    After the prefill only the last row's logits are shown, so a run begins with one token known, and the tree grows
    with the rounds; what is known outlives the run in the visitor's memory.
    """

    needs = Needs(logits=True)

    def __init__(self, matrix: Tensor, nodes: int, ends: frozenset[int], memory: dict[str, Any] | None = None) -> None:
        self._matrix = matrix
        self._memory = {} if memory is None else memory
        self._nodes = nodes
        self._ends = ends
        # The tokens of the pass to come, by row; nothing before the prefill.
        self._rows: list[int] = []

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        why: list[dict[str, Any]] = []
        # Where a node of the static tree stands in the draft; missing when it is not drafted.
        place = {ROOT: ROOT}
        for node, (parent, rank) in enumerate(shape(self._nodes, min(gamma, DEEPEST))):
            if parent not in place:
                continue
            at = place[parent]
            before = context[-1] if at == ROOT else tokens[at]
            successors = self._successors(before) if at == ROOT or before not in self._ends else []
            if rank < len(successors):
                place[node] = len(tokens)
                tokens.append(successors[rank])
                parents.append(at)
                why.append({"key": [before], "rank": rank + 1})
        self._rows = [context[-1], *tokens]
        return Proposal(tuple(tokens), parents=tuple(parents), why=tuple(why))

    def _successors(self, token: int) -> list[int]:
        row: list[int] = self._matrix[token].tolist()
        return row if any(row) else []

    def observe(self, outcome: Outcome) -> None:
        assert outcome.seen.logits is not None
        rows = self._rows or [outcome.context[-2]]
        best = outcome.seen.logits.topk(self._matrix.shape[1]).indices.to("cpu", torch.int32)
        # A token that stands in several rows keeps the last of them.
        last = {token: row for row, token in enumerate(rows)}
        self._matrix[list(last)] = best[list(last.values())]
        # In a round without a draft the pass is this token alone.
        self._rows = [outcome.context[-1]]

    def close(self) -> None:
        tokens = self._matrix.any(dim=1).nonzero().flatten()
        self._memory[MEMORY] = Kept(len(self._matrix), tokens, self._matrix[tokens])


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """Token recycling on what the visitor's memory holds, or on an empty matrix."""
    vocabulary = int(setup.target.model.config.vocab_size)
    kept = setup.memory.get(MEMORY)
    if kept is None or kept.vocabulary != vocabulary:
        matrix = torch.zeros(vocabulary, min(RANKS, vocabulary), dtype=torch.int32)
    else:
        matrix = kept.matrix()
    return TokenRecycling(matrix, int(options["nodes"]), setup.ends, setup.memory)


FAMILY = Family(
    "token_recycling",
    "one_hot",
    CHOSEN_TREE,
    build,
    (Knob("nodes", "int", 24, 1, 64),),
    "arXiv 2408.08696",
    anatomy=Anatomy(("ids", "logits"), "lookup", "none", "none"),
)
