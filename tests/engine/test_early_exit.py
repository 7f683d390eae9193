"""Early exit: the target's first layers as a drafter, sharing every weight."""

from typing import Any

import pytest
import torch

from spec_viz.drafters.early_exit import FAMILY, first_layers
from spec_viz.drafters.registry import Setup
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import Outcome
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from tests.engine.tiny import LAYERS, direct, early_exit, model, prompts

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
