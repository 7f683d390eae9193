"""The loop for many: every request drafts for itself, one target pass verifies all of them, each is judged alone.

What a request writes does not depend on who decodes beside it: it has its own drafter, rule and keyed draws, and its
row of the cache rolls back by itself. Only chains fit: a row's place in the cache is its position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spec_viz.engine.decode import Decoding, Settings
from spec_viz.engine.proposal import Drafter, Proposal
from spec_viz.engine.rows import Rows
from spec_viz.engine.schedule import Load, Schedule, Unlimited
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Finish, Ms, Round


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a batch: a drafter of its own, token ids (at least one), and how it decodes."""

    drafter: Drafter
    prompt: Sequence[int]
    settings: Settings


@dataclass(frozen=True, slots=True)
class Pass:
    """What one target pass brought: a round for each request that was in it, and why some have no further one.

    A prefill is a pass of its own, of one request, while the others wait. The pass's milliseconds are kept once, as
    `verify` of its first round; that of the other rounds is None. A stopped batch ends with a pass without rounds.
    """

    rounds: Mapping[int, Round]
    finished: Mapping[int, Finish]

    @property
    def prefill(self) -> bool:
        return any(round_.prefill for round_ in self.rounds.values())

    @property
    def ms(self) -> Ms:
        """The whole batch's: its requests' own milliseconds summed, the pass counted once."""
        parts = [round_.ms for round_ in self.rounds.values()]
        return Ms(
            sum(part.propose or 0.0 for part in parts),
            sum(part.verify or 0.0 for part in parts),
            sum(part.judge or 0.0 for part in parts),
            sum(part.rollback or 0.0 for part in parts),
        )


@dataclass(frozen=True, slots=True)
class Seat:
    """A request that is being decoded; seat i has row i of the cache."""

    number: int
    run: Decoding


def decode_batch(
    target: CachedModel,
    requests: Sequence[Asked],
    size: int,
    stop: Callable[[], bool],
    schedule: Schedule | None = None,
) -> Iterator[Pass]:
    """Decode all requests, at most `size` side by side, and yield every pass; drafters are closed on every exit.

    Requests are known by their place in `requests` and begin in that order, each as soon as there is room. `stop` is
    asked before every pass. ValueError for a draft that is no chain.
    """
    try:
        yield from passes(target, requests, size, stop, schedule or Unlimited())
    finally:
        for request in requests:
            request.drafter.close()


def passes(
    target: CachedModel, requests: Sequence[Asked], size: int, stop: Callable[[], bool], schedule: Schedule
) -> Iterator[Pass]:
    """The loop itself; `rounds` of decode.py, side by side."""
    rows = Rows(target.model, size)
    waiting = deque(
        Seat(number, Decoding(asked.drafter, list(asked.prompt), asked.settings, target.context_limit, target.mark))
        for number, asked in enumerate(requests)
    )
    seats: list[Seat] = []
    while waiting or seats:
        if stop():
            yield Pass({}, {seat.number: "stopped" for seat in (*seats, *waiting)})
            return
        if waiting and len(seats) < size:
            seats.append(waiting.popleft())
            rounds = {} if seats[-1].run.finished(_never) else _prefill(rows, seats[-1])
        else:
            rounds = _verify(rows, seats, target.now, schedule)
        yield Pass(rounds, _leave(rows, seats))


def _prefill(rows: Rows, seat: Seat) -> dict[int, Round]:
    """Read a request's prompt into a row behind the others."""
    run = seat.run
    run.propose(cached=0)
    logits, seen = rows.read(run.context, run.drafter.needs)
    run.watch.lap("verify")
    run.judge(logits, rows.lengths[-1])
    return {seat.number: run.observe(seen, rows.lengths[-1])}


def _verify(rows: Rows, seats: Sequence[Seat], now: Callable[[], float], schedule: Schedule) -> dict[int, Round]:
    """A round for every request: each drafts, one pass over all rows, each is judged and rolls its own row back."""
    runs, most = [seat.run for seat in seats], schedule.most(len(seats))
    for row, run in enumerate(runs):
        run.propose(rows.lengths[row], most)
    drafts = [_chain(run.read()) for run in runs]
    began = now()
    answers = rows.verify(
        [(run.context[-1], *draft.tokens) for run, draft in zip(runs, drafts, strict=True)],
        [run.drafter.needs for run in runs],
    )
    ms = (now() - began) * 1000
    rounds: dict[int, Round] = {}
    for row, (seat, (logits, seen)) in enumerate(zip(seats, answers, strict=True)):
        run = seat.run
        run.watch.book("verify", ms)
        verdict = run.judge(logits, rows.lengths[row])
        rows.roll_back(row, run.begun + verdict.accepted)
        round_ = run.observe(seen, rows.lengths[row])
        rounds[seat.number] = replace(round_, ms=replace(round_.ms, verify=None)) if rounds else round_
    schedule.observe(_load(rounds, ms))
    return rounds


def _chain(proposal: Proposal) -> Proposal:
    if proposal.extra or not proposal.is_chain:
        raise ValueError("a batch verifies chains; this drafter drafts a tree or asks for more beside its drafts")
    return proposal


def _load(rounds: Mapping[int, Round], verify_ms: float) -> Load:
    drafts = [round_.nodes for round_ in rounds.values()]
    fates = [node.status for nodes in drafts for node in nodes]
    return Load(
        rows=len(drafts),
        deepest=max(len(nodes) for nodes in drafts),
        drafted=len(fates),
        drafting=sum(bool(nodes) for nodes in drafts),
        judged=len(fates) - fates.count("discarded"),
        accepted=fates.count("accepted"),
        propose_ms=sum(round_.ms.propose or 0.0 for round_ in rounds.values()),
        verify_ms=verify_ms,
    )


def _leave(rows: Rows, seats: list[Seat]) -> dict[int, Finish]:
    """Let finished requests go; the last seat moves to each empty one, so that the rows stay without a hole."""
    finished: dict[int, Finish] = {}
    for place in reversed(range(len(seats))):
        if finish := seats[place].run.finished(_never):
            finished[seats[place].number] = finish
            seats[place].run.drafter.close()
            if place < len(rows.lengths):
                rows.drop(place)
            seats[place] = seats[-1]
            seats.pop()
    return finished


def _never() -> bool:
    return False
