"""A KV cache of a few bits a number that rolls back exactly: keys and values become codes as they are written.

Each vector of a token and head is cut into even steps between its own smallest and largest number. Stored are the
codes, packed, and in half precision where the steps begin and how wide they are. The pass that writes an entry attends
to what was stored, like all later ones; so an entry hangs on its own token alone, forgetting the last ones is exact,
and speculative decoding keeps the law of the model *with this cache*, not that of the model with a full one.

That holds for exact numbers. A pass over five tokens sums in another order than five passes over one, which in float32
differs in the last bits; where that pushes a number over the edge of a step, the stored code differs by a whole step,
and in time the text does too. Measured on SmolLM2-135M, 24 tokens, four speculative texts a form: in float32 two left
the plain text with 3 bits and three with 4, in float64 none did. `spec_viz.lab.quantisation` tells the two apart.

KIVI (arXiv 2402.02750) cuts keys by channel, over many tokens: finer steps, but an entry then hangs on its neighbours
and cannot be taken out alone. The rotation is TurboQuant's idea (arXiv 2504.19874): turned by a random orthogonal
matrix, a vector's one loud channel is spread over all, and the steps need not span it. Theirs also fits the steps to
the turned numbers' law and corrects inner products by one bit; this one does neither.

Memory is what is saved here, not time: every pass unpacks the whole cache again, where a fused kernel would unpack a
block at a time inside attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from spec_viz.engine.cache import GrowingLayer

Width = Literal[2, 3, 4, 8]
WIDTHS: tuple[Width, ...] = get_args(Width)
# Where a vector's steps begin and how wide they are, two bytes each.
SCALE_BYTES = 4
# Codes that are packed together: as many of any width fill whole bytes.
TOGETHER = 8
SEED = 0


@dataclass(frozen=True, slots=True)
class Form:
    """How a vector is stored: `bits` a number, of the vector itself or of the vector turned by `rotation`.

    Vectors have a multiple of 8 numbers, turned ones a power of two. ValueError for a width that is not in WIDTHS.
    """

    bits: Width
    rotated: bool = False

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise ValueError(f"bits must be one of {WIDTHS}, not {self.bits}")

    def bytes_of(self, numbers: int) -> int:
        """Bytes that a vector of so many numbers takes."""
        if numbers % TOGETHER:
            raise ValueError(f"a vector of {numbers} numbers cannot be packed: it must be a multiple of {TOGETHER}")
        return numbers * self.bits // 8 + SCALE_BYTES

    def write(self, vectors: Tensor) -> Tensor:
        """Vectors (…, d) as bytes (…, n): each from its own numbers alone."""
        self.bytes_of(vectors.shape[-1])
        if self.rotated:
            vectors = vectors @ rotation(vectors.shape[-1], vectors.dtype, vectors.device)
        low, high = vectors.amin(-1, keepdim=True), vectors.amax(-1, keepdim=True)
        top = 2**self.bits - 1
        # A vector of equal numbers has steps of no width; one too small to count keeps the division finite.
        step = ((high - low) / top).clamp_min(torch.finfo(torch.float16).smallest_normal)
        scale = torch.cat([low, step], -1).half()
        # The codes are chosen for the rounded steps, with which they will be read.
        low, step = scale.to(vectors.dtype).chunk(2, -1)
        codes = ((vectors - low) / step).round().clamp(0, top)
        return torch.cat([_pack(codes.to(torch.uint8), self.bits), scale.view(torch.uint8)], -1)

    def read(self, stored: Tensor, dtype: torch.dtype) -> Tensor:
        """What was stored as bytes (…, n), as vectors (…, d)."""
        codes = _unpack(stored[..., :-SCALE_BYTES], self.bits).to(dtype)
        low, step = stored[..., -SCALE_BYTES:].contiguous().view(torch.float16).to(dtype).chunk(2, -1)
        vectors = codes.mul_(step).add_(low)
        return vectors @ rotation(vectors.shape[-1], dtype, vectors.device).T if self.rotated else vectors


def _pack(codes: Tensor, bits: Width) -> Tensor:
    """Codes (…, d) of so many bits as bytes (…, d · bits / 8): eight codes make `bits` bytes, the first one lowest."""
    if bits == 8:
        return codes
    places = torch.arange(TOGETHER, device=codes.device) * bits
    words = (codes.view(*codes.shape[:-1], -1, TOGETHER).long() << places).sum(-1, keepdim=True)
    parts: Tensor = words >> (torch.arange(bits, device=codes.device) * 8) & 255
    return parts.to(torch.uint8).flatten(-2)


def _unpack(packed: Tensor, bits: Width) -> Tensor:
    """The inverse of `_pack`."""
    if bits == 8:
        return packed
    places = torch.arange(bits, device=packed.device, dtype=torch.int32) * 8
    # Four bytes fill an int32 up to its sign, which the mask below takes off again.
    groups = packed.reshape(*packed.shape[:-1], -1, bits).int()
    words = (groups << places).sum(-1, keepdim=True, dtype=torch.int32)
    turns = torch.arange(TOGETHER, device=packed.device, dtype=torch.int32) * bits
    codes: Tensor = words >> turns & (2**bits - 1)
    return codes.flatten(-2)


@cache
def rotation(numbers: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A fixed random orthogonal matrix (d, d): a Hadamard matrix whose rows have random signs; d is a power of two.

    A vector times it has in every place a signed sum of all its numbers ÷ √d.
    """
    if numbers & (numbers - 1):
        raise ValueError(f"vectors of {numbers} numbers cannot be turned: it must be a power of two")
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < numbers:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    signs = torch.randint(2, (numbers, 1), generator=torch.Generator().manual_seed(SEED)) * 2 - 1
    return (signs * matrix / math.sqrt(numbers)).to(device, dtype)


class QuantisedLayer(GrowingLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values as bytes (B, heads, room, n); it grows, gathers and crops as its parent does."""

    def __init__(self, form: Form, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.form = form

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (B, heads, n, head_dim) and return all keys and values up to the new length as they were stored."""
        self._dtype = key_states.dtype
        super().update(self.form.write(key_states), self.form.write(value_states))
        return self.entries()

    def entries(self) -> tuple[Tensor, Tensor]:
        """All keys and values as they were stored."""
        keys, values = super().entries()
        return self.form.read(keys, self._dtype), self.form.read(values, self._dtype)


def new_quantised_cache(form: Form) -> Cache:
    """An empty cache that stores keys and values in this form; see `engine.cache.new_cache`."""
    layer: Any = partial(QuantisedLayer, form)
    return Cache(layer_class_to_replicate=layer)


def kv_bytes_of(model: Any, form: Form) -> int:
    """Bytes one token occupies in a cache of this form; `engine.cache.kv_bytes_per_token` tells those of a full one."""
    config = model.config
    heads = config.num_key_value_heads or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * form.bytes_of(head_dim))
