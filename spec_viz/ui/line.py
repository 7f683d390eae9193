"""The line at the engine: one decode at a time, first come first served, and everybody sees their place."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in line. `stop` is raised from outside (Stop, a closed tab, a newer run by the same visitor).

    `until` is the host's deadline on the clock of `time.monotonic`, known once the ticket is served.
    """

    visitor: str
    nonce: str
    stop: threading.Event = field(default_factory=threading.Event)
    until: float = math.inf

    @property
    def over(self) -> bool:
        """Whether the run must end, for one reason or the other."""
        return self.stop.is_set() or self.late

    @property
    def late(self) -> bool:
        """Whether the host's time is up and nobody has stopped the run."""
        return time.monotonic() > self.until and not self.stop.is_set()


class Line:
    """Who is being served and who waits. Tickets, not locks: a generator may be continued by another thread."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._tickets: list[Ticket] = []
        self._changed = threading.Condition()

    def join(self, visitor: str, nonce: str) -> Ticket | None:
        """A new ticket at the end, or None when the line is full; a visitor's earlier ticket is told to stop."""
        with self._changed:
            self._dismiss(visitor)
            if len(self._tickets) >= self._length:
                return None
            ticket = Ticket(visitor, nonce)
            self._tickets.append(ticket)
            return ticket

    def dismiss(self, visitor: str) -> None:
        """Raise the stop flag of a visitor's runs: they have begun something else."""
        with self._changed:
            self._dismiss(visitor)
            self._changed.notify_all()

    def _dismiss(self, visitor: str) -> None:
        for ticket in self._tickets:
            if ticket.visitor == visitor:
                ticket.stop.set()

    def place(self, ticket: Ticket, wait: float = 0.0) -> int:
        """How many stand before this ticket (0: it is served), after waiting up to `wait` seconds for a change."""
        with self._changed:
            before = self._tickets.index(ticket)
            if before and wait:
                self._changed.wait(wait)
                before = self._tickets.index(ticket)
            return before

    def leave(self, ticket: Ticket) -> None:
        """Give the place up, served or not."""
        with self._changed:
            self._tickets.remove(ticket)
            self._changed.notify_all()

    def stop(self, nonce: str) -> None:
        """Raise the stop flag of the run with this nonce, which only its own page knows; a run without one has none."""
        with self._changed:
            for ticket in self._tickets:
                if nonce and ticket.nonce == nonce:
                    ticket.stop.set()
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._tickets)
