"""EAGLE and MTP on the rollout they share: plain recomputation, the cache over rounds, runs on the real loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters.head import Head
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import ROOT, Needs, Proposal
from spec_viz.engine.warp import Warp
from tests.engine import heads
from tests.engine.heads import begun, make, run_with, start, texts
from tests.engine.rollouts import FAMILIES, head, plain_logits
from tests.engine.tiny import GREEDY, LAYERS, POSITIONS, collect, generate, never, prompts

TEXT = list(texts()[0][:26])
STATIC = {"tree": 9, "shape": "static"}
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("eagle", {}),
    ("eagle", {"width": 3}),
    ("eagle", {"tree": 9, "top_k": 3}),
    ("eagle", STATIC),
    ("mtp", {}),
    ("mtp", {"width": 3}),
]


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


def check_plain(opened: Head, text: Sequence[int], proposal: Proposal) -> None:
    """Every node's law is that of transformers' own layer over the true pairs and the head's own path to the node."""
    for node, parent in enumerate(proposal.parents):
        path = [] if parent == ROOT else [proposal.tokens[step] for step in proposal.path(parent)]
        law = plain_logits(opened, text, path).softmax(-1)
        torch.testing.assert_close(raw(proposal)[node], law, atol=2e-5, rtol=1e-3, msg=f"node {node}")


@pytest.mark.parametrize(
    ("name", "rule", "options", "nodes", "deep"),
    [
        ("eagle", "token", {}, 4, 4),
        ("eagle", "without_replacement", {"width": 3}, 12, 4),
        ("eagle", "match", {"tree": 16, "top_k": 3}, 16, 3),
        # Nobody counted guesses further ahead.
        ("eagle", "match", STATIC, 9, 3),
        ("mtp", "token", {}, 4, 4),
        ("mtp", "specinfer", {"width": 3}, 12, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("known", [True, False])
def test_every_law_is_that_of_transformers_own_layer(
    name: str, rule: str, options: dict[str, Any], nodes: int, deep: int, known: bool
) -> None:
    opened = head(name, known)
    drafter = begun(FAMILIES[name], TEXT, options=options, rule=rule, warp=Warp(1.0), opened=opened)
    proposal = drafter.propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert len(proposal) == nodes
    assert max(proposal.depths) >= deep
    check_plain(opened, TEXT, proposal)
    outside = ~heads.maps()["t2d"]
    assert bool(outside.any())
    assert float(raw(proposal)[:, outside].sum()) == 0


@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
def test_a_cache_that_was_rolled_back_drafts_as_a_fresh_one(name: str, options: dict[str, Any]) -> None:
    chance, opened = random.Random(1), head(name, known=False)
    common: dict[str, Any] = {"options": options, "rule": "match", "warp": Warp(1.0), "opened": opened}
    target, drafter = make(FAMILIES[name], **common)
    context = start(target, drafter, prompts(2)[1])
    kept = set()
    for round_ in range(1, 9):
        assert drafter.cache_length <= len(context) - 1
        if chance.random() < 0.25:
            # A round without a draft.
            heads.advance(target, drafter, context, Proposal(), ())
            continue
        draws = Draws(1, round_, len(context))
        proposal = drafter.propose(context, 4, draws)
        fresh = begun(FAMILIES[name], context, **common).propose(context, 4, draws)
        assert (proposal.tokens, proposal.parents) == (fresh.tokens, fresh.parents)
        torch.testing.assert_close(raw(proposal), raw(fresh), atol=2e-5, rtol=1e-3)
        if round_ == 8:
            check_plain(opened, context, proposal)
        wanted = chance.randrange(5)
        path = proposal.path(
            chance.choice([at for at, depth in enumerate(proposal.depths) if depth == wanted] or [ROOT])
        )
        kept.add(len(path))
        heads.advance(target, drafter, context, proposal, path)
        # Nothing of the draft stays; the pairs of what was kept wait for the next round.
        assert drafter.cache_length == len(context) - 2 - len(path)
    assert len(kept) > 2


@pytest.mark.parametrize("name", FAMILIES)
def test_the_prompt_is_read_before_the_first_draft(name: str) -> None:
    for length in (1, 2, 20):
        target, drafter = make(FAMILIES[name], opened=head(name))
        context = start(target, drafter, prompts(1)[0][:length])
        assert drafter.cache_length == length - 1
        assert len(drafter.propose(context, 3, Draws(0, 1, len(context)))) == 3
        assert drafter.cache_length == length + 2
        drafter.close()
        assert drafter.cache_length == 0


@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
def test_nothing_is_drafted_behind_an_end_of_text(name: str, options: dict[str, Any]) -> None:
    family, opened = FAMILIES[name], head(name)
    free = begun(family, TEXT, options=options, opened=opened).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    deepest = max(range(len(free)), key=free.depths.__getitem__)
    end = free.tokens[free.path(deepest)[1]]
    cut = begun(family, TEXT, options=options, ends=[end], opened=opened).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert end in cut.tokens
    assert all(cut.tokens[parent] != end for parent in cut.parents if parent != ROOT)


@pytest.mark.parametrize("name", FAMILIES)
def test_drafts_are_drawn_from_the_q_that_is_reported(name: str) -> None:
    draws = Draws(3, 1, len(TEXT))
    drafter = begun(FAMILIES[name], TEXT, rule="token", warp=Warp(temperature=1.2, top_k=9), opened=head(name))
    proposal = drafter.propose(TEXT, 4, draws)
    assert proposal.drawn == "sampled"
    assert proposal.q is not None
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)
    assert all(int((row > 0).sum()) == 9 for row in proposal.q)


@pytest.mark.parametrize("name", FAMILIES)
def test_it_reads_the_state_behind_the_final_norm_alone_and_knows_its_size(name: str) -> None:
    drafter = make(FAMILIES[name], opened=head(name))[1]
    assert drafter.needs == Needs(layers=(LAYERS,))
    assert drafter.kv_bytes_per_token == 2 * 2 * 8 * 4
    d, inner = heads.WIDTH, heads.LLAMA["intermediate_size"]
    layer = 2 * d * d + 2 * d * (d // 2) + 3 * d * inner
    vectors = {"eagle": 2, "mtp": 5}[name]
    assert drafter.weight_bytes == 4 * (2 * d * d + layer + vectors * d)


# ---------------------------------------------------------------- on the loop


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
def test_greedy_ids_are_transformers_own(name: str, options: dict[str, Any], known: bool) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILIES[name], prompt, options, opened=head(name, known))
        assert result.output == generate(prompt, heads.NEW)
        kept += sum(len(round_.path) for round_ in result.decoding)
    # It learned from the target's states which token comes after next, so a wrong shift would be seen here.
    if known:
        assert kept >= heads.NEW


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("rule", ["token", "block", "specinfer", "without_replacement", "kseq"])
def test_greedy_drawn_drafts_write_the_same_text(name: str, rule: str) -> None:
    for options in ({}, {"width": 2}) if rule not in ("token", "block") else ({},):
        result = run_with(FAMILIES[name], prompts(1)[0], options, rule, opened=head(name))
        assert result.output == generate(prompts(1)[0], heads.NEW)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_draft_of_one_a_prompt_of_one_an_end_and_a_full_context(name: str) -> None:
    prompt = prompts(1)[0]
    end = generate(prompt, 24)[9]
    for text, gamma, ends, reason in (
        (prompt, 1, (), "length"),
        ([5], 4, (), "length"),
        (prompt, 4, (end,), "eos"),
        ([3] * (POSITIONS - 6), 4, (), "context"),
    ):
        target, drafter = make(FAMILIES[name], ends=ends, opened=head(name))
        settings = Settings(gamma, 24, GREEDY, "match", ends=frozenset(ends))
        result = collect(text, decode(target, drafter, text, settings, never))
        assert result.finish == reason
        assert len(result.output) == {"length": 24, "eos": generate(prompt, 24).index(end) + 1, "context": 6}[reason]
        assert result.output == generate(text, len(result.output))
