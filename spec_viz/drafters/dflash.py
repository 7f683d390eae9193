"""DFlash: a whole block of drafts in one pass of a small network that reads the target's states (2602.06036).

The block is the last committed token and, behind it, a learned vector wherever a token is to be filled in. Its layers
attend to the whole block at once, and to what the target computed at every token before it: those states, fused into
one, stand among the keys and values of each layer as they are (KV injection). At the last committed token itself the
target has not been yet; its embedding has to speak for it.

All drafts of a round come out of one pass, so each is the likeliest *there*, whatever the others turn out to be. See
algorithms §8.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from spec_viz.drafters.head import Attention, Head, embedding_rows, turn
from spec_viz.drafters.model import ModelDrafter, likeliest, model_drafter
from spec_viz.drafters.readout import Readout, placed, put_to_work
from spec_viz.drafters.registry import Anatomy, Family, Setup
from spec_viz.engine.cache import GrowingLayer
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Drafter, Needs, Outcome, Proposal, Seen, depths

Angles = tuple[Tensor, Tensor]
# What judges a chain that was drawn, or chosen, slot by slot.
CHAIN_RULES = ("token", "block", "match", "typical", "ensemble", "synthetic")


class BlockAttention(Attention):
    """Queries of the block alone; keys and values of it and of the target's states, normed by head as Qwen3's are."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, config.hidden_size)
        self.q_norm = LlamaRMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = LlamaRMSNorm(self.head_dim, config.rms_norm_eps)

    def ask(self, states: Tensor, angles: Angles) -> Tensor:
        """Queries (B, heads, n, head_dim) of states (B, n, d)."""
        return turn(self.q_norm(self._by_head(self.q_proj(states))).transpose(1, 2), angles)

    def offer(self, states: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        """Keys and values (B, groups, n, head_dim) of states (B, n, d)."""
        keys = self.k_norm(self._by_head(self.k_proj(states))).transpose(1, 2)
        return turn(keys, angles), self._by_head(self.v_proj(states)).transpose(1, 2)

    def _by_head(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:-1], -1, self.head_dim)


class Layer(nn.Module):
    """A decoder layer of the block. The target's states come normed already, so only the block is normed here."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = BlockAttention(config)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]

    def finish(self, states: Tensor, attended: Tensor) -> Tensor:
        """The next states (B, n, d), from those that came in and what attention found."""
        states = states + attended
        return states + cast(Tensor, self.mlp(self.post_attention_layernorm(states)))


class DFlash(nn.Module):
    """The backbone's weights under their published names (z-lab, DeepSpec): fc, hidden_norm, layers, norm.

    `mask` (d,) stands where a token is to be filled in; published heads take the row of a spare token of the target.
    """

    def __init__(self, config: LlamaConfig, fused: int) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(fused * d, d, bias=False)
        self.hidden_norm = LlamaRMSNorm(d, eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = LlamaRMSNorm(d, eps)
        self.mask = nn.Parameter(torch.zeros(d))
        self._rotary = LlamaRotaryEmbedding(config)

    def context(self, features: Tensor) -> Tensor:
        """What the layers see of the target (…, d), from its hidden states (…, layers · d) at committed tokens."""
        return cast(Tensor, self.hidden_norm(self.fc(features)))

    def fill(self, anchors: Tensor, slots: int) -> Tensor:
        """Blocks (…, slots, d) as they go in: the anchors' embeddings (…, d), and the mask behind each."""
        masks = self.mask.expand(*anchors.shape[:-1], slots - 1, -1)
        return torch.cat([anchors[..., None, :], masks.to(anchors.dtype)], -2)

    def angles(self, states: Tensor, positions: Tensor) -> Angles:
        """Cosines and sines (B, n, head_dim) of rotary positions (B, n)."""
        return cast(Angles, self._rotary(states, position_ids=positions))


class Backbone:
    """The network with the cache of one run: an entry a committed token, of the target's states there.

    `hear` brings states, `remember` makes entries of them, `run` fills in a block behind them. Nothing of a block is
    kept: its guesses are worth less than the states that the target's pass brings in their place.
    """

    def __init__(self, model: Any, body: DFlash, slots: int) -> None:
        self._embedding = embedding_rows(model)
        self._body = body
        self._slots = slots
        self._heard: Tensor
        self.close()

    @property
    def length(self) -> int:
        return self._cache[0].length

    @torch.inference_mode()
    def hear(self, hidden: Tensor) -> None:
        """Take in the target's hidden states (n, layers · d) at the next n committed tokens."""
        self._heard = torch.cat([self._heard.to(hidden.device), hidden.float()])

    @torch.inference_mode()
    def remember(self) -> None:
        """Make entries of all that was heard."""
        if not len(self._heard):
            return
        states = self._body.context(self._heard)[None]
        self._heard = self._heard[:0]
        angles = self._angles(states)
        for layer, cache in zip(self._body.layers, self._cache, strict=True):
            cache.update(*cast(Layer, layer).self_attn.offer(states, angles))

    @torch.inference_mode()
    def run(self, token: int) -> Tensor:
        """The normed states (slots, d) of a block that begins with the last committed token."""
        self.remember()
        states = self._body.fill(self._embedding[token].float(), self._slots)[None]
        angles = self._angles(states)
        for layer_, cache in zip(self._body.layers, self._cache, strict=True):
            layer = cast(Layer, layer_)
            inputs = layer.input_layernorm(states)
            keys, values = cache.update(*layer.self_attn.offer(inputs, angles))
            found = layer.self_attn.attend(layer.self_attn.ask(inputs, angles), keys, values, None)
            states = layer.finish(states, found)
            cache.crop(-self._slots)
        return cast(Tensor, self._body.norm(states))[0]

    def _angles(self, states: Tensor) -> Angles:
        positions = torch.arange(self.length, self.length + states.shape[1], device=states.device)
        return self._body.angles(states, positions[None])

    def close(self) -> None:
        self._cache = [GrowingLayer() for _ in self._body.layers]
        self._heard = torch.empty(0, self._body.fc.in_features)


class Block(Backbone):
    """A block as `ModelDrafter` asks for it: what follows a node depends on its depth alone.

    Of the drafts only the first `reach` are read off.
    """

    def __init__(self, model: Any, body: DFlash, readout: Readout, slots: int) -> None:
        super().__init__(model, body, slots)
        self._readout = readout
        self.reach = slots - 1

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """All slots in one pass, kept as `logits` (reach, V); those (1, V) of the first draft."""
        # A mask says the token of its own place, so the anchor's own slot says nothing.
        logits: Tensor = self._readout(self.run(tokens[-1])[1 : self.reach + 1])
        self.logits = logits
        return logits[:1]

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Logits (keep, V) of the slot behind each of a tree's last nodes."""
        return self.logits[list(depths(parents)[-keep:])], Seen()

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Nothing is kept of a draft."""

    def close(self) -> None:
        super().close()
        self.logits = torch.empty(0)


class BlockDrafter(ModelDrafter):
    """A chain with one token a slot, at most as many as the block has slots.

    The prompt's states are taken in as soon as the target has read it, so that drafting costs the same in every round.
    """

    _model: Any

    def prepare(self, layers: Sequence[int], reach: int) -> None:
        """Say which hidden states to fuse, and how many drafts a block holds."""
        self.needs = Needs(layers=tuple(layers))
        self._reach = reach
        self._began = False

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        self._model.reach = min(gamma, self._reach)
        proposal = self._stepwise(context, self._model.reach, draws)
        return replace(proposal, why=tuple(self._reason(proposal, node) for node in range(len(proposal))))

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        first: Tensor = self._model.feed(context[-1:], keep=1)
        return first

    def _reason(self, proposal: Proposal, node: int) -> dict[str, Any]:
        """The slot of a draft, and what the slot holds likeliest: [id, probability at temperature 1]."""
        assert proposal.q_raw is not None
        return {"slot": node + 1, "candidates": likeliest(proposal.q_raw[node])}

    def observe(self, outcome: Outcome) -> None:
        hidden = torch.cat([outcome.seen.hidden[layer] for layer in self.needs.layers], -1)
        if self._began:
            self._model.hear(hidden[[0, *(node + 1 for node in outcome.path)]])
        else:
            self._began = True
            self._model.hear(hidden)
            self._model.remember()


def make(head: Head, model: Any) -> tuple[DFlash, Readout]:
    """The head's modules as they run beside a target."""
    return put_to_work(DFlash(LlamaConfig(**head.config["llama"]), len(head.config["layers"])), head, model)


def weigh(drafter: BlockDrafter, head: Head, body: DFlash) -> None:
    """Say what a drafter adds to the target's memory."""
    attention = cast(Layer, body.layers[0]).self_attn
    # Keys and values of every layer.
    drafter.kv_bytes_per_token = 2 * len(body.layers) * attention.k_proj.out_features * torch.float32.itemsize
    drafter.weight_bytes = head.weight_bytes


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """DFlash with the head trained for this target."""
    head, model = setup.head("dflash"), setup.target.model
    body, readout = placed(head, model, make)
    slots = int(head.config["block"])
    drafter = model_drafter(Block(model, body, readout, slots), setup, 1, BlockDrafter)
    drafter.prepare(head.config["layers"], slots - 1)
    weigh(drafter, head, body)
    return drafter


FAMILY = Family(
    "dflash",
    "sampled",
    CHAIN_RULES,
    build,
    (),
    "algorithms §8.1; arXiv 2602.06036",
    head="dflash",
    anatomy=Anatomy(("ids", "hidden"), "parallel", "one", "own", layers="layers"),
)
