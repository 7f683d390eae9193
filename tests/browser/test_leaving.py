"""A closed tab, seen from the server: the run ends, the place is free, the next visitor is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room
from spec_viz.ui.wording import Words, words
from tests.browser.acts import EN, rows
from tests.browser.conftest import Visit
from tests.integration.launch import served
from tests.integration.rooms import Gate, filled_caches, ready_room, room_on_one_thread

pytestmark = pytest.mark.browser

LINK = "?drafter=none&max_new_tokens=256&chat=0&preset="


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with room_on_one_thread() as room:
        yield room


@pytest.fixture(scope="module")
def address(room: Room) -> Iterator[str]:
    with served(room) as address:
        yield address


@pytest.fixture
def slow(room: Room) -> Iterator[Gate]:
    """A tenth of a second a pass: a run of 256 tokens lasts longer than any of these tests."""
    with Gate() as gate:
        gate.pause = 0.1
        yield gate


def start(page: Page, t: Words = EN) -> None:
    expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
    page.get_by_label(t("control.prompt")).fill("rất đẹp rất")
    page.get_by_role("button", name=t("control.run"), exact=True).click()


def until(page: Page, true: Callable[[], bool], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        page.wait_for_timeout(50)


def test_closing_the_tab_ends_the_run_and_frees_its_memory(visit: Visit, address: str, room: Room, slow: Gate) -> None:
    other = visit(address)
    page = visit(f"{address}/{LINK}")
    start(page)
    expect(rows(page).nth(2)).to_be_attached()
    assert (len(room.line), filled_caches()) == (1, 2)
    page.close()
    until(other, lambda: len(room.line) == 0, "the run of a closed tab goes on")
    assert filled_caches() == 0
    passes = slow.passes
    assert passes < 256
    other.wait_for_timeout(400)
    assert slow.passes == passes


def test_closing_the_tab_in_line_frees_the_place(visit: Visit, address: str, room: Room, slow: Gate) -> None:
    first, second = visit(f"{address}/{LINK}"), visit(f"{address}/{LINK}")
    start(first)
    expect(rows(first).first).to_be_attached()
    start(second)
    expect(second.get_by_text(EN("shell.wait", place=1))).to_be_visible()
    assert len(room.line) == 2
    second.close()
    until(first, lambda: len(room.line) == 1, "a closed tab still stands in line")
    first.close()


def test_reloading_the_page_ends_the_run_and_a_new_one_is_served(
    visit: Visit, address: str, room: Room, slow: Gate
) -> None:
    page = visit(f"{address}/{LINK}")
    start(page)
    expect(rows(page).first).to_be_attached()
    page.reload()
    until(page, lambda: len(room.line) == 0, "the run of a page that was left goes on")
    slow.pause = 0.0
    start(page)
    expect(page.locator(".sv-board-finish")).to_have_text(EN("board.finish.length"))


def test_a_fault_in_the_engine_is_told_and_the_next_run_works(
    visit: Visit, address: str, room: Room, slow: Gate
) -> None:
    page = visit(f"{address}/{LINK}")
    start(page)
    expect(rows(page).nth(1)).to_be_attached()
    slow.fault = lambda: RuntimeError("planted")
    expect(page.get_by_role("alert")).to_have_text(EN("error.unknown"))
    expect(page.locator(".sv-board-finish")).to_have_text(EN("board.finish.error"))
    assert rows(page).count() >= 2
    until(page, lambda: len(room.line) == 0, "the place of a run that failed is not free")
    slow.pause = 0.0
    start(page)
    expect(page.locator(".sv-board-finish")).to_have_text(EN("board.finish.length"))
    expect(page.locator(".sv-alert")).to_have_text("")


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_run_that_the_server_ends_is_not_called_the_visitor_s_doing(visit: Visit, language: str) -> None:
    t = words(language)
    with pytest.MonkeyPatch.context() as patch, Gate() as gate, served(ready_room(patch, Limits(seconds=1.0))) as here:
        gate.pause = 0.1
        page = visit(f"{here}/{LINK}&lang={language}")
        start(page, t)
        expect(page.get_by_role("alert")).to_have_text(t("error.time_up", seconds=1))
        expect(page.locator(".sv-board-finish")).to_have_text(t("board.finish.stopped"))
        assert rows(page).count() >= 2
        expect(page.get_by_role("button", name=t("control.run"), exact=True)).to_be_visible()
