"""Write a round down: from tensors to the frozen record the rest of the program reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from spec_viz.engine.device import Instant
from spec_viz.engine.proposal import ROOT, Proposal
from spec_viz.engine.rules import Judged, Verdict
from spec_viz.engine.trace import Emitted, Kv, Ms, Node, Round, Top

TOP = 5
DIGITS = 6


class Stopwatch:
    """Milliseconds of each part of a round, on the clock it is given."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self._last = clock()
        self._laps: dict[str, tuple[Instant, Instant]] = {}
        self._booked: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """Book the time since the last lap under `part`."""
        now = self._clock()
        self._laps[part] = self._last, now
        self._last = now

    def book(self, part: str, ms: float) -> None:
        """Book a time that was measured elsewhere under `part`; what has passed since the last lap belongs to none."""
        self._booked[part] = ms
        self._last = self._clock()

    @property
    def ms(self) -> dict[str, float]:
        """What was booked so far; subtracted only now, because a device tells a time once it has come to it."""
        return {part: (end - begin) * 1000 for part, (begin, end) in self._laps.items()} | self._booked


def record(
    number: int,
    logits: Tensor,
    p: Tensor,
    proposal: Proposal,
    verdict: Verdict,
    ended: bool,
    watch: Stopwatch,
    before: tuple[int, int | None],
    peak: tuple[int, int | None],
    after: tuple[int, int | None],
) -> Round:
    """The record of one round; logits and p are (n + 1, V), `ended` means an accepted end-of-text closed it."""
    end = verdict.path[-1] if verdict.path else ROOT
    # p_raw of any token is exp(logit − lse): no second softmax over the vocabulary is needed.
    lse = logits.logsumexp(-1)
    judged = [node for node, fate in enumerate(verdict.judged) if fate.status != "discarded"]
    tops = _tops(p, {end + 1, *(proposal.parents[node] + 1 for node in judged)})
    drafter_tops = {} if proposal.q is None else _tops(proposal.q, set(judged))
    nodes = tuple(
        _node(node, fate, depth, proposal, tops, drafter_tops, _raw(logits, lse, parent + 1, proposal.tokens[node]))
        for node, (fate, depth, parent) in enumerate(
            zip(verdict.judged, proposal.depths, proposal.parents, strict=True)
        )
    )
    emitted = Emitted(
        verdict.token,
        verdict.kind if len(proposal) else "plain",
        _probability(p[end + 1, verdict.token]),
        _raw(logits, lse, end + 1, verdict.token),
        None if verdict.u is None else _clamp(verdict.u),
        tops[end + 1],
    )
    return Round(
        round=number,
        nodes=nodes,
        emitted=None if ended else emitted,
        kv=Kv((before[0], peak[0], after[0]), _drafter_kv(before[1], peak[1], after[1])),
        ms=Ms(**watch.ms),
        prefill=number == 0,
    )


def _node(
    node: int,
    judged: Judged,
    depth: int,
    proposal: Proposal,
    tops: Mapping[int, Top],
    drafter_tops: Mapping[int, Top],
    p_raw: float,
) -> Node:
    known = judged.status != "discarded"
    token, parent = proposal.tokens[node], proposal.parents[node]
    return Node(
        id=token,
        parent=parent,
        depth=depth,
        status=judged.status,
        p=_clamp(judged.p),
        q=_clamp(judged.q),
        p_raw=p_raw,
        q_raw=None if proposal.q_raw is None else _probability(proposal.q_raw[node, token]),
        u=None if judged.u is None else _clamp(judged.u),
        accept=None if judged.accept is None else _clamp(judged.accept),
        beta=None if judged.beta is None else _clamp(judged.beta),
        p_top=tops[parent + 1] if known else None,
        q_top=drafter_tops[node] if known and drafter_tops else None,
        residual_top=None if judged.residual is None else _tops(judged.residual[None], {0})[0],
        why=proposal.why[node] if proposal.why else None,
    )


def _tops(laws: Tensor, rows: Collection[int]) -> dict[int, Top]:
    """The most probable tokens with their probabilities of some rows of laws (n, V), zeros left out."""
    wanted = sorted(rows)
    if not wanted:
        return {}
    values, ids = laws[wanted].topk(min(TOP, laws.shape[-1]))
    return {
        row: tuple((token, _clamp(value)) for token, value in zip(row_ids, chances, strict=True) if value > 0)
        for row, row_ids, chances in zip(wanted, ids.tolist(), values.tolist(), strict=True)
    }


def _raw(logits: Tensor, lse: Tensor, row: int, token: int) -> float:
    return _probability(torch.exp(logits[row, token] - lse[row]))


def _probability(value: Tensor) -> float:
    return _clamp(float(value))


def _clamp(value: float) -> float:
    # Float sums of a law can pass 1 by an ulp; a record holds probabilities, with the digits its file will have.
    return round(min(max(value, 0.0), 1.0), DIGITS)


def _drafter_kv(before: int | None, peak: int | None, after: int | None) -> tuple[int, int, int] | None:
    if before is None or peak is None or after is None:
        return None
    return before, peak, after
