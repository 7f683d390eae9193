"""Accept rules: pure functions of (p at every place, the proposal, the draws).

Row 0 of p (n + 1, V) is the target's warped law after the last committed token, row i + 1 the law after draft i.
Temperature 0 is no second branch: p is then one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from scipy.optimize import brentq
from torch import Tensor

from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import ROOT, Drawn, Pending, Proposal
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
    """What a rule decides: every draft's fate, the path of those kept, and the target's own token behind them."""

    judged: tuple[Judged, ...]
    path: tuple[int, ...]
    token: int
    kind: Literal["correction", "bonus"]
    u: float | None

    @property
    def accepted(self) -> int:
        """How many drafts were kept."""
        return len(self.path)


Judge = Callable[[Tensor, Proposal, Draws], Verdict]
# Of a node's children, tried in order: the one that is kept, or None and the law that the correction is drawn from.
Trial = Callable[[Tensor, Proposal, Sequence[int], Draws, dict[int, Judged]], tuple[int | None, Tensor]]


# ---------------------------------------------------------------- lossless rules


def match(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """At each node sample y ~ p; go on to the child that is y, else emit y itself (one-hot drafts; algorithms §1.4).

    On a tree this accepts with the sum of p over the children (§9.3).
    """
    judged: dict[int, Judged] = {}
    at, path = ROOT, list[int]()
    while True:
        law = p[at + 1]
        own = draws.own(law, len(path))
        children = proposal.children(at)
        kept = next((child for child in children if proposal.tokens[child] == own), None)
        tried = children if kept is None else children[: children.index(kept) + 1]
        for child in tried:
            chance = float(law[proposal.tokens[child]])
            judged[child] = Judged("accepted" if child == kept else "rejected", chance, 1.0, chance, beta=chance)
        if kept is None:
            if children:
                _leave_residual(judged, children[-1], law.index_fill(0, _ids(proposal, children, law), 0.0))
            return _verdict(p, proposal, judged, path, own, "correction" if children else "bonus", None)
        path.append(kept)
        at = kept


def token(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """Keep draft x iff u·q(x) < p(x), else emit y ~ norm(max(p − q, 0)) (Leviathan 2211.17192; algorithms §1.1).

    Of several children drawn independently each is tried against what the earlier ones left of p: r ← norm(max(r − q,
    0)) after every rejection (SpecInfer 2305.09781; §9.3).
    """
    return _walk(p, proposal, draws, _in_turn)


def without_replacement(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """As `token` on a tree, but a rejected child also leaves q: q ← norm(q without x) (RSD 2402.14160; §9.3).

    Right for siblings drawn without replacement, and accepts more: where they exhaust q's support, always.
    """
    return _walk(p, proposal, draws, partial(_in_turn, renew=_without))


def kseq(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """Keep each of k independent children with chance min(1, p/(ρq)) (K-SEQ, SpecTr 2310.15141; algorithms §9.3).

    ρ in [1, k] solves 1 − (1 − β)^k = ρβ with β = Σ min(p/ρ, q); the correction is drawn from
    p − min(p/ρ, q)·(1 − (1 − β)^k)/β.
    """
    return _walk(p, proposal, draws, _k_at_once)


def block(p: Tensor, proposal: Proposal, draws: Draws) -> Verdict:
    """Judge a chain as a whole: the longest prefix whose own draw succeeds (Sun et al. 2403.10444; algorithms §9.2).

    w_i = min(w_{i−1}·p_i/q_i, 1); prefix i is good with chance h_i = S_i/(S_i + 1 − w_i) for
    S_i = Σ max(w_i·p − q, 0) behind it, the whole chain with chance w_n. Every prefix draws; the last success counts.
    Never keeps fewer than `token` in expectation.
    """
    count = len(proposal)
    q = [_row(p, proposal, node) for node in range(count)]
    weights, chances = [1.0], list[float]()
    for node, draft in enumerate(proposal.tokens):
        ratio = float(p[node, draft]) / float(q[node][draft]) if float(q[node][draft]) > 0 else 0.0
        weights.append(min(weights[-1] * ratio, 1.0))
        if node + 1 == count:
            chances.append(weights[-1])
            continue
        rest = float((weights[-1] * p[node + 1] - q[node + 1]).clamp_min_(0).sum())
        room = rest + 1 - weights[-1]
        chances.append(rest / room if room > 0 else 1.0)
    us = [draws.by_round("accept", node) for node in range(count)]
    accepted = max((node + 1 for node in range(count) if us[node] < chances[node]), default=0)
    judged: dict[int, Judged] = {}
    for node in range(min(accepted + 1, count)):
        mine, theirs = _pair(p, proposal, node)
        beta = min(float(torch.minimum(p[node], q[node]).sum()), 1.0)
        status: Status = "accepted" if node < accepted else "rejected"
        judged[node] = Judged(status, mine, theirs, chances[node], us[node], beta)
    path = list(range(accepted))
    if accepted == count:
        u = draws.by_round("bonus", count)
        return _verdict(p, proposal, judged, path, pick(p[count], u), "bonus", u)
    rest_law = residual(weights[accepted] * p[accepted], q[accepted], p[accepted])
    _leave_residual(judged, accepted, rest_law)
    u = draws.by_round("residual", accepted)
    return _verdict(p, proposal, judged, path, pick(rest_law, u), "correction", u)


# ---------------------------------------------------------------- lossy rules: the text is no longer the target's


def typical(p: Tensor, proposal: Proposal, draws: Draws, most: float = 0.09) -> Verdict:
    """Keep every draft the target finds plausible: p(x) > min(ε, √ε·exp(−H(p))) (Medusa 2401.10774; algorithms §5.1).

    The longest kept path counts, the more probable of equals. Lossy: what is plausible comes too often.
    """
    entropy = torch.special.entr(p).sum(-1)
    bars = torch.minimum(torch.full_like(entropy, most), most**0.5 * torch.exp(-entropy))
    keeps = [
        float(p[parent + 1, draft]) > float(bars[parent + 1])
        for draft, parent in zip(proposal.tokens, proposal.parents, strict=True)
    ]
    paths = [proposal.path(node) for node in range(len(proposal))]
    kept = [path for path in paths if all(keeps[node] for node in path)]
    best = max(
        kept,
        key=lambda path: (len(path), sum(float(p[proposal.parents[n] + 1, proposal.tokens[n]].log()) for n in path)),
        default=(),
    )
    judged: dict[int, Judged] = {}
    for at in (ROOT, *best):
        for child in proposal.children(at):
            mine, theirs = _pair(p, proposal, child)
            # An even chance would be a lie: a draft is over the bar or it is not.
            judged[child] = Judged("accepted" if child in best else "rejected", mine, theirs, float(keeps[child]))
    end = best[-1] if best else ROOT
    u = draws.by_round("bonus", end + 1)
    kind: Literal["correction", "bonus"] = "correction" if proposal.children(end) else "bonus"
    return _verdict(p, proposal, judged, list(best), pick(p[end + 1], u), kind, u)


def ensemble(p: Tensor, proposal: Proposal, draws: Draws, weight: float = 0.7) -> Verdict:
    """Rule `token` against v = w·p + (1 − w)·q instead of p (DIVERSE 2604.07622). Lossy: the drafter has a say."""
    mixed = p.clone()
    for node in range(len(proposal)):
        row = proposal.parents[node] + 1
        mixed[row] = weight * p[row] + (1 - weight) * _row(p, proposal, node)
    verdict = _walk(mixed, proposal, draws, _in_turn)
    # The tile shows the target's p, not the mixture.
    own = tuple(replace(judged, p=_pair(p, proposal, node)[0]) for node, judged in enumerate(verdict.judged))
    return replace(verdict, judged=own)


def synthetic(p: Tensor, proposal: Proposal, draws: Draws, alpha: float = 0.8) -> Verdict:
    """Keep each draft of a chain with a fixed chance, whatever the target thinks. Lossy: it shows a speed, no text."""
    judged: dict[int, Judged] = {}
    path = list[int]()
    for node in range(len(proposal)):
        u = draws.by_round("accept", node)
        kept = u < alpha
        judged[node] = Judged("accepted" if kept else "rejected", *_pair(p, proposal, node), alpha, u)
        if not kept:
            break
        path.append(node)
    u = draws.by_round("bonus", len(path))
    kind: Literal["correction", "bonus"] = "bonus" if len(path) == len(proposal) else "correction"
    return _verdict(p, proposal, judged, path, pick(p[len(path)], u), kind, u)


# ---------------------------------------------------------------- which rule fits which drafts


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the catalogue shows it: how drafts must have come about, whether it can judge trees, what it keeps.

    A model that drafts for it draws in the first way named.
    A lossy rule has one number, `strength`, with its range; a lossless one has none.
    """

    name: str
    judge: Callable[..., Verdict]
    drawn: tuple[Drawn, ...]
    trees: bool
    source: str
    lossless: bool = True
    strength: tuple[float, float, float] | None = None

    def fits(self, proposal: Proposal | Pending) -> bool:
        """Whether the rule keeps the target's law for such a proposal; an empty one fits every rule."""
        if not len(proposal):
            return True
        return proposal.drawn in self.drawn and (self.trees or proposal.is_chain)

    def with_strength(self, strength: float | None) -> Judge:
        """The rule as a function of (p, proposal, draws); a lossy one at this strength, or at its default."""
        if self.strength is None:
            return self.judge
        default, low, high = self.strength
        value = default if strength is None else strength
        if not low <= value <= high:
            raise ValueError(f"rule {self.name!r} takes a number from {low} to {high}")
        return lambda p, proposal, draws: self.judge(p, proposal, draws, value)


_ANY: tuple[Drawn, ...] = ("one_hot", "sampled", "without_replacement")

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("match", match, ("one_hot",), True, "algorithms §1.4, §9.3"),
        Rule("token", token, ("sampled", "one_hot"), False, "arXiv 2211.17192, 2302.01318"),
        Rule("block", block, ("sampled", "one_hot"), False, "arXiv 2403.10444"),
        Rule("specinfer", token, ("sampled",), True, "arXiv 2305.09781"),
        Rule("without_replacement", without_replacement, ("without_replacement",), True, "arXiv 2402.14160"),
        Rule("kseq", kseq, ("sampled",), True, "arXiv 2310.15141"),
        Rule("typical", typical, _ANY, True, "arXiv 2401.10774", lossless=False, strength=(0.09, 0.01, 0.9)),
        Rule("ensemble", ensemble, ("sampled",), False, "arXiv 2604.07622", lossless=False, strength=(0.7, 0.0, 1.0)),
        Rule("synthetic", synthetic, _ANY, False, "vLLM", lossless=False, strength=(0.8, 0.0, 1.0)),
    )
}


def check_fit(name: str, proposal: Proposal | Pending) -> None:
    """Refuse a rule that would not keep the target's law for drafts that came about this way."""
    if not RULES[name].fits(proposal):
        shape = "a chain" if proposal.is_chain else "a tree"
        raise ValueError(f"rule {name!r} cannot judge {proposal.drawn} drafts in {shape}")


# ---------------------------------------------------------------- the walk down a tree


def residual(p: Tensor, q: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """norm(max(p − q, 0)) over (V,); p itself (or `otherwise`) when p and q are equal but for rounding."""
    rest = (p - q).clamp_min_(0)
    mass = rest.sum()
    return rest / mass if float(mass) > RESIDUAL_FLOOR else (p if otherwise is None else otherwise)


def _walk(p: Tensor, proposal: Proposal, draws: Draws, try_children: Trial) -> Verdict:
    judged: dict[int, Judged] = {}
    at, path = ROOT, list[int]()
    while children := proposal.children(at):
        kept, rest = try_children(p[at + 1], proposal, children, draws, judged)
        if kept is None:
            _leave_residual(judged, children[-1], rest)
            u = draws.by_round("residual", at + 1)
            return _verdict(p, proposal, judged, path, pick(rest, u), "correction", u)
        path.append(kept)
        at = kept
    u = draws.by_round("bonus", at + 1)
    return _verdict(p, proposal, judged, path, pick(p[at + 1], u), "bonus", u)


def _same(q: Tensor, _: int) -> Tensor:
    return q


def _without(q: Tensor, draft: int) -> Tensor:
    rest = q.index_fill(0, torch.tensor([draft], device=q.device), 0.0)
    mass = rest.sum()
    return rest / mass if float(mass) > 0 else rest


def _in_turn(
    p: Tensor,
    proposal: Proposal,
    children: Sequence[int],
    draws: Draws,
    judged: dict[int, Judged],
    renew: Callable[[Tensor, int], Tensor] = _same,
) -> tuple[int | None, Tensor]:
    """Try children one after another against what is left of p; `renew` says what a rejection does to q."""
    left, q = p, _row(p[None], proposal, children[0])
    for child in children:
        draft = proposal.tokens[child]
        chance, drawn = float(left[draft]), float(q[draft])
        accept = min(1.0, chance / drawn) if drawn > 0 else 0.0
        beta = min(float(torch.minimum(left, q).sum()), 1.0)
        u = draws.by_round("accept", child)
        kept = u * drawn < chance
        # The tile shows the target's own p and the drafter's own q, whatever is left of them by now.
        mine, theirs = float(p[draft]), float(_row(p[None], proposal, child)[draft])
        judged[child] = Judged("accepted" if kept else "rejected", mine, theirs, accept, u, beta)
        if kept:
            return child, left
        left, q = residual(left, q), renew(q, draft)
    return None, left


def _k_at_once(
    p: Tensor, proposal: Proposal, children: Sequence[int], draws: Draws, judged: dict[int, Judged]
) -> tuple[int | None, Tensor]:
    """K-SEQ over the children of one node."""
    count, q = len(children), _row(p[None], proposal, children[0])

    def overlap(rho: float) -> Tensor:
        return torch.minimum(p / rho, q)

    def excess(rho: float) -> float:
        beta = float(overlap(rho).sum())
        return 1 - (1 - beta) ** count - rho * beta

    # At 1 the excess is never negative, at k never positive; equal laws or one child give ρ = 1 itself.
    rho = 1.0 if count == 1 or excess(1.0) <= 0 else float(brentq(excess, 1.0, float(count), xtol=1e-14))
    covered = overlap(rho)
    beta = float(covered.sum())
    for child in children:
        draft = proposal.tokens[child]
        chance, drawn = float(p[draft]) / rho, float(q[draft])
        u = draws.by_round("accept", child)
        kept = u * drawn < chance
        accept = min(1.0, chance / drawn) if drawn > 0 else 0.0
        judged[child] = Judged("accepted" if kept else "rejected", float(p[draft]), drawn, accept, u, min(beta, 1.0))
        if kept:
            return child, p
    return None, residual(p, covered * ((1 - (1 - beta) ** count) / beta if beta > 0 else 0.0))


def _row(p: Tensor, proposal: Proposal, node: int) -> Tensor:
    """The law (V,) a node was drawn from: its row of q, or one-hot where drafts are chosen."""
    if proposal.q is not None:
        return proposal.q[node]
    law = torch.zeros_like(p[0])
    law[proposal.tokens[node]] = 1.0
    return law


def _pair(p: Tensor, proposal: Proposal, node: int) -> tuple[float, float]:
    """p and q of a node's own token."""
    draft = proposal.tokens[node]
    return float(p[proposal.parents[node] + 1, draft]), 1.0 if proposal.q is None else float(proposal.q[node, draft])


def _ids(proposal: Proposal, nodes: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor([proposal.tokens[node] for node in nodes], device=like.device)


def _leave_residual(judged: dict[int, Judged], node: int, law: Tensor) -> None:
    """Write the law that the correction is drawn from beside the draft whose refusal led to it."""
    mass = law.sum()
    judged[node] = replace(judged[node], residual=law / mass if float(mass) > 0 else law)


def _verdict(
    p: Tensor,
    proposal: Proposal,
    judged: dict[int, Judged],
    path: Sequence[int],
    own: int,
    kind: Literal["correction", "bonus"],
    u: float | None,
) -> Verdict:
    fates = tuple(judged.get(node) or Judged("discarded", *_pair(p, proposal, node)) for node in range(len(proposal)))
    return Verdict(fates, tuple(path), own, kind, u)
