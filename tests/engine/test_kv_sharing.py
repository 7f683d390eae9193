"""KV sharing: its steps against plain attention over transformers' own cache, over rounds, and on the real loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from spec_viz.drafters.early_exit import SharedDrafter
from spec_viz.drafters.kv_sharing import FAMILY, KvSharing
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import ROOT, Needs, Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine import heads
from tests.engine.heads import ASKED, ASKING, make, run_with, start, texts
from tests.engine.tiny import LAYERS, VOCABULARY, generate, model, prompts

TEXT = list(texts()[0][:26])
KINDS: list[dict[str, Any]] = [{}, {"width": 3}]


@torch.no_grad()
def plain(text: Sequence[int], path: Sequence[int]) -> Tensor:
    """Logits (V,) behind a text and a drafted path: a single query at a time, head by head, over the text but its last.

    All queries stand at the position of the text's last token.
    """
    body: KvSharing = heads.kv_sharing_body()
    keys, values = (each[0].repeat_interleave(2, 0) for each in heads.asked_entries(text[:-1]))
    hidden = heads.seen(text[:-1], (LAYERS,))[LAYERS][-1].float()
    cos, sin = body.angles(hidden[None, None], torch.tensor([[len(text) - 1]]))
    for token in [text[-1], *path]:
        embedded = model().model.embed_tokens.weight[token].float()
        state = body.pre_projection.weight @ torch.cat([embedded, hidden])
        for layer in body.layers:
            asking: Any = layer.self_attn
            normed = layer.input_layernorm(state)  # type: ignore[operator]
            queries = (asking.q_proj.weight @ normed).view(1, 4, 1, 8)
            queries = apply_rotary_pos_emb(queries, queries, cos, sin)[0][0, :, 0]
            found = [(keys[head] @ queries[head] / 8**0.5).softmax(-1) @ values[head] for head in range(len(queries))]
            state = state + asking.o_proj.weight @ torch.cat(found)
            state = state + layer.mlp(layer.post_attention_layernorm(state))  # type: ignore[operator]
        hidden = body.post_projection.weight @ body.norm(state)
    logits = torch.full((VOCABULARY,), -torch.inf)
    logits[heads.draft_ids()] = heads.rows() @ hidden
    return logits


def begun(text: Sequence[int], **more: Any) -> Any:
    """A drafter behind the prefill of a text but its last token, which the target is yet to be fed."""
    target, drafter = make(FAMILY, **more)
    context = start(target, drafter, text[:-1])
    context[-1] = text[-1]
    return drafter


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


def check_plain(text: Sequence[int], proposal: Proposal) -> None:
    for node, parent in enumerate(proposal.parents):
        path = [] if parent == ROOT else [proposal.tokens[step] for step in proposal.path(parent)]
        law = plain(text, path).softmax(-1)
        torch.testing.assert_close(raw(proposal)[node], law, atol=2e-5, rtol=1e-4, msg=f"node {node}")


# ---------------------------------------------------------------- what it computes


@pytest.mark.parametrize(
    ("rule", "options", "nodes"),
    [("token", {}, 4), ("match", {}, 4), ("match", {"width": 3}, 12), ("specinfer", {"width": 3}, 12)],
    ids=str,
)
def test_every_law_is_that_of_plain_attention(rule: str, options: dict[str, Any], nodes: int) -> None:
    proposal = begun(TEXT, options=options, rule=rule, warp=Warp(1.0)).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert (len(proposal), max(proposal.depths)) == (nodes, 4)
    check_plain(TEXT, proposal)


def test_drafts_are_drawn_from_the_q_that_is_reported() -> None:
    draws = Draws(3, 1, len(TEXT))
    proposal = begun(TEXT, rule="token", warp=Warp(1.2, top_k=9)).propose(TEXT, 4, draws)
    assert proposal.drawn == "sampled"
    assert proposal.q is not None
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)
    assert all(int((row > 0).sum()) == 9 for row in proposal.q)


def test_a_length_that_stops_ends_a_chain_and_so_does_an_end_of_text() -> None:
    free = begun(TEXT).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    end = free.tokens[1]
    assert (
        begun(TEXT, ends=[end]).propose(TEXT, 4, Draws(0, 1, len(TEXT))).tokens
        == (free.tokens[: free.tokens.index(end) + 1])
    )

    class One(Fixed):
        def stops(self, q: float) -> bool:
            return True

    assert len(begun(TEXT, length=One()).propose(TEXT, 4, Draws(0, 1, len(TEXT)))) == 1


# ---------------------------------------------------------------- the target's cache over rounds


def test_the_target_shows_its_own_entries_and_copies_nothing() -> None:
    target = CachedModel(model())
    target.feed(TEXT, keep=1)
    keys, values = target.entries(ASKED)
    for ours, theirs in zip((keys, values), heads.asked_entries(TEXT), strict=True):
        torch.testing.assert_close(ours.float(), theirs)
    again, _ = target.entries(ASKED)
    assert keys.data_ptr() == again.data_ptr()
    target.roll_back(10)
    assert target.entries(ASKED)[0].shape == (1, 2, 10, 8)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_over_rounds_it_asks_what_is_committed_and_nothing_else(options: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    target, drafter = make(FAMILY, options, "match", Warp(1.0))
    context = start(target, drafter, prompts(2)[1])
    kept = set()
    for round_ in range(1, 8):
        if chance.random() < 0.25:
            heads.advance(target, drafter, context, Proposal(), ())
            continue
        held = [each.clone() for each in target.entries(ASKED)]
        proposal = drafter.propose(context, 4, Draws(seed, round_, len(context)))
        check_plain(context, proposal)
        # Asking changes nothing in the target's cache.
        assert target.length == len(context) - 1
        assert all(torch.equal(one, other) for one, other in zip(held, target.entries(ASKED), strict=True))
        wanted = chance.randrange(5)
        path = proposal.path(
            chance.choice([at for at, depth in enumerate(proposal.depths) if depth == wanted] or [ROOT])
        )
        kept.add(len(path))
        heads.advance(target, drafter, context, proposal, path)
        assert drafter.cache_length is None
    assert len(kept) > 1


@pytest.mark.parametrize("length", [1, 2, 20])
def test_it_drafts_behind_a_prompt_of_any_length(length: int) -> None:
    target, drafter = make(FAMILY)
    context = start(target, drafter, prompts(1)[0][:length])
    check_plain(context, drafter.propose(context, 3, Draws(0, 1, len(context))))
    drafter.close()


# ---------------------------------------------------------------- on the loop


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_greedy_ids_are_transformers_own(options: dict[str, Any], learned: bool) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILY, prompt, options, opened=heads.head("kv_sharing", learned))
        assert result.output == generate(prompt, heads.NEW)
        assert all(round_.kv.drafter is None for round_ in result.rounds)
        kept += sum(len(round_.path) for round_ in result.decoding)
    # It learned which tokens come after the next, so a wrong shift would be seen here.
    if learned:
        assert kept >= heads.NEW


@pytest.mark.parametrize("rule", ["token", "block", "specinfer", "without_replacement", "kseq"])
def test_greedy_drawn_drafts_write_the_same_text(rule: str) -> None:
    for options in KINDS if rule not in ("token", "block") else ({},):
        assert run_with(FAMILY, prompts(1)[0], options, rule).output == generate(prompts(1)[0], heads.NEW)


def test_it_writes_up_to_the_end_of_text_and_of_the_context() -> None:
    prompt = prompts(1)[0]
    end = generate(prompt, heads.NEW)[5]
    assert run_with(FAMILY, prompt, ends=[end]).output == generate(prompt, heads.NEW, eos_token_id=end)
    near = [*(prompt * 7)[: model().config.max_position_embeddings - 4]]
    result = run_with(FAMILY, near)
    assert result.finish == "context"
    assert result.output == generate(near, 4)


def test_it_adds_weights_to_the_memory_and_no_entries() -> None:
    drafter = make(FAMILY)[1]
    assert drafter.kv_bytes_per_token == 0
    d, w, inner = heads.WIDTH, ASKING["hidden_size"], ASKING["intermediate_size"]
    layer = 2 * w * 4 * 8 + 3 * w * inner + 2 * w
    assert drafter.weight_bytes == 4 * (2 * d * w + 2 * layer + w + w * d)
    assert drafter.needs == Needs(layers=(LAYERS,))
    # The batch refuses it by this.
    assert isinstance(drafter, SharedDrafter)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "match", "without_replacement"])
def test_the_law_is_kept(rule: str) -> None:
    assert sample_tiny(FAMILY, rule, {}, 4000).passed
