"""The loop: propose, one target pass, judge, roll back, tell the drafter, yield the round.

Read `rounds` aloud: it is the whole of speculative decoding. The baseline is the same loop with the drafter `none`.
What a round does beside the target's pass is `Decoding`, which a batch shares (`spec_viz.engine.batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from spec_viz.engine.device import Instant, bring
from spec_viz.engine.draws import Draws
from spec_viz.engine.length import Drafted, Fixed, Length
from spec_viz.engine.proposal import Drafter, Outcome, Pending, Proposal, Seen
from spec_viz.engine.record import Stopwatch, record
from spec_viz.engine.rules import RULES, Verdict, check_fit
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
    run = Decoding(drafter, context, settings, target.context_limit, target.mark)
    while (finish := run.finished(stop)) is None:
        proposal = run.propose(target.length)
        if run.number:
            logits, seen = target.verify(context[-1], proposal, drafter.needs)
        else:
            logits, seen = target.prefill(context, drafter.needs)
        run.watch.lap("verify")
        verdict = run.judge(logits, target.length)
        target.roll_back(run.begun, verdict.path)
        yield run.observe(seen, target.length)
    yield finish


class Decoding:
    """One request under way: its drafter, its text, and all of a round but the target's pass and cache.

    A round is `propose`, the pass, `judge`, the roll back, `observe`, in that order; `cached` is each time how many
    entries the target's cache holds of this request. `context` are the committed ids, `begun` how many there were when
    the round began, `number` counts the rounds that are over, of which the prefill is the first.
    """

    def __init__(
        self,
        drafter: Drafter,
        context: list[int],
        settings: Settings,
        context_limit: int,
        clock: Callable[[], Instant],
    ) -> None:
        self.drafter = drafter
        self.context = context
        self.number = 0
        self.begun = len(context)
        self._settings = settings
        self._judge = RULES[settings.rule].with_strength(settings.strength)
        self._goal = len(context) + settings.max_new_tokens
        self._end = min(self._goal, context_limit)
        self._clock = clock

    def finished(self, stop: Callable[[], bool]) -> Finish | None:
        """Why there is no further round; None where there is one."""
        if self.number and self.context[-1] in self._settings.ends:
            return "eos"
        if len(self.context) >= self._end:
            return "length" if self._end == self._goal else "context"
        return "stopped" if stop() else None

    def propose(self, cached: int, most: int | None = None) -> Proposal | Pending:
        """Begin a round: what the drafter says, nothing in the prefill; at most `most` deep where that is given."""
        self.begun = len(self.context)
        self.watch = Stopwatch(self._clock)
        self._draws = Draws(self._settings.seed, self.number, self.begun)
        self._before = (cached, self.drafter.cache_length)
        self._proposal = self._draft(most)
        check_fit(self._settings.rule, self._proposal)
        self.watch.lap("propose")
        return self._proposal

    def read(self) -> Proposal:
        """The round's proposal with its tokens known; `judge` does it by itself, in the same wait as for the logits."""
        if isinstance(self._proposal, Pending):
            self._bring(None)
        assert isinstance(self._proposal, Proposal)
        return self._proposal

    def _bring(self, logits: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Wait for the device once and bring what it found to the processor: the draft, logits and laws (n + 1, V).

        These are (n + 1)·V to (4n + 2)·V floats a round. Judged there, a rule is the same code on every device and
        gives the same verdict on the same numbers. What is here already stays as it is; the law is left to the
        processor where it hangs on the tokens.
        """
        draft, warp = self._proposal, self._settings.warp
        away = logits is not None and logits.device.type != "cpu"
        early = None
        if logits is not None and away and warp.temperature > 0 and warp.repetition_penalty == 1.0:
            early = warp.law(logits, ())
        waiting = draft.tokens if isinstance(draft, Pending) else None
        logits, early, q, q_raw, tokens = bring(logits, early, draft.q, draft.q_raw, waiting)
        if isinstance(draft, Pending):
            assert tokens is not None
            # What stands behind an end of text was drafted because nobody had looked.
            self._proposal = draft.read(tokens.tolist(), q, q_raw).cut_after(self._settings.ends)
        elif q is not draft.q or q_raw is not draft.q_raw:
            self._proposal = replace(draft, q=q, q_raw=q_raw)
        rows = len(self._proposal) + 1
        return (None if logits is None else logits[:rows]), (None if early is None else early[:rows])

    def _draft(self, most: int | None) -> Proposal | Pending:
        settings = self._settings
        gamma = settings.gamma if most is None else min(settings.gamma, most)
        gamma = settings.length.gamma(min(gamma, self._end - self.begun - 1)) if self.number else 0
        if not gamma:
            return Proposal()
        draft = self.drafter.propose(self.context, gamma, self._draws)
        return draft if isinstance(draft, Pending) else draft.cut_after(settings.ends)

    def judge(self, logits: Tensor, cached: int) -> Verdict:
        """The rule's verdict on logits (n + 1, V); what it keeps is committed, with the target's own token behind it.

        No bonus follows an accepted end of text.
        """
        self._peak = (cached, self.drafter.cache_length)
        found, law = self._bring(logits)
        assert found is not None
        proposal, self._logits = self.read(), found
        if law is None:
            law = self._settings.warp.law(found, self.context, proposal.tokens, proposal.parents)
        self._p = law
        self._verdict = verdict = self._judge(self._p, proposal, self._draws)
        kept = [proposal.tokens[node] for node in verdict.path]
        self._ended = bool(kept) and kept[-1] in self._settings.ends
        self.context += kept if self._ended else [*kept, verdict.token]
        self.watch.lap("judge")
        return verdict

    def observe(self, seen: Seen, cached: int) -> Round:
        """Tell the drafter and the length how the round went, and write it down."""
        verdict, ms = self._verdict, self.watch.ms
        self.drafter.observe(Outcome(verdict.path, self.context, seen))
        if self.number:
            depth = max(self.read().depths, default=0)
            self._settings.length.observe(Drafted(depth, verdict.accepted, ms["propose"], ms["verify"]))
        self.watch.lap("rollback")
        after = (cached, self.drafter.cache_length)
        self.number += 1
        return record(
            self.number - 1,
            self._logits,
            self._p,
            self.read(),
            verdict,
            self._ended,
            self.watch,
            self._before,
            self._peak,
            after,
        )
