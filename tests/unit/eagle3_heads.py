"""Random EAGLE-3 heads in the two layouts in which they are published, and what such a head says, recomputed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

# Of the target's layers, where the config numbers them.
NUMBERED = [1, 3, 4]
PREFIX = {"safeailab": "midlayer.", "speculators": "layers.0."}


def tensors(layout: str, sizes: Mapping[str, Any], embedding: Tensor, seed: int = 1) -> dict[str, Tensor]:
    """Its weights; every second id of the target's can be drafted. speculators repeats the target's embedding."""
    d, inner, at = sizes["hidden_size"], sizes["intermediate_size"], PREFIX[layout]
    dim = d // sizes["num_attention_heads"]
    groups = sizes["num_key_value_heads"] * dim
    ids = torch.arange(0, len(embedding), 2)
    shapes = {
        "fc.weight": (d, 3 * d),
        f"{at}self_attn.q_proj.weight": (d, 2 * d),
        f"{at}self_attn.k_proj.weight": (groups, 2 * d),
        f"{at}self_attn.v_proj.weight": (groups, 2 * d),
        f"{at}self_attn.o_proj.weight": (d, d),
        f"{at}mlp.gate_proj.weight": (inner, d),
        f"{at}mlp.up_proj.weight": (inner, d),
        f"{at}mlp.down_proj.weight": (d, inner),
        f"{at}hidden_norm.weight": (d,),
        f"{at}input_layernorm.weight": (d,),
        f"{at}post_attention_layernorm.weight": (d,),
        "norm.weight": (d,),
        "lm_head.weight": (len(ids), d),
    }
    make = torch.Generator().manual_seed(seed)
    found = {
        name: torch.randn(shape, generator=make) * 0.3 + (1.0 if "norm" in name else 0.0)
        for name, shape in shapes.items()
    }
    t2d = torch.zeros(len(embedding), dtype=torch.bool).index_fill(0, ids, True)
    found |= {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}
    return found | ({"embed_tokens.weight": embedding.clone()} if layout == "speculators" else {})


def settings(layout: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Its config."""
    if layout == "safeailab":
        return {**sizes, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": sizes["vocab_size"] // 2}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {**sizes, "model_type": "llama"},
        "draft_vocab_size": sizes["vocab_size"] // 2,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": NUMBERED,
    }


def write(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], binary: bool = False) -> Path:
    """A folder as it comes from the hub: safetensors, or torch's own file."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    if binary:
        torch.save(dict(weights), folder / "pytorch_model.bin")
    else:
        save_file(dict(weights), folder / "model.safetensors", {"format": "pt"})
    return folder


@torch.no_grad()
def by_hand(
    layout: str, sizes: Mapping[str, Any], weights: Mapping[str, Tensor], embedded: Tensor, states: Tensor
) -> Tensor:
    """The layer's output (1, n, d) at every pair, on transformers' own attention, without a cache.

    The forward pass of `cnets.py`, and of speculators where the residual is carried behind the norm.
    """
    at, d = PREFIX[layout], sizes["hidden_size"]
    config = LlamaConfig(**sizes, num_hidden_layers=1)
    config._attn_implementation = "eager"

    def norm(name: str, rows: Tensor) -> Tensor:
        return nn.functional.rms_norm(rows, (d,), weights[f"{name}.weight"], sizes["rms_norm_eps"])

    attention: Any = LlamaAttention(config, 0)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        weight = weights[f"{at}self_attn.{name}.weight"]
        setattr(attention, name, nn.Linear(weight.shape[1], weight.shape[0], bias=False))
        getattr(attention, name).weight.data = weight
    count = states.shape[1]
    normed = norm(f"{at}hidden_norm", states)
    pairs = torch.cat([norm(f"{at}input_layernorm", embedded), normed], -1)
    angles = LlamaRotaryEmbedding(config)(pairs, position_ids=torch.arange(count)[None])
    mask = torch.full((count, count), -torch.inf).triu(1)[None, None]
    found, _ = attention(hidden_states=pairs, position_embeddings=angles, attention_mask=mask)
    out = (normed if layout == "speculators" else states) + found
    inside = norm(f"{at}post_attention_layernorm", out)
    gate = nn.functional.silu(inside @ weights[f"{at}mlp.gate_proj.weight"].T)
    answer: Tensor = (
        out + (gate * (inside @ weights[f"{at}mlp.up_proj.weight"].T)) @ weights[f"{at}mlp.down_proj.weight"].T
    )
    return answer


def law(sizes: Mapping[str, Any], weights: Mapping[str, Tensor], out: Tensor, ids: Sequence[int]) -> Tensor:
    """The law (V,) over the target's ids that is read off the last of these states."""
    said = nn.functional.rms_norm(out[0, -1], (sizes["hidden_size"],), weights["norm.weight"], sizes["rms_norm_eps"])
    wide = torch.full((sizes["vocab_size"],), -torch.inf)
    wide[list(ids)] = said @ weights["lm_head.weight"].T
    return wide.softmax(-1)
