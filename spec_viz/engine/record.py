"""Write a round down: from tensors to the frozen record the rest of the program reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from spec_viz.engine.proposal import Proposal
from spec_viz.engine.rules import Judged, Verdict
from spec_viz.engine.trace import Emitted, Kv, Ms, Node, Round, Top

TOP = 5
DIGITS = 6


class Stopwatch:
    """Milliseconds of each part of a round, on the clock it is given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self.ms: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """Book the time since the last lap under `part`."""
        now = self._clock()
        self.ms[part] = (now - self._last) * 1000
        self._last = now


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
    judged_rows = min(verdict.accepted + 1, len(logits))
    # p_raw of any token is exp(logit − lse): no second softmax over the vocabulary is needed.
    lse = logits.logsumexp(-1)
    tops = _tops(p[:judged_rows])
    drafter_tops = [] if proposal.q is None else _tops(proposal.q[:judged_rows])
    nodes = tuple(
        _node(place, judged, proposal, _raw(logits, lse, place, proposal.tokens[place]), tops, drafter_tops)
        for place, judged in enumerate(verdict.judged)
    )
    place = verdict.accepted
    kind = verdict.kind if len(proposal) else "plain"
    emitted = Emitted(
        verdict.token,
        kind,
        _probability(p[place, verdict.token]),
        _raw(logits, lse, place, verdict.token),
        None if verdict.u is None else _clamp(verdict.u),
        tops[place],
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
    place: int, judged: Judged, proposal: Proposal, p_raw: float, tops: Sequence[Top], drafter_tops: Sequence[Top]
) -> Node:
    known = judged.status != "discarded"
    token = proposal.tokens[place]
    return Node(
        id=token,
        parent=place - 1,
        depth=place + 1,
        status=judged.status,
        p=_clamp(judged.p),
        q=_clamp(judged.q),
        p_raw=p_raw,
        q_raw=None if proposal.q_raw is None else _probability(proposal.q_raw[place, token]),
        u=None if judged.u is None else _clamp(judged.u),
        accept=None if judged.accept is None else _clamp(judged.accept),
        beta=None if judged.beta is None else _clamp(judged.beta),
        p_top=tops[place] if known else None,
        q_top=drafter_tops[place] if known and drafter_tops else None,
        residual_top=None if judged.residual is None else _tops(judged.residual[None])[0],
        why=proposal.why[place] if proposal.why else None,
    )


def _tops(laws: Tensor) -> list[Top]:
    """The most probable tokens of each law (n, V) with their probabilities, zeros left out."""
    values, ids = laws.topk(min(TOP, laws.shape[-1]))
    return [
        tuple((token, _clamp(value)) for token, value in zip(row_ids, row, strict=True) if value > 0)
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


def _raw(logits: Tensor, lse: Tensor, place: int, token: int) -> float:
    return _probability(torch.exp(logits[place, token] - lse[place]))


def _probability(value: Tensor) -> float:
    return _clamp(float(value))


def _clamp(value: float) -> float:
    # Float sums of a law can pass 1 by an ulp; a record holds probabilities, with the digits its file will have.
    return round(min(max(value, 0.0), 1.0), DIGITS)


def _drafter_kv(before: int | None, peak: int | None, after: int | None) -> tuple[int, int, int] | None:
    if before is None or peak is None or after is None:
        return None
    return before, peak, after
