"""Early exit: the target's first layers, then its own norm and head, draft for the whole target (algorithms §4.3).

LayerSkip trains a model for this; an untrained target leaves its early layers far from its last, so this drafter is
dear and seldom right: it is here to show that, with a real q.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.registry import Family, Knob, Setup
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import Drafter, Outcome, Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp


class ModelDrafter:
    """A language model that drafts one token after another, each drawn from its own warped law."""

    def __init__(self, model: CachedModel, warp: Warp) -> None:
        self._model = model
        self._warp = warp

    @property
    def cache_length(self) -> int | None:
        return self._model.length

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        tokens: list[int] = []
        laws: list[Tensor] = []
        raw: list[Tensor] = []
        # After a round in which every draft was kept two tokens are missing: the last draft was drawn, never fed.
        feed = list(context[self._model.length :])
        for place in range(gamma):
            logits = self._model.feed(feed, keep=1)
            law = self._warp.law(logits, [*context, *tokens])[0]
            tokens.append(pick(law, draws.by_round("draft", place)))
            laws.append(law)
            raw.append(logits[0].softmax(-1))
            feed = tokens[-1:]
        return Proposal(tuple(tokens), "sampled", torch.stack(laws), torch.stack(raw))

    def observe(self, outcome: Outcome) -> None:
        missing = outcome.context[self._model.length : -1]
        if self._model.length == 0 and missing:
            self._model.feed(missing, keep=1)
        self._model.roll_back(len(outcome.context) - 1)

    def close(self) -> None:
        self._model.close()


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


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The target's first layers as a drafter; ValueError when it has no layer left to skip."""
    layers = setup.model.config.num_hidden_layers
    if options["layers"] >= layers:
        raise ValueError(f"layers must be fewer than the target's {layers}")
    return ModelDrafter(CachedModel(first_layers(setup.model, int(options["layers"]))), setup.warp)


FAMILY = Family("early_exit", "sampled", build, (Knob("layers", "int", 24, 1, 63),), "algorithms §4.3")
