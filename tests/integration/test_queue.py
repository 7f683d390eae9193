"""The line over real HTTP: a refresh, twenty tabs, a flood by one client, and what everybody else sees meanwhile."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import httpx
import pytest

from spec_viz.serving.gate import PUBLIC
from spec_viz.ui import listening
from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room
from spec_viz.ui.turnstile import BURST, EACH_SECOND
from tests.integration.launch import served
from tests.integration.rooms import PROMPT, Gate, filled_caches, ready_room
from tests.load.visitors import Seen, Visitor, asked_for, doors, watched

HOME, SCHOOL, FLOOD = "203.0.113.9", "198.51.100.7", "192.0.2.66"
PATIENCE = 30.0
T = TypeVar("T")


@pytest.fixture(autouse=True)
def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PUBLIC, "1")


@asynccontextmanager
async def page_of(address: str) -> AsyncIterator[Callable[..., Visitor]]:
    """Makes visitors of a page; an address is told as a proxy on this machine would tell it."""
    most = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, limits=most, timeout=PATIENCE, trust_env=False) as client:
        known = await doors(client)
        yield lambda at=HOME, **more: Visitor(client, known, at, **more)


def visiting(room: Room, do: Callable[[Callable[..., Visitor]], Awaitable[T]]) -> T:
    async def go(address: str) -> T:
        async with page_of(address) as visitor:
            return await do(visitor)

    with served(room) as address:
        return asyncio.run(go(address))


async def until(true: Callable[[], bool], what: str) -> float:
    """How long it took."""
    start = time.monotonic()
    while not true():
        assert time.monotonic() - start < PATIENCE, what
        await asyncio.sleep(0.02)
    return time.monotonic() - start


def run(tokens: int = 12, drafter: str = "none") -> dict[str, object]:
    return asked_for(drafter, tokens, PROMPT)


async def until_served(visitor: Visitor, tokens: int = 200) -> None:
    """Begin a run, see its first round, and close the page."""
    async with aclosing(visitor.ask(run(tokens))) as answer:
        async for text in answer:
            if '"round"' in text:
                return


def test_a_refresh_leaves_no_run_behind_and_the_same_browser_is_served_again(room: Room, gate: Gate) -> None:
    gate.pause = 0.05

    async def go(visitor: Callable[..., Visitor]) -> Seen:
        browser = secrets.token_hex(16)
        for _ in range(5):
            await until_served(visitor(browser=browser))
            await until(lambda: len(room.line) == 0, "the run of a page that was loaded again goes on")
        gate.pause = 0.0
        return await watched(visitor(browser=browser), run())

    seen = visiting(room, go)
    assert (seen.how, seen.places) == ("length", [0])
    assert filled_caches() == 0


def test_pages_loaded_again_in_a_hurry_use_no_places_up(room: Room, gate: Gate) -> None:
    gate.pause = 0.05
    limits = room.limits

    async def go(visitor: Callable[..., Visitor]) -> Seen:
        browser = secrets.token_hex(16)
        for _ in range(3 * limits.line_browser):
            await until_served(visitor(browser=browser))
            # As soon as the server has seen that the page is gone, long before the next is loaded.
            await until(lambda: len(room.line) < limits.line_browser, "pages that are gone hold their places")
        gate.pause = 0.0
        return await watched(visitor(browser=browser), run())

    assert visiting(room, go).how == "length"
    assert len(room.line) == 0


def test_twenty_tabs_of_a_browser_wait_for_themselves_and_nobody_else_for_them(room: Room, gate: Gate) -> None:
    gate.open.clear()
    most = room.limits.line_browser

    async def go(visitor: Callable[..., Visitor]) -> tuple[list[Seen], Seen]:
        browser = secrets.token_hex(16)
        tabs = [asyncio.create_task(watched(visitor(browser=browser), run())) for _ in range(20)]
        await until(lambda: sum(tab.done() for tab in tabs) == 20 - most, "the line took more tabs, or fewer")
        # From the same school, as everybody in the room.
        other = asyncio.create_task(watched(visitor(), run()))
        await until(lambda: len(room.line) == most + 1, "another visitor found no place")
        gate.open.set()
        return await asyncio.gather(*tabs), await other

    tabs, other = visiting(room, go)
    assert Counter(seen.how for seen in tabs) == {"length": most, "error.line_browser": 20 - most}
    assert (other.how, other.places) == ("length", [1, 0])


def test_a_flood_from_one_address_takes_neither_the_line_nor_the_page_from_others(room: Room, gate: Gate) -> None:
    gate.open.clear()
    limits = room.limits

    async def go(visitor: Callable[..., Visitor]) -> tuple[Counter[int], Seen, bool]:
        # It asks under a new name each time, and never listens.
        start = time.monotonic()
        answers = await asyncio.gather(*(visitor(FLOOD).join(run(2)) for _ in range(3 * BURST)))
        flood = Counter(answer.status_code for answer in answers)
        assert flood[200] <= BURST + EACH_SECOND * (time.monotonic() - start) + 1
        await until(lambda: 0 < len(room.line) <= limits.line_address, "the flood stands in line")
        other = asyncio.create_task(watched(visitor(SCHOOL), run()))
        ready = (await visitor(SCHOOL).beside("state", None))["ready"]
        gate.open.set()
        seen = await other
        await until(lambda: len(room.line) == 0, "the flood's runs never end")
        return flood, seen, ready

    flood, other, ready = visiting(room, go)
    assert flood.keys() == {200, 429}
    assert other.how == "length"
    assert other.places[0] <= limits.line_address
    assert other.only_fell
    assert ready is True
    assert len(room.line) == 0


@pytest.mark.parametrize("limits", [Limits(line=1), Limits(line_address=1)])
def test_who_finds_no_place_is_told_why_and_gets_one_later(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    room = ready_room(monkeypatch, limits)

    async def go(visitor: Callable[..., Visitor]) -> list[Seen]:
        first = asyncio.create_task(watched(visitor(), run()))
        await until(lambda: len(room.line) == 1, "nobody is served")
        second = await watched(visitor(), run())
        gate.open.set()
        return [await first, second, await watched(visitor(), run())]

    with Gate() as gate:
        gate.open.clear()
        first, second, third = visiting(room, go)
    assert [first.how, third.how] == ["length", "length"]
    assert second.how == ("error.busy" if limits.line == 1 else "error.line_address")
    assert second.places == []


def test_a_class_of_thirty_behind_one_address_is_served_in_turn(room: Room, gate: Gate) -> None:
    gate.open.clear()

    async def go(visitor: Callable[..., Visitor]) -> list[Seen]:
        members = [asyncio.create_task(watched(visitor(SCHOOL), run(2))) for _ in range(30)]
        await until(lambda: len(room.line) == 30, "the class does not stand in line")
        gate.open.set()
        return await asyncio.gather(*members)

    members = visiting(room, go)
    assert Counter(seen.how for seen in members) == {"length": 30}
    assert sorted(seen.places[0] for seen in members) == list(range(30))
    assert all(seen.only_fell for seen in members)


def test_runs_that_nobody_listens_to_give_their_places_up(
    monkeypatch: pytest.MonkeyPatch, room: Room, gate: Gate
) -> None:
    monkeypatch.setattr(listening, "PATIENCE", 1.0)
    gate.pause = 0.05

    async def go(visitor: Callable[..., Visitor]) -> tuple[Seen, Seen]:
        slow = asyncio.create_task(watched(visitor(), run(60)))
        await until(lambda: len(room.line) == 1, "nobody is served")
        for _ in range(6):
            assert (await visitor(FLOOD).join(run(200))).status_code == 200
        await until(lambda: len(room.line) == 7, "they do not stand in line")
        await until(lambda: len(room.line) == 1, "they stay in line")
        # Who listens is served to the end, however long that takes.
        seen = await slow
        assert (await visitor(FLOOD).join(run(200))).status_code == 200
        await until(lambda: len(room.line) == 0, "one that is served stays")
        gate.pause = 0.0
        return seen, await watched(visitor(), run())

    assert [seen.how for seen in visiting(room, go)] == ["length", "length"]
    assert filled_caches() == 0
