"""The loop: propose, one target pass, judge, roll back, tell the drafter, yield the round.

Read `rounds` aloud: it is the whole of speculative decoding. The baseline is the same loop with the drafter `none`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from spec_viz.engine.draws import Draws
from spec_viz.engine.length import Drafted, Fixed, Length
from spec_viz.engine.proposal import Drafter, Outcome, Proposal
from spec_viz.engine.record import Stopwatch, record
from spec_viz.engine.rules import RULES, check_fit
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Finish, Round
from spec_viz.engine.warp import Warp


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run needs besides its models: drafts at most gamma deep, max_new_tokens unless it ends early.

    `strength` is a lossy rule's number, `length` decides how much of gamma a round uses.
    """

    gamma: int
    max_new_tokens: int
    warp: Warp = Warp()
    rule: str = "match"
    seed: int = 0
    ends: frozenset[int] = frozenset()
    strength: float | None = None
    length: Length = field(default_factory=Fixed)


def decode(
    target: CachedModel, drafter: Drafter, prompt: Sequence[int], settings: Settings, stop: Callable[[], bool]
) -> Iterator[Round | Finish]:
    """Yield every round of a run and then why it ended; both caches are freed on every exit.

    The prompt is token ids, at least one. `stop` is asked before every round.
    """
    try:
        yield from rounds(target, drafter, list(prompt), settings, stop)
    finally:
        target.close()
        drafter.close()


def rounds(
    target: CachedModel, drafter: Drafter, context: list[int], settings: Settings, stop: Callable[[], bool]
) -> Iterator[Round | Finish]:
    """The loop itself. `context` holds the committed ids and grows; the target's cache holds one entry less."""
    judge = RULES[settings.rule].with_strength(settings.strength)
    goal = len(context) + settings.max_new_tokens
    end = min(goal, target.context_limit)
    number = 0
    while True:
        if finish := _finished(context, number, end, goal, settings.ends, stop):
            yield finish
            return
        watch, draws = Stopwatch(target.now), Draws(settings.seed, number, len(context))
        before = (target.length, drafter.cache_length)

        gamma = settings.length.gamma(min(settings.gamma, end - len(context) - 1)) if number else 0
        proposal = drafter.propose(context, gamma, draws).cut_after(settings.ends) if gamma else Proposal()
        check_fit(settings.rule, proposal)
        watch.lap("propose")

        if number:
            logits, seen = target.verify(context[-1], proposal, drafter.needs)
        else:
            logits, seen = target.prefill(context, drafter.needs)
        peak = (target.length, drafter.cache_length)
        watch.lap("verify")

        p = settings.warp.law(logits, context, proposal.tokens, proposal.parents)
        verdict = judge(p, proposal, draws)
        kept = [proposal.tokens[node] for node in verdict.path]
        ended = bool(kept) and kept[-1] in settings.ends
        context += kept if ended else [*kept, verdict.token]
        watch.lap("judge")

        target.roll_back(before[0] + 1 if number else target.length, verdict.path)
        drafter.observe(Outcome(verdict.path, context, seen))
        if number:
            depth = max(proposal.depths, default=0)
            settings.length.observe(Drafted(depth, verdict.accepted, watch.ms["propose"], watch.ms["verify"]))
        watch.lap("rollback")
        yield record(
            number, logits, p, proposal, verdict, ended, watch, before, peak, (target.length, drafter.cache_length)
        )
        number += 1


def _finished(
    context: list[int], number: int, end: int, goal: int, ends: Collection[int], stop: Callable[[], bool]
) -> Finish | None:
    if number and context[-1] in ends:
        return "eos"
    if len(context) >= end:
        return "length" if end == goal else "context"
    return "stopped" if stop() else None
