"""The growing cache against transformers' own dynamic cache, and the model that feeds it."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

from spec_viz.engine.cache import ROOM, GrowingLayer, kv_bytes_per_token, kv_numbers_per_token, new_cache
from spec_viz.engine.proposal import Proposal
from spec_viz.engine.target import CachedModel
from tests.engine.tiny import LAYERS, direct, model, prompts

TOKENS = prompts(1, 40)[0]


def states(length: int, seed: int) -> torch.Tensor:
    return torch.randn(1, 2, length, 8, generator=torch.Generator().manual_seed(seed))


def test_any_order_of_appending_and_rolling_back_is_the_dynamic_cache_s() -> None:
    ours, theirs = new_cache(), DynamicCache()
    steps = [(5, 0), (1, 0), (7, 4), (ROOM - 12, 0), (30, 29), (3, 3), (2 * ROOM, 1), (1, 0)]
    for seed, (append, remove) in enumerate(steps):
        for layer in range(2):
            keys, values = states(append, 2 * seed), states(append, 2 * seed + 1) + layer
            got, expected = ours.update(keys, values, layer), theirs.update(keys, values, layer)
            assert torch.equal(got[0], expected[0])
            assert torch.equal(got[1], expected[1])
        ours.crop(-remove)
        theirs.crop(-remove)
        assert ours.get_seq_length() == theirs.get_seq_length()
    assert [ours.get_mask_sizes(3, layer) for layer in range(2)] == [
        theirs.get_mask_sizes(3, layer) for layer in range(2)
    ]


def test_appending_within_the_room_copies_nothing() -> None:
    layer: Any = GrowingLayer()
    layer.update(states(3, 0), states(3, 1))
    room = layer.keys.data_ptr()
    for _ in range(20):
        layer.update(states(1, 2), states(1, 3))
        layer.crop(-1)
    assert layer.keys.data_ptr() == room
    assert layer.keys.shape[-2] == ROOM


@pytest.mark.parametrize("count", [-4, 1])
def test_more_than_there_is_or_a_positive_count_cannot_be_removed(count: int) -> None:
    layer = GrowingLayer()
    layer.update(states(3, 0), states(3, 1))
    with pytest.raises(ValueError, match="cannot remove"):
        layer.crop(count)
    assert layer.get_seq_length() == 3


def test_logits_through_the_cache_are_those_of_a_plain_pass() -> None:
    target = CachedModel(model())
    expected = direct(TOKENS)
    torch.testing.assert_close(target.prefill(TOKENS[:10])[0], expected[9:10])
    torch.testing.assert_close(target.verify(TOKENS[10], Proposal(tuple(TOKENS[11:16])))[0], expected[10:16])
    # Two of the five drafts are kept: what was rolled back leaves no trace in what follows.
    target.roll_back(13)
    other = [*TOKENS[:13], 1, 2, 3]
    torch.testing.assert_close(target.verify(1, Proposal((2, 3)))[0], direct(other)[13:])
    assert target.length == 16


def test_rolling_back_to_where_it_is_or_further_on_changes_nothing() -> None:
    target = CachedModel(model())
    target.prefill(TOKENS[:10])
    target.roll_back(10)
    target.roll_back(12)
    assert target.length == 10
    torch.testing.assert_close(target.verify(TOKENS[10], Proposal())[0], direct(TOKENS[:11])[10:])


def test_a_closed_model_can_begin_again() -> None:
    target = CachedModel(model())
    target.prefill(TOKENS[:10])
    target.close()
    assert target.length == 0
    torch.testing.assert_close(target.prefill(TOKENS)[0], direct(TOKENS)[-1:])


def test_bytes_per_token_are_those_the_dynamic_cache_holds() -> None:
    theirs: Any = DynamicCache()
    with torch.inference_mode():
        model()(input_ids=torch.tensor([TOKENS]), cache=theirs, use_cache=True)
    held = sum(each.nbytes for layer in theirs.layers for each in (layer.keys, layer.values))
    assert kv_bytes_per_token(model()) == held // len(TOKENS)
    assert kv_bytes_per_token(model(), layers=1) == held // len(TOKENS) // LAYERS


def test_numbers_per_token_of_the_default_target_s_shape() -> None:
    config = LlamaConfig(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3)
    # algorithms §12: 23 KB in two bytes each.
    assert kv_numbers_per_token(config) == 2 * 30 * 3 * 64
