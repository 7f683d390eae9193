"""Buckets that are refilled steadily: how often an address may do something."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

# Addresses; the least recently seen are forgotten.
REMEMBERED = 10_000


class Buckets:
    """A bucket for each address: `burst` at once, and `each_second` more as time goes by. Not for several threads."""

    def __init__(self, burst: float, each_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._each_second, self._clock = burst, each_second, clock
        # What is left to an address, and when that was counted.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Take one out of the bucket of this address; False where none is left."""
        now = self._clock()
        left, counted = self._left.pop(address, (self._burst, now))
        # A clock of the day may be set back.
        left = min(self._burst, left + self._each_second * max(0.0, now - counted))
        taken = left >= 1
        self._left[address] = (left - taken, now)
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        return taken

    def __len__(self) -> int:
        return len(self._left)
