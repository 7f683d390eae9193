"""Linear layers of codes against what they stand for, and a model made of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from spec_viz.engine.pack import can_pack, pack
from spec_viz.engine.target import CachedModel
from spec_viz.models import quantise as module
from spec_viz.models.load import Loaded
from spec_viz.models.quantise import (
    GROUP,
    Int4Linear,
    Int8Bfloat16Linear,
    Int8Linear,
    QuantisedLinear,
    bytes_held,
    can_run,
    quantise,
)
from tests.law.test_run import loaded


def linear(inputs: int = 2 * GROUP, outputs: int = 48, bias: bool = True) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)


def rows(count: int, inputs: int = 2 * GROUP) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(2))


def whole(layer: QuantisedLinear) -> torch.Tensor:
    return layer.weight(0, layer.out_features)


def test_eight_bits_are_within_half_a_step_of_their_row() -> None:
    given = linear().weight
    given[3] *= 100
    layer = Int8Linear(given, None)
    step = given.abs().amax(1, keepdim=True) / 127
    assert ((whole(layer) - given).abs() <= step * 0.5001).all()
    assert layer.codes.abs().max() == 127


def test_four_bits_are_within_half_a_step_of_their_group() -> None:
    given = linear().weight
    given[3, :GROUP] *= 100
    layer = Int4Linear(given, None)
    groups = given.view(48, 2, GROUP)
    step = ((groups.amax(-1) - groups.amin(-1)) / 15).repeat_interleave(GROUP, 1)
    off = (whole(layer) - given).abs()
    assert (off <= step * 0.5 + 16 * step * 2**-11).all()
    # The second group does not suffer from the first.
    assert off[3, GROUP:].max() < off[3, :GROUP].max() / 10
    assert layer.codes.numel() == given.numel() // 2


def test_a_row_of_zeros_stays_one() -> None:
    for kind in (Int8Linear, Int4Linear):
        assert not whole(kind(torch.zeros(2, GROUP), None)).any()


@pytest.mark.parametrize("kind", [Int8Linear, Int4Linear])
def test_the_product_is_that_of_the_weights_it_stands_for(
    kind: type[QuantisedLinear], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = linear()
    layer = kind(given.weight, given.bias)
    # Blocks of seven rows, of which the last is shorter.
    monkeypatch.setattr(module, "BLOCK", 7 * layer.in_features)
    expected = nn.functional.linear(rows(6).view(2, 3, -1), whole(layer), given.bias)
    torch.testing.assert_close(layer(rows(6).view(2, 3, -1)), expected)


@pytest.mark.skipif(not can_run("int8_bfloat16"), reason="this build of torch has no such kernel")
def test_the_kernel_multiplies_the_same_codes_and_no_row_hangs_on_its_neighbours() -> None:
    given = linear()
    exact, fast = Int8Linear(given.weight, given.bias), Int8Bfloat16Linear(given.weight, given.bias)
    torch.testing.assert_close(fast(rows(9)), exact(rows(9)), atol=0.02, rtol=0.02)
    together = fast(rows(61))
    assert all(torch.equal(fast(rows(61)[at : at + n])[0], together[at]) for at in (0, 7, 30) for n in (1, 5, 9))


def test_rows_that_cannot_be_cut_into_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be cut into groups"):
        Int4Linear(torch.ones(2, GROUP + 8), None)


# ---------------------------------------------------------------- a whole model


def small() -> Loaded:
    """The tests' tiny model with rows that are one group wide."""
    from dataclasses import replace

    from transformers import LlamaConfig, LlamaForCausalLM

    config = copy.copy(loaded().model.config)
    config = LlamaConfig(**{**config.to_dict(), "hidden_size": GROUP, "intermediate_size": 2 * GROUP})
    config.head_dim = 16
    torch.manual_seed(4)
    model: Any = LlamaForCausalLM(config)
    model.tie_weights()
    model.eval().requires_grad_(False)
    return replace(loaded(), model=model)


TOKENS = list(range(5, 25))


def logits(each: Loaded) -> torch.Tensor:
    return CachedModel(each.model).feed(TOKENS, keep=len(TOKENS))


@pytest.mark.parametrize(("weights", "bits"), [("int8", 8), ("int4", 4)])
def test_every_linear_layer_is_replaced_and_everything_else_shared(weights: Any, bits: int) -> None:
    given = small()
    before = logits(given)
    made = quantise(given, weights)
    kinds = {type(each) for each in made.model.modules()}
    assert nn.Linear not in kinds
    assert torch.equal(logits(given), before)
    assert made.model.get_input_embeddings().weight is given.model.get_input_embeddings().weight
    change = (logits(made) - before).norm() / before.norm()
    assert 0 < change < (0.05 if weights == "int8" else 0.5)
    linear_weights = sum(each.weight.numel() for each in given.model.modules() if isinstance(each, nn.Linear))
    others = {
        id(each): each.nbytes
        for name, each in given.model.named_parameters()
        if "proj" not in name and "head" not in name
    }
    outputs = sum(each.out_features for each in given.model.modules() if isinstance(each, nn.Linear))
    scales = 4 * outputs if weights == "int8" else linear_weights // GROUP * 4
    assert made.weight_bytes == bytes_held(made.model) == sum(others.values()) + linear_weights * bits // 8 + scales


def test_full_is_the_model_itself() -> None:
    given = small()
    assert quantise(given, "full") is given


@pytest.mark.skipif(not can_pack(), reason="this build of torch packs nothing")
def test_packed_layers_are_read_back_exactly() -> None:
    given, stock = small(), small()
    assert pack(given.model)
    assert torch.equal(logits(quantise(given, "int8")), logits(quantise(stock, "int8")))
