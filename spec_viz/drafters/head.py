"""What trained heads have in common: their weights, the draft vocabulary, and the target's own rows they reuse.

A head stores neither an embedding nor an output matrix. It reads tokens through the target's embedding and is read
through the target's output rows, both frozen, of a draft vocabulary: the ids that occur most (algorithms §6.4, §12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig


# Told apart by identity: two heads are never compared number by number.
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Head:
    """A trained head as it lies in its folder: what it is, and its tensors in float32 by their published names."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def draft_ids(self) -> Tensor:
        """The target's id of every draft id, (Vd,): `d2t` is an offset, not an id (algorithms §14)."""
        d2t = self.tensors["d2t"].long()
        return torch.arange(len(d2t)) + d2t

    @property
    def weight_bytes(self) -> int:
        """Bytes of its own weights in float32."""
        return sum(4 * tensor.numel() for name, tensor in self.tensors.items() if name not in ("d2t", "t2d"))


def embedding_rows(model: Any) -> Tensor:
    """The target's embedding (V, d)."""
    rows: Tensor = model.get_input_embeddings().weight.detach()
    return rows


def output_rows(model: Any, ids: Tensor) -> Tensor:
    """The rows (Vd, d) with which the target scores these ids."""
    if model.config.tie_word_embeddings:
        return embedding_rows(model)[ids]
    # Packed weights are opaque; what they make of the unit vectors is the matrix.
    embedding = embedding_rows(model)
    with torch.inference_mode():
        scores: Tensor = model.lm_head(torch.eye(embedding.shape[1], dtype=model.dtype, device=embedding.device))
    return scores.T[ids].clone()


def spread(logits: Tensor, ids: Tensor, width: int) -> Tensor:
    """Logits (n, Vd) over the draft vocabulary as logits (n, V) over the target's: what is not in it has no chance."""
    wide = logits.new_full((len(logits), width), -torch.inf)
    wide[:, ids] = logits
    return wide


class Attention(nn.Module):
    """Llama's grouped attention with rotary positions, of inputs that may be wider than what comes out."""

    def __init__(self, config: LlamaConfig, inputs: int) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.groups = config.num_key_value_heads or self.heads
        self.head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
        self.q_proj = nn.Linear(inputs, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(inputs, self.groups * self.head_dim, bias=False)
        self.v_proj = nn.Linear(inputs, self.groups * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)

    def project(self, states: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, heads, n, head_dim), keys and values (B, groups, n, head_dim) of states (B, n, inputs)."""
        shape = (*states.shape[:2], -1, self.head_dim)
        queries = self.q_proj(states).view(shape).transpose(1, 2)
        keys = self.k_proj(states).view(shape).transpose(1, 2)
        values = self.v_proj(states).view(shape).transpose(1, 2)
        return turn(queries, angles), turn(keys, angles), values

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """What the queries find, (B, n, d); the mask is added to the scores, None lets every query see every key."""
        found = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        out: Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return out


def turn(states: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """States (B, heads, n, head_dim) at the rotary positions of these cosines and sines (B or 1, n, head_dim)."""
    cos, sin = (angle[:, None] for angle in angles)
    low, high = states.chunk(2, -1)
    return states * cos + torch.cat([-high, low], -1) * sin
