"""What one address holds of the classes, so that nobody takes all of them: open classes, openings, members.

An address is a household or a school (`visitor.network`), so it may hold as many members as its classes. It is counted
in this process, also where a Redis holds the classes: of several replicas each counts what it sees. That is enough, for
what all hold together is limited by the store, and an address gets no more than its share times the replicas.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from spec_viz.ui.bucket import Buckets

# Of each up to 180 members are known, of whom each is 100 bytes.
REMEMBERED = 1000


class Households:
    """Counts by address. `away` seconds after it was seen last, a member is not counted any more."""

    def __init__(self, classes: int, openings: Buckets, members: int, away: float, clock: Callable[[], float]) -> None:
        self._most_classes, self._most_members = classes, members
        self._openings, self._away, self._clock = openings, away, clock
        # By address: the codes it opened, and when each (code, member) was seen last.
        self._codes: OrderedDict[str, list[str]] = OrderedDict()
        self._seen: OrderedDict[str, dict[tuple[str, str], float]] = OrderedDict()
        self._opening, self._joining = threading.Lock(), threading.Lock()

    def open(self, address: str, is_open: Callable[[str], bool], begin: Callable[[], str]) -> str | None:
        """Open a class with `begin`, which returns its code; or why not: "own" (too many open), "often" (too fast).

        `is_open` tells of an earlier class whether it is still there.
        """
        with self._opening:
            codes = [code for code in self._codes.get(address, ()) if is_open(code)]
            refusal = "own" if len(codes) >= self._most_classes else None
            if refusal is None and not self._openings.take(address):
                refusal = "often"
            if refusal is None:
                codes.append(begin())
            self._codes[address] = codes
            _forget(self._codes, address)
            return refusal

    def join(self, address: str, code: str, member: str) -> bool:
        """Count a member who asks; False where the address holds too many already."""
        now = self._clock()
        with self._joining:
            seen = self._seen.setdefault(address, {})
            if (code, member) not in seen and len(seen) >= self._most_members:
                seen = self._seen[address] = {who: when for who, when in seen.items() if now - when <= self._away}
                if len(seen) >= self._most_members:
                    return False
            seen[code, member] = now
            _forget(self._seen, address)
            return True


def _forget(known: OrderedDict[str, Any], address: str) -> None:
    known.move_to_end(address)
    if len(known) > REMEMBERED:
        known.popitem(last=False)
