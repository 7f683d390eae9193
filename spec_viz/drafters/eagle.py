"""EAGLE-1 and EAGLE-2: one decoder layer that foretells the target's next last state (2401.15077, 2406.16858).

The feature f_t is the target's state behind its final norm, the one its output rows turn into a law. The head joins it
with the embedding of x_{t+1}, the token that was really drawn from that law, and its layer says f_{t+1}; the target's
own rows read x_{t+2} off it. From there it goes on with what it said itself.

EAGLE-1 fills a tree whose shape is the same in every round. EAGLE-2 grows one by the same weights, where its paths are
surest. The published static tree is one list of 25 nodes for every target; ours follows from how often this head's
guesses were right, as Medusa's does, so that it fits the head and any number of nodes. See algorithms §6.1, §6.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from spec_viz.drafters.head import Attention, Head
from spec_viz.drafters.readout import Readout, put_to_work
from spec_viz.drafters.registry import BY_MODEL, TREE, WIDTH, Anatomy, Family, Knob, Setup
from spec_viz.drafters.rollout import Block, Body, rollout_drafter
from spec_viz.engine.proposal import Drafter


class Layer(Block):
    """The first layer of the published stack: Llama's, without the norm at its entry."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config, config.hidden_size)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]


class Eagle(Body):
    """The head's weights under their published names (SafeAILab): fc with its bias, layers.0."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.reads = config.hidden_size
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config)])
        self._rotary = LlamaRotaryEmbedding(config)

    @property
    def layer(self) -> Layer:
        """Its one layer."""
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    @property
    def attention(self) -> Attention:
        """That of the layer."""
        return self.layer.self_attn

    def join(self, embedded: Tensor, states: Tensor) -> Tensor:
        """Embeddings and features, both (B, n, d), as one (B, n, d)."""
        joined: Tensor = self.fc(torch.cat([embedded, states], -1))
        return joined

    def project(
        self, embedded: Tensor, states: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values of the joined pairs, and the joined pairs themselves."""
        joined = self.join(embedded, states)
        return *self.attention.project(joined, angles), joined

    def finish(self, carried: Tensor, found: Tensor) -> Tensor:
        """The features (B, n, d) one further on; no norm comes behind them, the target's rows read them as they are."""
        return self.layer.finish(carried, found)


def make(head: Head, model: Any) -> tuple[Eagle, Readout]:
    """The head's modules as they run beside a target."""
    return put_to_work(Eagle(LlamaConfig(**head.config["llama"])), head, model)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """EAGLE with the head trained for this target; OptionError where the rule cannot judge the tree asked for."""
    last = int(setup.target.model.config.num_hidden_layers)
    static = options["shape"] == "static"
    return rollout_drafter(setup, "eagle", make, lambda _: (last,), options, static)


FAMILY = Family(
    "eagle",
    "sampled",
    BY_MODEL,
    build,
    (WIDTH, TREE, Knob("shape", "choice", "dynamic", choices=("dynamic", "static")), Knob("top_k", "int", 4, 1, 10)),
    "algorithms §6.1, §6.2; arXiv 2401.15077, 2406.16858",
    head="eagle",
    anatomy=Anatomy(("ids", "last_hidden"), "sequential", "gamma", "own"),
)
