"""Early exit: the target's first layers, then its own norm and head, draft for the whole target (algorithms §4.3).

LayerSkip trains a model for this; an untrained target leaves its early layers far from its last, so this drafter is
dear and seldom right: it is here to show that, with a real q.

With `kv` = own it is a model of its own that happens to share weights. With `kv` = shared it works as LayerSkip does:
its entries are the target's own, and the verify pass goes on where the drafts left off.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from spec_viz.drafters.model import ModelDrafter, model_drafter
from spec_viz.drafters.registry import BY_MODEL, WIDTH, Anatomy, Family, Knob, OptionError, Setup
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.proposal import Drafter, Seen, chain
from spec_viz.engine.target import CachedModel


def first_layers(model: Any, count: int) -> Any:
    """A view of a Llama-like causal LM that stops after `count` layers and shares every weight."""
    shallow = copy.copy(model)
    shallow._modules = dict(model._modules)
    shallow.config = copy.copy(model.config)
    shallow.config.num_hidden_layers = count
    body = copy.copy(model.model)
    body._modules = dict(model.model._modules)
    body.config = shallow.config
    shallow.model = body
    return shallow


class Exit:
    """The target's first layers, working in the target's own cache; the loop rolls back what they wrote there."""

    def __init__(self, target: CachedModel, layers: int) -> None:
        self._target = target
        self._layers = layers
        self._begun = 0

    @property
    def length(self) -> int:
        return self._target.length

    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        self._begun = len(tokens)
        return self._target.feed_first(tokens, chain(len(tokens)), self._layers)[-keep:]

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        # For the target the nodes hang from the committed token, which this round fed first.
        hanging = (*chain(self._begun), *(parent + self._begun for parent in parents))
        return self._target.feed_first(tokens, hanging, self._layers)[-keep:], Seen()

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Nothing is left to roll back: the target has done it."""

    def close(self) -> None:
        """The target frees its own cache."""


class SharedDrafter(ModelDrafter):
    """A drafter whose entries are the target's."""

    @property
    def cache_length(self) -> int | None:
        return None


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The target's first layers as a drafter; ValueError when it has no layer left to skip."""
    layers = setup.target.model.config.num_hidden_layers
    if options["layers"] >= layers:
        problem = f"layers must be fewer than the target's {layers}"
        raise OptionError("error.option_number", problem, name="layers", low=1, high=layers - 1)
    count, width = int(options["layers"]), int(options["width"])
    if options["kv"] == "shared":
        return model_drafter(Exit(setup.target, count), setup, width, SharedDrafter)
    shallow = CachedModel(first_layers(setup.target.model, count), capture=setup.target.capture)
    drafter = model_drafter(shallow, setup, width, ModelDrafter, defer=True)
    drafter.kv_bytes_per_token = kv_bytes_per_token(setup.target.model, count)
    return drafter


FAMILY = Family(
    "early_exit",
    "sampled",
    BY_MODEL,
    build,
    (Knob("layers", "int", 24, 1, 63), Knob("kv", "choice", "own", choices=("own", "shared")), WIDTH),
    "algorithms §4.3",
    anatomy=Anatomy(("ids",), "sequential", "gamma", "target", further=(("kv", "kv"),)),
)
