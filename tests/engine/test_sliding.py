"""Layers with a window over a cache that keeps everything: logits as of a plain pass, whatever was rolled back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.proposal import ROOT
from spec_viz.engine.rows import Rows
from spec_viz.engine.target import CachedModel

WINDOW, V = 6, 48
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 32,
    "max_position_embeddings": 128,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "hidden_size_per_layer_input": 4,
    "vocab_size_per_layer_input": V,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}


@pytest.fixture(scope="module", params=[0, 2], ids=["own", "shared"])
def gemma(request: Any) -> Any:
    """A random Gemma 4 in float64; in the second one the last two layers read the entries of earlier ones."""
    torch.manual_seed(5)
    made: Any = Gemma4ForCausalLM(Gemma4TextConfig(**SIZES, num_kv_shared_layers=request.param))
    return made.double().eval().requires_grad_(False)


@torch.inference_mode()
def plain(gemma: Any, text: Sequence[int]) -> Tensor:
    """Logits (n, V) of one pass without a cache."""
    logits: Tensor = gemma(torch.tensor([list(text)]), use_cache=False).logits[0].float()
    return logits


@pytest.mark.parametrize("seed", range(4))
def test_pieces_and_roll_backs_beyond_the_window_are_a_plain_pass(gemma: Any, seed: int) -> None:
    chance = random.Random(seed)
    target, text = CachedModel(gemma), list[int]()
    for _ in range(14):
        new = [chance.randrange(1, V) for _ in range(chance.randrange(1, 9))]
        text += new
        torch.testing.assert_close(target.feed(new, keep=len(new)), plain(gemma, text)[-len(new) :])
        text = text[: len(text) - chance.randrange(0, min(len(text), 6))]
        target.roll_back(len(text))
        assert target.length == len(text)


@pytest.mark.parametrize("behind", [2, 5, 20])
def test_a_tree_sees_as_far_back_as_a_plain_pass_over_each_path(gemma: Any, behind: int) -> None:
    chance = random.Random(behind)
    text = [chance.randrange(1, V) for _ in range(behind)]
    # Deeper than the window, with side branches: where a node lies in the cache is not where it stands in the text.
    parents = [ROOT, ROOT, 0, 0, 2, 4, 5, 6, 7, 1, 8]
    tokens = [chance.randrange(1, V) for _ in parents]
    target = CachedModel(gemma)
    target.feed(text, keep=1)
    logits, _ = target.feed_tree(tokens[:5], parents[:5], 5)
    later, _ = target.feed_tree(tokens[5:], parents, 6)
    paths = list[list[int]]()
    for node, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent != ROOT else []), node])
        whole = plain(gemma, [*text, *(tokens[step] for step in paths[-1])])
        torch.testing.assert_close(torch.cat([logits, later])[node], whole[-1], msg=f"node {node}")
    # What is kept of it is worth what a plain pass is worth, from there on.
    target.roll_back(len(text), paths[8])
    text += [tokens[step] for step in paths[8]]
    torch.testing.assert_close(target.feed([9, 4], keep=2), plain(gemma, [*text, 9, 4])[-2:])


def test_the_memory_of_a_token_counts_the_layers_that_write_and_their_own_sizes(gemma: Any) -> None:
    writing = 6 - gemma.config.num_kv_shared_layers
    assert kv_bytes_per_token(gemma) == 8 * 2 * (writing // 2) * (16 + 32)
    target = CachedModel(gemma)
    target.feed([3, 4, 5], keep=1)
    held = [target.entries(layer) for layer in range(writing)]
    assert kv_bytes_per_token(gemma) == sum(keys[0, :, 0].nbytes + values[0, :, 0].nbytes for keys, values in held)


def test_a_batch_of_texts_refuses_windows(gemma: Any) -> None:
    with pytest.raises(ValueError, match="layers with a window"):
        Rows(gemma, 2)
