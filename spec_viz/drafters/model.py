"""A language model as drafter: a chain or a tree, drawn from its own law or chosen as its best guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from spec_viz.drafters.registry import Setup
from spec_viz.engine.draws import Draws, pick, pick_there
from spec_viz.engine.length import Confident, Length
from spec_viz.engine.proposal import NOTHING, ROOT, Drawn, Needs, Outcome, Pending, Proposal, Seen, chain
from spec_viz.engine.rules import RULES
from spec_viz.engine.warp import Warp

# Candidates of a place that a drafter tells beside its draft.
SHOWN = 3


class Feedable(Protocol):
    """What a drafter needs of a model with a cache; `CachedModel` is one."""

    @property
    def length(self) -> int: ...

    def feed(self, tokens: Sequence[int], keep: int) -> Tensor: ...

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]: ...

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None: ...

    def close(self) -> None: ...


class Steps(Feedable, Protocol):
    """A model that also takes tokens (n,) that still lie on the device."""

    def feed_tree(self, tokens: Sequence[int] | Tensor, parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]: ...


class ModelDrafter:
    """Drafts depth by depth: the last committed token gets `width` children, every other node one.

    How children come about follows from the rule that will judge them (`drawn`): independent draws, draws without
    replacement, or the model's most probable tokens. Where nothing about the next step hangs on the token before, as in
    a chain of a fixed length, it may be `deferred`: the tokens stay on the device, and nobody waits for a step.
    """

    needs: Needs = NOTHING
    deferred: bool = False
    # What it adds to the target's memory.
    kv_bytes_per_token: int = 0
    weight_bytes: int = 0

    def __init__(
        self,
        model: Feedable,
        warp: Warp,
        drawn: Drawn,
        width: int,
        length: Length,
        ends: frozenset[int],
        why: dict[str, Any] | None = None,
    ) -> None:
        self._model = model
        # Best guesses are ranked by a law that has more than one: greedy decoding leaves only its first.
        chosen = drawn == "one_hot" and warp.temperature == 0
        self._warp = replace(warp, temperature=1.0) if chosen else warp
        self._drawn = drawn
        self._width = width
        self._length = length
        self._ends = ends
        self._why = why
        # Entries of committed tokens, and how many of the round's nodes were fed behind them.
        self._committed = 0
        self._fed = 0

    @property
    def cache_length(self) -> int | None:
        return self._model.length

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal | Pending:
        return self._ahead(context, gamma, draws) if self.deferred else self._stepwise(context, gamma, draws)

    def _stepwise(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        """A draft of which every token is known before the next one is drawn."""
        tokens: list[int] = []
        parents: list[int] = []
        laws: list[Tensor] = []
        raw: list[Tensor] = []
        logits = self._begin(context)
        if logits is None:
            return Proposal()
        self._committed, self._fed = self._model.length, 0
        frontier = [ROOT]
        for depth in range(gamma):
            grown: list[int] = []
            for row, parent in enumerate(frontier):
                history = [*context, *self._path(tokens, parents, parent)]
                law = self._warp.law(logits[row : row + 1], history)[0]
                for token in self._children(law, self._width if depth == 0 else 1, len(tokens), draws):
                    grown.append(len(tokens))
                    tokens.append(token)
                    parents.append(parent)
                    laws.append(law)
                    raw.append(logits[row].softmax(-1))
            # Nothing is ever written behind an end of text.
            frontier = [node for node in grown if tokens[node] not in self._ends and not self._stops(tokens, raw, node)]
            if not frontier or depth + 1 == gamma:
                break
            logits = self._read(tokens, parents, frontier)
        why = (self._why,) * len(tokens) if self._why else ()
        q = None if self._drawn == "one_hot" else torch.stack(laws)
        return Proposal(tuple(tokens), self._drawn, q, torch.stack(raw), why, tuple(parents))

    def _ahead(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal | Pending:
        """A chain of gamma drafts, the same as stepwise, without looking at any of them.

        What stands behind an end of text is cut once the tokens are known.
        """
        logits = self._begin(context)
        if logits is None:
            return Proposal()
        model = cast(Steps, self._model)
        self._committed = model.length
        tokens: list[Tensor] = []
        laws: list[Tensor] = []
        raw: list[Tensor] = []
        for depth in range(gamma):
            if depth:
                logits, _ = model.feed_tree(tokens[-1], chain(depth), 1)
            law = self._warp.law(logits, ())[0]
            if self._drawn == "one_hot":
                tokens.append(law.topk(1).indices)
            else:
                tokens.append(pick_there(law, draws.by_round("draft", depth)))
            laws.append(law)
            raw.append(logits[0].softmax(-1))
        self._fed = gamma - 1
        q = None if self._drawn == "one_hot" else torch.stack(laws)
        why = (self._why,) * gamma if self._why else ()
        return Pending(torch.cat(tokens), self._drawn, q, torch.stack(raw), why)

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        """Bring the cache up to the committed text; logits (1, V) of what follows, None where nothing can be drafted.

        After a round in which every draft was kept two tokens are missing: the last draft was drawn, never fed.
        """
        return self._model.feed(context[self._model.length :], keep=1)

    def _children(self, law: Tensor, count: int, first: int, draws: Draws) -> list[int]:
        """Tokens for the children of a node; `first` is the index the first of them will have."""
        if self._drawn == "one_hot":
            best = law.topk(min(count, len(law)))
            return [
                token for token, chance in zip(best.indices.tolist(), best.values.tolist(), strict=True) if chance > 0
            ]
        tokens: list[int] = []
        left = law
        for child in range(count):
            # Without replacement a family ends where the law's support does.
            if float(left.sum()) <= 0:
                break
            tokens.append(pick(left, draws.by_round("draft", first + child)))
            if self._drawn == "without_replacement":
                left = left.index_fill(0, torch.tensor(tokens[-1:], device=law.device), 0.0)
        return tokens

    def _stops(self, tokens: Sequence[int], raw: Sequence[Tensor], node: int) -> bool:
        return self._length.stops(float(raw[node][tokens[node]]))

    def _read(self, tokens: Sequence[int], parents: Sequence[int], frontier: Sequence[int]) -> Tensor:
        """Feed the nodes up to the newest; logits (len(frontier), V) of what follows each of the frontier."""
        new = tokens[self._fed :]
        # Ended nodes of the same depth are fed too, so that a node's place in the cache is its number.
        logits, _ = self._model.feed_tree(new, parents, len(new))
        rows = [node - self._fed for node in frontier]
        self._fed = len(tokens)
        return logits[rows]

    @staticmethod
    def _path(tokens: Sequence[int], parents: Sequence[int], node: int) -> list[int]:
        steps: list[int] = []
        while node != ROOT:
            steps.append(tokens[node])
            node = parents[node]
        return steps[::-1]

    def observe(self, outcome: Outcome) -> None:
        if self._model.length == 0:
            self._model.feed(outcome.context[:-1], keep=1)
            return
        self._model.roll_back(self._committed, [node for node in outcome.path if node < self._fed])
        # A round without a draft of ours must not roll back further.
        self._committed, self._fed = self._model.length, 0

    def close(self) -> None:
        self._model.close()


def likeliest(law: Tensor) -> list[list[float]]:
    """[id, probability] of the most probable tokens of a law (V,), as a drafter tells them."""
    best = law.topk(min(SHOWN, len(law)))
    return [
        [token, round(chance, 4)] for token, chance in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


Kind = TypeVar("Kind", bound=ModelDrafter)


def model_drafter(
    model: Feedable,
    setup: Setup,
    width: int,
    kind: type[Kind],
    why: dict[str, Any] | None = None,
    defer: bool = False,
) -> Kind:
    """A model as drafter for a run; ValueError when the run's rule cannot judge a tree that wide.

    `defer` says that the model takes tokens that nobody has looked at; it then drafts chains without waiting for the
    device, where there is one to wait for.
    """
    rule = RULES[setup.rule]
    if width > 1 and not rule.trees:
        raise ValueError(f"rule {rule.name} judges chains: set width to 1, or choose specinfer or without_replacement")
    drafter = kind(model, setup.warp, rule.drawn[0], width, setup.length, setup.ends, why)
    looks = isinstance(setup.length, Confident) or setup.warp.repetition_penalty != 1.0
    drafter.deferred = defer and setup.target.asynchronous and width == 1 and not looks
    return drafter
