"""More visitors than the machine can serve, as each of them sees it: places, turns, a plain sentence at every limit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from spec_viz.content.files import LESSONS
from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room
from spec_viz.ui.wording import LANGUAGES, Words, words
from tests.browser.acts import EN, rows
from tests.browser.conftest import Visit
from tests.integration.launch import served
from tests.integration.rooms import Gate, room_on_one_thread

pytestmark = pytest.mark.browser

LINK = "?drafter=none&max_new_tokens=256&chat=0&preset="
LIMITS = Limits(line=4, line_browser=2, prompt_chars=300)
LESSON, STEP = "5_1_principles", "proof"


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with room_on_one_thread(LIMITS) as room:
        yield room


@pytest.fixture(scope="module")
def address(room: Room) -> Iterator[str]:
    with served(room) as address:
        yield address


@pytest.fixture
def slow(room: Room) -> Iterator[Gate]:
    """A run lasts until the test lets it end; nothing stands in line before or after."""
    assert len(room.line) == 0
    with Gate() as gate:
        gate.pause = 0.1
        yield gate


def start(page: Page, t: Words = EN, prompt: str = "rất đẹp rất") -> None:
    expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
    page.get_by_label(t("control.prompt")).fill(prompt)
    page.get_by_role("button", name=t("control.run"), exact=True).click()


def running(page: Page) -> Page:
    start(page)
    expect(rows(page).first).to_be_attached()
    return page


def refused(page: Page, sentence: str, t: Words = EN) -> None:
    """The page says why, and is ready for the next try; nothing else is said anywhere."""
    expect(page.get_by_role("alert")).to_have_text(sentence)
    expect(page.get_by_role("button", name=t("control.run"), exact=True)).to_be_visible()
    assert page.locator(".toast-wrap:visible").count() == 0


def end(room: Room, *pages: Page) -> None:
    """All leave, and nobody is left in line."""
    for page in pages:
        page.close()
    over = time.monotonic() + 20
    while len(room.line):
        assert time.monotonic() < over, "somebody still stands in line"
        time.sleep(0.05)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_third_tab_of_a_browser_is_told_so_and_another_browser_comes_before_the_second(
    visit: Visit, address: str, room: Room, slow: Gate, language: str
) -> None:
    t = words(language)
    first = running(visit(f"{address}/{LINK}"))
    second = visit(f"{address}/{LINK}", first.context)
    start(second)
    expect(second.get_by_text(EN("shell.wait", place=1))).to_be_visible()
    third = visit(f"{address}/{LINK}&lang={language}", first.context)
    start(third, t)
    refused(third, t("error.line_browser", most=LIMITS.line_browser), t)
    other = visit(f"{address}/{LINK}")
    start(other)
    expect(other.get_by_text(EN("shell.wait", place=1))).to_be_visible()
    # The second tab has let it pass.
    expect(second.get_by_text(EN("shell.wait", place=2))).to_be_visible()
    first.close()
    expect(rows(other).first).to_be_attached()
    expect(second.get_by_text(EN("shell.wait", place=1))).to_be_visible()
    end(room, second, third, other)


def test_a_page_loaded_again_and_again_leaves_no_run_behind(visit: Visit, address: str, room: Room, slow: Gate) -> None:
    page = visit(f"{address}/{LINK}")
    for _ in range(LIMITS.line_browser + 2):
        running(page)
        page.reload()
    slow.pause = 0.0
    start(page)
    expect(page.locator(".sv-board-finish")).to_have_text(EN("board.finish.length"))
    assert len(room.line) == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_full_line_is_told_on_the_live_page_and_in_a_lesson(
    visit: Visit, address: str, room: Room, slow: Gate, language: str
) -> None:
    t = words(language)
    first = running(visit(f"{address}/{LINK}"))
    waiting = [visit(f"{address}/{LINK}") for _ in range(LIMITS.line - 1)]
    for place, page in enumerate(waiting, start=1):
        start(page)
        expect(page.get_by_text(EN("shell.wait", place=place))).to_be_visible()
    last = visit(f"{address}/{LINK}&lang={language}")
    start(last, t)
    refused(last, t("error.busy", waiting=LIMITS.line), t)
    learner = visit(f"{address}/?place=lessons&lesson={LESSON}&step={STEP}&lang={language}")
    learner.get_by_role("button", name=t("lesson.live.run")).click()
    expect(learner.locator(".sv-l-live-said")).to_have_text(t("error.busy", waiting=LIMITS.line))
    # One goes: all move up, and there is a place again.
    waiting[0].close()
    expect(waiting[1].get_by_text(EN("shell.wait", place=1))).to_be_visible()
    learner.get_by_role("button", name=t("lesson.live.again")).click()
    expect(learner.locator(".sv-l-live-said")).to_have_text(t("shell.wait", place=3))
    end(room, first, *waiting[1:], last, learner)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prompt_that_is_too_long_is_told_at_once_and_not_cut(
    visit: Visit, address: str, slow: Gate, language: str
) -> None:
    t = words(language)
    page = visit(f"{address}/{LINK}&lang={language}")
    prompt = "é" * (LIMITS.prompt_chars + 5)
    start(page, t, prompt)
    refused(page, t("error.prompt_too_many_letters", letters=len(prompt), limit=LIMITS.prompt_chars), t)
    expect(page.get_by_label(t("control.prompt"))).to_have_value(prompt)
    expect(page.get_by_label(t("control.prompt"))).to_be_focused()
    assert slow.passes == 0


@pytest.mark.parametrize(("language", "status"), [("vi", 429), ("en", 503), ("vi", 500)])
def test_a_run_that_the_queue_does_not_take_is_told_at_once(
    visit: Visit, address: str, slow: Gate, language: str, status: int
) -> None:
    t = words(language)

    def refuse(route: Route) -> None:
        route.fulfill(status=status, content_type="application/json", body=json.dumps({"detail": "no"}))

    page = visit(f"{address}/{LINK}&lang={language}")
    page.route("**/queue/join*", refuse)
    start(page, t)
    refused(page, t("error.not_taken"), t)
    page.unroute("**/queue/join*")
    slow.pause = 0.0
    start(page, t)
    expect(page.locator(".sv-board-finish")).to_have_text(t("board.finish.length"))
    expect(page.locator(".sv-alert")).to_have_text("")


def test_the_lesson_has_that_step() -> None:
    assert f"id: {STEP}" in (LESSONS / LESSON / "lesson.yaml").read_text(encoding="utf-8")
