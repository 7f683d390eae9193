"""How long a round's draft may be: asked before the round, and after each drafted token.

A length may depend on anything that was known before the token it cuts off: on earlier rounds, on the laws and the
values of earlier drafts. It must never depend on the value of the token it would drop, nor on tokens behind it
(algorithms §1.7): that would bias what is left.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, linear_regression
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Drafted:
    """A round in hindsight: how deep its draft went, how many drafts were kept, the milliseconds of both models."""

    depth: int
    accepted: int
    propose_ms: float
    verify_ms: float

    @property
    def judged(self) -> int:
        """Depths at which a draft was judged: those kept, and the one that ended the round before the draft did."""
        return min(self.accepted + 1, self.depth)


class Length(Protocol):
    """A length policy; one object serves one run."""

    def gamma(self, most: int) -> int:
        """The longest draft of the coming round, at most `most`; 0 leaves the round without a draft."""

    def stops(self, q: float) -> bool:
        """Whether drafting ends behind a token that the drafter itself gave probability q at temperature 1.

        The token stays. Only drafters that draw from a law ask; for a lookup the answer is never heard.
        """

    def observe(self, round_: Drafted) -> None:
        """Hear how a round went; the prefill is no round."""


class Fixed:
    """Always the same gamma."""

    def gamma(self, most: int) -> int:
        return most

    def stops(self, q: float) -> bool:
        return False

    def observe(self, round_: Drafted) -> None:
        """Nothing changes a fixed length."""


class Heuristic:
    """Two longer after a round that kept its whole draft, else one shorter, never below 1 (transformers' `heuristic`).

    It starts at the run's gamma, as transformers starts at num_assistant_tokens, but never passes it: there the length
    grows without a limit. A round without a draft changes nothing; there it counts as kept (algorithms §4.4).
    """

    def __init__(self) -> None:
        self._now: int | None = None
        self._ceiling = 0

    def gamma(self, most: int) -> int:
        # Near the end of a run `most` shrinks below the run's gamma; what was learned stays.
        self._ceiling = max(self._ceiling, most)
        if self._now is None:
            self._now = most
        return min(self._now, most)

    def stops(self, q: float) -> bool:
        return False

    def observe(self, round_: Drafted) -> None:
        if self._now is None or not round_.depth:
            return
        whole = round_.accepted == round_.depth
        self._now = min(self._now + 2, self._ceiling) if whole else max(self._now - 1, 1)


class Confident(Fixed):
    """Stop behind a token that its own drafter found less likely than `threshold` (transformers' ConfidenceCriteria).

    The doubtful token stays and is judged: dropping it for its own value would bend the law (algorithms §1.7).
    transformers re-fits the threshold as it goes, and takes q as warped; here it stays at transformers' first value,
    and q is that of temperature 1, because at temperature 0 every drafter is sure. A drafter that never asks (a lookup)
    never stops.
    """

    def __init__(self, threshold: float = 0.4) -> None:
        self._threshold = threshold

    def stops(self, q: float) -> bool:
        return q < self._threshold


class Goodput:
    """The k with the most tokens a millisecond: argmax (1 + α + … + α^k) / (T_draft·k + T(k)) (TurboSpec, 2406.14066).

    Over the last `memory` rounds α is accepted ÷ judged depths, T_draft the drafting time a depth, T(k) the straight
    line through the passes of the target. Where these rounds cannot tell, it measures: the whole gamma when no draft
    was judged, no draft when all went equally deep. It therefore probes once in `memory` rounds (algorithms §10.2).
    """

    def __init__(self, memory: int = 32) -> None:
        self._rounds: deque[Drafted] = deque(maxlen=memory)

    def gamma(self, most: int) -> int:
        judged = sum(round_.judged for round_ in self._rounds)
        if not judged:
            return most
        if len({round_.depth for round_ in self._rounds}) == 1:
            return 0
        alpha = sum(round_.accepted for round_ in self._rounds) / judged
        draft = sum(round_.propose_ms for round_ in self._rounds) / sum(round_.depth for round_ in self._rounds)
        step, growth = self._line()

        def goodput(k: int) -> float:
            # A noisy line can pass below nothing; such a k looks best, is tried, and mends the line.
            cost = max(step + k * (draft + growth), 1e-9)
            return math.fsum(alpha**i for i in range(k + 1)) / cost

        return max(range(most + 1), key=goodput)

    def stops(self, q: float) -> bool:
        return False

    def observe(self, round_: Drafted) -> None:
        self._rounds.append(round_)

    def _line(self) -> tuple[float, float]:
        """T(0) and what each further depth adds; a pass that seems to get cheaper with its width is noise."""
        depths = [round_.depth for round_ in self._rounds]
        passes = [round_.verify_ms for round_ in self._rounds]
        growth = max(linear_regression(depths, passes).slope, 0.0)
        return fmean(passes) - growth * fmean(depths), growth


LENGTHS: dict[str, Callable[[], Length]] = {
    "fixed": Fixed,
    "heuristic": Heuristic,
    "confident": Confident,
    "goodput": Goodput,
}
