"""EAGLE-3: one decoder layer that reads three of the target's layers and goes on from its own output (2503.01840).

For every committed token the head fuses what the target computed there, low, middle and high, into one state g, and
pairs it with the embedding of the token *behind* it, which g alone could not know. Its layer turns the pair into a
state that says what comes after that token. Where the target has not been yet, the head's own last state stands in
for g: it was trained that way (training-time test). See algorithms §6.4.
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

# How a published config calls a residual behind the norm.
NORMED = "norm_before_residual"


class Layer(Block):
    """The decoder layer: attention over [embedding; state], and the un-normed state as residual."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = LlamaRMSNorm(d, eps)
        self.hidden_norm = LlamaRMSNorm(d, eps)
        self.self_attn = Attention(config, 2 * d)
        self.post_attention_layernorm = LlamaRMSNorm(d, eps)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]

    def project(self, embedded: Tensor, states: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of embeddings and states, both (B, n, d)."""
        return self.self_attn.project(torch.cat([self.input_layernorm(embedded), self.hidden_norm(states)], -1), angles)


class Eagle3(Body):
    """The head's weights under their published names (SafeAILab, SpecForge): fc, midlayer, norm.

    The layer's residual carries the states as they came; with `normed` it carries them behind their norm, as
    speculators' `norm_before_residual` says.
    """

    def __init__(self, config: LlamaConfig, fused: int, normed: bool = False) -> None:
        super().__init__()
        self.reads = fused * config.hidden_size
        self._normed = normed
        self.fc = nn.Linear(self.reads, config.hidden_size, bias=False)
        self.midlayer = Layer(config)
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self._rotary = LlamaRotaryEmbedding(config)

    @property
    def attention(self) -> Attention:
        """That of the layer."""
        return self.midlayer.self_attn

    def take_in(self, hidden: Tensor) -> Tensor:
        """The target's states at the fused layers (…, layers · d) as one state g, (…, d)."""
        fused: Tensor = self.fc(hidden)
        return fused

    def project(
        self, embedded: Tensor, states: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values of embeddings and states, both (B, n, d), and what the residual carries."""
        carried = self.midlayer.hidden_norm(states) if self._normed else states
        return *self.midlayer.project(embedded, states, angles), carried

    def finish(self, carried: Tensor, found: Tensor) -> Tensor:
        """The next states (B, n, d), before the norm."""
        return self.midlayer.finish(carried, found)

    def say(self, states: Tensor) -> Tensor:
        """The states behind the head's norm."""
        said: Tensor = self.norm(states)
        return said


def make(head: Head, model: Any) -> tuple[Eagle3, Readout]:
    """The head's modules as they run beside a target."""
    config, fused = LlamaConfig(**head.config["llama"]), len(head.config["layers"])
    return put_to_work(Eagle3(config, fused, bool(head.config.get(NORMED))), head, model)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """EAGLE-3 with the head trained for this target; OptionError where the rule cannot judge the tree asked for."""
    return rollout_drafter(setup, "eagle3", make, lambda head: head.config["layers"], options)


FAMILY = Family(
    "eagle3",
    "sampled",
    BY_MODEL,
    build,
    (WIDTH, TREE, Knob("top_k", "int", 4, 1, 10)),
    "algorithms §6.2, §6.4; arXiv 2503.01840, 2406.16858",
    head="eagle3",
    anatomy=Anatomy(("ids", "hidden"), "sequential", "gamma", "own", layers="layers"),
)
