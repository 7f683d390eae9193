"""Heads that go on from their own states: EAGLE-1 and 2, EAGLE-3, MTP. What each of them is stands in its own file.

A committed token has a state that the target computed there. The head pairs it with the embedding of the token *behind*
it, which the state alone could not know, and its one layer turns the pair into a state that says what comes after that
token. Where the target has not been yet, the head's own last state stands in for the target's. See algorithms §6, §7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from spec_viz.drafters.growth import Expand, Grown, best, grow
from spec_viz.drafters.head import Attention, Head, embedding_rows
from spec_viz.drafters.medusa import choose
from spec_viz.drafters.model import ModelDrafter, model_drafter
from spec_viz.drafters.readout import Readout, placed
from spec_viz.drafters.registry import Setup, check_tree
from spec_viz.engine.cache import GrowingLayer, growing
from spec_viz.engine.device import rows, send
from spec_viz.engine.draws import Draws
from spec_viz.engine.graphs import Capture, Fed, FixedLayer, Given, Graphs, Shape, additive, give_back, lend
from spec_viz.engine.proposal import ROOT, Needs, Outcome, Pending, Proposal, Seen, chain, depths

# Nodes that were grown and not kept, as a round tells them: the best so many.
TOLD = 60


class Block(nn.Module):
    """A decoder layer's parts under Llama's names; how states come in is the subclass's matter, and so is the order."""

    self_attn: Attention
    post_attention_layernorm: LlamaRMSNorm
    mlp: LlamaMLP

    def finish(self, carried: Tensor, found: Tensor) -> Tensor:
        """The layer's output (B, n, d), from what its residual carries and what attention found."""
        states = carried + found
        return states + cast(Tensor, self.mlp(self.post_attention_layernorm(states)))


class Body(nn.Module, ABC):
    """A head's weights under their published names, and the four things its rollout asks of them.

    `reads` is how wide the target's states are as they are heard.
    """

    reads: int
    _rotary: LlamaRotaryEmbedding

    @property
    @abstractmethod
    def attention(self) -> Attention:
        """The attention of its one layer."""

    def take_in(self, hidden: Tensor) -> Tensor:
        """The target's states (…, reads) as the layer's pairs take them, (…, d)."""
        return hidden

    @abstractmethod
    def project(
        self, embedded: Tensor, states: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values of pairs of embeddings and states, both (B, n, d), and what the residual carries."""

    @abstractmethod
    def finish(self, carried: Tensor, found: Tensor) -> Tensor:
        """The next states (B, n, d), from what the residual carries and what attention found."""

    def say(self, states: Tensor) -> Tensor:
        """What the output rows read of states (…, d)."""
        return states

    def angles(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (1, n, head_dim) of rotary positions (1, n)."""
        return cast(tuple[Tensor, Tensor], self._rotary(states, position_ids=positions))


class Rollout:
    """The head with the cache of one run: entry t is the pair of the target's state at t and the token behind it.

    `hear` brings states, `feed` the tokens that complete them to pairs. `feed_tree` goes on from the head's own states;
    what comes of that is kept until the next roll back, which takes all of it: those states were guesses.
    """

    def __init__(self, model: Any, body: Body, readout: Readout, capture: Capture | None = None) -> None:
        self._embedding = embedding_rows(model)
        self._body = body
        self._readout = readout
        self._capture = capture
        self._graphs: Graphs | None = None
        self._cache: GrowingLayer
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
        """Take in the target's hidden states (n, reads) at the next n committed tokens."""
        self._heard = torch.cat([self._heard.to(hidden.device), hidden.float()])

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """Append the pairs of these tokens and the states before them; logits (keep, V) of what follows the last."""
        states = self._body.take_in(self._heard[: len(tokens)])
        self._heard = self._heard[len(tokens) :]
        logits, states = self._step(Fed(tokens, chain(len(tokens)), keep, states=states))
        self._states = states[-1:]
        return logits

    @torch.inference_mode()
    def feed_tree(self, tokens: Sequence[int] | Tensor, parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Append a tree's last nodes: each goes on from its parent's state, the first ones from the last pair's.

        The tokens may lie on the device.
        """
        before = [parent + 1 for parent in parents[len(parents) - len(tokens) :]]
        logits, states = self._step(Fed(tokens, parents, keep, states=rows(self._states, before)))
        self._states = torch.cat([self._states, states])
        return logits, Seen()

    def _step(self, fed: Fed) -> tuple[Tensor, Tensor]:
        """Logits (keep, V) and the layer's states (n, d) at a tree's last nodes, captured where that can be."""
        if self._capture and not self._graphs and not self.length:
            self._graphs = lend(self._body, self._capture, self, lambda: Cache(layers=[FixedLayer()]))
            self._cache = next(growing(self._graphs.cache))
        if self._graphs and (found := self._graphs.run(self._compute, fed)):
            logits, states = found
            return logits, states
        assert fed.states is not None
        states = self._through(fed.tokens, fed.states, fed.parents)
        return self._read_off(states[-fed.keep :]), states

    def _compute(self, shape: Shape, given: Given) -> tuple[Tensor, Tensor]:
        assert given.states is not None
        mask = additive(given.sees, given.states.dtype)
        states = self._layer(given.ids, given.states, given.positions[None], mask)
        return self._read_off(states[-shape.keep :]), states

    def _through(self, tokens: Sequence[int] | Tensor, states: Tensor, parents: Sequence[int]) -> Tensor:
        """The layer's states (n, d), as the next step takes them, at a tree's last nodes; its first ones are cached."""
        mask, positions = place(self.length + len(tokens) - len(parents), parents, len(tokens), states.device)
        return self._layer(send(tokens, states.device), states, positions, mask.to(states.dtype))

    def _layer(self, ids: Tensor, states: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        body = self._body
        angles = body.angles(states[None], positions)
        queries, keys, values, carried = body.project(self._embedding[ids].float()[None], states[None], angles)
        keys, values = self._cache.update(keys, values)
        return body.finish(carried, body.attention.attend(queries, keys, values, mask))[0]

    def _read_off(self, states: Tensor) -> Tensor:
        logits: Tensor = self._readout(self._body.say(states))
        return logits

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Forget what lies behind the first `length` entries, kept drafts too: their true states are yet to come."""
        self._cache.crop(length - self.length)

    def close(self) -> None:
        if self._graphs:
            give_back(self._body, self._graphs)
            self._graphs = None
        self._cache = GrowingLayer()
        self._heard = torch.empty(0, self._body.reads)
        self._states = torch.empty(0)


def place(base: int, parents: Sequence[int], count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mask (count, base + n), to be added, and positions (1, count) of a tree's last nodes behind `base` pairs."""
    total = len(parents)
    if tuple(parents) == chain(total):
        sees = torch.ones(total, total, dtype=torch.bool, device=device).tril()[total - count :]
    else:
        above = torch.eye(total, dtype=torch.bool)
        for node, parent in enumerate(parents):
            if parent != ROOT:
                above[node] |= above[parent]
        sees = send(above[total - count :].long().flatten().tolist(), device).view(count, total) > 0
    mask = torch.zeros(count, base + total, device=device)
    mask[:, base:].masked_fill_(~sees, -torch.inf)
    return mask, send([base + depth - 1 for depth in depths(parents)[total - count :]], device)[None]


class RolloutDrafter(ModelDrafter):
    """Drafts from the target's states at the committed tokens, and from its own behind them.

    The prompt's pairs are fed as soon as the target has read it, so that drafting costs the same in every round. After
    a round nothing of the draft stays; the next one begins with the pairs of what was kept, in one pass.
    """

    _model: Rollout

    def prepare(
        self, layers: Sequence[int], tree: int, breadth: int, accuracies: Sequence[Sequence[float]] = ()
    ) -> None:
        """Say which hidden states to read, and how a `tree` of so many nodes comes about.

        A dynamic one is grown from the `breadth` best of each depth. Where `accuracies` say, by depth and rank, how
        often a guess was right, the tree has the shape that follows from them in every round.
        """
        self.needs = Needs(layers=tuple(layers))
        self._tree = tree
        self._breadth = breadth
        self._accuracies = tuple(map(tuple, accuracies))
        self._began = False

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal | Pending:
        return self._grow(context, gamma) if self._tree else super().propose(context, gamma, draws)

    def _begin(self, context: Sequence[int]) -> Tensor:
        # The first token of the text stands behind no state.
        return self._model.feed(context[self._model.length + 1 :], keep=1)

    def _grow(self, context: Sequence[int], gamma: int) -> Proposal:
        first = self._begin(context)
        self._committed = self._model.length
        breadth = len(self._accuracies[0]) if self._accuracies else self._breadth
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
            return [likeliest(law, breadth) for law in laws]

        if self._accuracies:
            shape = choose(self._accuracies[:gamma], self._tree)
            nodes, places = fill(expand, shape, self._ends)
            kept = list(range(len(nodes)))
            chances = [{"path_accuracy": round(shape[at][2], 6)} for at in places]
            why = [_reason(node) | chance for node, chance in zip(nodes, chances, strict=True)]
        else:
            nodes = grow(expand, gamma, self._breadth, self._tree, self._ends)
            kept = best(nodes, self._tree)
            why = [_reason(node) | {"grown": len(nodes)} for node in nodes]
            if why:
                why[0]["dropped"] = _dropped(nodes, kept)
        whole = Proposal(
            tuple(node.token for node in nodes), why=tuple(why), parents=tuple(node.parent for node in nodes)
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
            self._model.hear(rows(hidden, [0, *(node + 1 for node in outcome.path)]))
        self._committed, self._fed = self._model.length, 0


def _reason(node: Grown) -> dict[str, Any]:
    return {"path_q": round(exp(node.score), 6), "rank": node.rank}


def _dropped(nodes: Sequence[Grown], kept: Sequence[int]) -> list[list[int | float]]:
    """The best of what was grown and not kept, as [token, parent, path probability], parents first.

    Parents are numbers among the kept nodes, and beyond them among the dropped ones.
    """
    lost = sorted({*best(nodes, len(kept) + TOLD)} - {*kept})
    number = {ROOT: ROOT, **{node: at for at, node in enumerate([*kept, *lost])}}
    return [[nodes[at].token, number[nodes[at].parent], round(exp(nodes[at].score), 6)] for at in lost]


def likeliest(law: Tensor, count: int) -> list[tuple[int, float]]:
    """The most probable tokens of a law (V,) with their log-probabilities, at most `count`, none without a chance."""
    found = law.topk(min(count, len(law)))
    pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
    return [(token, log(chance)) for token, chance in pairs if chance > 0]


def fill(
    expand: Expand, shape: Sequence[tuple[int, int, float]], ends: Collection[int]
) -> tuple[list[Grown], list[int]]:
    """The nodes of a static tree, depth by depth, and the place of each in its `shape` of (parent, rank from 0, …).

    Where a law has too few tokens for a rank, or an end of text stands, what would lie there and below is left out.
    """
    children: dict[int, list[int]] = {}
    for at, (parent, _, _) in enumerate(shape):
        children.setdefault(parent, []).append(at)
    nodes: list[Grown] = []
    places: list[int] = []
    # Places in the shape, and the numbers of their nodes.
    level = [(ROOT, ROOT)]
    while level := [pair for pair in level if pair[0] in children]:
        below: list[tuple[int, int]] = []
        for (at, node), guesses in zip(level, expand(nodes, [node for _, node in level]), strict=True):
            above = 0.0 if node == ROOT else nodes[node].score
            for child in children[at]:
                rank = shape[child][1]
                if rank < len(guesses):
                    token, chance = guesses[rank]
                    if token not in ends:
                        below.append((child, len(nodes)))
                    nodes.append(Grown(token, node, rank + 1, above + chance))
                    places.append(child)
        level = below
    return nodes, places


def rollout_drafter(
    setup: Setup,
    name: str,
    make: Callable[[Head, Any], tuple[Body, Readout]],
    layers: Callable[[Head], Sequence[int]],
    options: Mapping[str, Any],
    static: bool = False,
) -> RolloutDrafter:
    """The drafter on the trained head of this name; OptionError where the rule cannot judge the tree asked for.

    ValueError for a static tree on a head of which nobody has counted how often its guesses are right.
    """
    tree = int(options.get("tree", 0))
    if tree:
        check_tree(setup.rule)
    head, model = setup.head(name), setup.target.model
    accuracies = head.config.get("accuracies", ()) if tree and static else ()
    if tree and static and not accuracies:
        raise ValueError(f"the head {name} knows no accuracies of its guesses: a static tree needs them")
    body, readout = placed(head, model, make)
    width = 1 if tree else int(options["width"])
    rollout = Rollout(model, body, readout, setup.target.capture)
    drafter = model_drafter(rollout, setup, width, RolloutDrafter, defer=True)
    drafter.prepare(layers(head), tree, int(options.get("top_k", 1)), accuracies)
    # Keys and values of one layer.
    drafter.kv_bytes_per_token = 2 * body.attention.k_proj.out_features * torch.float32.itemsize
    drafter.weight_bytes = head.weight_bytes
    return drafter
