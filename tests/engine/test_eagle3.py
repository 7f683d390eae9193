"""EAGLE-3: its states against a plain recomputation, its cache over rounds, its chains and trees on the real loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters.eagle3 import FAMILY, Eagle3
from spec_viz.drafters.registry import OptionError, Setup
from spec_viz.drafters.rollout import place
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import NOTHING, ROOT, Outcome, Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import decode_tiny, sample_tiny, tiny_options
from tests.engine import heads
from tests.engine.heads import begun, make, run_with, start, texts
from tests.engine.tiny import GREEDY, generate, model, prompts

TEXT = list(texts()[0][:26])
KINDS: list[dict[str, Any]] = [{}, {"width": 3}, {"tree": 9, "top_k": 3}]


@pytest.fixture(scope="module")
def body() -> Eagle3:
    """The weights as the head's file has them, in plain modules."""
    made = Eagle3(heads.config(), len(heads.FUSED))
    made.load_state_dict(heads.eagle3_body().state_dict())
    return made.requires_grad_(False)


def raw(proposal: Proposal) -> Tensor:
    assert proposal.q_raw is not None
    return proposal.q_raw


def path_tokens(proposal: Proposal, node: int) -> list[int]:
    return [proposal.tokens[step] for step in proposal.path(node)]


def check_plain(body: Eagle3, text: Sequence[int], proposal: Proposal) -> None:
    """Every node's law is that of a plain pass over the true pairs and the head's own path above the node."""
    for node, parent in enumerate(proposal.parents):
        path = [] if parent == ROOT else path_tokens(proposal, parent)
        law = heads.plain_eagle3(body, text, path).softmax(-1)
        torch.testing.assert_close(raw(proposal)[node], law, atol=2e-5, rtol=1e-4, msg=f"node {node}")


# ---------------------------------------------------------------- what it computes


@pytest.mark.parametrize(
    ("rule", "options", "nodes"),
    [
        ("token", {}, 4),
        ("match", {}, 4),
        ("match", {"width": 3}, 12),
        ("specinfer", {"width": 3}, 12),
        ("match", {"tree": 9, "top_k": 3}, 9),
    ],
    ids=str,
)
def test_every_law_is_that_of_a_plain_pass(body: Eagle3, rule: str, options: dict[str, Any], nodes: int) -> None:
    drafter = begun(FAMILY, TEXT, options=options, rule=rule, warp=Warp(1.0))
    proposal = drafter.propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert (len(proposal), max(proposal.depths)) == (nodes, 4)
    check_plain(body, TEXT, proposal)
    outside = ~heads.maps()["t2d"]
    assert bool(outside.any())
    assert float(raw(proposal)[:, outside].sum()) == 0


def test_positions_go_by_depth_and_nodes_see_their_ancestors() -> None:
    mask, positions = place(5, (ROOT, ROOT, 0, 2, 1), 3, torch.device("cpu"))
    assert positions.tolist() == [[6, 7, 6]]
    sees = (mask == 0).int().tolist()
    assert sees == [[1] * 5 + [1, 0, 1, 0, 0], [1] * 5 + [1, 0, 1, 1, 0], [1] * 5 + [0, 1, 0, 0, 1]]
    mask, positions = place(2, (ROOT, 0, 1), 3, torch.device("cpu"))
    assert positions.tolist() == [[2, 3, 4]]
    assert (mask == 0).int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


# ---------------------------------------------------------------- its cache over rounds


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_cache_that_was_rolled_back_drafts_as_a_fresh_one(body: Eagle3, options: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    target, drafter = make(FAMILY, options, "match", Warp(1.0))
    context = start(target, drafter, prompts(2)[1])
    kept = set()
    for round_ in range(1, 9):
        assert drafter.cache_length <= len(context) - 1
        if chance.random() < 0.25:
            # A round without a draft.
            heads.advance(target, drafter, context, Proposal(), ())
            continue
        draws = Draws(seed, round_, len(context))
        proposal = drafter.propose(context, 4, draws)
        fresh = begun(FAMILY, context, options=options, rule="match", warp=Warp(1.0)).propose(context, 4, draws)
        assert (proposal.tokens, proposal.parents) == (fresh.tokens, fresh.parents)
        torch.testing.assert_close(raw(proposal), raw(fresh), atol=2e-5, rtol=1e-4)
        if round_ == 8:
            check_plain(body, context, proposal)
        wanted = chance.randrange(5)
        path = proposal.path(
            chance.choice([at for at, depth in enumerate(proposal.depths) if depth == wanted] or [ROOT])
        )
        kept.add(len(path))
        heads.advance(target, drafter, context, proposal, path)
        # Nothing of the draft stays; the pairs of what was kept wait for the next round.
        assert drafter.cache_length == len(context) - 2 - len(path)
    assert len(kept) > 2


def test_states_of_the_draft_are_not_kept_even_where_the_tokens_were() -> None:
    """Without the true states of kept drafts, the next round's law is another."""
    target, drafter = make(FAMILY, {}, "match", Warp(1.0))
    context = start(target, drafter, prompts(2)[1])
    proposal = drafter.propose(context, 4, Draws(0, 1, len(context)))
    before = drafter._model
    _, shown = target.verify(context[-1], proposal, drafter.needs)
    wrong = {layer: torch.zeros_like(states) for layer, states in shown.hidden.items()}
    target.roll_back(len(context), (0, 1))
    longer = [*context, *proposal.tokens[:2], 7]
    drafter.observe(Outcome((0, 1), longer, replace(shown, hidden=wrong)))
    assert drafter._model is before
    after = drafter.propose(longer, 1, Draws(0, 2, len(longer)))
    fresh = begun(FAMILY, longer, rule="match", warp=Warp(1.0)).propose(longer, 1, Draws(0, 2, len(longer)))
    assert float((raw(after) - raw(fresh)).abs().max()) > 1e-2


def test_the_prompt_is_read_before_the_first_draft() -> None:
    for length in (1, 2, 20):
        target, drafter = make(FAMILY)
        context = start(target, drafter, prompts(1)[0][:length])
        assert drafter.cache_length == length - 1
        proposal = drafter.propose(context, 3, Draws(0, 1, len(context)))
        assert drafter.cache_length == length + 2
        assert len(proposal) == 3
        drafter.close()
        assert drafter.cache_length == 0


def test_one_head_serves_many_runs_and_two_at_once() -> None:
    alone = [run_with(FAMILY, prompt, options).rounds for prompt in prompts(2) for options in KINDS]
    again = [run_with(FAMILY, prompt, options).rounds for prompt in prompts(2) for options in KINDS]
    for first, second in zip(alone, again, strict=True):
        assert [round_.nodes for round_ in first] == [round_.nodes for round_ in second]
    one, two = (begun(FAMILY, list(text[:24]), warp=Warp(1.0)) for text in texts())
    lone = begun(FAMILY, list(texts()[0][:24]), warp=Warp(1.0))
    two.propose(list(texts()[1][:24]), 4, Draws(0, 1, 24))
    draws = Draws(0, 1, 24)
    assert torch.equal(
        raw(one.propose(list(texts()[0][:24]), 4, draws)), raw(lone.propose(list(texts()[0][:24]), 4, draws))
    )


# ---------------------------------------------------------------- drafts


def test_drafts_are_drawn_from_the_q_that_is_reported() -> None:
    warp = Warp(temperature=1.2, top_k=9)
    draws = Draws(3, 1, len(TEXT))
    proposal = begun(FAMILY, TEXT, rule="token", warp=warp).propose(TEXT, 4, draws)
    assert proposal.drawn == "sampled"
    assert proposal.q is not None
    assert [pick(row, draws.by_round("draft", at)) for at, row in enumerate(proposal.q)] == list(proposal.tokens)
    assert all(int((row > 0).sum()) == 9 for row in proposal.q)


def test_a_tree_is_the_best_by_its_own_probabilities() -> None:
    drafter = begun(FAMILY, TEXT, options={"tree": 9, "top_k": 3}, warp=Warp(0.8))
    proposal = drafter.propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert proposal.drawn == "one_hot"
    law = (raw(proposal).log() / 0.8).softmax(-1)
    for node, token in enumerate(proposal.tokens):
        chance = 1.0
        for step in proposal.path(node):
            chance *= float(law[step][proposal.tokens[step]])
        why = proposal.why[node]
        assert why is not None
        assert why["path_q"] == pytest.approx(chance, abs=2e-6)
        assert int((law[node] > law[node][token]).sum()) + 1 == why["rank"]
    # A tree of one node a depth is the greedy chain.
    chain = begun(FAMILY, TEXT).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    thin = begun(FAMILY, TEXT, options={"tree": 4, "top_k": 1}).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
    assert (thin.tokens, thin.parents) == (chain.tokens, chain.parents)


def test_a_penalty_sees_each_node_s_own_path(body: Eagle3) -> None:
    warp = Warp(1.0, repetition_penalty=1.6)
    proposal = begun(FAMILY, TEXT, options={"tree": 12, "top_k": 3}, warp=warp).propose(TEXT, 4, Draws(0, 1, 26))
    chances = {ROOT: 1.0}
    for node, parent in enumerate(proposal.parents):
        path = [] if parent == ROOT else path_tokens(proposal, parent)
        law = warp.law(heads.plain_eagle3(body, TEXT, path)[None], [*TEXT, *path])[0]
        chances[node] = chances[parent] * float(law[proposal.tokens[node]])
        why = proposal.why[node]
        assert why is not None
        assert why["path_q"] == pytest.approx(chances[node], abs=1e-5)


def test_nothing_is_drafted_behind_an_end_of_text() -> None:
    for options in KINDS:
        free = begun(FAMILY, TEXT, options=options).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
        end = free.tokens[free.path(len(free) - 1)[1]]
        cut = begun(FAMILY, TEXT, options=options, ends=[end]).propose(TEXT, 4, Draws(0, 1, len(TEXT)))
        assert end in cut.tokens
        assert all(cut.tokens[parent] != end for parent in cut.parents if parent != ROOT)


def test_a_length_that_stops_ends_a_chain() -> None:
    class Two(Fixed):
        def __init__(self) -> None:
            self.asked = 0

        def stops(self, q: float) -> bool:
            self.asked += 1
            return self.asked == 2

    assert len(begun(FAMILY, TEXT, length=Two()).propose(TEXT, 4, Draws(0, 1, len(TEXT)))) == 2


@pytest.mark.parametrize(
    "rule", ["token", "block", "specinfer", "without_replacement", "kseq", "ensemble", "synthetic"]
)
def test_a_tree_for_a_rule_that_cannot_judge_it_is_refused(rule: str) -> None:
    with pytest.raises(OptionError, match="use match, typical") as refusal:
        make(FAMILY, {"tree": 4}, rule)
    assert refusal.value.key == "error.tree_rule"
    assert make(FAMILY, {"tree": 4}, "typical")[1].needs.layers == heads.FUSED


def test_a_run_without_heads_is_refused() -> None:
    setup: Any = Setup(CachedModel(model()), None, lambda _: [], 1, frozenset(), GREEDY)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a trained head"):
        FAMILY.build(setup, FAMILY.options({}))


def test_it_knows_what_it_adds_to_the_memory() -> None:
    drafter = make(FAMILY)[1]
    assert drafter.kv_bytes_per_token == 2 * 2 * 8 * 4
    d, layer = heads.WIDTH, heads.LLAMA["intermediate_size"]
    matrices = 3 * d * d + 2 * d * (d + 2 * d // 2) + d * d + 3 * d * layer
    assert drafter.weight_bytes == 4 * (matrices + 4 * d)
    assert drafter.needs == replace(NOTHING, layers=heads.FUSED)


# ---------------------------------------------------------------- on the loop


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_greedy_ids_are_transformers_own(options: dict[str, Any], learned: bool) -> None:
    kept = 0
    for prompt in prompts(2):
        result = run_with(FAMILY, prompt, options, opened=heads.head("eagle3", learned))
        assert result.output == generate(prompt, heads.NEW)
        kept += sum(len(round_.path) for round_ in result.decoding)
    # It learned from the target's states which token comes after next, so a wrong shift would be seen here.
    if learned:
        assert kept >= heads.NEW


@pytest.mark.parametrize("rule", ["token", "block", "specinfer", "without_replacement", "kseq"])
def test_greedy_drawn_drafts_write_the_same_text(rule: str) -> None:
    for options in ({}, {"width": 2}) if rule not in ("token", "block") else ({},):
        assert run_with(FAMILY, prompts(1)[0], options, rule).output == generate(prompts(1)[0], heads.NEW)


def test_caches_are_counted_in_the_rounds() -> None:
    result = run_with(FAMILY, prompts(1)[0], {"tree": 9, "top_k": 3})
    for committed, round_ in result.starts():
        assert round_.kv.drafter is not None
        before, peak, after = round_.kv.drafter
        # Nothing is fed in a round without a draft, nothing of a draft is kept.
        assert after == (len(committed) - 1 if round_.nodes else before)
        assert peak >= after >= before


@pytest.mark.parametrize("rule", ["match", "specinfer"])
def test_trees_are_really_drafted_in_the_law_s_world(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = set()
    whole = FAMILY.build

    def build(setup: Setup, options: Any) -> Any:
        drafter: Any = whole(setup, options)
        propose = drafter.propose

        def watched(*args: Any) -> Proposal:
            proposal: Proposal = propose(*args)
            shapes.add(proposal.is_chain)
            return proposal

        drafter.propose = watched
        return drafter

    options = tiny_options(FAMILY, rule, {"tree": 6, "top_k": 2})
    for seed in range(10):
        decode_tiny(replace(FAMILY, build=build), rule, options, seed)
    assert False in shapes


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"tree": 6, "top_k": 2}], ids=str)
@pytest.mark.parametrize("rule", ["token", "match", "without_replacement"])
def test_the_law_is_kept(rule: str, options: dict[str, Any]) -> None:
    assert sample_tiny(FAMILY, rule, options, 4000).passed
