"""The line by itself: places, the full line, who is told to stop."""

import threading

from spec_viz.ui.line import Line, Ticket


def join(line: Line, visitor: str, nonce: str = "") -> Ticket:
    ticket = line.join(visitor, nonce)
    assert ticket is not None
    return ticket


def test_who_comes_first_is_served_first_and_the_others_move_up() -> None:
    line = Line(3)
    tickets = [join(line, name) for name in "abc"]
    assert [line.place(ticket) for ticket in tickets] == [0, 1, 2]
    line.leave(tickets[1])
    assert [line.place(ticket) for ticket in (tickets[0], tickets[2])] == [0, 1]
    line.leave(tickets[0])
    assert line.place(tickets[2]) == 0
    assert len(line) == 1


def test_a_full_line_takes_nobody_until_somebody_leaves() -> None:
    line = Line(2)
    first, _ = join(line, "a"), join(line, "b")
    assert line.join("c", "") is None
    assert len(line) == 2
    line.leave(first)
    assert line.place(join(line, "c")) == 1


def test_a_visitor_s_newer_run_stops_the_older_one_and_nobody_else_s() -> None:
    line = Line(3)
    old, other, new = join(line, "a"), join(line, "b"), join(line, "a")
    assert (old.stop.is_set(), other.stop.is_set(), new.stop.is_set()) == (True, False, False)


def test_stop_reaches_the_run_with_that_nonce_alone() -> None:
    line = Line(3)
    mine, other = join(line, "a", "1-2-3"), join(line, "b", "4-5-6")
    line.stop("nobody's")
    line.stop("1-2-3")
    assert (mine.stop.is_set(), other.stop.is_set()) == (True, False)


def test_who_waits_is_woken_when_the_place_changes() -> None:
    line = Line(2)
    first, second = join(line, "a"), join(line, "b")
    places: list[int] = []
    waiting = threading.Thread(target=lambda: places.append(line.place(second, wait=10)))
    waiting.start()
    line.leave(first)
    waiting.join(5)
    assert places == [0]
