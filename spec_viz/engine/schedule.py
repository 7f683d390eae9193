"""How many drafts a batch can afford: the busier the target, the dearer every further token of a pass (§10.2).

A schedule caps what each request's own gamma and length allow. It may look at passes that are over, never at a draft
that is still to be judged (algorithms §1.7).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Load:
    """A batched pass in hindsight: rows in it, drafts the longest row had and all had, what became of them, its cost.

    `drafting` rows had a draft; `judged` and `accepted` are drafts; times are milliseconds of the whole batch.
    """

    rows: int
    deepest: int
    drafted: int
    drafting: int
    judged: int
    accepted: int
    propose_ms: float
    verify_ms: float


class Schedule(Protocol):
    """Decides the longest draft of a pass for all its rows; one object serves one batch."""

    def most(self, rows: int) -> int | None:
        """The longest draft a row may have when so many rows decode; None leaves it to the requests."""

    def observe(self, load: Load) -> None:
        """Hear how a pass went; a prefill is none."""


class Unlimited:
    """Every request drafts as if it were alone."""

    def most(self, rows: int) -> int | None:
        return None

    def observe(self, load: Load) -> None:
        """Nothing changes it."""


class ByBatchSize:
    """A table (start, end, K): K drafts from `start` to `end` rows, both counted in (vLLM's dynamic SD, §10.2).

    The same checks and reading as vLLM's `num_speculative_tokens_per_batch_size`: the first start is 1, ranges don't
    overlap, gaps and what lies behind the last range carry the K before on. ValueError for any other table.
    """

    def __init__(self, table: Sequence[Sequence[int]]) -> None:
        if not table or any(len(entry) != 3 for entry in table):
            raise ValueError("a schedule is a list of [start, end, K]")
        self._table = sorted((start, end, k) for start, end, k in table)
        if any(start < 1 or end < start or k < 0 for start, end, k in self._table):
            raise ValueError("in [start, end, K] start is at least 1, end at least start, K at least 0")
        if self._table[0][0] != 1:
            raise ValueError("the first range of a schedule starts at 1")
        if any(start <= end for (_, end, _), (start, _, _) in zip(self._table, self._table[1:], strict=False)):
            raise ValueError("the ranges of a schedule overlap")

    def most(self, rows: int) -> int | None:
        return [k for start, _, k in self._table if start <= rows][-1]

    def observe(self, load: Load) -> None:
        """A table does not learn."""


class Goodput:
    """The K with the most tokens a millisecond for the whole batch (SmartSpec, TurboSpec 2406.14066; §10.2).

    Over the last `memory` passes a row's tokens are 1 + coverage·(α + … + α^K), with α = accepted ÷ judged and coverage
    = rows that drafted ÷ rows that were asked; a pass takes what the straight line through (its tokens, milliseconds)
    says, and drafting its mean time a draft. Where the passes cannot tell, it measures: up to `deepest` drafts when
    none was judged, none when all passes were equally wide. The line leaves the context's length out.
    """

    def __init__(self, deepest: int, memory: int = 32) -> None:
        self._deepest = deepest
        self._loads: deque[tuple[Load, bool]] = deque(maxlen=memory)
        self._asked = True

    def most(self, rows: int) -> int | None:
        k = self._best(rows)
        self._asked = k > 0
        return k

    def observe(self, load: Load) -> None:
        self._loads.append((load, self._asked))

    def _best(self, rows: int) -> int:
        loads = [load for load, _ in self._loads]
        judged = sum(load.judged for load in loads)
        if not judged:
            return self._deepest
        widths = [load.rows * (1 + load.deepest) for load in loads]
        if len(set(widths)) == 1:
            return 0
        alpha = sum(load.accepted for load in loads) / judged
        asked = [load for load, asked in self._loads if asked]
        coverage = sum(load.drafting for load in asked) / sum(load.rows for load in asked)
        draft = sum(load.propose_ms for load in asked) / sum(load.drafted for load in asked)
        passes = [load.verify_ms for load in loads]
        # A pass that seems to get cheaper with its width is noise.
        growth = max(linear_regression(widths, passes).slope, 0.0)
        fixed = fmean(passes) - growth * fmean(widths)

        def goodput(k: int) -> float:
            tokens = 1 + coverage * math.fsum(alpha**i for i in range(1, k + 1))
            cost = fixed + rows * ((1 + k) * growth + coverage * k * draft)
            # A noisy line can pass below nothing; such a K looks best, is tried, and mends the line.
            return tokens / max(cost, 1e-9)

        return max(range(self._deepest + 1), key=goodput)
