"""MTP: a decoder layer that large models are trained with, to say one token further ahead (DeepSeek-V3, 2412.19437).

The module norms the embedding of x_{t+1} and the target's last state h_t apart, projects both to one state, and runs
one whole decoder layer and a norm of its own over it; the target's rows read x_{t+2} off. Published models are trained
with it, for the model's own sake as much as for drafting. Ours came after its target, which does not change.

One module says as many tokens as one likes: its own output, behind its norm, takes the place of h. So do Qwen3-Next's
module in vLLM and every module in transformers, and FastMTP trains for it (2509.18362). DeepSeek's paper has a module
of its own for every further token; vLLM uses its only published one again, from the state before the norm. The paper
writes [hidden; embedding], while vLLM and transformers read the published weights as [embedding; hidden], and so does
this. See algorithms §7.1, §7.2.
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
from spec_viz.drafters.registry import BY_MODEL, WIDTH, Anatomy, Family, Setup
from spec_viz.drafters.rollout import Block, Body, rollout_drafter
from spec_viz.engine.proposal import Drafter


class SharedHead(nn.Module):
    """What stands before the output rows, which are the target's."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)


class Mtp(Body, Block):
    """The module's weights under the names DeepSeek publishes them by, without their number in the model."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.reads = d
        self.enorm = LlamaRMSNorm(d, eps)
        self.hnorm = LlamaRMSNorm(d, eps)
        self.eh_proj = nn.Linear(2 * d, d, bias=False)
        self.input_layernorm = LlamaRMSNorm(d, eps)
        self.self_attn = Attention(config, d)
        self.post_attention_layernorm = LlamaRMSNorm(d, eps)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]
        self.shared_head = SharedHead(config)
        self._rotary = LlamaRotaryEmbedding(config)

    @property
    def attention(self) -> Attention:
        """That of the layer."""
        return self.self_attn

    def project(
        self, embedded: Tensor, states: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values of embeddings and states, both (B, n, d), and the projected pairs."""
        pairs = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(states)], -1))
        return *self.self_attn.project(self.input_layernorm(pairs), angles), pairs

    def finish(self, carried: Tensor, found: Tensor) -> Tensor:
        """The next states (B, n, d), behind the module's norm: as the target's last states are."""
        states: Tensor = self.shared_head.norm(Block.finish(self, carried, found))
        return states


def make(head: Head, model: Any) -> tuple[Mtp, Readout]:
    """The module as it runs beside a target."""
    return put_to_work(Mtp(LlamaConfig(**head.config["llama"])), head, model)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The MTP module trained for this target, used again and again."""
    last = int(setup.target.model.config.num_hidden_layers)
    return rollout_drafter(setup, "mtp", make, lambda _: (last,), options)


FAMILY = Family(
    "mtp",
    "sampled",
    BY_MODEL,
    build,
    (WIDTH,),
    "algorithms §7.1, §7.2; arXiv 2412.19437, 2509.18362",
    head="mtp",
    anatomy=Anatomy(("ids", "last_hidden"), "sequential", "gamma", "own"),
)
