"""PARD: its slots against transformers' own Llama over mask tokens, its cache over rounds, runs on the real loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.drafters.pard import FAMILY
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import NOTHING, Proposal
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import heads
from tests.engine.heads import PARD, SLOTS, begun, make, run_with, start, texts
from tests.engine.tiny import VOCABULARY, generate, model, prompts

TEXT = list(texts()[0][:26])
MASK = VOCABULARY


@pytest.fixture(scope="module")
def plain_model() -> Any:
    """The same drafter as an ordinary Llama with one more token, the mask: what PARD's authors publish."""
    tensors = dict(heads.head("pard").tensors)
    rows = model().model.embed_tokens.weight.detach().float()
    narrow, widen, mask = (tensors.pop(name) for name in ("narrow.weight", "widen.weight", "mask"))
    output = torch.cat([model().lm_head.weight.detach().float() @ widen, torch.zeros(1, len(mask))])
    tensors |= {"model.embed_tokens.weight": torch.cat([rows @ narrow.T, mask[None]]), "lm_head.weight": output}
    made: Any = LlamaForCausalLM(LlamaConfig(**PARD | {"vocab_size": VOCABULARY + 1}))
    made.load_state_dict({name: tensor for name, tensor in tensors.items() if name not in ("d2t", "t2d")})
    return made.eval()


@torch.inference_mode()
def plain(llama: Any, text: Sequence[int], count: int) -> Tensor:
    """Logits (count, V) of one pass over the text and the masks, without a cache."""
    ids = torch.tensor([[*text, *[MASK] * (count - 1)]])
    logits: Tensor = llama(input_ids=ids, use_cache=False).logits[0, -count:, :VOCABULARY]
    return logits.masked_fill(~heads.maps()["t2d"], -torch.inf)


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


# ---------------------------------------------------------------- what the slots say


@pytest.mark.parametrize("gamma", [1, 2, SLOTS, 8])
def test_each_slot_has_the_law_of_a_plain_pass_over_masks(plain_model: Any, gamma: int) -> None:
    """Slots beyond the trained ones too: they are drafted, of whatever worth."""
    for rule, drawn in (("match", "one_hot"), ("token", "sampled")):
        proposal = begun(FAMILY, TEXT, rule=rule, warp=Warp(0.7)).propose(TEXT, gamma, Draws(0, 1, len(TEXT)))
        assert (proposal.drawn, len(proposal), proposal.is_chain) == (drawn, gamma, True)
        torch.testing.assert_close(raw(proposal), plain(plain_model, TEXT, gamma).softmax(-1), atol=2e-5, rtol=1e-4)


def test_drafts_are_the_slots_argmaxes_or_drawn_each_from_its_own_law(plain_model: Any) -> None:
    logits = plain(plain_model, TEXT, 4)
    chosen = begun(FAMILY, TEXT).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert list(chosen.tokens) == logits.argmax(-1).tolist()
    draws = Draws(5, 1, len(TEXT))
    drawn = begun(FAMILY, TEXT, rule="token", warp=Warp(1.3)).propose(TEXT, 4, draws)
    assert drawn.q is not None
    torch.testing.assert_close(drawn.q, (logits / 1.3).softmax(-1), atol=2e-5, rtol=1e-4)
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(drawn.q)] == list(drawn.tokens)


def test_a_slot_does_not_know_its_left_neighbour() -> None:
    """Other draws, other drafts, the same laws."""
    drafter = [begun(FAMILY, TEXT, rule="token", warp=Warp(3.0)) for _ in range(2)]
    one, two = (each.propose(TEXT, 4, Draws(seed, 1, len(TEXT))) for seed, each in enumerate(drafter))
    assert one.tokens != two.tokens
    torch.testing.assert_close(raw(one), raw(two))


def test_a_draft_is_told_with_the_best_candidates_of_its_slot(plain_model: Any) -> None:
    proposal = begun(FAMILY, TEXT).propose(TEXT, 3, Draws(0, 1, len(TEXT)))
    best = plain(plain_model, TEXT, 3).softmax(-1).topk(3)
    for slot, why in enumerate(proposal.why):
        assert why is not None
        assert why["slot"] == slot + 1
        assert [token for token, _ in why["candidates"]] == best.indices[slot].tolist()
        assert [chance for _, chance in why["candidates"]] == pytest.approx(best.values[slot].tolist(), abs=1e-3)


def test_a_penalty_sees_the_drafts_before(plain_model: Any) -> None:
    warp = Warp(1.0, repetition_penalty=1.6)
    proposal = begun(FAMILY, TEXT, rule="token", warp=warp).propose(TEXT, 4, Draws(2, 1, len(TEXT)))
    logits = plain(plain_model, TEXT, 4)
    law = warp.law(torch.cat([logits, logits[:1]]), TEXT, proposal.tokens)[:-1]
    assert proposal.q is not None
    torch.testing.assert_close(proposal.q, law, atol=2e-5, rtol=1e-4)


def test_drafting_stops_behind_an_end_and_where_the_length_says() -> None:
    free = begun(FAMILY, TEXT).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    end = free.tokens[1]
    cut = begun(FAMILY, TEXT, ends=[end]).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert cut.tokens == free.tokens[: free.tokens.index(end) + 1]
    assert len(cut.why) == len(cut)

    class One(Fixed):
        def stops(self, q: float) -> bool:
            return True

    assert len(begun(FAMILY, TEXT, length=One()).propose(TEXT, 4, Draws(0, 1, len(TEXT)))) == 1


# ---------------------------------------------------------------- its cache over rounds


@pytest.mark.parametrize("seed", range(3))
def test_over_rounds_it_drafts_as_a_plain_pass_does(plain_model: Any, seed: int) -> None:
    chance = random.Random(seed)
    target, drafter = make(FAMILY, rule="token", warp=Warp(1.0))
    context = start(target, drafter, prompts(2)[1])
    kept = set()
    for round_ in range(1, 9):
        if chance.random() < 0.25:
            # A round without a draft: what it committed is read with the next one.
            heads.advance(target, drafter, context, Proposal(), ())
            continue
        count = chance.randrange(1, 6)
        proposal = drafter.propose(context, count, Draws(seed, round_, len(context)))
        torch.testing.assert_close(raw(proposal), plain(plain_model, context, count).softmax(-1), atol=2e-5, rtol=1e-4)
        # All that is committed lies in the cache, and no mask.
        assert drafter.cache_length == len(context)
        accepted = chance.randrange(count + 1)
        kept.add(accepted)
        heads.advance(target, drafter, context, proposal, tuple(range(accepted)))
        assert drafter.cache_length == len(context) - 1 - accepted
    assert len(kept) > 2


@pytest.mark.parametrize("length", [1, 2, 20])
def test_the_prompt_is_read_before_the_first_draft(plain_model: Any, length: int) -> None:
    target, drafter = make(FAMILY)
    context = start(target, drafter, prompts(1)[0][:length])
    assert drafter.cache_length == length
    proposal = drafter.propose(context, 3, Draws(0, 1, len(context)))
    torch.testing.assert_close(raw(proposal), plain(plain_model, context, 3).softmax(-1), atol=2e-5, rtol=1e-4)
    drafter.close()
    assert drafter.cache_length == 0


def test_one_head_serves_two_runs_at_once() -> None:
    first, second = (list(text[:24]) for text in texts())
    one, two = begun(FAMILY, first), begun(FAMILY, second)
    two.propose(second, 4, Draws(0, 1, 24))
    draws = Draws(0, 1, 24)
    assert torch.equal(raw(one.propose(first, 4, draws)), raw(begun(FAMILY, first).propose(first, 4, draws)))


# ---------------------------------------------------------------- on the loop


@pytest.mark.parametrize("learned", [True, False])
def test_greedy_ids_are_transformers_own(learned: bool) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILY, prompt, opened=heads.head("pard", learned))
        assert result.output == generate(prompt, heads.NEW)
        kept += sum(len(round_.path) for round_ in result.decoding)
    # It learned what comes one to four places behind the text, so a wrong shift would be seen here.
    if learned:
        assert kept >= heads.NEW


@pytest.mark.parametrize("rule", ["token", "block"])
def test_greedy_drawn_drafts_write_the_same_text(rule: str) -> None:
    assert run_with(FAMILY, prompts(1)[0], rule=rule).output == generate(prompts(1)[0], heads.NEW)


def test_it_writes_up_to_the_end_of_text_and_of_the_context() -> None:
    prompt = prompts(1)[0]
    end = generate(prompt, heads.NEW)[5]
    assert run_with(FAMILY, prompt, ends=[end]).output == generate(prompt, heads.NEW, eos_token_id=end)
    assert heads.PARD["max_position_embeddings"] == model().config.max_position_embeddings
    near = [*(prompt * 7)[: model().config.max_position_embeddings - 4]]
    result = run_with(FAMILY, near)
    assert result.finish == "context"
    assert result.output == generate(near, 4)


def test_it_knows_what_it_adds_to_the_memory() -> None:
    drafter = make(FAMILY)[1]
    # Keys and values, two layers, two heads of eight, float32.
    assert drafter.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    d, w, inner = heads.WIDTH, PARD["hidden_size"], PARD["intermediate_size"]
    layer = w * (4 + 2 + 2) * 8 + 4 * 8 * w + 3 * w * inner + 2 * w
    assert drafter.weight_bytes == 4 * (2 * layer + w + 2 * d * w + w)
    assert drafter.needs == NOTHING


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_the_law_is_kept(rule: str) -> None:
    assert sample_tiny(FAMILY, rule, {}, 4000).passed
