"""Early exit: the target's first layers as a drafter, sharing every weight."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from spec_viz.drafters.early_exit import FAMILY, first_layers
from spec_viz.drafters.registry import Setup
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import Outcome
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine.tiny import GREEDY, LAYERS, collect, direct, early_exit, generate, model, never, prompts

TOKENS = prompts(1)[0]


@torch.inference_mode()
def logits_of(each: Any) -> torch.Tensor:
    logits: torch.Tensor = each(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0]
    return logits.float()


@pytest.mark.parametrize("layers", range(1, LAYERS + 1))
def test_the_first_layers_compute_what_a_model_of_so_many_layers_computes(layers: int) -> None:
    torch.testing.assert_close(logits_of(first_layers(model(), layers)), direct(TOKENS, layers))


def test_a_view_shares_every_weight_and_leaves_the_target_whole() -> None:
    before = direct(TOKENS)
    shallow = first_layers(model(), 1)
    assert {id(weight) for weight in shallow.parameters()} <= {id(weight) for weight in model().parameters()}
    logits_of(shallow)
    assert model().config.num_hidden_layers == model().model.config.num_hidden_layers == LAYERS
    assert torch.equal(direct(TOKENS), before)


def test_drafts_are_drawn_from_the_q_that_is_reported() -> None:
    warp = Warp(temperature=1.2, top_k=9)
    drafter = early_exit(2, warp)
    drafter.observe(Outcome((), TOKENS))
    draws = Draws(3, 1, len(TOKENS))
    proposal = drafter.propose(TOKENS, 4, draws)
    assert proposal.drawn == "sampled"
    assert proposal.q is not None
    assert [pick(row, draws.by_round("draft", place)) for place, row in enumerate(proposal.q)] == list(proposal.tokens)
    torch.testing.assert_close(proposal.q.sum(-1), torch.ones(4))


def test_at_temperature_zero_q_is_one_hot_on_the_argmax() -> None:
    drafter = early_exit(2)
    drafter.observe(Outcome((), TOKENS))
    proposal = drafter.propose(TOKENS, 3, Draws(0, 1, len(TOKENS)))
    assert proposal.q is not None
    prefix = list(TOKENS)
    for token, q in zip(proposal.tokens, proposal.q, strict=True):
        assert token == int(direct(prefix, 2)[-1].argmax())
        assert q.nonzero().tolist() == [[token]]
        prefix.append(token)


@pytest.mark.parametrize("layers", [LAYERS, LAYERS + 1])
def test_as_many_layers_as_the_target_s_is_refused(layers: int) -> None:
    setup: Any = Setup(CachedModel(model()), None, lambda _: [], 1, frozenset(), Warp())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"fewer than the target's {LAYERS}"):
        FAMILY.build(setup, FAMILY.options({"layers": layers}))
    assert FAMILY.build(setup, FAMILY.options({"layers": LAYERS - 1})).cache_length == 0


# ---------------------------------------------------------------- the target's own cache (LayerSkip)


def build(prompt: list[int], kv: str, rule: str, warp: Warp, layers: int, width: int = 1) -> tuple[CachedModel, Any]:
    target = CachedModel(model())
    setup: Any = Setup(target, None, lambda _: [], len(prompt), frozenset(), warp, rule)  # type: ignore[arg-type]
    return target, FAMILY.build(setup, FAMILY.options({"layers": layers, "kv": kv, "width": width}))


def decoded(kv: str, rule: str, warp: Warp, layers: int, width: int = 1, seed: int = 0) -> list[Any]:
    results = []
    for prompt in prompts(3):
        target, drafter = build(prompt, kv, rule, warp, layers, width)
        settings = Settings(4, 24, warp, rule, seed)
        results.append(collect(prompt, decode(target, drafter, prompt, settings, never)))
    return results


@pytest.mark.parametrize("layers", range(1, LAYERS))
@pytest.mark.parametrize(
    ("rule", "width"), [("match", 1), ("match", 3), ("token", 1), ("block", 1), ("specinfer", 3), ("kseq", 2)]
)
def test_shared_entries_change_no_draft_and_no_verdict(rule: str, width: int, layers: int) -> None:
    for warp in (Warp(), Warp(1.0)):
        own, shared = (decoded(kv, rule, warp, layers, width) for kv in ("own", "shared"))
        for mine, theirs in zip(own, shared, strict=True):
            assert mine.output == theirs.output
            assert [[(node.id, node.parent, node.status) for node in round_.nodes] for round_ in mine.rounds] == [
                [(node.id, node.parent, node.status) for node in round_.nodes] for round_ in theirs.rounds
            ]


@pytest.mark.parametrize("layers", range(1, LAYERS))
def test_shared_greedy_ids_are_transformers_own(layers: int) -> None:
    for result in decoded("shared", "match", GREEDY, layers):
        assert result.output == generate(result.prompt, 24)
        assert sum(len(round_.path) for round_ in result.decoding) > 0


def test_a_shared_drafter_has_no_cache_of_its_own() -> None:
    for result in decoded("shared", "token", Warp(1.0), 2):
        assert all(round_.kv.drafter is None for round_ in result.rounds)
        for committed, round_ in result.starts():
            before, peak, after = round_.kv.target
            assert (before, peak) == (len(committed) - 1, len(committed) + len(round_.nodes))
            assert after == len(committed) + len(round_.path)
    target, drafter = build(TOKENS, "shared", "token", GREEDY, 1)
    assert drafter.cache_length is None
    assert drafter.kv_bytes_per_token == 0
    assert build(TOKENS, "own", "token", GREEDY, 1)[1].kv_bytes_per_token == kv_bytes_per_token(target.model, 1)


def test_a_length_that_stops_early_shares_all_the_same() -> None:
    @dataclass
    class Brief(Fixed):
        told: int = 0

        def stops(self, q: float) -> bool:
            self.told += 1
            return self.told % 3 == 0

    prompt = prompts(1)[0]
    target = CachedModel(model())
    setup: Any = Setup(target, None, lambda _: [], len(prompt), frozenset(), GREEDY, "match", Brief())  # type: ignore[arg-type]
    drafter = FAMILY.build(setup, FAMILY.options({"layers": 2, "kv": "shared"}))
    settings = Settings(4, 24, GREEDY, "match", length=setup.length)
    result = collect(prompt, decode(target, drafter, prompt, settings, never))
    assert result.output == generate(prompt, 24)
    lengths = {len(round_.nodes) for round_ in result.decoding}
    assert len(lengths) > 1
    assert max(lengths) < 4


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "specinfer"])
def test_shared_entries_keep_the_law(rule: str) -> None:
    assert sample_tiny(FAMILY, rule, {"layers": 2, "kv": "shared"}, 4000).passed
