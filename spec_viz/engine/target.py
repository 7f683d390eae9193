"""A causal language model with its KV cache: feed tokens, roll entries back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spec_viz.engine.cache import new_cache


class CachedModel:
    """Any decoder-only transformers model that keeps full attention, with the cache of one run.

    The target is one; so is a drafter that is a language model. Invariant between rounds: with L committed tokens the
    cache holds L − 1 entries, because the last token has not been fed yet (algorithms §1.6).
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device: torch.device = model.device
        self.context_limit: int = model.config.max_position_embeddings
        self._cache = new_cache()

    @property
    def length(self) -> int:
        """Entries in the cache."""
        return int(self._cache.get_seq_length())

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Append tokens to the cache and return the logits (keep, V), float32, of the last `keep` of them."""
        ids = torch.tensor([list(tokens)], device=self.device)
        out = self.model(input_ids=ids, cache=self._cache, use_cache=True, logits_to_keep=keep)
        logits: Tensor = out.logits[0]
        return logits.float()

    def prefill(self, prompt: Sequence[int]) -> Tensor:
        """Read the whole prompt; logits (1, V) of what follows it."""
        return self.feed(prompt, keep=1)

    def verify(self, last: int, drafts: Sequence[int]) -> Tensor:
        """One pass over [last committed token, drafts]: logits (n + 1, V), row i for the place of draft i."""
        return self.feed((last, *drafts), keep=len(drafts) + 1)

    def roll_back(self, length: int) -> None:
        """Cut the cache down to its first `length` entries."""
        self._cache.crop(min(length - self.length, 0))

    def now(self) -> float:
        """Seconds on a monotonic clock, after the device has finished what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def close(self) -> None:
        """Free the cache."""
        self._cache = new_cache()
