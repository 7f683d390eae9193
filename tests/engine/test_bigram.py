"""The bigram table: what it says, where it falls silent, and runs on the real loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch

from spec_viz.drafters.bigram import FAMILY
from spec_viz.drafters.head import Head
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import NOTHING
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine.heads import make, run_with, texts
from tests.engine.tiny import GREEDY, VOCABULARY, generate, prompts

KEPT = 3


def table(rows: dict[int, dict[int, float]], width: int = VOCABULARY) -> Head:
    """A head of these successors; what is left of a row is filled up with id 0 at chance 0."""
    ids = torch.zeros(width, KEPT, dtype=torch.int32)
    chance = torch.zeros(width, KEPT)
    for token, row in rows.items():
        for place, (follower, value) in enumerate(row.items()):
            ids[token, place], chance[token, place] = follower, value
    return Head("bigram", {"method": "bigram", "target": "tiny"}, {"next": ids, "chance": chance})


@cache
def counted() -> Head:
    """What follows what in the target's own greedy texts."""
    rows: dict[int, dict[int, float]] = {}
    for text in texts():
        for before, after in pairwise(text[20:]):
            row = rows.setdefault(before, {})
            if after in row or len(row) < KEPT:
                row[after] = row.get(after, 0) + 1
    return table(rows)


def propose(head: Head, context: Sequence[int], gamma: int = 4, rule: str = "token", **more: Any) -> Any:
    drafter = make(FAMILY, {}, rule, opened=head, **more)[1]
    return drafter.propose(list(context), gamma, Draws(1, 1, len(context)))


HAND = table({5: {0: 0.5, 7: 0.3}, 0: {7: 1.0}, 7: {5: 0.2, 0: 0.2, 9: 0.1}})


def test_it_looks_at_the_last_token_alone() -> None:
    proposal = propose(HAND, [9, 5], warp=Warp(1.0))
    assert proposal.q is not None
    for row, before in zip(proposal.q, (5, *proposal.tokens), strict=False):
        expected = torch.zeros(VOCABULARY)
        # Renormalised over what was kept; a filled-up row must not lose the chance of id 0.
        for follower, chance in {5: {0: 0.625, 7: 0.375}, 0: {7: 1.0}, 7: {5: 0.4, 0: 0.4, 9: 0.2}}[before].items():
            expected[follower] = chance
        torch.testing.assert_close(row, expected)
    draws = Draws(1, 1, 2)
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)
    assert [why["key"] for why in proposal.why] == [[5], *([token] for token in proposal.tokens[:-1])]


def test_a_chosen_draft_is_the_most_frequent_successor() -> None:
    for rule in ("match", "typical"):
        proposal = propose(HAND, [5], rule=rule)
        assert proposal.drawn == "one_hot"
        assert proposal.tokens[:3] == (0, 7, 5) or proposal.tokens[:3] == (0, 7, 0)
    greedy = propose(HAND, [5])
    assert greedy.q is not None
    assert greedy.q.max(-1).values.tolist() == [1.0] * 4


def test_behind_a_token_it_never_saw_it_says_nothing() -> None:
    assert len(propose(HAND, [5, 1])) == 0
    ends_there = propose(table({5: {9: 1.0}}), [5])
    assert ends_there.tokens == (9,)
    drafter = make(FAMILY, opened=HAND)[1]
    assert drafter.cache_length is None
    assert drafter.needs == NOTHING


def test_an_end_and_a_length_end_the_chain() -> None:
    assert propose(table({5: {7: 1.0}, 7: {5: 1.0}}), [5], ends=[7]).tokens == (7,)

    class One(Fixed):
        def stops(self, q: float) -> bool:
            return True

    assert len(propose(HAND, [5], length=One())) == 1


def test_the_warp_is_the_run_s() -> None:
    proposal = propose(HAND, [5], 1, warp=Warp(0.5))
    assert proposal.q is not None
    assert float(proposal.q[0, 0]) == pytest.approx(0.25 / (0.25 + 0.09))
    torch.testing.assert_close(proposal.q_raw[0, [0, 7]], torch.tensor([0.625, 0.375]))
    assert propose(HAND, [7], 1, warp=Warp(1.0, top_k=1)).q.count_nonzero() <= 2


@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_greedy_ids_are_transformers_own(rule: str) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILY, prompt, {}, rule, GREEDY, opened=counted())
        assert result.output == generate(prompt, 24)
        kept += sum(len(round_.path) for round_ in result.decoding)
    assert kept > 0


def test_it_knows_what_it_adds_to_the_memory() -> None:
    drafter = make(FAMILY, opened=HAND)[1]
    assert drafter.weight_bytes == 4 * 2 * VOCABULARY * KEPT
    assert drafter.kv_bytes_per_token == 0


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_the_law_is_kept(rule: str) -> None:
    assert sample_tiny(FAMILY, rule, {}, 4000).passed
