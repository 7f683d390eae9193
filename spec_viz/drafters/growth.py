"""Dynamic trees: grow a draft where its drafter is surest, and keep the best of what was grown (EAGLE-2 2406.16858).

A path's score is its log-probability. It only falls on the way down, so the best nodes by score are a tree: a node
never comes without its parent. See algorithms §6.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from spec_viz.engine.proposal import ROOT


@dataclass(frozen=True, slots=True)
class Grown:
    """A node as it was grown: its rank among its siblings, from 1, and the log-probability of the path down to it."""

    token: int
    parent: int
    rank: int
    score: float


# The children of each of some nodes, as (token, log-probability) from the best down. The nodes are given by their
# numbers among all that were grown so far; the first call asks for those of the root.
Expand = Callable[[Sequence[Grown], Sequence[int]], Sequence[Sequence[tuple[int, float]]]]


def grow(expand: Expand, depth: int, breadth: int, most: int, ends: Collection[int]) -> list[Grown]:
    """Every node grown: depth by depth, the `breadth` best of the newest get children; ends of text get none.

    A node that is not among the `most` best by now will not be later, nor will anything behind it, so it is left as it
    is: the published code expands it all the same, and draws the same tree from it.
    """
    nodes: list[Grown] = []
    frontier = [ROOT]
    for _ in range(depth):
        born = len(nodes)
        for parent, children in zip(frontier, expand(nodes, frontier), strict=True):
            above = 0.0 if parent == ROOT else nodes[parent].score
            nodes += [Grown(token, parent, rank, above + chance) for rank, (token, chance) in enumerate(children, 1)]
        hopeful = [node for node in best(nodes, most) if node >= born and nodes[node].token not in ends]
        frontier = sorted(hopeful, key=lambda node: -nodes[node].score)[:breadth]
        if not frontier:
            break
    return nodes


def best(nodes: Sequence[Grown], most: int) -> list[int]:
    """The `most` nodes of the highest score, by number: parents before children, siblings by rank.

    Among equals the earlier one is taken, which is the parent.
    """
    return sorted(sorted(range(len(nodes)), key=lambda node: -nodes[node].score)[:most])
