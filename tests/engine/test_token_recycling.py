"""Token recycling: the shape of its tree, what its matrix learns from a pass, and what it drafts from that."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.registry import Setup
from spec_viz.drafters.token_recycling import COSTS, DEEPEST, FAMILY, RANKS, Kept, TokenRecycling, shape
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Outcome, Proposal, Seen, depths
from spec_viz.engine.target import CachedModel
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine.tiny import GREEDY, VOCABULARY, direct, generate, model, prompts, run

DRAWS = Draws(0, 1, 1)


def drafter(memory: dict[str, Any] | None = None, **options: Any) -> Drafter:
    setup = Setup(
        CachedModel(model()),
        None,  # type: ignore[arg-type]
        lambda _: [],
        0,
        frozenset(),
        GREEDY,
        memory={} if memory is None else memory,
    )
    return FAMILY.build(setup, FAMILY.options(options))


def empty(vocabulary: int = 50) -> torch.Tensor:
    return torch.zeros(vocabulary, RANKS, dtype=torch.int32)


def matrix(rows: dict[int, Sequence[int]]) -> torch.Tensor:
    """A matrix in which these tokens are known; ranks that are not given get tokens of their own from 30 on."""
    filled = empty()
    for token, row in rows.items():
        filled[token] = torch.tensor([*row, *range(30, 30 + RANKS - len(row))], dtype=torch.int32)
    return filled


def logits_of(*best: int, vocabulary: int = 50) -> torch.Tensor:
    """A row whose best tokens are these, in this order."""
    row = torch.zeros(vocabulary)
    for rank, token in enumerate(best):
        row[token] = 100.0 - rank
    return row


# ---------------------------------------------------------------- the static tree


def test_at_the_paper_s_size_the_tree_has_nearly_its_shape() -> None:
    by_depth = Counter(depths([parent for parent, _ in shape(80, DEEPEST)]))
    paper = Counter({1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3})
    assert (by_depth - paper).total() <= 2
    assert by_depth[1] == RANKS


@given(st.integers(1, 64), st.integers(1, 8))
def test_every_shape_is_a_tree_of_cheapest_paths(nodes: int, depth: int) -> None:
    tree = shape(nodes, depth)
    parents = [parent for parent, _ in tree]
    assert len(tree) == (min(nodes, RANKS) if depth == 1 else nodes)
    assert all(ROOT <= parent < node for node, parent in enumerate(parents))
    assert max(depths(parents)) <= depth
    assert len(set(tree)) == len(tree)
    cost = {ROOT: 0}
    for node, (parent, rank) in enumerate(tree):
        cost[node] = cost[parent] + COSTS[rank]
        # A better rank under the same parent is there already.
        assert rank == 0 or (parent, rank - 1) in tree[:node]
    assert [cost[node] for node in range(len(tree))] == sorted(cost[node] for node in range(len(tree)))


# ---------------------------------------------------------------- drafts


def test_the_tree_is_filled_by_rank_from_the_matrix() -> None:
    known = matrix({1: [2, 3], 2: [4, 5]})
    proposal = TokenRecycling(known, 3, frozenset()).propose([9, 1], 4, DRAWS)
    # The three cheapest paths are first, first of the first, and first of that; nothing is known behind 4.
    assert shape(3, 4) == ((ROOT, 0), (0, 0), (1, 0))
    assert proposal.tokens == (2, 4)
    assert proposal.parents == (ROOT, 0)
    assert proposal.why == ({"key": [1], "rank": 1}, {"key": [2], "rank": 1})


def test_a_token_that_was_never_seen_gets_no_draft() -> None:
    assert TokenRecycling(empty(), 24, frozenset()).propose([1], 4, DRAWS) == Proposal()


def test_token_nought_is_a_successor_like_any_other() -> None:
    proposal = TokenRecycling(matrix({1: [0, 5]}), 24, frozenset()).propose([1], 1, DRAWS)
    assert proposal.tokens[:2] == (0, 5)


def test_nothing_is_drafted_behind_an_end_of_text_but_behind_a_committed_one() -> None:
    known = matrix({1: [2], 2: [4]})
    ended = TokenRecycling(known, 24, frozenset([2])).propose([1], 4, DRAWS)
    assert 2 in ended.tokens
    assert all(parent == ROOT or ended.tokens[parent] != 2 for parent in ended.parents)
    assert TokenRecycling(known, 24, frozenset([2])).propose([2], 1, DRAWS).tokens[0] == 4


@given(
    st.lists(st.lists(st.integers(0, 49), min_size=RANKS, max_size=RANKS, unique=True), min_size=50, max_size=50),
    st.sets(st.integers(0, 49)),
    st.integers(1, 12),
    st.integers(1, 64),
    st.integers(0, 49),
)
def test_drafts_are_valid_trees_within_their_measure(
    rows: list[list[int]], unknown: set[int], gamma: int, nodes: int, last: int
) -> None:
    known = torch.tensor(rows, dtype=torch.int32)
    known[sorted(unknown)] = 0
    proposal = TokenRecycling(known, nodes, frozenset([7])).propose([last], gamma, DRAWS)
    assert len(proposal) <= nodes
    assert max(proposal.depths, default=0) <= gamma
    assert len(proposal.why) == len(proposal)
    for at in range(ROOT, len(proposal)):
        before = last if at == ROOT else proposal.tokens[at]
        children = proposal.children(at)
        siblings = [proposal.tokens[child] for child in children]
        assert len(set(siblings)) == len(siblings)
        assert not siblings or before not in unknown
        for child, token in zip(children, siblings, strict=True):
            why = proposal.why[child]
            assert why is not None
            assert why["key"] == [before]
            assert rows[before][why["rank"] - 1] == token


# ---------------------------------------------------------------- what a pass teaches


def test_after_the_prefill_the_prompt_s_last_token_is_known() -> None:
    learnt = empty()
    made = TokenRecycling(learnt, 24, frozenset())
    made.observe(Outcome((), [3, 1, 2], Seen(logits_of(2, 5, 6)[None])))
    assert learnt[1, :3].tolist() == [2, 5, 6]
    assert not learnt[[token for token in range(50) if token != 1]].any()


def test_rejected_drafts_teach_as_much_as_kept_ones_and_the_last_row_of_a_token_counts() -> None:
    learnt = matrix({1: [2, 3], 2: [1]})
    made = TokenRecycling(learnt, 4, frozenset())
    proposal = made.propose([9, 1], 3, DRAWS)
    # 2, behind it 1, behind that 2 again, and 3 beside the first.
    assert proposal.tokens == (2, 1, 2, 3)
    rows = torch.stack(
        [logits_of(3, 10), logits_of(11, 12), logits_of(13, 14), logits_of(15, 16), logits_of(17, 18)],
    )
    made.observe(Outcome((3,), [9, 1, 3, 17], Seen(rows)))
    assert learnt[1, :2].tolist() == [13, 14]
    assert learnt[2, :2].tolist() == [15, 16]
    assert learnt[3, :2].tolist() == [17, 18]


def test_a_round_without_a_draft_teaches_its_one_token() -> None:
    learnt = empty()
    made = TokenRecycling(learnt, 4, frozenset())
    made.observe(Outcome((), [3, 1, 2], Seen(logits_of(2)[None])))
    made.observe(Outcome((), [3, 1, 2, 8], Seen(logits_of(8, 9)[None])))
    assert learnt[2, :2].tolist() == [8, 9]


def test_the_matrix_outlives_the_run_in_the_visitor_s_memory() -> None:
    memory: dict[str, Any] = {}
    prompt = prompts(1)[0]
    first = run(prompt, drafter(memory))
    kept = memory["token_recycling"]
    assert kept.rows.dtype == torch.int32
    assert kept.matrix().shape == (VOCABULARY, RANKS)
    second = run(prompt, drafter(memory))
    assert second.output == first.output == run(prompt, drafter()).output
    assert len(second.rounds) < len(first.rounds)


def test_a_memory_of_another_vocabulary_is_not_used() -> None:
    other = Kept(5, torch.arange(5), torch.ones(5, RANKS, dtype=torch.int32))
    made = drafter({"token_recycling": other})
    assert made.propose([3, 1], 4, DRAWS).tokens == ()


def test_only_what_is_known_is_kept_between_runs() -> None:
    memory: dict[str, Any] = {}
    learnt = matrix({1: [2, 3], 7: [4]})
    TokenRecycling(learnt, 4, frozenset(), memory).close()
    kept = memory["token_recycling"]
    assert kept.tokens.tolist() == [1, 7]
    assert torch.equal(kept.matrix(), learnt)


def test_the_matrix_holds_the_target_s_own_best_in_order() -> None:
    prompt = prompts(2)[1]
    memory: dict[str, Any] = {}
    run(prompt, drafter(memory), max_new_tokens=1)
    best = direct(prompt)[-1].topk(RANKS).indices
    assert memory["token_recycling"].matrix()[prompt[-1]].tolist() == best.tolist()


@pytest.mark.parametrize("gamma", [1, 4, 7])
def test_greedy_writes_what_transformers_writes(gamma: int) -> None:
    kept = 0
    for prompt in prompts(3):
        result = run(prompt, drafter(), gamma=gamma)
        assert result.output == generate(prompt, 24)
        kept += sum(len(round_.path) for round_ in result.rounds)
    assert kept > 0


def test_the_law_is_the_target_s() -> None:
    assert sample_tiny(FAMILY, "match", {}, 1_500).passed
