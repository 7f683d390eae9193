"""Window: the target drafts for itself over a few entries of its own KV cache (algorithms §10.3).

A pass reads every weight and every entry of the cache. Behind a long context the entries are the larger part, and a
drafter that is the target itself is as dear as the target. MagicDec (2408.11049) lets it see only what StreamingLLM
(2309.17453) keeps: the first few entries, where attention gathers whatever the text says (sinks), and the last
`window`. So a draft costs the same behind 500 tokens and behind 5,000.

Before each round the entries are copied from the target's cache. They are the target's own: those of accepted drafts
come from the verify pass, which saw the whole text, and nothing of an earlier draft stays. Keys are turned to the place
they have in the text, and every draft stands at its own place in it: StreamingLLM numbers places anew inside its cache,
because its text outgrows what the model was trained on, while here a run ends at the target's limit. During a round the
window does not slide: drafts are added to it, at most gamma of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.early_exit import SharedDrafter
from spec_viz.drafters.model import model_drafter
from spec_viz.drafters.registry import BY_MODEL, WIDTH, Anatomy, Family, Knob, Setup
from spec_viz.engine.cache import crop, kv_bytes_per_token
from spec_viz.engine.proposal import Drafter, Outcome, chain
from spec_viz.engine.target import CachedModel


class Window(CachedModel):
    """The target's model over copies of some of its entries; tokens stand at the places they have in the text.

    `length` counts the places of the text, read or left out; `held` what this cache holds.
    """

    def __init__(self, target: CachedModel, sinks: int, window: int) -> None:
        super().__init__(target.model, capture=target.capture)
        self._target = target
        self._sinks = sinks
        self._window = window
        self._read = 0
        self._left_out = 0

    @property
    def held(self) -> int:
        """Entries in this cache: what was read, and the drafts behind it."""
        return super().length

    @property
    def length(self) -> int:
        return self.held + self._left_out

    @torch.inference_mode()
    def read(self) -> tuple[int, int]:
        """Begin anew with the target's entries as they are now; how many are read, and how many there are."""
        whole = self._target.length
        begin = max(whole - self._window, 0)
        end = min(self._sinks, begin)
        crop(self._cache, 0)
        self._lent()
        for layer in range(self.model.config.num_hidden_layers):
            keys, values = self._target.entries(layer)
            for part in (slice(end), slice(begin, whole)):
                self._cache.update(keys[:, :, part], values[:, :, part], layer)
        self._read, self._left_out = whole - (begin - end), begin - end
        return self._read, whole

    def forget(self) -> None:
        """Keep what was read, and none of the drafts."""
        crop(self._cache, self._read)

    def _shift(self) -> int:
        return self._left_out

    def _where(self, tokens: Sequence[int] | Tensor, parents: Sequence[int]) -> dict[str, Any]:
        mask, positions = self._place(self.held + len(tokens) - len(parents), parents, len(tokens))
        where = {"position_ids": positions + self._left_out}
        # A lone token that sees every entry needs no mask, and the kernel without one is faster.
        if len(tokens) > 1 or tuple(parents) != chain(len(parents)):
            where["attention_mask"] = mask
        return where


class WindowDrafter(SharedDrafter):
    """Drafts through a window that is filled anew, from the target's own entries, in every round."""

    def look_through(self, view: Window) -> None:
        """Read entries by this view, which is the model that drafts."""
        self._view = view
        self.kv_bytes_per_token = kv_bytes_per_token(view.model)

    @property
    def cache_length(self) -> int | None:
        return self._view.held

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        read, whole = self._view.read()
        self._why = {"kv_read": read, "kv_all": whole}
        return super()._begin(context)

    def observe(self, outcome: Outcome) -> None:
        self._view.forget()


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The target over its first and its last entries as drafter."""
    view = Window(setup.target, int(options["sinks"]), int(options["window"]))
    drafter = model_drafter(view, setup, int(options["width"]), WindowDrafter, defer=True)
    drafter.look_through(view)
    return drafter


FAMILY = Family(
    "window",
    "sampled",
    BY_MODEL,
    build,
    (Knob("window", "int", 256, 1, 4096), Knob("sinks", "int", 4, 0, 64), WIDTH),
    "algorithms §10.3; arXiv 2408.11049, 2309.17453",
    anatomy=Anatomy(("ids", "kv"), "sequential", "gamma", "target"),
)
