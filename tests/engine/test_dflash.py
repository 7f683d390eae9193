"""DFlash: its laws against a plain recomputation, what it keeps over rounds, its drafts on the real loop."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters.dflash import FAMILY
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import NOTHING, Needs, Outcome, Proposal, Seen
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import blocks, heads
from tests.engine.heads import make, run_with, start, texts
from tests.engine.tiny import POSITIONS, collect, generate, never, prompts

TEXT = list(texts()[0][:26])
ROUGH = blocks.head("dflash", learned=False)


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


def begun(text: list[int], **more: Any) -> Any:
    return heads.begun(FAMILY, text, opened=ROUGH, **more)


def check_plain(text: list[int], proposal: Proposal) -> None:
    laws = blocks.plain_dflash(blocks.rough("dflash"), text)
    torch.testing.assert_close(raw(proposal), laws[: len(proposal)], atol=2e-5, rtol=1e-4)


# ---------------------------------------------------------------- what it computes


@pytest.mark.parametrize("rule", ["token", "match"])
def test_every_law_is_that_of_a_plain_pass(rule: str) -> None:
    proposal = begun(TEXT, rule=rule, warp=Warp(1.0)).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert (len(proposal), proposal.is_chain) == (4, True)
    check_plain(TEXT, proposal)
    outside = ~heads.maps()["t2d"]
    assert bool(outside.any())
    assert float(raw(proposal)[:, outside].sum()) == 0
    # Slots differ, and so do texts.
    assert float((raw(proposal)[0] - raw(proposal)[1]).abs().max()) > 1e-2
    other = begun(TEXT[:-1], rule=rule, warp=Warp(1.0)).propose(TEXT[:-1], 4, Draws(0, 1, 25))
    assert float((raw(proposal)[0] - raw(other)[0]).abs().max()) > 1e-2


def test_no_draft_depends_on_another() -> None:
    """Other draws, the same laws."""
    first, second = (begun(TEXT, rule="token", warp=Warp(1.0)).propose(TEXT, 4, Draws(s, 1, 26)) for s in (0, 3))
    assert first.tokens != second.tokens
    torch.testing.assert_close(raw(first), raw(second))


def test_a_block_has_no_more_drafts_than_masks_and_may_have_fewer() -> None:
    whole = begun(TEXT, warp=Warp(1.0)).propose(TEXT, 9, Draws(0, 1, 26))
    assert len(whole) == blocks.BLOCK - 1
    for gamma in (1, 2):
        short = begun(TEXT, warp=Warp(1.0)).propose(TEXT, gamma, Draws(0, 1, 26))
        assert short.tokens == whole.tokens[:gamma]
        torch.testing.assert_close(raw(short), raw(whole)[:gamma])


# ---------------------------------------------------------------- over rounds


@pytest.mark.parametrize("seed", range(3))
def test_over_rounds_it_drafts_as_a_fresh_one(seed: int) -> None:
    chance = random.Random(seed)
    target, drafter = make(FAMILY, rule="match", warp=Warp(1.0), opened=ROUGH)
    context = start(target, drafter, prompts(2)[1])
    kept = set()
    for round_ in range(1, 9):
        if chance.random() < 0.25:
            # A round without a draft.
            heads.advance(target, drafter, context, Proposal(), ())
            continue
        proposal = drafter.propose(context, 4, Draws(seed, round_, len(context)))
        # Nothing of the block is kept.
        assert drafter.cache_length == len(context) - 1
        check_plain(context, proposal)
        path = proposal.path(chance.randrange(5) - 1)
        kept.add(len(path))
        heads.advance(target, drafter, context, proposal, path)
    assert len(kept) > 2


def test_the_prompt_is_read_before_the_first_draft() -> None:
    for length in (1, 2, 20):
        target, drafter = make(FAMILY, opened=ROUGH)
        context = start(target, drafter, prompts(1)[0][:length])
        assert drafter.cache_length == length
        assert len(drafter.propose(context, 3, Draws(0, 1, len(context)))) == 3
        drafter.close()
        assert drafter.cache_length == 0


def test_one_head_serves_two_runs_at_once() -> None:
    first, second = TEXT, list(texts()[1][:24])
    one, two = begun(first, warp=Warp(1.0)), begun(second, warp=Warp(1.0))
    two.propose(second, 4, Draws(0, 1, 24))
    check_plain(first, one.propose(first, 4, Draws(0, 1, 26)))


# ---------------------------------------------------------------- drafts


def test_drafts_are_drawn_from_the_q_that_is_reported() -> None:
    draws = Draws(3, 1, len(TEXT))
    proposal = begun(TEXT, rule="token", warp=Warp(temperature=1.2, top_k=9)).propose(TEXT, 4, draws)
    assert proposal.drawn == "sampled"
    assert proposal.q is not None
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)
    assert all(int((row > 0).sum()) == 9 for row in proposal.q)


def test_it_says_what_each_slot_holds() -> None:
    proposal = begun(TEXT, rule="match", warp=Warp(1.0)).propose(TEXT, 4, Draws(0, 1, 26))
    for node, why in enumerate(proposal.why):
        assert why is not None
        best = raw(proposal)[node].topk(3)
        assert why["slot"] == node + 1
        assert [token for token, _ in why["candidates"]] == best.indices.tolist()
        assert [chance for _, chance in why["candidates"]] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert proposal.tokens[node] == why["candidates"][0][0]


def test_nothing_is_drafted_behind_an_end_of_text() -> None:
    free = begun(TEXT).propose(TEXT, 4, Draws(0, 1, 26))
    assert free.tokens[1] not in free.tokens[:1]
    cut = begun(TEXT, ends=[free.tokens[1]]).propose(TEXT, 4, Draws(0, 1, 26))
    assert cut.tokens == free.tokens[:2]


def test_a_length_that_stops_ends_a_chain() -> None:
    class One(Fixed):
        def stops(self, q: float) -> bool:
            return True

    assert len(begun(TEXT, length=One()).propose(TEXT, 4, Draws(0, 1, 26))) == 1


def test_it_knows_what_it_adds_to_the_memory() -> None:
    drafter = begun(TEXT)
    # Two layers of two groups of eight.
    assert drafter.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    d, inner = heads.WIDTH, heads.LLAMA["intermediate_size"]
    layer = 2 * d * d + 2 * d * d // 2 + 3 * d * inner + 2 * d + 2 * 8
    assert drafter.weight_bytes == 4 * (3 * d * d + 2 * layer + 3 * d)
    assert drafter.needs == Needs(layers=heads.FUSED) != NOTHING


# ---------------------------------------------------------------- on the loop


@pytest.mark.parametrize("learned", [True, False])
def test_greedy_ids_are_transformers_own(learned: bool) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILY, prompt, opened=blocks.head("dflash", learned))
        assert result.output == generate(prompt, heads.NEW)
        kept += sum(len(round_.path) for round_ in result.decoding)
    # It learned which tokens follow, each at its place, so a wrong shift would be seen here.
    if learned:
        assert kept >= heads.NEW


@pytest.mark.parametrize("rule", ["token", "block"])
def test_greedy_drawn_drafts_write_the_same_text(rule: str) -> None:
    assert run_with(FAMILY, prompts(1)[0], rule=rule, opened=ROUGH).output == generate(prompts(1)[0], heads.NEW)


def test_a_text_that_ends_and_one_that_fills_the_context() -> None:
    prompt = prompts(1)[0]
    end = generate(prompt, heads.NEW)[9]
    first = generate(prompt, heads.NEW).index(end)
    result = run_with(FAMILY, prompt, opened=blocks.head("dflash"), ends=[end])
    assert (result.output, result.finish) == (generate(prompt, heads.NEW)[: first + 1], "eos")
    target, drafter = make(FAMILY, opened=blocks.head("dflash"))
    whole = collect(prompt, decode(target, drafter, prompt, Settings(4, POSITIONS), never))
    assert whole.finish == "context"
    assert whole.output == generate(prompt, POSITIONS - len(prompt))


def test_a_prompt_of_one_token() -> None:
    assert run_with(FAMILY, [5], opened=blocks.head("dflash")).output == generate([5], heads.NEW)


def test_caches_are_counted_in_the_rounds() -> None:
    result = run_with(FAMILY, prompts(1)[0], opened=ROUGH)
    for committed, round_ in result.starts():
        assert round_.kv.drafter is not None
        before, peak, after = round_.kv.drafter
        # What was kept of a round is taken in at the beginning of the next.
        assert before <= peak == after <= len(committed) - 1


def test_states_of_drafts_that_were_not_kept_are_not_taken_in() -> None:
    target, drafter = make(FAMILY, rule="match", warp=Warp(1.0), opened=ROUGH)
    context = start(target, drafter, prompts(2)[1])
    proposal = drafter.propose(context, 4, Draws(0, 1, len(context)))
    _, shown = target.verify(context[-1], proposal, drafter.needs)
    hidden = {layer: states.clone() for layer, states in shown.hidden.items()}
    for states in hidden.values():
        states[2:] = 1e3
    longer = [*context, proposal.tokens[0], 7]
    target.roll_back(len(context), (0,))
    drafter.observe(Outcome((0,), longer, Seen(None, hidden)))
    check_plain(longer, drafter.propose(longer, 4, Draws(0, 2, len(longer))))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_the_law_is_kept(rule: str) -> None:
    assert sample_tiny(FAMILY, rule, {}, 4000).passed
