"""What a drafter says (`Proposal`), what it hears back (`Outcome`), and the two verbs it has (`Drafter`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from torch import Tensor

from spec_viz.engine.draws import Draws

Drawn = Literal["one_hot", "sampled", "without_replacement"]
ROOT = -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens as a tree; a chain is a tree in which every node has one child.

    `parents[i]` is the node that token i follows, `ROOT` for the last committed token; left out, the tokens are a
    chain. Parents come before their children, and siblings stand in the order in which they are tried.

    `drawn` says how they came about. `one_hot` drafts are chosen (q is 1 on the draft). `sampled` ones were drawn from
    the rows of `q` (n, V), siblings independently of each other; `without_replacement` means that a sibling was drawn
    from the same row with its elder siblings taken out. Either way row i is the whole warped law that node i's family
    was drawn from. `q_raw` (n, V) is the same law at temperature 1. `why` explains each draft to the learner.

    `extra` are (token, parent) pairs that the target computes beside the drafts and nobody judges (lookahead's window);
    their parents are `ROOT` or earlier extras.
    """

    tokens: tuple[int, ...] = ()
    drawn: Drawn = "one_hot"
    q: Tensor | None = None
    q_raw: Tensor | None = None
    why: tuple[dict[str, Any] | None, ...] = ()
    parents: tuple[int, ...] = ()
    extra: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.parents:
            object.__setattr__(self, "parents", chain(len(self.tokens)))
        if self.drawn != "one_hot" and (self.q is None or len(self.q) != len(self.tokens)):
            raise ValueError("a sampled proposal carries one row of q for every draft")
        if len(self.parents) != len(self.tokens) or not _are_parents(self.parents):
            raise ValueError("every draft follows the last committed token or an earlier draft")
        if not _are_parents([parent for _, parent in self.extra]):
            raise ValueError("every extra token follows the last committed token or an earlier extra")

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every node has one child."""
        return self.parents == chain(len(self.tokens))

    def children(self, node: int) -> tuple[int, ...]:
        """The drafts that follow a node, in the order in which they are tried."""
        return tuple(child for child, parent in enumerate(self.parents) if parent == node)

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root's child down to this one; () for the root."""
        steps: list[int] = []
        while node != ROOT:
            steps.append(node)
            node = self.parents[node]
        return tuple(reversed(steps))

    @property
    def depths(self) -> tuple[int, ...]:
        """How far each node lies behind the last committed token: 1 for the first draft."""
        return depths(self.parents)

    def behind(self, last: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tree of one target pass: the last committed token, the drafts and the extras; tokens and parents.

        The committed token is node 0 and everything hangs from it.
        """
        tokens = (last, *self.tokens, *(token for token, _ in self.extra))
        first = len(self) + 1
        return tokens, (
            ROOT,
            *(parent + 1 for parent in self.parents),
            *(0 if parent == ROOT else parent + first for _, parent in self.extra),
        )

    def cut_after(self, ends: Collection[int]) -> Proposal:
        """Drop drafts behind an end-of-text: nothing is ever emitted after it.

        The end token itself stays, so whether a draft is judged never depends on its own value (algorithms §1.7).
        """
        kept: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent == ROOT or (parent in kept and self.tokens[parent] not in ends):
                kept.append(node)
        return self if len(kept) == len(self) else self.only(kept)

    def only(self, nodes: Sequence[int]) -> Proposal:
        """The proposal reduced to some nodes; each node's parent must be among them."""
        place = {ROOT: ROOT, **{node: index for index, node in enumerate(nodes)}}
        return replace(
            self,
            tokens=tuple(self.tokens[node] for node in nodes),
            parents=tuple(place[self.parents[node]] for node in nodes),
            q=None if self.q is None else self.q[list(nodes)],
            q_raw=None if self.q_raw is None else self.q_raw[list(nodes)],
            why=tuple(self.why[node] for node in nodes) if self.why else (),
        )


@dataclass(frozen=True, slots=True)
class Pending:
    """A chain whose tokens (n,) still lie on the device, because nobody has waited for them; else as `Proposal`."""

    tokens: Tensor
    drawn: Drawn
    q: Tensor | None
    q_raw: Tensor
    why: tuple[dict[str, Any] | None, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """It is never a tree: which nodes a tree has follows from its tokens."""
        return True

    def read(self, tokens: Sequence[int], q: Tensor | None, q_raw: Tensor | None) -> Proposal:
        """The proposal, now that its numbers are on the processor."""
        return Proposal(tuple(tokens), self.drawn, q, q_raw, self.why)


def chain(count: int) -> tuple[int, ...]:
    """The parents of a chain of `count` tokens."""
    return tuple(range(ROOT, count - 1))


def depths(parents: Sequence[int]) -> tuple[int, ...]:
    """The depth of every node of a tree given by its parents; a child of the root has depth 1."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent == ROOT else found[parent] + 1)
    return tuple(found)


def _are_parents(parents: Sequence[int]) -> bool:
    return all(ROOT <= parent < node for node, parent in enumerate(parents))


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter wants to see of the target's passes: logits, and hidden states as transformers numbers them.

    Hidden state i is what goes into layer i; the last index is the state behind the final norm.
    """

    logits: bool = False
    layers: tuple[int, ...] = ()


NOTHING = Needs()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the target's pass showed, by row: row 0 is the last committed token, row i + 1 draft i, then the extras.

    `logits` are (n, V); `hidden` maps an asked-for layer to (n, d). After the prefill the rows of `hidden` are the
    prompt's tokens, and the one row of `logits` is the last of them.
    """

    logits: Tensor | None = None
    hidden: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict as the drafter hears it: the drafts that were kept, all committed ids, and what it asked to see."""

    path: tuple[int, ...]
    context: Sequence[int]
    seen: Seen = field(default_factory=Seen)

    @property
    def accepted(self) -> int:
        """How many drafts were kept."""
        return len(self.path)


class Drafter(Protocol):
    """Whatever proposes tokens."""

    needs: Needs

    @property
    def cache_length(self) -> int | None:
        """Entries in the drafter's own KV cache; None when it has none."""

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal | Pending:
        """Draft at most gamma tokens deep after the committed ids."""

    def observe(self, outcome: Outcome) -> None:
        """Hear the verdict (after the prefill: the prompt and the first token) and get ready for the next round."""

    def close(self) -> None:
        """Free what the run held."""
