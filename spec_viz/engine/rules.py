"""Accept rules: pure functions of (p at every place, the proposal, the draws).

Row i of p (n + 1, V) is the target's warped law for draft i, row n the law after the last draft. Temperature 0 is no
second branch: p is then one-hot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import Drawn, Proposal
from spec_viz.engine.trace import Status

# Below this mass p and q are equal but for rounding, and the residual would be noise (algorithms §1.5).
RESIDUAL_FLOOR = 1e-8


@dataclass(frozen=True, slots=True)
class Judged:
    """One draft's verdict: the numbers it was judged by; u where the rule compares one with the chance to accept."""

    status: Status
    p: float
    q: float
    accept: float | None = None
    u: float | None = None
    beta: float | None = None
    residual: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decides: every draft's fate, how many were kept, and the target's own token."""

    judged: tuple[Judged, ...]
    accepted: int
    token: int
    kind: Literal["correction", "bonus"]
    u: float | None


Rule = Callable[[Tensor, Proposal, Draws], Verdict]


def match(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """Sample y ~ p at each place; keep the draft iff it is y, else emit y itself (one-hot drafts; algorithms §1.4)."""
    judged: list[Judged] = []
    for place, draft in enumerate(proposal.tokens):
        own = draws.own(p[place], place)
        keep = float(p[place, draft])
        if own != draft:
            rest = residual(p[place], _one_hot(p[place], draft))
            judged.append(Judged("rejected", keep, 1.0, keep, beta=keep, residual=rest))
            return Verdict(_with_discarded(judged, p, proposal), place, own, "correction", None)
        judged.append(Judged("accepted", keep, 1.0, keep, beta=keep))
    return Verdict(tuple(judged), len(proposal), draws.own(p[-1], len(proposal)), "bonus", None)


def token(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """Keep draft x iff u·q(x) < p(x), else emit y ~ norm(max(p − q, 0)) (Leviathan 2211.17192; algorithms §1.1)."""
    judged: list[Judged] = []
    for place, draft in enumerate(proposal.tokens):
        q = _one_hot(p[place], draft) if proposal.q is None else proposal.q[place]
        p_draft, q_draft = float(p[place, draft]), float(q[draft])
        accept = min(1.0, p_draft / q_draft) if q_draft > 0 else 0.0
        beta = float(torch.minimum(p[place], q).sum())
        u = draws.by_round("accept", place)
        if not u * q_draft < p_draft:
            rest = residual(p[place], q)
            judged.append(Judged("rejected", p_draft, q_draft, accept, u, min(beta, 1.0), rest))
            u = draws.by_round("residual", place)
            return Verdict(_with_discarded(judged, p, proposal), place, pick(rest, u), "correction", u)
        judged.append(Judged("accepted", p_draft, q_draft, accept, u, min(beta, 1.0)))
    u = draws.by_round("bonus", len(proposal))
    return Verdict(tuple(judged), len(proposal), pick(p[-1], u), "bonus", u)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p − q, 0)) over (V,); p itself when p and q are equal but for rounding."""
    rest = (p - q).clamp_min_(0)
    mass = rest.sum()
    return rest / mass if float(mass) > RESIDUAL_FLOOR else p


RULES: dict[str, Rule] = {"match": match, "token": token}
FITS: dict[Drawn, tuple[str, ...]] = {"one_hot": ("match", "token"), "sampled": ("token",)}


def check_fit(rule: str, drawn: Drawn) -> None:
    """Refuse a rule that would not keep the target's law for drafts drawn this way."""
    if rule not in FITS[drawn]:
        raise ValueError(f"rule {rule!r} does not keep the target's law for {drawn} drafts; use {FITS[drawn]}")


def _one_hot(like: Tensor, index: int) -> Tensor:
    law = torch.zeros_like(like)
    law[index] = 1.0
    return law


def _with_discarded(judged: list[Judged], p: Tensor, proposal: Proposal) -> tuple[Judged, ...]:
    rest = range(len(judged), len(proposal))
    return (
        *judged,
        *(
            Judged(
                "discarded",
                float(p[place, proposal.tokens[place]]),
                1.0 if proposal.q is None else float(proposal.q[place, proposal.tokens[place]]),
            )
            for place in rest
        ),
    )
