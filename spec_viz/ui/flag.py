"""A stop flag that is seen across a fork: on ZeroGPU the run is in a process of its own, its page is in this one."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from itertools import count

# Far more than can wait in line at once, so a place is free again long before its turn comes round.
PLACES = 4096

# Anonymous memory is the one thing that parent and children go on sharing after a fork: a byte a flag.
_raised = mmap.mmap(-1, PLACES)
_numbers = count()


def _lowered() -> int:
    place = next(_numbers) % PLACES
    _raised[place] = 0
    return place


@dataclass(frozen=True, slots=True)
class Flag:
    """Down at first, raised for good by `set`; a pickled copy, also in a process forked from here, is the same flag."""

    place: int = field(default_factory=_lowered)

    def set(self) -> None:
        """Raise it."""
        _raised[self.place] = 1

    def is_set(self) -> bool:
        """Whether somebody has raised it."""
        return _raised[self.place] == 1
