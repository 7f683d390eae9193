"""EAGLE's trees: the static one has one shape in every round, the dynamic one tells what was grown and not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters import eagle3
from spec_viz.drafters.eagle import FAMILY
from spec_viz.drafters.growth import Grown
from spec_viz.drafters.head import Head
from spec_viz.drafters.medusa import choose
from spec_viz.drafters.registry import OptionError
from spec_viz.drafters.rollout import TOLD, fill
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Proposal
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import heads
from tests.engine.heads import begun, make, texts
from tests.engine.rollouts import ACCURACIES, head, plain_logits

TEXTS = [list(text[:26]) for text in texts()]
STATIC = {"tree": 12, "shape": "static"}
DYNAMIC = {"tree": 9, "top_k": 3}
PLAIN = Warp(1.0)


def drafted(text: Sequence[int], options: dict[str, Any], warp: Warp = PLAIN, gamma: int = 4) -> Proposal:
    drafter = begun(FAMILY, text, options=options, warp=warp, opened=head("eagle"))
    proposal: Proposal = drafter.propose(text, gamma, Draws(0, 1, len(text)))
    return proposal


def reason(proposal: Proposal, node: int) -> dict[str, Any]:
    why = proposal.why[node]
    assert why is not None
    return why


def law_behind(text: Sequence[int], proposal: Proposal, node: int, warp: Warp) -> Tensor:
    path = [] if node == ROOT else [proposal.tokens[step] for step in proposal.path(node)]
    return warp.law(plain_logits(head("eagle"), text, path)[None], [*text, *path])[0]


# ---------------------------------------------------------------- the static tree


def test_a_static_tree_has_the_shape_that_past_accuracies_give_it() -> None:
    shape = choose(ACCURACIES, 12)
    wanted = sorted(_ranks(shape, place) for place in range(12))
    for text in TEXTS:
        proposal = drafted(text, STATIC)
        found = sorted(
            tuple(reason(proposal, step)["rank"] - 1 for step in proposal.path(node)) for node in range(len(proposal))
        )
        assert found == wanted
        for node in range(len(proposal)):
            ranks = tuple(reason(proposal, step)["rank"] - 1 for step in proposal.path(node))
            chance = 1.0
            for depth, rank in enumerate(ranks):
                chance *= ACCURACIES[depth][rank]
            assert reason(proposal, node)["path_accuracy"] == pytest.approx(chance, abs=1e-6)
    assert max(map(len, wanted)) == 3


def _ranks(shape: Sequence[tuple[int, int, float]], place: int) -> tuple[int, ...]:
    ranks: tuple[int, ...] = ()
    while place != ROOT:
        parent, rank, _ = shape[place]
        ranks, place = (rank, *ranks), parent
    return ranks


@pytest.mark.parametrize("options", [STATIC, DYNAMIC], ids=str)
def test_nodes_hold_the_tokens_of_their_ranks_behind_their_own_path(options: dict[str, Any]) -> None:
    warp = Warp(0.8, repetition_penalty=1.4)
    proposal = drafted(TEXTS[0], options, warp)
    chances = {ROOT: 1.0}
    for node, parent in enumerate(proposal.parents):
        law = law_behind(TEXTS[0], proposal, parent, warp)
        why, token = reason(proposal, node), proposal.tokens[node]
        assert int((law > law[token]).sum()) + 1 == why["rank"]
        chances[node] = chances[parent] * float(law[token])
        assert why["path_q"] == pytest.approx(chances[node], abs=1e-5)


def test_a_static_tree_is_no_deeper_than_gamma_and_thins_out_with_the_law() -> None:
    assert max(drafted(TEXTS[0], STATIC, gamma=2).depths) == 2
    # Two tokens are left to each law: the third rank has none, nor what would stand behind it.
    thin = drafted(TEXTS[0], STATIC, Warp(1.0, top_k=2))
    assert {reason(thin, node)["rank"] for node in range(len(thin))} == {1, 2}
    assert 2 < len(thin) < 12


def test_a_shape_is_filled_depth_by_depth_and_nothing_stands_behind_an_end() -> None:
    # A chain of three by rank 0, beside a child of rank 1, whose own child comes before the chain's end.
    shape = [(ROOT, 0, 0.5), (0, 0, 0.4), (ROOT, 1, 0.3), (2, 0, 0.2), (1, 0, 0.1)]
    asked: list[list[int]] = []

    def expand(nodes: Sequence[Grown], frontier: Sequence[int]) -> list[list[tuple[int, float]]]:
        asked.append([-1 if node == ROOT else nodes[node].token for node in frontier])
        return [[(10 * len(asked) + 2 * at, -1.0), (10 * len(asked) + 2 * at + 1, -2.0)] for at in range(len(frontier))]

    nodes, places = fill(expand, shape, ())
    assert asked == [[-1], [10, 11], [20]]
    assert [(node.token, node.parent, node.rank, node.score) for node in nodes] == [
        (10, ROOT, 1, -1.0),
        (11, ROOT, 2, -2.0),
        (20, 0, 1, -2.0),
        (22, 1, 1, -3.0),
        (30, 2, 1, -3.0),
    ]
    assert places == [0, 2, 1, 3, 4]
    asked.clear()
    nodes, _ = fill(expand, shape, {10})
    assert asked == [[-1], [11]]
    assert [node.token for node in nodes] == [10, 11, 20]
    assert fill(expand, [], ()) == ([], [])


def test_a_head_that_nobody_counted_has_no_static_tree_and_drafts_all_else() -> None:
    known = head("eagle")
    plain = {key: value for key, value in known.config.items() if key != "accuracies"}
    uncounted = Head("eagle", plain, known.tensors)
    with pytest.raises(ValueError, match="knows no accuracies"):
        make(FAMILY, STATIC, opened=uncounted)
    for options in ({}, DYNAMIC, {"shape": "static"}):
        drafter = begun(FAMILY, TEXTS[0], options=options, opened=uncounted)
        assert len(drafter.propose(TEXTS[0], 4, Draws(0, 1, 26))) >= 4


# ---------------------------------------------------------------- the dynamic tree


@pytest.mark.parametrize("options", [DYNAMIC, {"tree": 3, "top_k": 3}, {"tree": 60, "top_k": 2}], ids=str)
def test_a_dynamic_tree_tells_what_was_grown_and_not_kept(options: dict[str, Any]) -> None:
    warp = Warp(1.0)
    proposal = drafted(TEXTS[0], options, warp)
    kept = len(proposal)
    grown = {reason(proposal, node)["grown"] for node in range(kept)}
    assert len(grown) == 1
    assert [node for node in range(kept) if "dropped" in reason(proposal, node)] == [0]
    dropped = reason(proposal, 0)["dropped"]
    assert len(dropped) == min(TOLD, grown.pop() - kept)
    # The kept and the dropped nodes are one tree.
    tokens = [*proposal.tokens, *(token for token, _, _ in dropped)]
    parents = [*proposal.parents, *(parent for _, parent, _ in dropped)]
    whole = Proposal(tuple(tokens), parents=tuple(parents))
    chances = {ROOT: 1.0}
    for node, parent in enumerate(parents):
        law = law_behind(TEXTS[0], whole, parent, warp)
        chances[node] = chances[parent] * float(law[tokens[node]])
    for node, (_, _, chance) in enumerate(dropped, kept):
        assert chance == pytest.approx(chances[node], abs=1e-5)
        # None that was dropped is better than one that was kept.
        assert chance <= min(reason(proposal, at)["path_q"] for at in range(kept)) + 1e-6
    if options["tree"] == 60:
        # Two children each of two nodes a depth, which are fewer than may be kept.
        assert (kept, dropped) == (2 + 3 * 4, [])


def test_eagle3_grows_its_tree_by_the_same_code() -> None:
    drafter = begun(eagle3.FAMILY, TEXTS[0], options=DYNAMIC, warp=Warp(1.0))
    proposal = drafter.propose(TEXTS[0], 4, Draws(0, 1, 26))
    why = reason(proposal, 0)
    assert why["grown"] == len(proposal) + len(why["dropped"])


# ---------------------------------------------------------------- what it refuses, and the law


@pytest.mark.parametrize("shape", ["static", "dynamic"])
@pytest.mark.parametrize("rule", ["token", "specinfer", "without_replacement", "ensemble"])
def test_a_tree_for_a_rule_that_cannot_judge_it_is_refused(rule: str, shape: str) -> None:
    with pytest.raises(OptionError, match="use match, typical"):
        make(FAMILY, {"tree": 4, "shape": shape}, rule, opened=head("eagle"))
    assert make(FAMILY, {"tree": 4, "shape": shape}, "typical", opened=head("eagle"))


def test_children_are_drawn_without_replacement_as_eagle_1_drew_them() -> None:
    rule = "without_replacement"
    drafter = begun(FAMILY, TEXTS[0], options={"width": 4}, rule=rule, warp=PLAIN, opened=head("eagle"))
    proposal = drafter.propose(TEXTS[0], 3, Draws(2, 1, 26))
    assert proposal.drawn == "without_replacement"
    first = [proposal.tokens[node] for node in proposal.children(ROOT)]
    assert len(set(first)) == 4
    assert proposal.q is not None
    assert torch.equal(proposal.q[0], proposal.q[proposal.children(ROOT)[3]])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"tree": 6, "top_k": 2}, {"tree": 6, "shape": "static"}], ids=str)
@pytest.mark.parametrize("rule", ["token", "match", "without_replacement"])
def test_the_law_is_kept(rule: str, options: dict[str, Any]) -> None:
    assert sample_tiny(FAMILY, rule, options, 4000).passed


def test_no_bias_in_the_file_would_be_missed() -> None:
    """fc has one, and it counts."""
    known = head("eagle")
    without = Head("eagle", known.config, {**known.tensors, "fc.bias": torch.zeros(heads.WIDTH)})
    laws = [
        begun(FAMILY, TEXTS[0], warp=Warp(1.0), opened=each).propose(TEXTS[0], 1, Draws(0, 1, 26)).q_raw
        for each in (known, without)
    ]
    assert float((laws[0] - laws[1]).abs().max()) > 1e-3
