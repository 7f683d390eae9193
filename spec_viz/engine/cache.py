"""A KV cache that appends and rolls back without copying.

transformers' dynamic cache concatenates at every step (46 KB a token in float32 here); this one writes into room it
already has and rolls back by forgetting a length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from spec_viz.engine.device import send

ROOM = 256


class GrowingLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's keys and values (B, heads, room, head_dim), of which the first `length` count."""

    is_croppable = True
    is_sliding = False

    keys: Tensor
    values: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_empty((*key_states.shape[:2], 0, key_states.shape[-1]))
        self.values = value_states.new_empty((*value_states.shape[:2], 0, value_states.shape[-1]))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (B, heads, n, head_dim) and return all keys and values up to the new length."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self.keys, self.values = self._grown(self.keys, end), self._grown(self.values, end)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def entries(self) -> tuple[Tensor, Tensor]:
        """All keys and values up to the length, as a pass attends to them; a view, good until the next pass."""
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def _grown(self, states: Tensor, end: int) -> Tensor:
        room = max(ROOM, 2 * states.shape[-2], -(-end // ROOM) * ROOM)
        grown = states.new_empty((*states.shape[:2], room, states.shape[-1]))
        grown[:, :, : self.length] = states[:, :, : self.length]
        return grown

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def gather(self, start: int, path: Sequence[int]) -> None:
        """Move the entries at `start + i`, for i in the path, to `start` and behind."""
        rows = send([start + step for step in path], self.keys.device)
        for states in (self.keys, self.values):
            # Selecting copies, so that no entry is overwritten before it has moved.
            states[:, :, start : start + len(rows)] = states.index_select(2, rows)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last entries; transformers passes their number as a negative count."""
        if not -self.length <= tokens_to_remove <= 0:
            raise ValueError(f"cannot remove {-tokens_to_remove} of {self.length} entries")
        self.length += tokens_to_remove


def gather(cache: Cache, start: int, path: Sequence[int]) -> None:
    """Move the entries at `start + i`, for i in the path, to `start` and behind, in every layer."""
    for layer in growing(cache):
        layer.gather(start, path)


def crop(cache: Cache, length: int) -> None:
    """Forget what lies behind the first `length` entries, in every layer, however many each of them holds."""
    for layer in growing(cache):
        layer.crop(min(length - layer.length, 0))


def growing(cache: Cache) -> Iterator[GrowingLayer]:
    """The layers of a cache that new_cache() made; TypeError for others."""
    for layer in cache.layers:
        if not isinstance(layer, GrowingLayer):
            raise TypeError("only the layers of new_cache() can be rolled back without copying")
        yield layer


def new_cache() -> Cache:
    """An empty cache whose layers appear as the model first writes them."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def kv_bytes_per_token(model: Any, layers: int | None = None) -> int:
    """Bytes one token occupies in a full-length KV cache of `layers` layers (the model's own number by default)."""
    return kv_numbers_per_token(model.config, layers) * int(model.dtype.itemsize)


def kv_numbers_per_token(config: Any, layers: int | None = None) -> int:
    """How many numbers a token's keys and values are, by a model's configuration alone."""
    return sum(
        2 * (own.num_key_value_heads or own.num_attention_heads) * _head_dim(own)
        for own in (config.per_layer_config[layer] for layer in range(layers or writing_layers(config)))
    )


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def writing_layers(config: Any) -> int:
    """The layers that write keys and values; behind them some models have layers that read those of earlier ones."""
    return int(config.num_hidden_layers - getattr(config, "num_kv_shared_layers", 0))
