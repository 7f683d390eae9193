"""ZeroGPU, where a Space is lent a GPU for the length of one call, which runs in a process forked from this one.

Elsewhere nothing here does anything, and the package `spaces`, which the builder of such a Space brings, is not needed.
What goes into the call and comes out of it is pickled; what it changes in this process's memory is lost; of what this
process changes it sees only `flag.Flag`. A model is put on the GPU that is not there yet, on the main thread and
before the page is launched (`spaces` 0.51.3, zero/wrappers.py and zero/torch/patching.py).
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any, ParamSpec, TypeVar

from spec_viz.ui.faults import where

HERE = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")

if HERE:
    # It must come before CUDA is first touched.
    import spaces

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Seconds, guessed on the safe side: no run of ours has been measured on that hardware. A pass of a small model is
# bound by its launches, not by its arithmetic. What isn't used isn't charged, but must be left of the day's quota.
BEGIN = 5.0
PASS = 0.05
DRAFT = 0.02
# With the lender's factor of 1.5 about half of what somebody without an account has for a day.
MOST = 40.0
# Between the moment that a run is told to end and the one when its GPU is taken away.
GRACE = 5


class NotLent(Exception):  # noqa: N818 - reads as what is the case
    """No GPU, or no longer; `key` names the sentence for the visitor."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def seconds(asked: Mapping[str, Any], most_tokens: int) -> float:
    """How long what a page asked for may take: a pass and γ draft steps for every token, once for every drafter.

    At most `MOST`, which experiments and measurements get. The values are a visitor's and may be anything.
    """
    if "sweep" in asked or "cost" in asked:
        return MOST
    tokens = _number(asked.get("max_new_tokens"), 64, most_tokens)
    gamma = _number(asked.get("gamma"), 4, 12)
    against = asked.get("against")
    runs = 1 + (len(against) if isinstance(against, list) else 0)
    plain = 1 if asked.get("race") else 0
    return min(BEGIN + tokens * (runs * (PASS + gamma * DRAFT) + plain * PASS), MOST)


def _number(value: Any, usual: int, most: int) -> int:
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return min(max(int(value), 1), most) if is_number else usual


def lent(task: Callable[P, Generator[T]], duration: Callable[P, float]) -> Callable[P, Generator[T]]:
    """`task`; on ZeroGPU with a GPU for `duration` and GRACE seconds, where it raises NotLent as well."""
    if not HERE:
        return task
    borrowed = spaces.GPU(task, duration=lambda *args, **named: math.ceil(duration(*args, **named)) + GRACE)

    def borrow(*args: P.args, **named: P.kwargs) -> Generator[T]:
        try:
            yield from borrowed(*args, **named)
        except Exception as problem:
            # The task tells its own faults: this is the lender's. Its title is all that says which.
            log.warning("no GPU was lent, or no longer: %s", where(problem))
            is_spent = "quota" in str(getattr(problem, "title", "")).lower()
            raise NotLent("error.gpu_quota" if is_spent else "error.gpu_away") from problem

    return borrow
