"""Dynamic trees: the best nodes of a whole tree that was never grown whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_viz.drafters.growth import Grown, best, grow
from spec_viz.engine.proposal import ROOT

TOKENS = 3
DEPTH = 3
Laws = dict[tuple[int, ...], tuple[float, ...]]


def path(nodes: Sequence[Grown], node: int) -> tuple[int, ...]:
    steps: list[int] = []
    while node != ROOT:
        steps.append(nodes[node].token)
        node = nodes[node].parent
    return tuple(reversed(steps))


class Told:
    """Expands by a table of laws and remembers what it was asked for."""

    def __init__(self, laws: Laws, breadth: int) -> None:
        self.laws, self.breadth = laws, breadth
        self.asked: list[list[tuple[int, ...]]] = []

    def __call__(self, nodes: Sequence[Grown], frontier: Sequence[int]) -> list[list[tuple[int, float]]]:
        paths = [path(nodes, node) for node in frontier]
        self.asked.append(paths)
        return [
            [(token, log(law[token])) for token in sorted(range(TOKENS), key=lambda token: -law[token])[: self.breadth]]
            for law in (self.laws[each] for each in paths)
        ]


@st.composite
def laws(draw: st.DrawFn) -> Laws:
    weights = st.tuples(*[st.integers(1, 997)] * TOKENS)
    found: Laws = {}
    for depth in range(DEPTH):
        for prefix in product(range(TOKENS), repeat=depth):
            drawn = draw(weights)
            found[prefix] = tuple(weight / sum(drawn) for weight in drawn)
    return found


def chance(table: Laws, tokens: Sequence[int]) -> float:
    value = 0.0
    for step, token in enumerate(tokens):
        value += log(table[tuple(tokens[:step])][token])
    return value


def whole(table: Laws, ends: frozenset[int] = frozenset()) -> list[tuple[int, ...]]:
    """Every path of the full tree, none of which goes on behind an end."""
    every = [tokens for depth in range(1, DEPTH + 1) for tokens in product(range(TOKENS), repeat=depth)]
    return [tokens for tokens in every if not ends & {*tokens[:-1]}]


@settings(max_examples=200)
@given(laws(), st.integers(1, 40), st.frozensets(st.integers(0, 2), max_size=1))
def test_with_room_for_every_child_it_is_the_best_of_the_whole_tree(
    table: Laws, most: int, ends: frozenset[int]
) -> None:
    """Breadth that leaves nothing out: brute force over every prefix-closed choice comes to the sum of the best."""
    nodes = grow(Told(table, TOKENS), DEPTH, TOKENS**DEPTH, most, ends)
    kept = best(nodes, most)
    scores = sorted((chance(table, tokens) for tokens in whole(table, ends)), reverse=True)[:most]
    assert sorted((nodes[node].score for node in kept), reverse=True) == pytest.approx(scores)
    for node in kept:
        assert nodes[node].score == pytest.approx(chance(table, path(nodes, node)))
        assert nodes[node].parent == ROOT or nodes[node].parent in kept


def published(table: Laws, breadth: int, most: int) -> set[tuple[int, ...]]:
    """EAGLE-2 as its code has it: expand the best of each depth to the end, then take the best of all (§6.2)."""
    recorded: list[tuple[int, ...]] = []
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(DEPTH):
        grown = []
        for above in frontier:
            law = table[above]
            best_tokens = sorted(range(TOKENS), key=law.__getitem__, reverse=True)[:breadth]
            grown += [(*above, token) for token in best_tokens]
        recorded += grown
        frontier = sorted(grown, key=lambda tokens: -chance(table, tokens))[:breadth]
    return set(sorted(recorded, key=lambda tokens: -chance(table, tokens))[:most])


@settings(max_examples=200)
@given(laws(), st.integers(1, 3), st.integers(1, 12))
def test_what_is_not_expanded_changes_no_tree(table: Laws, breadth: int, most: int) -> None:
    nodes = grow(Told(table, breadth), DEPTH, breadth, most, frozenset())
    # Equal scores may be ordered either way.
    ours = sorted(chance(table, path(nodes, node)) for node in best(nodes, most))
    theirs = sorted(chance(table, tokens) for tokens in published(table, breadth, most))
    assert ours == pytest.approx(theirs)


def uneven() -> Laws:
    return {prefix: (0.7, 0.2, 0.1) for depth in range(DEPTH) for prefix in product(range(TOKENS), repeat=depth)}


def test_a_tree_by_hand() -> None:
    told = Told(uneven(), 2)
    nodes = grow(told, DEPTH, 2, 4, frozenset())
    # .7, .49 and .343 along the first ranks, and .2.
    assert [path(nodes, node) for node in best(nodes, 4)] == [(0,), (1,), (0, 0), (0, 0, 0)]
    assert [(nodes[node].rank, nodes[node].parent) for node in best(nodes, 4)] == [(1, -1), (2, -1), (1, 0), (1, 2)]
    # When depth 3 was grown, one of the two nodes of .14 was still among the best four.
    assert told.asked == [[()], [(0,), (1,)], [(0, 0), (0, 1)]]


def test_no_pass_is_spent_where_nothing_can_be_won() -> None:
    told = Told({(): (0.5, 0.3, 0.2)} | {(token,): (0.38, 0.31, 0.31) for token in range(TOKENS)}, 3)
    nodes = grow(told, DEPTH, 3, 3, frozenset())
    # The best of depth 2 has .19 and all of depth 1 have more: depth 3 is never asked for.
    assert len(told.asked) == 2
    assert best(nodes, 3) == [0, 1, 2]


def test_behind_an_end_nothing_grows() -> None:
    nodes = grow(Told(uneven(), 3), DEPTH, 3, 40, frozenset({0}))
    assert all(node.parent == ROOT or nodes[node.parent].token != 0 for node in nodes)
    assert sum(node.token == 0 for node in nodes) > 1
    alone = grow(lambda _, frontier: [[(4, 0.0)] for _ in frontier], 5, 3, 10, {4})
    assert [node.token for node in alone] == [4]


def test_a_parent_comes_before_a_child_that_is_certain() -> None:
    nodes = grow(lambda _, frontier: [[(1, 0.0)] for _ in frontier], 4, 2, 2, frozenset())
    assert best(nodes, 2) == [0, 1]
    assert best(nodes, 1) == [0]
    assert best([], 3) == []
