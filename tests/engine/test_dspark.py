"""DSpark: its laws and confidences against a plain recomputation, the length they choose, drafts on the loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters.dspark import FAMILY
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import Proposal
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_hindsight import sample_hindsight
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import blocks, heads
from tests.engine.heads import make, run_with, start, texts
from tests.engine.tiny import POSITIONS, collect, generate, never, prompts

TEXT = list(texts()[0][:26])
ROUGH = blocks.head("dspark", learned=False)
KINDS: list[dict[str, Any]] = [{}, {"confidence": 30}]


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


def reason(proposal: Proposal, node: int) -> dict[str, Any]:
    why = proposal.why[node]
    assert why is not None
    return why


def begun(text: Sequence[int], **more: Any) -> Any:
    return heads.begun(FAMILY, text, opened=ROUGH, **more)


def check_plain(text: Sequence[int], proposal: Proposal) -> None:
    laws, sure = blocks.plain_dspark(blocks.rough("dspark"), text, proposal.tokens)
    torch.testing.assert_close(raw(proposal), laws, atol=2e-5, rtol=1e-4)
    for node, survival in enumerate(accumulate(sure, mul)):
        assert reason(proposal, node)["confidence"] == pytest.approx(sure[node], abs=1e-4)
        assert reason(proposal, node)["survival"] == pytest.approx(survival, abs=1e-4)


# ---------------------------------------------------------------- what it computes


@pytest.mark.parametrize("rule", ["token", "match"])
def test_every_law_and_confidence_is_that_of_a_plain_pass(rule: str) -> None:
    proposal = begun(TEXT, rule=rule, warp=Warp(1.0)).propose(TEXT, 9, Draws(0, 1, len(TEXT)))
    # The anchor's own slot drafts too.
    assert (len(proposal), proposal.is_chain) == (blocks.BLOCK, True)
    check_plain(TEXT, proposal)
    assert float(raw(proposal)[:, ~heads.maps()["t2d"]].sum()) == 0


def test_a_draft_depends_on_the_one_before_it_and_on_no_other() -> None:
    draws = [Draws(seed, 1, 26) for seed in range(30)]
    found = [begun(TEXT, rule="token", warp=Warp(1.0)).propose(TEXT, 3, each) for each in draws]
    for one in found[1:]:
        torch.testing.assert_close(raw(one)[0], raw(found[0])[0])
        for slot in (1, 2):
            same = one.tokens[slot - 1] == found[0].tokens[slot - 1]
            assert torch.allclose(raw(one)[slot], raw(found[0])[slot], atol=1e-6) == same
    assert len({one.tokens[0] for one in found}) > 2


def test_an_anchor_that_cannot_be_drafted_has_a_row_of_its_own() -> None:
    outside = next(token for token in range(40) if token not in heads.draft_ids().tolist())
    text = [*TEXT[:-1], outside]
    assert blocks.row_of(outside) == len(heads.draft_ids())
    check_plain(text, begun(text, warp=Warp(1.0)).propose(text, 4, Draws(0, 1, 26)))


def test_it_says_what_a_slot_holds_before_and_behind_the_correction() -> None:
    proposal = begun(TEXT, rule="match", warp=Warp(1.0)).propose(TEXT, 4, Draws(0, 1, 26))
    body = blocks.rough("dspark")
    marginals = blocks.wide(blocks.plain_states(body, heads.fused(TEXT[:-1]), TEXT[-1]) @ heads.rows().T)
    for node in range(4):
        why = reason(proposal, node)
        assert why["slot"] == node + 1
        for name, law in (("candidates", marginals[node]), ("corrected", raw(proposal)[node])):
            best = law.topk(3)
            assert [token for token, _ in why[name]] == best.indices.tolist()
            assert [chance for _, chance in why[name]] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert proposal.tokens[node] == why["corrected"][0][0]
    assert any(reason(proposal, node)["candidates"] != reason(proposal, node)["corrected"] for node in range(4))


# ---------------------------------------------------------------- how long a draft is


@pytest.mark.parametrize("percent", [5, 30, 60, 90])
def test_it_ends_before_the_first_slot_that_is_unlikely_to_survive(percent: int) -> None:
    lengths = set()
    for text in (list(each[:cut]) for each in texts() for cut in range(22, 34)):
        draws = Draws(percent, 1, len(text))
        whole = begun(text, rule="token", warp=Warp(1.0)).propose(text, 5, draws)
        _, sure = blocks.plain_dspark(blocks.rough("dspark"), text, whole.tokens)
        survivals = list(accumulate(sure, mul))
        wanted = next((at for at, chance in enumerate(survivals) if chance < percent / 100), 5)
        short = begun(text, rule="token", warp=Warp(1.0), options={"confidence": percent}).propose(text, 5, draws)
        assert short.tokens == whole.tokens[:wanted]
        lengths.add(wanted)
        if wanted < 5 and short.tokens:
            last = reason(short, wanted - 1)
            assert last["stopped_at"] == pytest.approx(survivals[wanted], abs=1e-4)
            assert last["threshold"] == percent / 100
        assert all("stopped_at" not in reason(whole, node) for node in range(5))
    assert len(lengths) > 1


def test_whether_a_token_is_judged_does_not_depend_on_it() -> None:
    """The same beginnings, other draws: what comes behind may differ in length, the slot itself is always there."""
    for slot in range(3):
        seen: dict[tuple[int, ...], set[bool]] = {}
        for seed in range(60):
            proposal = begun(TEXT, rule="token", warp=Warp(1.0), options={"confidence": 30}).propose(
                TEXT, 4, Draws(seed, 1, 26)
            )
            if len(proposal) >= slot:
                seen.setdefault(proposal.tokens[:slot], set()).add(len(proposal) > slot)
        assert all(len(fates) == 1 for fates in seen.values())


@pytest.mark.slow
def test_the_law_is_kept_and_a_length_chosen_in_hindsight_breaks_it() -> None:
    for rule in ("token", "block", "match"):
        for options in KINDS:
            assert sample_tiny(FAMILY, rule, options, 4000).passed
    test = sample_hindsight(4000)
    assert test.p_value is not None
    assert test.p_value < 1e-6


# ---------------------------------------------------------------- over rounds


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_over_rounds_it_drafts_as_a_fresh_one(seed: int, options: dict[str, Any]) -> None:
    chance = random.Random(seed)
    target, drafter = make(FAMILY, options, "token", Warp(1.0), opened=ROUGH)
    context = start(target, drafter, prompts(2)[1])
    kept = set()
    for round_ in range(1, 13):
        proposal = Proposal()
        if chance.random() > 0.2:
            proposal = drafter.propose(context, 4, Draws(seed, round_, len(context)))
            assert drafter.cache_length == len(context) - 1
            if proposal.tokens:
                check_plain(context, proposal)
        path = proposal.path(chance.randrange(len(proposal) + 1) - 1)
        kept.add(len(path))
        heads.advance(target, drafter, context, proposal, path)
    assert len(kept) > 2


def test_drafts_are_drawn_from_the_q_that_is_reported() -> None:
    draws = Draws(3, 1, len(TEXT))
    proposal = begun(TEXT, rule="token", warp=Warp(temperature=1.2, top_k=9)).propose(TEXT, 4, draws)
    assert proposal.q is not None
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)


def test_nothing_is_drafted_behind_an_end_of_text() -> None:
    free = begun(TEXT).propose(TEXT, 4, Draws(0, 1, 26))
    end = free.tokens[1]
    cut = begun(TEXT, ends=[end]).propose(TEXT, 4, Draws(0, 1, 26))
    assert cut.tokens == free.tokens[: free.tokens.index(end) + 1]
    # That is no want of confidence.
    assert "stopped_at" not in reason(cut, len(cut) - 1)


# ---------------------------------------------------------------- on the loop


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("learned", [True, False])
def test_greedy_ids_are_transformers_own(learned: bool, options: dict[str, Any]) -> None:
    kept = 0
    for prompt in prompts(2):
        for rule in ("match", "token"):
            result = run_with(FAMILY, prompt, options, rule, opened=blocks.head("dspark", learned))
            assert result.output == generate(prompt, heads.NEW)
            kept += sum(len(round_.path) for round_ in result.decoding)
    if learned and not options:
        assert kept >= 2 * heads.NEW


def test_a_text_that_ends_and_one_that_fills_the_context() -> None:
    prompt = prompts(1)[0]
    end = generate(prompt, heads.NEW)[9]
    first = generate(prompt, heads.NEW).index(end)
    result = run_with(FAMILY, prompt, opened=blocks.head("dspark"), ends=[end])
    assert (result.output, result.finish) == (generate(prompt, heads.NEW)[: first + 1], "eos")
    target, drafter = make(FAMILY, {"confidence": 20}, opened=blocks.head("dspark"))
    whole = collect(prompt, decode(target, drafter, prompt, Settings(4, POSITIONS), never))
    assert whole.finish == "context"
    assert whole.output == generate(prompt, POSITIONS - len(prompt))


def test_a_prompt_of_one_token_and_drafts_of_one() -> None:
    assert run_with(FAMILY, [5], opened=blocks.head("dspark")).output == generate([5], heads.NEW)
    target, drafter = make(FAMILY, opened=blocks.head("dspark"))
    result = collect([5, 6], decode(target, drafter, [5, 6], Settings(1, heads.NEW), never))
    assert result.output == generate([5, 6], heads.NEW)
    assert {len(round_.nodes) for round_ in result.decoding} <= {0, 1}


def test_it_knows_what_it_adds_to_the_memory() -> None:
    drafter = begun(TEXT)
    dflash = blocks.head("dflash").weight_bytes
    size = len(heads.draft_ids())
    assert drafter.weight_bytes - dflash == 4 * ((2 * size + 1) * blocks.RANK + heads.WIDTH + blocks.RANK + 1)
    assert drafter.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
