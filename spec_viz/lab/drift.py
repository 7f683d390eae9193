"""See it break: a planted fault, and how the law of what is written leaves the target's, round after round.

One round is asked again and again after the same token, with one draft or two siblings, so its first token is a fresh
draw of whatever law drafter and rule make together. Drafters and rules are the engine's; only the fault is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import ROOT, Proposal
from spec_viz.engine.rules import RULES, Judge, Verdict
from spec_viz.lab.law import TableDrafter, compare_counts, one_thread, toy_tables

# After this token every fault below moves the law by at least 0.08, and a draft is refused more often than not.
CONTEXT = 2
DROP_BELOW = 0.1
CHECKPOINTS = 4
# What one call may be asked for, and what it may count on top of.
MOST_ROUNDS = 2000
MOST_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How often each token came first in so many rounds, and how far that is from the target's law.

    `distance` is the total variation ½·Σ|share − p|, `by_chance` what true draws of p would show on average, `p_value`
    that of a chi-square test against p.
    """

    rounds: int
    counts: tuple[int, ...]
    distance: float
    by_chance: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Drift:
    """The target's row p (V,), the exact law that is written, their distance, and what was counted so far."""

    fault: str
    repaired: bool
    target: tuple[float, ...]
    law: tuple[float, ...]
    distance: float
    checkpoints: tuple[Checkpoint, ...]


# All chains or families of siblings that can be drafted, each with the chance that it is.
Ways = Iterator[tuple[float, Proposal]]


@dataclass(frozen=True, slots=True)
class Method:
    """A drafter with a rule: how a round is drafted, every way in which that can turn out, and who judges."""

    draft: Callable[[Draws], Proposal]
    ways: Callable[[], Ways]
    judge: Judge


@dataclass(frozen=True, slots=True)
class Fault:
    """The same method with one thing wrong, and right."""

    wrong: Method
    right: Method


def drift(fault: str, rounds: int, seed: int, *, repaired: bool = False, before: Sequence[int] | None = None) -> Drift:
    """Count the first tokens of `rounds` rounds by a fault, or by its repair, on top of the counts `before`.

    `fault` is a name of `FAULTS`, or "none". The same seed gives the same rounds: whoever goes on counting gives
    another. Raises KeyError for an unknown fault and ValueError for counts that are not one a token.
    """
    method = _plain() if fault == "none" else getattr(FAULTS[fault], "right" if repaired else "wrong")
    p, _ = _laws()
    counts = list(before) if before else [0] * len(p)
    if len(counts) != len(p):
        raise ValueError(f"one count for each of the {len(p)} tokens")
    checkpoints = []
    marks = {math.ceil(rounds * part / CHECKPOINTS) for part in range(1, CHECKPOINTS + 1)}
    with one_thread():
        for number in range(1, rounds + 1):
            draws = Draws(seed, number, 1)
            proposal = method.draft(draws)
            counts[_first(proposal, method.judge(_rows(p, proposal), proposal, draws))] += 1
            if number in marks:
                checkpoints.append(checkpoint(counts, p.tolist()))
        law = exact_law(method)
    return Drift(
        fault, repaired or fault == "none", tuple(p.tolist()), law, _distance(law, p.tolist()), tuple(checkpoints)
    )


def exact_law(method: Method) -> tuple[float, ...]:
    """The law (V,) of a round's first token, by enumeration of every draft and every verdict."""
    p, _ = _laws()
    law = torch.zeros_like(p)
    for weight, proposal in method.ways():
        refused_so_far = weight
        for kept in range(len(proposal) + 1):
            verdict = method.judge(_rows(p, proposal), proposal, _Forced(kept))
            if kept < len(proposal):
                chance = verdict.judged[kept].accept or 0.0
                law[proposal.tokens[kept]] += refused_so_far * chance
                refused_so_far *= 1 - chance
            elif refused_so_far > 0:
                law += refused_so_far * _own_law(verdict, p)
    return tuple(law.tolist())


class _Forced(Draws):
    """Accept draws under which child `kept` is the first to be kept, or none is when `kept` is past the last."""

    def __init__(self, kept: int) -> None:
        super().__init__(0, 0, 0)
        object.__setattr__(self, "_kept", kept)

    def by_round(self, purpose: str, offset: int) -> float:
        if purpose != "accept":
            return 0.5
        kept: int = self._kept  # type: ignore[attr-defined]
        return 0.0 if offset == kept else 1 - 2.0**-53


def _own_law(verdict: Verdict, p: Tensor) -> Tensor:
    """What the target's own token is drawn from when no draft was kept."""
    return next((judged.residual for judged in verdict.judged if judged.residual is not None), p)


def _first(proposal: Proposal, verdict: Verdict) -> int:
    return proposal.tokens[verdict.path[0]] if verdict.path else verdict.token


def _laws() -> tuple[Tensor, Tensor]:
    """The rows p and q (V,) after the one context."""
    logits, q = toy_tables()
    return logits.softmax(-1)[CONTEXT], q[CONTEXT]


def _rows(p: Tensor, proposal: Proposal) -> Tensor:
    # Only the first token is looked at, so what follows a draft may be any law.
    return p.expand(len(proposal) + 1, -1)


def checkpoint(counts: Sequence[int], law: Sequence[float]) -> Checkpoint:
    """What so many counts of each token say of the law they should follow."""
    total = sum(counts)
    seen: dict[tuple[int, ...], int] = {(token,): count for token, count in enumerate(counts)}
    test = compare_counts("drift", total, seen, {(token,): chance for token, chance in enumerate(law)})
    # A binomial share misses its mean by √(2p(1 − p)/πn) on average.
    by_chance = sum(math.sqrt(2 * chance * (1 - chance) / (math.pi * total)) for chance in law) / 2
    shares = [count / total for count in counts]
    return Checkpoint(total, tuple(counts), _distance(shares, law), by_chance, test.p_value or 0.0)


def _distance(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(left, right, strict=True)) / 2


# ---------------------------------------------------------------- methods, right and wrong


def _by_table(drafter: TableDrafter, judge: Judge, *, chosen: bool = False) -> Method:
    """One draft a round from a table drafter; `chosen` drafts are always the same."""

    def draft(draws: Draws) -> Proposal:
        return drafter.propose([CONTEXT], 1, draws)

    def ways() -> Ways:
        _, q = _laws()
        if chosen:
            yield 1.0, draft(Draws(0, 0, 0))
            return
        # The middle of each token's share of [0, 1) makes the drafter draw that token.
        ends = q.cumsum(0) / q.sum()
        for chance, end in zip(q.tolist(), ends.tolist(), strict=True):
            yield chance, draft(_Fixed(end - chance / 2))

    return Method(draft, ways, judge)


class _Fixed(Draws):
    """Every draw of the round is the same number."""

    def __init__(self, value: float) -> None:
        super().__init__(0, 0, 0)
        object.__setattr__(self, "_value", value)

    def by_round(self, purpose: str, offset: int) -> float:
        value: float = self._value  # type: ignore[attr-defined]
        return value


def _by_siblings(judge: Judge) -> Method:
    """Two siblings a round, the second drawn from q without the first (RSD 2402.14160; algorithms §9.3)."""
    _, q = _laws()

    def siblings(elder: int, younger: int) -> Proposal:
        return Proposal((elder, younger), "without_replacement", torch.stack([q, q]), parents=(ROOT, ROOT))

    def draft(draws: Draws) -> Proposal:
        elder = pick(q, draws.by_round("draft", 0))
        rest = q.index_fill(0, torch.tensor([elder]), 0.0)
        return siblings(elder, pick(rest, draws.by_round("draft", 1)))

    def ways() -> Ways:
        for elder, chance in enumerate(q.tolist()):
            for younger, other in enumerate(q.tolist()):
                if younger != elder:
                    yield chance * other / (1 - chance), siblings(elder, younger)

    return Method(draft, ways, judge)


def _plain() -> Method:
    return _by_table(TableDrafter(_toy_q(), drawn=True), RULES["token"].judge)


def _toy_q() -> Tensor:
    _, q = toy_tables()
    return q


def _correct_from_p(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """A fault: after a refusal the correction is drawn from p, which forgets what a kept draft has already covered."""
    verdict = RULES["token"].judge(p, proposal, draws)
    if verdict.kind != "correction":
        return verdict
    judged = (*verdict.judged[:-1], replace(verdict.judged[-1], residual=p[0]))
    return replace(verdict, judged=judged, token=pick(p[0], draws.by_round("residual", 0)))


def _faults() -> dict[str, Fault]:
    q, token = _toy_q(), RULES["token"].judge
    return {
        # Drafts are the likeliest token, but the rule is told they were drawn from q.
        "argmax": Fault(
            _by_table(TableDrafter(q, drawn=False, lie=True), token, chosen=True),
            _by_table(TableDrafter(q, drawn=False), token, chosen=True),
        ),
        # A draft is withdrawn for its own low q (algorithms §1.7).
        "drop": Fault(_by_table(TableDrafter(q, drawn=True, drop=DROP_BELOW), token), _plain()),
        "residual": Fault(_by_table(TableDrafter(q, drawn=True), _correct_from_p), _plain()),
        # Siblings drawn without replacement, judged by the rule for independent ones: q is not renewed.
        "siblings": Fault(_by_siblings(token), _by_siblings(RULES["without_replacement"].judge)),
    }


FAULTS: dict[str, Fault] = _faults()
