"""The line at the engine: one decode at a time, visitors by turns, and everybody sees their place.

Who comes first is served first. Who has several runs in line, in several tabs, has one turn like everybody else: the
second run waits until all others who stand there by then have had theirs. So nobody waits for more than one run of each
other visitor, and a later comer passes nothing but somebody's second run.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from spec_viz.ui.flag import Flag
from spec_viz.ui.limits import Limits
from spec_viz.ui.visitor import Visitor


class LineError(Exception):
    """There is no place: `key` names the sentence for the visitor, `fields` fill it."""

    def __init__(self, key: str, **fields: Any) -> None:
        super().__init__(key)
        self.key = key
        self.fields = fields


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in line. `stop` is raised from outside (Stop, a closed tab, a newer run in the same tab).

    `until` is the host's deadline on the clock of `time.monotonic`, known once the ticket is served.
    """

    visitor: Visitor
    nonce: str
    stop: Flag = field(default_factory=Flag)
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

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tickets: list[Ticket] = []
        self._served: Ticket | None = None
        # The runs of every person who waits; the persons in the order of their turns.
        self._waiting: dict[tuple[str, str], list[Ticket]] = {}
        self._changed = threading.Condition()

    def join(self, visitor: Visitor, nonce: str, *, waits: bool = True) -> Ticket:
        """A new ticket; an earlier one of the same tab is told to stop. Raises LineError where there is no place.

        One that does not wait counts as a place, and is served beside the line.
        """
        with self._changed:
            self._dismiss(visitor)
            self._admit(visitor)
            ticket = Ticket(visitor, nonce)
            self._tickets.append(ticket)
            if waits:
                self._waiting.setdefault(visitor.person, []).append(ticket)
                if self._served is None:
                    self._serve()
                else:
                    # Whose run is on has had a turn, and comes after all who came meanwhile.
                    self._to_the_end(self._served)
            return ticket

    def _admit(self, visitor: Visitor) -> None:
        limits = self._limits
        # Those that were told to stop are as good as gone.
        there = [ticket.visitor for ticket in self._tickets if not ticket.stop.is_set()]
        if sum(each.person == visitor.person for each in there) >= limits.line_browser:
            raise LineError("error.line_browser", most=limits.line_browser)
        if sum(each.address == visitor.address for each in there) >= limits.line_address:
            raise LineError("error.line_address", most=limits.line_address)
        if len(self._tickets) >= limits.line:
            raise LineError("error.busy", waiting=limits.line)

    def _serve(self) -> None:
        """The next run begins: the first one of the person whose turn it is."""
        person = next(iter(self._waiting), None)
        self._served = None if person is None else self._waiting[person][0]
        if self._served is not None:
            self._drop(self._served)
            self._to_the_end(self._served)

    def _drop(self, ticket: Ticket) -> None:
        person = ticket.visitor.person
        runs = [each for each in self._waiting.get(person, []) if each is not ticket]
        if runs:
            self._waiting[person] = runs
        else:
            self._waiting.pop(person, None)

    def _to_the_end(self, ticket: Ticket) -> None:
        """What else its person has waiting comes after everybody's turn."""
        person = ticket.visitor.person
        if person in self._waiting:
            self._waiting[person] = self._waiting.pop(person)

    def dismiss(self, visitor: Visitor) -> None:
        """Raise the stop flag of the runs of a visitor's tab: they have begun something else there."""
        with self._changed:
            self._dismiss(visitor)

    def _dismiss(self, visitor: Visitor) -> None:
        own = [ticket for ticket in self._tickets if ticket.visitor == visitor]
        for ticket in own:
            ticket.stop.set()
        if own:
            self._changed.notify_all()

    def place(self, ticket: Ticket, wait: float = 0.0) -> int:
        """How many runs come before this one (0: it is served), after waiting up to `wait` seconds for a change."""
        with self._changed:
            before = self._place(ticket)
            if before and wait:
                self._changed.wait(wait)
                before = self._place(ticket)
            return before

    def _place(self, ticket: Ticket) -> int:
        if ticket is self._served:
            return 0
        turns = zip_longest(*self._waiting.values())
        return 1 + [each for turn in turns for each in turn if each is not None].index(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Give the place up, served or not."""
        with self._changed:
            self._tickets.remove(ticket)
            self._drop(ticket)
            if ticket is self._served:
                self._serve()
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
