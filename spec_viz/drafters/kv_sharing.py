"""KV sharing: a small transformer without keys and values of its own, which reads the target's (Gemma 4's assistant).

What the target has computed of the text lies in its cache already. The drafter only asks: its queries attend to one
layer of that cache, where it stands, copied nowhere. It has no cache of its own, nothing to prefill and nothing to roll
back, and a long text costs it no memory at all.

A step reads the embedding of the newest token and a hidden state: first the target's last one, of the token before;
from then on what the step before gave out, which takes its place. That state carries all it knows of its own drafts,
since they have no entries in the cache. All steps of a round ask from the same position, that of the last committed
token.

Gemma's assistant has an output matrix of its own, and its authors draft its best guesses. This one is read off by the
target's own rows. Either law is a proper q, so drafts are drawn from it wherever the rule wants drawn drafts, beside a
Gemma 4 target from the assistant's (`drafters.assistant`). See algorithms §7.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from spec_viz.drafters import assistant
from spec_viz.drafters.borrower import Borrower
from spec_viz.drafters.early_exit import SharedDrafter
from spec_viz.drafters.head import Head, embedding_rows, turn
from spec_viz.drafters.model import model_drafter
from spec_viz.drafters.readout import Readout, placed, put_to_work
from spec_viz.drafters.registry import BY_MODEL, WIDTH, Anatomy, Family, Setup
from spec_viz.engine.proposal import Drafter, Needs, Outcome
from spec_viz.engine.target import CachedModel


class Asking(nn.Module):
    """Attention with queries alone: heads and head_dim fit keys and values that somebody else has made."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
        inner = config.num_attention_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, inner, bias=False)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(
        self, states: Tensor, keys: Tensor, values: Tensor, angles: tuple[Tensor, Tensor], sees: Tensor | None
    ) -> Tensor:
        """What states (B, n, w) find in keys and values (B, groups, m, head_dim): (B, n, w)."""
        queries = turn(self.q_proj(states).view(*states.shape[:2], -1, self.head_dim).transpose(1, 2), angles)
        # The target's entries may be of another precision than what asks them.
        keys, values = keys.to(queries.dtype), values.to(queries.dtype)
        found = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=sees, enable_gqa=True)
        out: Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """A Llama layer whose attention only asks."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Asking(config)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]

    def forward(
        self, states: Tensor, keys: Tensor, values: Tensor, angles: tuple[Tensor, Tensor], sees: Tensor | None
    ) -> Tensor:
        """(B, n, w) → (B, n, w)."""
        states = states + self.self_attn(self.input_layernorm(states), keys, values, angles, sees)
        return states + cast(Tensor, self.mlp(self.post_attention_layernorm(states)))


class KvSharing(nn.Module):
    """The weights, named as Gemma's assistant names its own; `width` d is the target's."""

    def __init__(self, config: LlamaConfig, width: int) -> None:
        super().__init__()
        self.pre_projection = nn.Linear(2 * width, config.hidden_size, bias=False)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_projection = nn.Linear(config.hidden_size, width, bias=False)
        self._rotary = LlamaRotaryEmbedding(config)

    def angles(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, n, head_dim) of rotary positions (B, n)."""
        return cast(tuple[Tensor, Tensor], self._rotary(states, position_ids=positions))

    def forward(
        self,
        embedded: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        angles: tuple[Tensor, Tensor],
        sees: Tensor | None = None,
    ) -> Tensor:
        """The next hidden states (B, n, d) from embeddings and hidden states, both (B, n, d), in that order.

        Keys and values are (B, groups, m, head_dim). `sees` (B, 1, n, m) says which of them each may find; None: all.
        """
        states = self.pre_projection(torch.cat([embedded, hidden], -1))
        for layer in self.layers:
            states = layer(states, keys, values, angles, sees)
        out: Tensor = self.post_projection(self.norm(states))
        return out


class Asker(Borrower):
    """The head's steps beside one run of a target: it asks one layer."""

    def __init__(self, target: CachedModel, layer: int, body: KvSharing, readout: Readout) -> None:
        super().__init__()
        self._target = target
        self._layer = layer
        self._embedding = embedding_rows(target.model)
        self._body = body
        self._readout = readout
        self._keys = self._values = torch.empty(0)

    def look(self) -> None:
        keys, values = self._target.entries(self._layer)
        self._keys, self._values = keys.float(), values.float()
        position = torch.tensor([[self._target.length]], device=keys.device)
        self._angles = self._body.angles(self._states, position)

    def ask(self, tokens: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self._embedding[tokens].float()
        states = self._body(embedded[None], states[None], self._keys, self._values, self._angles)[0]
        logits: Tensor = self._readout(states)
        return logits, states

    def close(self) -> None:
        super().close()
        self._keys = self._values = torch.empty(0)


class KvSharingDrafter(SharedDrafter):
    """A chain, or several behind different first tokens, out of the target's last state and its cache."""

    _model: Borrower

    def prepare(self, last: int) -> None:
        """Say which of the target's hidden states is its last."""
        self.needs = Needs(layers=(last,))
        self._last = last
        # After the prefill the rows shown are the prompt's, from then on those of a round.
        self._began = False

    def _begin(self, context: Sequence[int]) -> Tensor:
        return self._model.feed(context[-1:], keep=1)

    def observe(self, outcome: Outcome) -> None:
        hidden = outcome.seen.hidden[self._last]
        if self._began:
            row = outcome.path[-1] + 1 if outcome.path else 0
        else:
            row, self._began = len(hidden) - 1, True
        self._model.hear(hidden[row : row + 1])


def make(head: Head, model: Any) -> tuple[KvSharing, Readout]:
    """The head's modules as they run beside a target."""
    return put_to_work(KvSharing(LlamaConfig(**head.config["llama"]), model.config.hidden_size), head, model)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The drafter trained to read this target's cache, or a Gemma 4 target's assistant."""
    head, target = setup.head("kv_sharing"), setup.target
    borrower: Borrower
    if assistant.ASSISTANT in head.config:
        borrower = assistant.Assisted(target, placed(head, target.model, assistant.make))
    else:
        body, readout = placed(head, target.model, make)
        borrower = Asker(target, int(head.config["layer"]), body, readout)
    drafter = model_drafter(borrower, setup, int(options["width"]), KvSharingDrafter)
    drafter.prepare(int(target.model.config.num_hidden_layers))
    drafter.weight_bytes = head.weight_bytes
    return drafter


FAMILY = Family(
    "kv_sharing",
    "sampled",
    BY_MODEL,
    build,
    (WIDTH,),
    "algorithms §7.3",
    head="kv_sharing",
    anatomy=Anatomy(("ids", "last_hidden", "kv"), "sequential", "gamma", "own"),
)
