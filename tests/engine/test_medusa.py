"""Medusa: what each head reads and says, the static tree, and runs on the real loop."""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spec_viz.drafters.medusa import FAMILY, Medusa, choose
from spec_viz.drafters.registry import OptionError
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import ROOT, Needs, Proposal
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import heads
from tests.engine.heads import ACCURACIES, SLOTS, begun, make, run_with, start, texts
from tests.engine.tiny import LAYERS, VOCABULARY, generate, prompts

TEXT = list(texts()[0][:26])
TREE = {"tree": 12}


def plain(text: list[int]) -> Tensor:
    """Logits (heads, V) from the state behind the norm at the token before the last, head by head."""
    state = heads.seen(text[:-1], (LAYERS,))[LAYERS][-1].float()
    tensors = heads.head("medusa").tensors
    wide = torch.full((SLOTS, VOCABULARY), -torch.inf)
    for number in range(SLOTS):
        turned = tensors[f"{number}.0.linear.weight"] @ state + tensors[f"{number}.0.linear.bias"]
        wide[number, heads.draft_ids()] = heads.rows() @ (state + turned * turned.sigmoid())
    return wide


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


# ---------------------------------------------------------------- what the heads say


def test_new_heads_say_what_the_target_says() -> None:
    states = torch.randn(3, 8)
    said = Medusa(8, 2)(states)
    assert said.shape == (3, 2, 8)
    assert torch.equal(said, states[:, None].expand(3, 2, 8))


def test_each_place_has_the_law_of_its_head() -> None:
    proposal = begun(FAMILY, TEXT, rule="token", warp=Warp(0.7)).propose(TEXT, 6, Draws(0, 1, len(TEXT)))
    assert len(proposal) == SLOTS
    torch.testing.assert_close(raw(proposal), plain(TEXT).softmax(-1), atol=2e-5, rtol=1e-4)
    assert proposal.q is not None
    torch.testing.assert_close(proposal.q, (plain(TEXT) / 0.7).softmax(-1), atol=2e-5, rtol=1e-4)
    draws = Draws(0, 1, len(TEXT))
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)
    for head, (why, law) in enumerate(zip(proposal.why, raw(proposal), strict=True), 1):
        assert why is not None
        best = law.topk(3)
        assert why["head"] == head
        assert [token for token, _ in why["candidates"]] == best.indices.tolist()
        assert [chance for _, chance in why["candidates"]] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_chosen_drafts_are_the_heads_argmaxes() -> None:
    for gamma in (1, 3, 9):
        proposal = begun(FAMILY, TEXT).propose(TEXT, gamma, Draws(0, 1, len(TEXT)))
        assert proposal.drawn == "one_hot"
        assert list(proposal.tokens) == plain(TEXT).argmax(-1).tolist()[:gamma]


def test_a_penalty_sees_the_drafts_before() -> None:
    warp = Warp(1.0, repetition_penalty=1.6)
    proposal = begun(FAMILY, TEXT, rule="token", warp=warp).propose(TEXT, 4, Draws(2, 1, len(TEXT)))
    law = warp.law(torch.cat([plain(TEXT), plain(TEXT)[:1]]), TEXT, proposal.tokens)[:-1]
    assert proposal.q is not None
    torch.testing.assert_close(proposal.q, law, atol=2e-5, rtol=1e-4)


def test_drafting_stops_behind_an_end_and_where_the_length_says() -> None:
    free = begun(FAMILY, TEXT).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    end = free.tokens[1]
    cut = begun(FAMILY, TEXT, ends=[end]).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert cut.tokens == free.tokens[: free.tokens.index(end) + 1]
    tree = begun(FAMILY, TEXT, options={"tree": 30}, ends=[end]).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert end in tree.tokens
    assert all(tree.tokens[parent] != end for parent in tree.parents if parent != ROOT)

    class One(Fixed):
        def stops(self, q: float) -> bool:
            return True

    assert len(begun(FAMILY, TEXT, length=One()).propose(TEXT, 4, Draws(0, 1, len(TEXT)))) == 1


# ---------------------------------------------------------------- the static tree


def test_the_tree_by_hand() -> None:
    # .6, .3 (.6·.5), .2, .12 (.6·.5·.4), .12 (.6·.2), .1 …
    shape = choose(ACCURACIES, 5)
    assert [(parent, rank) for parent, rank, _ in shape] == [(-1, 0), (0, 0), (-1, 1), (1, 0), (0, 1)]
    assert [chance for _, _, chance in shape] == pytest.approx([0.6, 0.3, 0.2, 0.12, 0.12])
    assert choose(((0.5, 0.0),), 9) == ((-1, 0, 0.5),)
    assert choose((), 9) == ()


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.integers(1, 99)] * 2), min_size=1, max_size=2), st.integers(1, 5))
def test_no_other_tree_of_this_size_is_expected_to_be_longer(percents: list[tuple[int, int]], nodes: int) -> None:
    accuracies = tuple(tuple(percent / 100 for percent in each) for each in percents)
    every = [path for depth in range(1, len(accuracies) + 1) for path in product(range(2), repeat=depth)]

    def value(path: tuple[int, ...]) -> float:
        return prod(accuracies[head][rank] for head, rank in enumerate(path))

    count = min(nodes, len(every))
    closed = [
        sum(map(value, chosen))
        for chosen in combinations(every, count)
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen)
    ]
    shape = choose(accuracies, nodes)
    assert len(shape) == count
    assert sum(chance for _, _, chance in shape) == pytest.approx(max(closed))
    assert all(parent < place for place, (parent, _, _) in enumerate(shape))


@pytest.mark.parametrize("gamma", [1, 2, 4, 9])
def test_the_tree_is_filled_with_the_heads_guesses(gamma: int) -> None:
    proposal = begun(FAMILY, TEXT, options=TREE, warp=Warp(0.6)).propose(TEXT, gamma, Draws(0, 1, len(TEXT)))
    assert max(proposal.depths) == min(gamma, SLOTS)
    assert len(proposal) == (3 if gamma == 1 else 12)
    order = plain(TEXT).argsort(-1, descending=True)
    for node, depth in enumerate(proposal.depths):
        why = proposal.why[node]
        assert why is not None
        assert why["head"] == depth
        assert proposal.tokens[node] == int(order[depth - 1, why["rank"] - 1])
        chance = prod(
            ACCURACIES[step][(proposal.why[at] or {})["rank"] - 1] for step, at in enumerate(proposal.path(node))
        )
        assert why["path_accuracy"] == pytest.approx(chance, abs=1e-6)
        # A head's guesses are the same wherever they stand, so its first draft tells them for all.
        assert ("candidates" in why) == (proposal.depths.index(depth) == node)
        torch.testing.assert_close(raw(proposal)[node], plain(TEXT)[depth - 1].softmax(-1), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("rule", ["token", "block", "ensemble", "synthetic"])
def test_a_tree_for_a_rule_that_cannot_judge_it_is_refused(rule: str) -> None:
    with pytest.raises(OptionError, match="use match, typical"):
        make(FAMILY, {"tree": 4}, rule)


# ---------------------------------------------------------------- over rounds


@pytest.mark.parametrize("options", [{}, TREE], ids=str)
def test_the_state_is_that_of_the_last_verified_token(options: dict[str, Any]) -> None:
    target, drafter = make(FAMILY, options)
    context = start(target, drafter, prompts(2)[1])
    for depth in (0, 2, 4, 1, None, 3):
        if depth is None:
            heads.advance(target, drafter, context, Proposal(), ())
            continue
        proposal = drafter.propose(context, 4, Draws(0, 1, len(context)))
        fresh = begun(FAMILY, context, options=options).propose(context, 4, Draws(0, 1, len(context)))
        assert proposal.tokens == fresh.tokens
        torch.testing.assert_close(raw(proposal), raw(fresh), atol=2e-5, rtol=1e-4)
        # The deepest and last of its depth, so that in a tree the rows kept are not the first ones.
        end = max((at for at, found in enumerate(proposal.depths) if found == depth), default=ROOT)
        heads.advance(target, drafter, context, proposal, proposal.path(end))


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("options", [{}, TREE], ids=str)
def test_greedy_ids_are_transformers_own(options: dict[str, Any], learned: bool) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILY, prompt, options, opened=heads.head("medusa", learned))
        assert result.output == generate(prompt, heads.NEW)
        assert all(round_.kv.drafter is None for round_ in result.rounds)
        kept += sum(len(round_.path) for round_ in result.decoding)
    # They learned what comes two to five places behind a state, so a wrong shift would be seen here.
    if learned:
        assert kept >= heads.NEW


@pytest.mark.parametrize("rule", ["token", "block"])
def test_greedy_drawn_drafts_write_the_same_text(rule: str) -> None:
    assert run_with(FAMILY, prompts(1)[0], {}, rule).output == generate(prompts(1)[0], heads.NEW)


def test_it_knows_what_it_adds_to_the_memory() -> None:
    drafter = make(FAMILY)[1]
    assert drafter.weight_bytes == 4 * SLOTS * (heads.WIDTH**2 + heads.WIDTH)
    assert drafter.kv_bytes_per_token == 0
    assert drafter.cache_length is None
    assert drafter.needs == Needs(layers=(LAYERS,))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"tree": 6}], ids=str)
@pytest.mark.parametrize("rule", ["token", "match"])
def test_the_law_is_kept(rule: str, options: dict[str, Any]) -> None:
    assert sample_tiny(FAMILY, rule, options, 4000).passed
