"""Gemma 4's assistant as its authors wrote it for transformers, asking the cache of a Gemma 4 target.

It is built otherwise than our own head: normed queries, layers with a window, scaled layers, an output matrix that may
be sorted into centroids. Its layers with a window ask the last layer of the target that writes entries and has one, the
others the last that has none. transformers' own class computes it; this file brings it what it reads. Its authors draft
its best guesses; where a rule wants drawn drafts they are drawn from the law it gives, so that this law is q (§14).
See algorithms §7.3, transformers `gemma4_assistant` and `SinglePositionMultiTokenCandidateGenerator`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.borrower import Borrower
from spec_viz.drafters.head import Head
from spec_viz.engine.cache import writing_layers
from spec_viz.engine.target import CachedModel

# Where a head's config holds the assistant's.
ASSISTANT = "assistant"


class Assisted(Borrower):
    """The assistant's steps beside one run of a target."""

    def __init__(self, target: CachedModel, assistant: Any) -> None:
        super().__init__()
        self._target = target
        self._assistant = assistant
        # Gemma's own embedding module scales what it looks up.
        self._embed = target.model.get_input_embeddings()
        config = target.model.config
        # Of each kind of layer the last one that writes entries.
        self._layers = {kind: layer for layer, kind in enumerate(config.layer_types[: writing_layers(config)])}
        self._entries: dict[str, tuple[Tensor, Tensor]] = {}

    def look(self) -> None:
        for kind, layer in self._layers.items():
            keys, values = self._target.entries(layer)
            self._entries[kind] = (keys.float(), values.float())

    def ask(self, tokens: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        count = len(tokens)
        out = self._assistant(
            # Rows of a batch, one a node: nodes do not see each other.
            inputs_embeds=torch.cat([self._embed(tokens[:, None]).float(), states[:, None]], -1),
            position_ids=torch.full((count, 1), self._target.length, device=states.device),
            shared_kv_states={
                kind: (keys.expand(count, -1, -1, -1), values.expand(count, -1, -1, -1))
                for kind, (keys, values) in self._entries.items()
            },
        )
        return out.logits[:, -1], out.last_hidden_state[:, -1]

    def close(self) -> None:
        super().close()
        self._entries = {}


def make(head: Head, model: Any) -> Any:
    """The assistant's module as it runs beside a target, in float32."""
    # Listing the drafters should not wait for a model that also sees and hears.
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM

    made: Any = Gemma4AssistantForCausalLM(Gemma4AssistantConfig(**head.config[ASSISTANT]))
    # Its output rows are its embedding's.
    made.load_state_dict(head.tensors, strict=False, assign=True)
    made.tie_weights()
    return made.to(model.device).eval().requires_grad_(False)
