"""Random heads for the tiny losslessness test: they read its four-layer target and can draft five of its seven tokens.

What is tested is that no head, however bad, bends the target's law.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from spec_viz.drafters.dflash import DFlash
from spec_viz.drafters.dspark import DSpark
from spec_viz.drafters.eagle import Eagle
from spec_viz.drafters.eagle3 import Eagle3
from spec_viz.drafters.head import Head
from spec_viz.drafters.kv_sharing import KvSharing
from spec_viz.drafters.medusa import Medusa
from spec_viz.drafters.mtp import Mtp
from spec_viz.drafters.pard import Pard

# What can be drafted: neither the first nor the last token can, so that an id is not its place in the list.
DRAFT_IDS = (1, 2, 3, 4, 5)
VOCABULARY = 7
WIDTH = 16
# Large enough for laws that differ by context.
SPREAD = 0.7
LLAMA: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
}


@cache
def open_head(name: str) -> Head:
    """The random head of a method; KeyError where it has none."""
    config, tensors = {
        "eagle3": _eagle3,
        "eagle": _eagle,
        "mtp": _mtp,
        "medusa": _medusa,
        "dflash": _dflash,
        "dspark": _dspark,
        "bigram": _bigram,
        "pard": _pard,
        "kv_sharing": _kv_sharing,
    }[name]()
    return Head(name, {"method": name, "target": "tiny", **config}, tensors)


def _eagle3() -> tuple[dict[str, Any], dict[str, Tensor]]:
    layers = [1, 2, 3]
    body = Eagle3(LlamaConfig(**LLAMA), len(layers))
    return {"layers": layers, "llama": LLAMA}, _random(body.state_dict(), 21) | _maps()


def _eagle() -> tuple[dict[str, Any], dict[str, Tensor]]:
    accuracies = [[0.5, 0.2, 0.1], [0.4, 0.2, 0.1], [0.3, 0.2, 0.1]]
    body = Eagle(LlamaConfig(**LLAMA))
    return {"llama": LLAMA, "accuracies": accuracies}, _random(body.state_dict(), 24) | _maps()


def _mtp() -> tuple[dict[str, Any], dict[str, Tensor]]:
    return {"llama": LLAMA}, _random(Mtp(LlamaConfig(**LLAMA)).state_dict(), 25) | _maps()


def _medusa() -> tuple[dict[str, Any], dict[str, Tensor]]:
    accuracies = [[0.5, 0.2, 0.1], [0.4, 0.2, 0.1], [0.3, 0.2, 0.1]]
    heads = len(accuracies)
    return {"heads": heads, "accuracies": accuracies}, _random(Medusa(WIDTH, heads).state_dict(), 22) | _maps()


def _pard() -> tuple[dict[str, Any], dict[str, Tensor]]:
    small = LLAMA | {"hidden_size": WIDTH // 2, "num_hidden_layers": 1}
    body = Pard(LlamaConfig(**small), WIDTH)
    # One slot fewer than the test drafts.
    return {"slots": 2, "llama": small}, _random(body.state_dict(), 24) | _maps()


def _kv_sharing() -> tuple[dict[str, Any], dict[str, Tensor]]:
    small = LLAMA | {"hidden_size": WIDTH // 2, "num_hidden_layers": 2, "head_dim": WIDTH // 2}
    body = KvSharing(LlamaConfig(**small), WIDTH)
    return {"layer": 2, "llama": small}, _random(body.state_dict(), 25) | _maps()


def _bigram() -> tuple[dict[str, Any], dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(23)
    ids = torch.stack([torch.randperm(VOCABULARY, generator=generator)[:3] for _ in range(VOCABULARY)]).int()
    chance = torch.rand(VOCABULARY, 3, generator=generator)
    # One token was never seen, one was always followed by the same.
    chance[5] = 0
    chance[3, 1:] = 0
    return {}, {"next": ids, "chance": chance / chance.sum(1, keepdim=True).clamp_min(1e-9)}


def _dflash() -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = _block()
    body = DFlash(LlamaConfig(**config["llama"]), len(config["layers"]))
    return config, _random(body.state_dict(), 41) | _maps()


def _dspark() -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = _block() | {"markov_rank": 4, "temperatures": [1.5, 0.8, 1.0, 1.2]}
    body = DSpark(LlamaConfig(**config["llama"]), len(config["layers"]), len(DRAFT_IDS), 4)
    tensors = _random(body.state_dict(), 44)
    # How sure the head is hangs on the token before, and that token is open: else no choice of lengths could do harm.
    tensors["norm.weight"] *= 0.2
    tensors["markov_head.markov_w1.weight"] *= 4
    tensors["markov_head.markov_w2.weight"] *= 0.2
    return config, tensors | _maps()


def _block() -> dict[str, Any]:
    """One slot more than the test drafts."""
    return {"layers": [1, 2, 3], "llama": LLAMA | {"num_hidden_layers": 2}, "block": 4}


def _random(shapes: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(tensor.shape, generator=generator) * SPREAD for name, tensor in shapes.items()}
    # A norm's weight scales its channel.
    return {name: tensor.abs() + SPREAD if "norm" in name else tensor for name, tensor in drawn.items()}


def _maps() -> dict[str, Tensor]:
    ids = torch.tensor(DRAFT_IDS)
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}
