"""Medusa: several heads read one state of the target, and each says a token further ahead (2401.10774).

The state h is the last that the target has verified, behind its final norm: the one its own output rows turned into the
last committed token. Head k, from 0, says the token k + 1 places behind that one. A head turns h into
h + SiLU(W h + b), which the target's own rows read off; the published heads have rows of their own.

No head knows what the others said: that makes all drafts of a round one small pass, and is what limits them. See
algorithms §5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor, nn

from spec_viz.drafters.head import Head
from spec_viz.drafters.model import ModelDrafter, likeliest, model_drafter
from spec_viz.drafters.readout import Readout, placed, put_to_work
from spec_viz.drafters.registry import TREE, Anatomy, Family, Setup, check_tree
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Needs, Outcome, Proposal, Seen, depths


class Block(nn.Module):
    """h + SiLU(W h + b); W and b begin at zero, so that a new head says what the target says."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(…, d) → (…, d)."""
        return states + nn.functional.silu(self.linear(states))


class Medusa(nn.ModuleList):
    """The heads' weights under their published names: `0.0.linear.weight` is that of head 0."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__(nn.Sequential(Block(d)) for _ in range(heads))

    def forward(self, states: Tensor) -> Tensor:
        """What each head makes of the states (…, d): (…, heads, d)."""
        return torch.stack([head(states) for head in self], -2)


@cache
def choose(accuracies: tuple[tuple[float, ...], ...], nodes: int) -> tuple[tuple[int, int, float], ...]:
    """The static tree with the longest expected path: (parent, rank from 0, chance of the path), parents first.

    `accuracies` are, by head and rank, how often that guess of that head was right. As if heads were right
    independently, a path is as likely as the product of its nodes; the best nodes by it are a tree (§5.1).
    """
    found: list[tuple[int, int, float]] = []
    heap: list[tuple[float, tuple[int, ...], int]] = []

    def offer(parent: int, path: tuple[int, ...], chance: float) -> None:
        if len(path) < len(accuracies):
            for rank, accuracy in enumerate(accuracies[len(path)]):
                if accuracy > 0:
                    heappush(heap, (-chance * accuracy, (*path, rank), parent))

    offer(ROOT, (), 1.0)
    while heap and len(found) < nodes:
        chance, path, parent = heappop(heap)
        found.append((parent, path[-1], -chance))
        offer(len(found) - 1, path, -chance)
    return tuple(found)


class Fan:
    """The heads over one state: what follows a node depends on its depth alone, so there is nothing to cache."""

    length = 0

    def __init__(self, body: Medusa, readout: Readout) -> None:
        self._body = body
        self._readout = readout
        self._state: Tensor | None = None
        self.logits = torch.empty(0)

    def hear(self, state: Tensor) -> None:
        """Take in the target's last verified state (1, d)."""
        self._state = state.float()

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        """All heads in one pass, kept as `logits` (heads, V); those (1, V) of head 0."""
        assert self._state is not None
        self.logits = self._readout(self._body(self._state)[0])
        return self.logits[:1]

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        """Logits (keep, V) of the head behind each of a tree's last nodes."""
        return self.logits[list(depths(parents)[-keep:])], Seen()

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        """Nothing is kept of a draft."""

    def close(self) -> None:
        self._state = None
        self.logits = torch.empty(0)


class MedusaDrafter(ModelDrafter):
    """A chain with one token a head, or a static tree of the heads' best guesses."""

    _model: Fan

    def prepare(self, layer: int, accuracies: Sequence[Sequence[float]], tree: int) -> None:
        """Say which hidden state to read, how often each head's guesses are right, and how many nodes a `tree` has."""
        self.needs = Needs(layers=(layer,))
        self._layer = layer
        self._accuracies = tuple(map(tuple, accuracies))
        self._tree = tree
        # After the prefill the rows shown are the prompt's, from then on those of a round.
        self._began = False

    @property
    def cache_length(self) -> int | None:
        return None

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        gamma = min(gamma, len(self._accuracies))
        if self._tree:
            return self._fill(context, choose(self._accuracies[:gamma], self._tree))
        proposal = self._stepwise(context, gamma, draws)
        assert proposal.q_raw is not None
        told = zip(proposal.depths, proposal.q_raw, strict=True)
        return replace(proposal, why=tuple({"head": depth, "candidates": likeliest(law)} for depth, law in told))

    def _fill(self, context: Sequence[int], shape: Sequence[tuple[int, int, float]]) -> Proposal:
        """The static tree with the tokens that the heads put at its ranks."""
        self._begin(context)
        logits = self._model.logits
        # Behind different drafts a penalty would differ; that of the committed text is the same for all.
        laws = [self._warp.law(row[None], context)[0] for row in logits]
        guesses = [law.topk(min(len(ranks), len(law))) for law, ranks in zip(laws, self._accuracies, strict=True)]
        tokens, parents, depth, why = list[int](), list[int](), list[int](), list[dict[str, Any]]()
        # Where a node of the static tree stands in the draft; missing when it is not drafted.
        place = {ROOT: ROOT}
        for node, (parent, rank, chance) in enumerate(shape):
            at = place.get(parent)
            if at is None or (at != ROOT and tokens[at] in self._ends):
                continue
            below = 0 if at == ROOT else depth[at]
            found = guesses[below]
            if rank < len(found.values) and float(found.values[rank]) > 0:
                place[node] = len(tokens)
                tokens.append(int(found.indices[rank]))
                parents.append(at)
                depth.append(below + 1)
                why.append({"head": below + 1, "rank": rank + 1, "path_accuracy": round(chance, 6)})
        heads = logits.softmax(-1)
        # All drafts of a head have the same candidates: its first one tells them.
        for head in set(depth):
            why[depth.index(head)]["candidates"] = likeliest(heads[head - 1])
        raw = heads[[step - 1 for step in depth]]
        return Proposal(tuple(tokens), q_raw=raw, why=tuple(why), parents=tuple(parents))

    def observe(self, outcome: Outcome) -> None:
        hidden = outcome.seen.hidden[self._layer]
        if self._began:
            row = outcome.path[-1] + 1 if outcome.path else 0
        else:
            row, self._began = len(hidden) - 1, True
        self._model.hear(hidden[row : row + 1])


def make(head: Head, model: Any) -> tuple[Medusa, Readout]:
    """The heads' modules as they run beside a target."""
    return put_to_work(Medusa(model.config.hidden_size, int(head.config["heads"])), head, model)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """Medusa with the heads trained for this target; OptionError where the rule cannot judge the tree asked for."""
    tree = int(options["tree"])
    if tree:
        check_tree(setup.rule)
    head, model = setup.head("medusa"), setup.target.model
    drafter = model_drafter(Fan(*placed(head, model, make)), setup, 1, MedusaDrafter)
    drafter.prepare(int(model.config.num_hidden_layers), head.config["accuracies"], tree)
    drafter.weight_bytes = head.weight_bytes
    return drafter


FAMILY = Family(
    "medusa",
    "sampled",
    ("token", "block", "match", "typical", "ensemble", "synthetic"),
    build,
    (TREE,),
    "algorithms §5.1; arXiv 2401.10774",
    head="medusa",
    anatomy=Anatomy(("last_hidden",), "parallel", "one", "own"),
)
