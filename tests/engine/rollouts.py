"""EAGLE and MTP for the tiny target: recomputed on transformers' own layers, and heads that know its texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import MtpLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from spec_viz.drafters import eagle, mtp
from spec_viz.drafters.head import Head
from spec_viz.drafters.registry import Family
from spec_viz.training.batches import Batch
from spec_viz.training.eagle import EagleLearner
from spec_viz.training.mtp import MtpLearner
from spec_viz.training.vocabulary import DraftVocabulary
from tests.engine import heads
from tests.engine.tiny import LAYERS, VOCABULARY, model

FAMILIES: dict[str, Family] = {"eagle": eagle.FAMILY, "mtp": mtp.FAMILY}
# By depth and rank; a depth fewer than the tests draft.
ACCURACIES = ((0.6, 0.2, 0.1), (0.5, 0.2, 0.1), (0.4, 0.1, 0.1))


def last(text: Sequence[int]) -> Tensor:
    """The target's states (n, d) behind its final norm."""
    return heads.seen(text, (LAYERS,))[LAYERS].float()


def table() -> Tensor:
    """The target's embedding (V, d)."""
    rows: Tensor = model().model.embed_tokens.weight.detach().float()
    return rows


# ---------------------------------------------------------------- plainly, on transformers' own layers


@torch.inference_mode()
def plain_states(head: Head, tokens: Sequence[int], states: Tensor) -> Tensor:
    """The head's output (n, d) at every pair of (state, token), all of them at once and without a cache."""
    config, tensors = heads.config(), head.tensors
    config._attn_implementation = "eager"
    embedded, count = table()[list(tokens)][None], len(tokens)
    where = torch.arange(count)[None]
    angles = LlamaRotaryEmbedding(config)(embedded, position_ids=where)
    mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
    if head.name == "mtp":
        module: Any = MtpLayer(config, LlamaDecoderLayer, LlamaRMSNorm, 0)
        outside = ("enorm", "hnorm", "eh_proj")
        module.load_state_dict(
            {
                "post_norm.weight"
                if name.startswith("shared_head.norm")
                else name
                if name.startswith(outside)
                else f"mtp_block.{name}": tensor
                for name, tensor in tensors.items()
                if name not in ("d2t", "t2d")
            }
        )
        return module(embedded, states[None], angles, mask, where, None)[0]  # type: ignore[no-any-return]
    layer: Any = LlamaDecoderLayer(config, 0)
    layer.input_layernorm = nn.Identity()
    prefix = "layers.0."
    layer.load_state_dict({name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)})
    joined = torch.cat([embedded, states[None]], -1) @ tensors["fc.weight"].T + tensors["fc.bias"]
    return layer(joined, attention_mask=mask, position_ids=where, position_embeddings=angles)[0]  # type: ignore[no-any-return]


def plain_logits(head: Head, text: Sequence[int], path: Sequence[int]) -> Tensor:
    """Logits (V,) behind a text and a drafted path: true pairs for the text, own states from there on."""
    tokens = [*text[1:], *path]
    states = last(text[:-1])
    for _ in path:
        states = torch.cat([states, plain_states(head, tokens[: len(states)], states)[-1:]])
    logits = torch.full((VOCABULARY,), -torch.inf)
    logits[heads.draft_ids()] = plain_states(head, tokens, states)[-1] @ heads.rows().T
    return logits


# ---------------------------------------------------------------- heads


def lessons() -> Batch:
    """The texts as a batch."""
    ids = torch.tensor(heads.texts())
    rows = len(ids)
    features = torch.stack([last(text) for text in heads.texts()])
    lengths, prompts = torch.full((rows,), ids.shape[1]), torch.full((rows,), 20)
    nothing = torch.zeros(*ids.shape, 0, heads.WIDTH)
    weight, greedy = torch.ones(rows), torch.ones(rows, dtype=torch.bool)
    return Batch(ids, lengths, prompts, nothing, features, weight, greedy, ("chat",) * rows)


def vocabulary() -> DraftVocabulary:
    maps = heads.maps()
    return DraftVocabulary(heads.draft_ids(), maps["d2t"], maps["t2d"], 1.0)


@cache
def learned(name: str) -> dict[str, Tensor]:
    """The tensors of a head that has learned the texts, two steps deep."""
    batch = lessons()
    states = batch.last.flatten(0, 1)
    mean, spread = states.mean(0), states.std(0)
    common = heads.config(), vocabulary(), table(), heads.rows()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made: Any = (
            EagleLearner(*common, mean, spread, slots=2)
            if name == "eagle"
            else MtpLearner(*common, torch.ones(heads.WIDTH), spread, slots=2)
        )
    made.eval()
    heads.learn(made, lambda: made(batch).loss, 100)
    return made.head.fold() if name == "eagle" else dict(made.head.state_dict())


@cache
def head(name: str, known: bool = True) -> Head:
    """A head of the tiny target; one that knows nothing is random."""
    tensors = learned(name)
    if not known:
        make = torch.Generator().manual_seed(5)
        tensors = {
            key: torch.randn(tensor.shape, generator=make) * 0.3 + (1.0 if "norm" in key else 0.0)
            for key, tensor in tensors.items()
        }
    config: dict[str, Any] = {"method": name, "target": "tiny", "llama": heads.LLAMA}
    if name == "eagle":
        config["accuracies"] = [list(row) for row in ACCURACIES]
    return Head(name, config, tensors | heads.maps())
