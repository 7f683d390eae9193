"""The page behind a real nginx as it comes: in a folder of a site, through a buffer, and when the connection is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response, expect

from spec_viz.serving.gate import PUBLIC
from spec_viz.ui.room import Room
from spec_viz.ui.wording import Words, words
from tests.browser.acts import EN, drawn, press, rows, tiles
from tests.browser.conftest import Visit
from tests.browser.proxy import Proxy, proxied
from tests.browser.test_classroom import GUESSED, STEPS, at, guess, joined, opened
from tests.browser.test_classroom import said as said_of_class
from tests.browser.test_lesson import address as lesson_address
from tests.browser.test_run import ended, kept
from tests.integration.launch import served
from tests.integration.rooms import Gate, room_on_one_thread

pytestmark = [pytest.mark.browser, pytest.mark.nginx]

ASKED = "drafter=prompt_lookup&chat=0&preset="
FOLDER = "/specviz"


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with room_on_one_thread() as room:
        yield room


@pytest.fixture(scope="module")
def behind(room: Room) -> Iterator[str]:
    """The page itself, which only the proxy asks, and which is told that there is one."""
    with served(room) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv(PUBLIC, "1")
        yield address


@pytest.fixture
def proxy(nginx: str, tmp_path: Path, behind: str) -> Iterator[Proxy]:
    with proxied(nginx, tmp_path, behind) as proxy:
        yield proxy


def start(page: Page, t: Words = EN) -> None:
    expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
    page.get_by_label(t("control.prompt")).fill("rất đẹp rất đẹp rất")
    page.get_by_role("button", name=t("control.run"), exact=True).click()


def whole(page: Page, tokens: int) -> None:
    """The run is over and all of it is on the board."""
    ended(page, "length")
    (run,) = kept(page)
    assert (len(run.output), run.finish) == (tokens, "length")
    expect(rows(page)).to_have_count(len(run.rounds))
    expect(tiles(page).last).to_be_visible()


def is_same(page: Page) -> bool:
    """Whether this is still the page that was marked: one that was loaded again has no mark."""
    return bool(page.evaluate("window.marked === true"))


def test_a_lesson_plays(visit: Visit, proxy: Proxy) -> None:
    page = visit(lesson_address(proxy.address, "idea", "en"))
    expect(page.locator(".sv-l-title")).to_have_text(STEPS["idea"]["title"])
    press(page, "End", "ArrowRight")
    at(page, "lawyer")
    page = drawn(visit(f"{proxy.address}/?lang=en"))
    page.get_by_role("button", name=EN("board.do.home")).click()
    expect(tiles(page)).to_have_count(0)
    page.get_by_role("button", name=EN("board.do.next"), exact=True).click()
    expect(tiles(page).first).to_be_visible()


def test_rounds_come_one_by_one_through_a_proxy_that_buffers(visit: Visit, proxy: Proxy, room: Room) -> None:
    page = visit(f"{proxy.address}/?{ASKED}&max_new_tokens=60&gamma=1&drafter=none")
    with Gate() as gate:
        gate.pause = 0.05
        start(page)
        while gate.passes < 12:
            page.wait_for_timeout(50)
        # The model waits in the middle of the run; what it has done is seen all the same.
        gate.open.clear()
        expect(rows(page).nth(8)).to_be_attached(timeout=10_000)
        assert len(room.line) == 1
        gate.open.set()
        gate.pause = 0.0
        whole(page, 60)


def test_a_proxy_that_holds_all_back_gives_the_whole_run_at_its_end(
    visit: Visit, nginx: str, tmp_path: Path, behind: str
) -> None:
    # As one does that knows nothing of our header, with a buffer that any run fits into.
    holds = "proxy_ignore_headers X-Accel-Buffering; proxy_buffers 16 256k; proxy_buffer_size 256k;"
    with proxied(nginx, tmp_path, behind, more=f"{holds} proxy_busy_buffers_size 512k;") as proxy, Gate() as gate:
        page = visit(f"{proxy.address}/?{ASKED}&max_new_tokens=40&drafter=none")
        start(page)
        while gate.passes < 20:
            page.wait_for_timeout(50)
        whole(page, 40)


def test_in_a_folder_of_a_site_everything_is_found(
    visit: Visit, nginx: str, tmp_path: Path, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_ROOT_PATH", FOLDER)
    monkeypatch.setenv(PUBLIC, "1")
    failed: list[str] = []

    def note(answer: Response) -> None:
        if answer.status >= 400 or f"{FOLDER}/" not in answer.url:
            failed.append(f"{answer.status} {answer.url}")

    with served(room) as address, proxied(nginx, tmp_path, address, below=FOLDER) as proxy:
        page = visit(f"{proxy.address}/?{ASKED}&max_new_tokens=30")
        page.context.on("response", note)
        start(page)
        whole(page, 30)
        expect(page.locator(".sv-verdict")).not_to_be_empty()
        # Plotly, a lesson and its files, a class, and the address that is shown to all.
        page.reload()
        page.get_by_role("link", name=EN("shell.place.lab")).click()
        page.goto(lesson_address(proxy.address, GUESSED, "en"))
        at(page, GUESSED)
        page.get_by_role("button", name=EN("classroom.open"), exact=True).click()
        poster = page.get_by_role("dialog")
        code = poster.locator(".sv-class-large").inner_text()
        expect(poster.locator(".sv-class-address")).to_have_text(
            f"{proxy.address.removeprefix('http://')}/?class={code}"
        )
        press(page, "Escape")
        at(joined(visit, proxy.address, code), GUESSED)
        expect(page.locator(".sv-class-inner > .sv-class-count")).to_have_text(EN("classroom.members", n=1))
        # A folder without its slash is the same place.
        at(visit(f"{proxy.address}?place=lessons&lesson=5_1_principles&step=idea&lang=en"), "idea")
    assert failed == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_run_that_is_cut_keeps_its_rounds_and_the_page_goes_on(
    visit: Visit, proxy: Proxy, room: Room, language: str
) -> None:
    t = words(language)
    page = visit(f"{proxy.address}/?{ASKED}&max_new_tokens=60&drafter=none&lang={language}")
    page.evaluate("window.marked = true")
    with Gate() as gate:
        gate.pause = 0.05
        start(page, t)
        expect(rows(page).nth(5)).to_be_attached()
        proxy.stop()
        alert = page.locator(".sv-alert")
        expect(alert).to_have_text(t("shell.lost"))
        expect(page.locator(".sv-state [role=status]")).to_have_text(t("shell.state.away"))
        before = rows(page).count()
        assert before > 5
        expect(page.locator(".sv-board-finish")).to_have_text(t("board.finish.error"))
        # The run ends on the server too, and its place in the line is free.
        while len(room.line):
            page.wait_for_timeout(50)
        # What is there can be walked through and kept.
        press(page, "ArrowLeft")
        gate.pause = 0.0
        proxy.start()
        expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
        expect(page.locator(".sv-state [role=status]")).to_have_text("")
        assert is_same(page)
        assert rows(page).count() >= before - 1
        expect(alert).to_have_text(t("shell.lost"))
        # Without loading the page again.
        page.get_by_role("button", name=t("control.run"), exact=True).click()
        expect(page.locator(".sv-board-finish")).to_have_text(t("board.finish.length"))
        expect(alert).to_have_text("")
        assert rows(page).count() > before
        assert is_same(page)


def test_a_run_that_cannot_be_asked_for_is_said(visit: Visit, proxy: Proxy) -> None:
    page = visit(f"{proxy.address}/?{ASKED}&max_new_tokens=20&drafter=none")
    expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
    page.evaluate("window.marked = true")
    proxy.stop()
    start(page)
    expect(page.locator(".sv-alert")).to_have_text(EN("shell.lost.all"))
    proxy.start()
    start(page)
    whole(page, 20)
    assert is_same(page)


@pytest.mark.parametrize(
    "body",
    [
        "",
        'data: {"msg":"estimation","rank":0,"queue_size":1}\n\ndata: {"msg":"proc',
        'data: {"msg":"unexpected_error","event_id":null,"message":"x","session_not_found":true,"success":false}\n\n',
    ],
    ids=["nothing", "half a message", "a session that the server has forgotten"],
)
def test_a_stream_that_ends_early_is_a_cut_as_well(visit: Visit, behind: str, body: str) -> None:
    page = visit(f"{behind}/?{ASKED}&max_new_tokens=20&drafter=none")
    page.evaluate("window.marked = true")
    page.route(
        "**/gradio_api/queue/data**",
        lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body),
    )
    start(page)
    expect(page.locator(".sv-alert")).to_have_text(EN("shell.lost.all"))
    page.unroute("**/gradio_api/queue/data**")
    start(page)
    whole(page, 20)
    assert is_same(page)


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxy_that_answers_for_a_server_that_is_away(visit: Visit, behind: str, status: int) -> None:
    page = visit(f"{behind}/?{ASKED}&max_new_tokens=20&drafter=none")
    page.route(
        "**/gradio_api/queue/join**",
        lambda route: route.fulfill(status=status, content_type="text/html", body="<html>Bad Gateway</html>"),
    )
    start(page)
    expect(page.locator(".sv-alert")).to_have_text(EN("shell.lost.all"))
    # No notice of the host's in a language of its own.
    assert page.get_by_text("Gateway").count() + page.locator(".toast-body:visible").count() == 0


def test_a_class_goes_on_through_a_proxy_that_was_away(visit: Visit, proxy: Proxy) -> None:
    teacher, code = opened(visit, proxy.address)
    one = joined(visit, proxy.address, code)
    at(one, GUESSED)
    proxy.stop()
    for page in (teacher, one):
        expect(said_of_class(page)).to_have_text(EN("classroom.lost"))
        at(page, GUESSED)
    # A guess that nobody hears is not lost.
    guess(one, 1)
    proxy.start()
    expect(said_of_class(one)).to_have_text(EN("classroom.student.follow", code=code))
    count = teacher.locator(".sv-class-guesses .sv-class-count")
    expect(count).to_have_text(EN("classroom.guess.count", n=1, members=1))
    teacher.locator(".sv-l-title").focus()
    teacher.get_by_role("button", name=EN("lesson.skip"), exact=True).click()
    at(one, "easy")
