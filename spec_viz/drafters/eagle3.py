"""EAGLE-3: one decoder layer that reads three of the target's layers and goes on from its own output (2503.01840).

For every committed token the head fuses what the target computed there, low, middle and high, into one state g, and
pairs it with the embedding of the token *behind* it, which g alone could not know. Its layer turns the pair into a
state that says what comes after that token. Where the target has not been yet, the head's own last state stands in
for g: it was trained that way (training-time test). See algorithms §6.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from spec_viz.drafters.growth import Grown, best, grow
from spec_viz.drafters.head import Attention, Head, embedding_rows
from spec_viz.drafters.model import ModelDrafter, model_drafter
from spec_viz.drafters.readout import Readout, placed, put_to_work
from spec_viz.drafters.registry import BY_MODEL, TREE, WIDTH, Anatomy, Family, Knob, Setup, check_tree
from spec_viz.engine.cache import GrowingLayer
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Needs, Outcome, Proposal, Seen, chain, depths


class Layer(nn.Module):
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

    def finish(self, states: Tensor, attended: Tensor) -> Tensor:
        """The next states (B, n, d), from those that came in and what attention found."""
        states = states + attended
        return states + cast(Tensor, self.mlp(self.post_attention_layernorm(states)))


class Eagle3(nn.Module):
    """The head's weights under their published names (SafeAILab, SpecForge): fc, midlayer, norm."""

    def __init__(self, config: LlamaConfig, fused: int) -> None:
        super().__init__()
        self.fc = nn.Linear(fused * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = Layer(config)
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self._rotary = LlamaRotaryEmbedding(config)

    def angles(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (1, n, head_dim) of rotary positions (1, n)."""
        return cast(tuple[Tensor, Tensor], self._rotary(states, position_ids=positions))


class Rollout:
    """The head with the cache of one run: entry t is the pair of the target's state g_t and the token behind it.

    `hear` brings states, `feed` the tokens that complete them to pairs. `feed_tree` goes on from the head's own states;
    what comes of that is kept until the next roll back, which takes all of it: those states were guesses.
    """

    def __init__(self, model: Any, body: Eagle3, readout: Readout) -> None:
        self._embedding = embedding_rows(model)
        self._body = body
        self._readout = readout
        # States that wait for the token behind them.
        self._heard: Tensor
        # Those that nodes go on from: row 0 is the last pair's, row i + 1 that of node i.
        self._states: Tensor
        self.close()

    @property
    def length(self) -> int:
        return self._cache.length

    @torch.inference_mode()
    def hear(self, hidden: Tensor) -> None:
        """Take in the target's hidden states (n, layers · d) at the next n committed tokens."""
        self._heard = torch.cat([self._heard.to(hidden.device), hidden.float()])

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Append the pairs of these tokens and the states before them; logits (keep, V) of what follows the last."""
        states = self._body.fc(self._heard[: len(tokens)])
        self._heard = self._heard[len(tokens) :]
        states = self._through(tokens, states, chain(len(tokens)))
        self._states = states[-1:]
        return self._read_off(states[-keep:])

    @torch.inference_mode()
    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Append a tree's last nodes: each goes on from its parent's state, the first ones from the last pair's."""
        before = [parent + 1 for parent in parents[len(parents) - len(tokens) :]]
        states = self._through(tokens, self._states[before], parents)
        self._states = torch.cat([self._states, states])
        return self._read_off(states[-keep:]), Seen()

    def _through(self, tokens: Sequence[int], states: Tensor, parents: Sequence[int]) -> Tensor:
        """The layer's states (n, d), before its norm, at a tree's last nodes; its first ones lie in the cache."""
        mask, positions = place(self.length + len(tokens) - len(parents), parents, len(tokens))
        ids = torch.tensor(tokens, device=states.device)
        angles = self._body.angles(states[None], positions.to(states.device))
        layer = self._body.midlayer
        queries, keys, values = layer.project(self._embedding[ids].float()[None], states[None], angles)
        keys, values = self._cache.update(keys, values)
        found = layer.self_attn.attend(queries, keys, values, mask.to(states))
        return layer.finish(states[None], found)[0]

    def _read_off(self, states: Tensor) -> Tensor:
        logits: Tensor = self._readout(self._body.norm(states))
        return logits

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Forget what lies behind the first `length` entries, kept drafts too: their true states are yet to come."""
        self._cache.crop(length - self.length)

    def close(self) -> None:
        self._cache = GrowingLayer()
        self._heard = torch.empty(0, self._body.fc.in_features)
        self._states = torch.empty(0)


def place(base: int, parents: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
    """Mask (count, base + n), to be added, and positions (1, count) of a tree's last nodes behind `base` pairs."""
    total = len(parents)
    if tuple(parents) == chain(total):
        sees = torch.ones(total, total, dtype=torch.bool).tril()
    else:
        sees = torch.eye(total, dtype=torch.bool)
        for node, parent in enumerate(parents):
            if parent != ROOT:
                sees[node] |= sees[parent]
    mask = torch.zeros(count, base + total)
    mask[:, base:].masked_fill_(~sees[total - count :], -torch.inf)
    return mask, torch.tensor([[base + depth - 1 for depth in depths(parents)[total - count :]]])


class Eagle3Drafter(ModelDrafter):
    """Drafts from the target's states at the committed tokens, and from its own behind them.

    The prompt's pairs are fed as soon as the target has read it, so that drafting costs the same in every round. After
    a round nothing of the draft stays; the next one begins with the pairs of what was kept, in one pass.
    """

    _model: Rollout

    def prepare(self, layers: Sequence[int], tree: int, breadth: int) -> None:
        """Say which hidden states to fuse; a `tree` of so many nodes is grown from the `breadth` best of each depth."""
        self.needs = Needs(layers=tuple(layers))
        self._tree = tree
        self._breadth = breadth
        self._began = False

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        return self._grow(context, gamma) if self._tree else super().propose(context, gamma, draws)

    def _begin(self, context: Sequence[int]) -> Tensor:
        # The first token of the text stands behind no state.
        return self._model.feed(context[self._model.length + 1 :], keep=1)

    def _grow(self, context: Sequence[int], gamma: int) -> Proposal:
        first = self._begin(context)
        self._committed = self._model.length
        # Where a node lies among those that were fed, and the law behind it.
        at, fed, raw = {ROOT: ROOT}, list[int](), dict[int, Tensor]()

        def expand(nodes: Sequence[Grown], frontier: Sequence[int]) -> list[list[tuple[int, float]]]:
            logits = first
            if nodes:
                for node in frontier:
                    at[node] = len(fed)
                    fed.append(at[nodes[node].parent])
                logits, _ = self._model.feed_tree([nodes[node].token for node in frontier], fed, len(frontier))
            raw.update(zip(frontier, logits.softmax(-1), strict=True))
            tokens, parents = [node.token for node in nodes], [node.parent for node in nodes]
            laws = [
                self._warp.law(row[None], [*context, *self._path(tokens, parents, node)])[0]
                for row, node in zip(logits, frontier, strict=True)
            ]
            return [likeliest(law, self._breadth) for law in laws]

        nodes = grow(expand, gamma, self._breadth, self._tree, self._ends)
        kept = best(nodes, self._tree)
        whole = Proposal(
            tuple(node.token for node in nodes),
            why=tuple({"path_q": round(exp(node.score), 6), "rank": node.rank} for node in nodes),
            parents=tuple(node.parent for node in nodes),
        )
        return replace(whole.only(kept), q_raw=torch.stack([raw[nodes[node].parent] for node in kept]))

    def observe(self, outcome: Outcome) -> None:
        hidden = torch.cat([outcome.seen.hidden[layer] for layer in self.needs.layers], -1)
        if not self._began:
            self._began = True
            self._model.hear(hidden)
            if len(outcome.context) > 2:
                self._model.feed(outcome.context[1:-1], keep=1)
        else:
            self._model.roll_back(self._committed)
            self._model.hear(hidden[[0, *(node + 1 for node in outcome.path)]])
        self._committed, self._fed = self._model.length, 0


def likeliest(law: Tensor, count: int) -> list[tuple[int, float]]:
    """The most probable tokens of a law (V,) with their log-probabilities, at most `count`, none without a chance."""
    found = law.topk(min(count, len(law)))
    pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return [(token, log(chance)) for token, chance in pairs if chance > 0]


def make(head: Head, model: Any) -> tuple[Eagle3, Readout]:
    """The head's modules as they run beside a target."""
    return put_to_work(Eagle3(LlamaConfig(**head.config["llama"]), len(head.config["layers"])), head, model)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """EAGLE-3 with the head trained for this target; OptionError where the rule cannot judge the tree asked for."""
    tree = int(options["tree"])
    if tree:
        check_tree(setup.rule)
    head, model = setup.head("eagle3"), setup.target.model
    body, readout = placed(head, model, make)
    width = 1 if tree else int(options["width"])
    drafter = model_drafter(Rollout(model, body, readout), setup, width, Eagle3Drafter)
    drafter.prepare(head.config["layers"], tree, int(options["top_k"]))
    # Keys and values of one layer.
    drafter.kv_bytes_per_token = 2 * body.midlayer.self_attn.k_proj.out_features * torch.float32.itemsize
    drafter.weight_bytes = head.weight_bytes
    return drafter


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
