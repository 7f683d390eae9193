"""The line by itself: places, turns, who is told to stop, and whom it has no place for."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spec_viz.ui.limits import Limits
from spec_viz.ui.line import Line, LineError, Ticket
from spec_viz.ui.visitor import Visitor
from tests.integration.rooms import by

WIDE = Limits(line=200, line_address=200, line_browser=200)


def tabs(line: Line, browser: str, many: int, address: str = "home") -> list[Ticket]:
    """Runs of one browser, each in a tab of its own."""
    return [line.join(Visitor(address, browser, f"{browser}{tab}"), "") for tab in range(many)]


def places(line: Line, *tickets: Ticket) -> list[int]:
    return [line.place(ticket) for ticket in tickets]


def refusal(line: Line, visitor: Visitor) -> tuple[str, dict[str, Any]]:
    with pytest.raises(LineError) as caught:
        line.join(visitor, "")
    return caught.value.key, caught.value.fields


# ---------------------------------------------------------------- places and turns


def test_who_comes_first_is_served_first_and_the_others_move_up() -> None:
    line = Line(WIDE)
    tickets = [line.join(by(name), "") for name in "abc"]
    assert places(line, *tickets) == [0, 1, 2]
    line.leave(tickets[1])
    assert places(line, tickets[0], tickets[2]) == [0, 1]
    line.leave(tickets[0])
    assert line.place(tickets[2]) == 0
    assert len(line) == 1


def test_the_second_tab_of_a_person_comes_after_everybody_s_turn() -> None:
    line = Line(WIDE)
    mine = tabs(line, "me", 3)
    assert places(line, *mine) == [0, 1, 2]
    (yours,) = tabs(line, "you", 1)
    assert places(line, *mine, yours) == [0, 2, 3, 1]
    late = line.join(by("late"), "")
    assert places(line, *mine, yours, late) == [0, 3, 4, 1, 2]
    line.leave(mine[0])
    assert places(line, yours, late, *mine[1:]) == [0, 1, 2, 3]


def test_a_class_behind_one_address_takes_turns_like_anybody() -> None:
    line = Line(WIDE)
    members = [ticket for name in ("an", "binh", "chi") for ticket in tabs(line, name, 1, address="school")]
    other = line.join(by("home"), "")
    assert places(line, *members, other) == [0, 1, 2, 3]


def test_who_begins_anew_in_the_same_tab_keeps_the_turn() -> None:
    line = Line(WIDE)
    line.join(by("a"), "")
    old, other = line.join(by("b"), ""), line.join(by("c"), "")
    new = line.join(by("b"), "")
    assert (old.stop.is_set(), other.stop.is_set(), new.stop.is_set()) == (True, False, False)
    line.leave(old)
    assert places(line, new, other) == [1, 2]


def test_what_does_not_wait_stands_in_nobody_s_way() -> None:
    line = Line(WIDE)
    beside = line.join(by("a"), "", waits=False)
    assert line.place(line.join(by("b"), "")) == 0
    assert len(line) == 2
    line.leave(beside)
    assert len(line) == 1


# ---------------------------------------------------------------- no place


def test_a_full_line_takes_nobody_until_somebody_leaves() -> None:
    line = Line(Limits(line=2))
    first, _ = line.join(by("a"), ""), line.join(by("b"), "")
    assert refusal(line, by("c")) == ("error.busy", {"waiting": 2})
    assert len(line) == 2
    line.leave(first)
    assert line.place(line.join(by("c"), "")) == 1


def test_twenty_tabs_of_a_browser_have_few_places_and_a_refresh_does_not_use_them_up() -> None:
    line = Line(Limits(line_browser=3))
    first, *_ = tabs(line, "me", 3)
    for tab in range(3, 20):
        assert refusal(line, Visitor("home", "me", f"me{tab}")) == ("error.line_browser", {"most": 3})
    # The run that a new one of its own tab replaces counts no more, also while it still winds up.
    for _ in range(20):
        line.join(first.visitor, "")
    # Another browser at home is another person.
    assert line.place(line.join(Visitor("home", "you", "you0"), "")) == 1


def test_an_address_holds_a_class_and_no_more_whatever_names_it_makes_up() -> None:
    limits = Limits()
    line = Line(limits)
    for number in range(limits.line_address):
        line.join(Visitor("one", f"name{number}", f"tab{number}"), "")
    assert refusal(line, Visitor("one", "fresh", "fresh")) == ("error.line_address", {"most": limits.line_address})
    assert limits.line_address > 30
    assert line.place(line.join(by("somebody else"), "")) == limits.line_address


def test_the_nameless_of_an_address_are_one_person() -> None:
    line = Line(Limits(line_browser=2))
    nameless = [Visitor("one", "", f"tab{number}") for number in range(3)]
    for visitor in nameless[:2]:
        line.join(visitor, "")
    assert refusal(line, nameless[2])[0] == "error.line_browser"
    line.join(Visitor("two", "", "tab"), "")


# ---------------------------------------------------------------- stop


def test_stop_reaches_the_run_with_that_nonce_alone() -> None:
    line = Line(WIDE)
    mine, other = line.join(by("a"), "1-2-3"), line.join(by("b"), "4-5-6")
    line.stop("nobody's")
    line.stop("1-2-3")
    assert (mine.stop.is_set(), other.stop.is_set()) == (True, False)


def test_nobody_ends_a_run_by_claiming_its_tab_from_elsewhere() -> None:
    line = Line(WIDE)
    mine = line.join(Visitor("home", "me", "tab"), "")
    for visitor in (Visitor("elsewhere", "me", "tab"), Visitor("home", "you", "tab"), Visitor("home", "me", "other")):
        line.join(visitor, "")
        line.dismiss(visitor)
    assert not mine.stop.is_set()


def test_who_waits_is_woken_when_the_place_changes() -> None:
    line = Line(WIDE)
    first, second = line.join(by("a"), ""), line.join(by("b"), "")
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(line.place(second, wait=10)))
    waiting.start()
    line.leave(first)
    waiting.join(5)
    assert found == [0]


# ---------------------------------------------------------------- fairness, whatever happens

PERSONS = [("home", "ann"), ("home", "bob"), ("school", "chi"), ("school", "dung"), ("café", "")]


class Fairness(RuleBasedStateMachine):
    """Anybody joins, leaves, and has runs that end, in any order."""

    @initialize()
    def begin(self) -> None:
        self.line = Line(WIDE)
        self.there: list[Ticket] = []
        self.tabs = 0
        # Whose runs each person's first waiting one has met: that which was on when it came to stand there, and since.
        self.seen: dict[Ticket, Counter[tuple[str, str]]] = {}
        self.shown: dict[Ticket, int] = {}
        self.served: Ticket | None = None
        self.note()

    def note(self) -> None:
        """Who is served now, and what the first runs of all who wait have seen."""
        served = next((ticket for ticket in self.there if self.line.place(ticket) == 0), None)
        if served is not self.served and served is not None:
            for seen in self.seen.values():
                seen[served.visitor.person] += 1
        self.served = served
        waiting = [ticket for ticket in self.there if ticket is not served]
        first = {ticket.visitor.person: ticket for ticket in reversed(waiting)}
        met = [served.visitor.person] if served else []
        self.seen = {ticket: self.seen.get(ticket, Counter(met)) for ticket in first.values()}

    @rule(person=st.sampled_from(PERSONS))
    def join(self, person: tuple[str, str]) -> None:
        self.tabs += 1
        self.there.append(self.line.join(Visitor(*person, f"tab{self.tabs}"), ""))
        self.note()

    @precondition(lambda self: self.served is not None)
    @rule()
    def end(self) -> None:
        assert self.served is not None
        self.there.remove(self.served)
        self.line.leave(self.served)
        self.note()

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.there))
        self.there.remove(ticket)
        self.line.leave(ticket)
        self.note()

    @invariant()
    def nobody_waits_for_two_runs_of_another(self) -> None:
        for ticket, seen in self.seen.items():
            others = {person: times for person, times in seen.items() if person != ticket.visitor.person}
            assert all(times <= 1 for times in others.values()), (ticket.visitor, seen)

    @invariant()
    def the_places_are_those_of_a_line(self) -> None:
        assert sorted(places(self.line, *self.there)) == list(range(len(self.there)))

    @invariant()
    def the_place_of_a_first_run_only_falls(self) -> None:
        # Whose other run is on has had a turn, and lets newcomers pass until it ends.
        on = self.served and self.served.visitor.person
        now = {ticket: self.line.place(ticket) for ticket in self.seen if ticket.visitor.person != on}
        for ticket, place in now.items():
            assert place <= self.shown.get(ticket, place), ticket.visitor
        self.shown = now


TestFairness = Fairness.TestCase
TestFairness.settings = settings(max_examples=60, stateful_step_count=40)


@given(st.lists(st.sampled_from(PERSONS), min_size=1, max_size=30))
def test_the_places_shown_are_the_order_served_when_nobody_comes(persons: list[tuple[str, str]]) -> None:
    line = Line(WIDE)
    tickets = [line.join(Visitor(*person, f"tab{number}"), "") for number, person in enumerate(persons)]
    expected = sorted(tickets, key=line.place)
    for ticket in expected:
        assert line.place(ticket) == 0
        line.leave(ticket)
    assert len(line) == 0


@given(st.lists(st.sampled_from(PERSONS), min_size=2, max_size=30), st.data())
def test_a_newcomer_waits_for_one_run_of_everybody_at_most(persons: list[tuple[str, str]], data: st.DataObject) -> None:
    line = Line(WIDE)
    for number, person in enumerate(persons):
        line.join(Visitor(*person, f"tab{number}"), "")
    new = data.draw(st.sampled_from(PERSONS))
    assume(new not in persons)
    assert line.place(line.join(Visitor(*new, "new"), "")) == len(set(persons))
