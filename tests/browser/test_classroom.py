"""A class as its teacher and two students live it: each in a browser of their own, over one server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest
import zxingcpp
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Route, expect

from spec_viz.content.presets import load_presets
from spec_viz.serving.gate import PUBLIC
from spec_viz.ui import classroom_route
from spec_viz.ui.classroom import ALONE
from spec_viz.ui.room import Room
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, press, tiles
from tests.browser.conftest import Visit
from tests.browser.test_lesson import lesson, violations
from tests.browser.test_look import AXE, PHONE, overflow
from tests.integration.launch import served

pytestmark = pytest.mark.browser

SLUG = "5_1_principles"
GUESSED = "slow"
STEPS = {step["id"]: step for step in lesson("en")["steps"]}


@pytest.fixture(scope="module")
def recorded() -> Iterator[str]:
    """A page whose model never comes, with room for a class of every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classroom_route, "ALONE", replace(ALONE, classes=200, address_classes=200))
        with served(Room()) as address:
            yield address


def said(page: Page) -> Locator:
    """What the page says of its class, as it is read aloud."""
    return page.locator(".sv-class-holder > [role=status]")


def at(page: Page, step: str) -> None:
    expect(page.locator(".sv-l-title")).to_have_text(STEPS[step]["title"])


def press_button(page: Page, key: str) -> None:
    page.get_by_role("button", name=EN(key), exact=True).click()


def opened(visit: Visit, base: str, step: str = GUESSED) -> tuple[Page, str]:
    """A teacher's page with a class that has just been opened, and the code."""
    teacher = visit(f"{base}/?place=lessons&lesson={SLUG}&step={step}&lang=en")
    press_button(teacher, "classroom.open")
    poster = teacher.get_by_role("dialog")
    code = poster.locator(".sv-class-large").inner_text()
    expect(poster.locator(".sv-class-address")).to_have_text(f"{base.removeprefix('http://')}/?class={code}")
    press(teacher, "Escape")
    expect(poster).to_have_count(0)
    expect(said(teacher)).to_have_text(EN("classroom.teacher.follow"))
    return teacher, code


def joined(visit: Visit, base: str, code: str, more: str = "", **options: object) -> Page:
    page = visit(f"{base}/?class={code}&lang=en{more}", **options)
    expect(said(page)).to_have_text(EN("classroom.student.follow", code=code))
    return page


def guess(page: Page, option: int) -> None:
    page.locator(".sv-l-ask input").nth(option).check()
    press_button(page, "lesson.ask.commit")


def shown(page: Page) -> list[str]:
    """The counts of the class's guesses, as they stand on the page."""
    expect(page.locator(".sv-class-look li").first).to_be_visible()
    return page.locator(".sv-class-look li .sv-l-law-value").all_inner_texts()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_s_camera_finds_the_class(
    browser: Browser, recorded: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC, "1")
    outside = "http://lecture.example/specviz/"
    page = browser.new_page(viewport={"width": 1280, "height": 720})

    def from_here(route: Route) -> None:
        path = route.request.url.removeprefix(outside).removeprefix("http://lecture.example/")
        # As a proxy that passes the host on.
        headers = {**route.request.headers, "host": "lecture.example"}
        route.fulfill(response=route.fetch(url=f"{recorded}/{path}", headers=headers))

    page.route("http://lecture.example/**", from_here)
    page.goto(f"{outside}?place=lessons&lesson={SLUG}&step={GUESSED}&lang=en&theme={theme}")
    press_button(page, "classroom.open")
    square = page.get_by_role("img", name=EN("classroom.poster.square"))
    expect(square).to_be_in_viewport(ratio=1)
    square.evaluate("node => node.decode()")
    expect(page.get_by_role("button", name=EN("classroom.close"), exact=True)).to_be_in_viewport(ratio=1)
    seen = page.screenshot()
    (read,) = zxingcpp.read_barcodes(Image.open(BytesIO(seen)))
    assert read.text == f"{outside}?class={page.locator('.sv-class-large').inner_text()}"
    page.context.close()


def offered(page: Page, code: str) -> None:
    expect(said(page)).to_have_text(EN("classroom.elsewhere", code=code))
    expect(page.locator(".sv-class-opener")).to_be_hidden()


def leading(page: Page) -> None:
    expect(said(page)).to_have_text(EN("classroom.teacher.follow"))


PLAN = f"?place=lessons&lesson={SLUG}&step=easy&lang=en&present=1"


def test_a_plan_s_link_in_a_second_tab_takes_the_class_over_and_gives_it_back(visit: Visit, recorded: str) -> None:
    first, code = opened(visit, recorded)
    one = joined(visit, recorded, code)
    second = visit(f"{recorded}/{PLAN}", context=first.context)
    offered(second, code)
    at(one, GUESSED)
    press_button(second, "classroom.take")
    leading(second)
    offered(first, code)
    for page in (second, one):
        at(page, "easy")
    # The old tab leads no more, the new one does, also after it was loaded again.
    first.get_by_role("button", name=EN("lesson.back"), exact=True).click()
    second.reload()
    leading(second)
    at(one, "easy")
    press_button(first, "classroom.take")
    leading(first)
    offered(second, code)
    at(one, "before")
    # Another browser learns nothing of it.
    expect(visit(f"{recorded}/{PLAN}").locator(".sv-class")).to_be_hidden()


@pytest.mark.parametrize("way", [PLAN, "?class={code}&lang=en", "?lang=en"])
def test_a_class_outlives_the_tab_that_led_it(visit: Visit, recorded: str, way: str) -> None:
    first, code = opened(visit, recorded)
    one = joined(visit, recorded, code)
    context = first.context
    context.new_page()
    first.close()
    again = visit(f"{recorded}/{way.format(code=code)}", context=context)
    offered(again, code)
    press_button(again, "classroom.take")
    leading(again)
    expect(again.locator(".sv-class-inner > .sv-class-count")).to_have_text(EN("classroom.members", n=1))
    press_button(again, "classroom.end")
    press_button(again, "classroom.end.sure")
    expect(said(one)).to_have_text(EN("classroom.gone", code=code))


def test_who_leads_may_look_on_as_a_student_in_another_tab(visit: Visit, recorded: str) -> None:
    first, code = opened(visit, recorded)
    second = visit(f"{recorded}/?class={code}&lang=en", context=first.context)
    offered(second, code)
    press_button(second, "classroom.watch")
    expect(said(second)).to_have_text(EN("classroom.student.follow", code=code))
    leading(first)
    expect(first.locator(".sv-class-inner > .sv-class-count")).to_have_text(EN("classroom.members", n=1))


def test_an_offer_goes_with_its_class(visit: Visit, recorded: str) -> None:
    first, code = opened(visit, recorded)
    second = visit(f"{recorded}/{PLAN}", context=first.context)
    offered(second, code)
    press_button(first, "classroom.end")
    press_button(first, "classroom.end.sure")
    expect(second.locator(".sv-class")).to_be_hidden()
    assert second.evaluate("localStorage.getItem('specviz.class.led')") is None
    # Of a class that went while nobody looked nothing is offered either.
    second.evaluate(
        """localStorage.setItem('specviz.class.led', '{"code":"22222","member":"a","token":"b","guesses":{}}')"""
    )
    with second.expect_response("**/class/22222*"):
        second.reload()
    at(second, "easy")
    expect(second.locator(".sv-class")).to_be_hidden()
    assert second.evaluate("localStorage.getItem('specviz.class.led')") is None


def told(page: Page) -> None:
    """The answer stands on the page, with what the class guessed, and nobody is asked any more."""
    expect(page.locator(".sv-l-truth .sv-l-prose")).to_be_visible()
    expect(page.locator(".sv-class-guesses .sv-class-count")).to_be_visible()
    expect(page.get_by_role("button", name=EN("classroom.guess.show"))).to_be_hidden()
    expect(page.locator(".sv-l-lock")).to_be_hidden()
    assert page.locator(".sv-l-ask form").count() == 0


def test_a_step_whose_answer_was_shown_has_it_for_everybody_who_comes(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    one, other = joined(visit, recorded, code), joined(visit, recorded, code)
    guess(one, 0)
    press_button(teacher, "classroom.guess.show")
    for page in (teacher, one, other):
        told(page)
    press_button(teacher, "lesson.next")
    for page in (teacher, one, other):
        at(page, "easy")
    teacher.get_by_role("button", name=EN("lesson.back"), exact=True).click()
    for page in (teacher, one, other, joined(visit, recorded, code)):
        at(page, GUESSED)
        told(page)
    other.reload()
    told(other)
    teacher.reload()
    told(teacher)


def test_going_to_a_shown_step_shows_no_other(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    one = joined(visit, recorded, code)
    back = teacher.get_by_role("button", name=EN("lesson.back"), exact=True)
    press_button(teacher, "lesson.skip")
    at(teacher, "easy")
    press_button(teacher, "classroom.guess.show")
    told(teacher)
    back.click()
    at(teacher, GUESSED)
    press_button(teacher, "lesson.skip")
    at(teacher, "easy")
    told(teacher)
    back.click()
    for page in (teacher, one):
        at(page, GUESSED)
    expect(teacher.get_by_role("button", name=EN("classroom.guess.show"), exact=True)).to_be_visible()
    guess(one, 1)
    expect(one.locator(".sv-l-truth [role=status]")).to_have_text(EN("classroom.guess.waits"))
    expect(teacher.locator(".sv-class-guesses .sv-class-count")).to_have_text(
        EN("classroom.guess.count", n=1, members=1)
    )


def test_a_figure_says_who_moves_it_as_that_changes(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    one = joined(visit, recorded, code)
    lock = one.locator(".sv-l-lock")
    expect(lock).to_have_text(EN("classroom.guess.lock"))
    press_button(teacher, "classroom.mode.roam")
    expect(lock).to_have_text(EN("lesson.ask.lock"))
    press_button(teacher, "classroom.mode.follow")
    expect(lock).to_have_text(EN("classroom.guess.lock"))


def test_a_clicker_asks_before_it_tells_and_leaves_no_class(visit: Visit, recorded: str) -> None:
    teacher, _ = opened(visit, recorded)
    press_button(teacher, "lesson.present")
    press(teacher, "PageDown")
    asked = teacher.locator(".sv-l-form [role=status]")
    expect(asked).to_have_text(EN("classroom.guess.teacher"))
    expect(asked).to_be_in_viewport()
    press(teacher, "Escape", "Escape")
    at(teacher, GUESSED)
    leading(teacher)
    assert "present" not in teacher.url


@pytest.mark.parametrize("size", [(1280, 720), (1366, 768), (1024, 768)])
def test_what_gets_the_focus_is_above_the_buttons(visit: Visit, recorded: str, size: tuple[int, int]) -> None:
    page = visit(
        f"{recorded}/?place=lessons&lesson={SLUG}&step={GUESSED}&lang=en",
        viewport={"width": size[0], "height": size[1]},
    )
    at(page, GUESSED)
    page.get_by_role("button", name=EN("lesson.next"), exact=True).click()
    page.wait_for_function("document.activeElement.type === 'radio'")
    for _ in range(4):
        assert page.evaluate(
            """() => {
              const [at, nav] = [document.activeElement, document.querySelector('.sv-l-nav')];
              return nav.contains(at) || at.getBoundingClientRect().bottom <= nav.getBoundingClientRect().top;
            }"""
        )
        page.keyboard.press("Tab")


TYPED = {
    "an address": "https://specviz.example/?class={code}&lang=vi",
    "its end": "?class={code}",
    "a full stop": "{code}.",
    "quotes": "“{code}”",
    "spaces": " {code} ",
}


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED.keys())
def test_a_code_is_found_in_what_was_pasted(visit: Visit, recorded: str, typed: str) -> None:
    _, code = opened(visit, recorded)
    page = visit(f"{recorded}/?place=lessons&lang=en")
    page.get_by_label(EN("classroom.join.code")).fill(typed.format(code=code))
    press(page, "Enter")
    expect(said(page)).to_have_text(EN("classroom.student.follow", code=code))
    assert f"class={code}" in page.url


@pytest.mark.parametrize("typed", ["https://specviz.example/", "UZ/SB5", "../../x", "%00", "ƯZSB5"])
def test_what_is_no_code_is_said_at_once(visit: Visit, recorded: str, typed: str) -> None:
    page = visit(f"{recorded}/?place=lessons&lang=en")
    page.get_by_label(EN("classroom.join.code")).fill(typed)
    press(page, "Enter")
    expect(said(page)).to_have_text(re.compile(re.escape(EN("classroom.error.none").split("{")[0])))
    assert "class=" not in page.url


def test_a_class_guesses_and_sees_the_answer_together(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    one = joined(visit, recorded, code)
    # The other one comes by the code, typed as people type.
    other = visit(f"{recorded}/?place=lessons&lang=en")
    other.get_by_label(EN("classroom.join.code")).fill(f" {code[:2].lower()}-{code[2:].lower()}")
    press(other, "Enter")
    for page in (one, other):
        at(page, GUESSED)
    expect(teacher.locator(".sv-class-inner > .sv-class-count")).to_have_text(EN("classroom.members", n=2))

    count = teacher.locator(".sv-class-guesses .sv-class-count")
    expect(count).to_have_text(EN("classroom.guess.count", n=0, members=2))
    guess(one, 0)
    guess(other, 1)
    expect(count).to_have_text(EN("classroom.guess.count", n=2, members=2))
    # Nobody has the answer, nor what others guessed; and no key goes on without the teacher.
    for page in (one, other):
        expect(page.locator(".sv-l-truth [role=status]")).to_have_text(EN("classroom.guess.waits"))
        press(page, "ArrowRight", "ArrowRight")
        at(page, GUESSED)
        assert page.locator(".sv-l-truth .sv-l-prose, .sv-class-look li:visible").count() == 0
    # Whoever changes their mind is counted once.
    press_button(other, "lesson.ask.again")
    guess(other, 2)
    look = teacher.locator(".sv-class-look summary")
    assert teacher.locator(".sv-class-look li:visible").count() == 0
    look.click()
    expect(teacher.locator(".sv-class-look li .sv-l-law-value").nth(2)).to_have_text("1")
    assert shown(teacher) == ["1", "0", "1"]

    press_button(teacher, "classroom.guess.show")
    for page in (teacher, one, other):
        expect(page.locator(".sv-l-truth .sv-l-prose")).to_be_visible()
        assert shown(page) == ["1", "0", "1"]
        right = page.locator(".sv-class-look li").nth(STEPS[GUESSED]["ask"]["answer"])
        expect(right.get_by_role("img", name=EN("lesson.quiz.right"))).to_be_visible()
    assert one.locator(".sv-l-guess dd").count() == 2
    press(one, "ArrowRight")
    expect(said(one)).to_have_text(EN("classroom.held"))
    at(one, GUESSED)

    # → on the teacher's page takes all along.
    teacher.locator(".sv-l-title").focus()
    press(teacher, "ArrowRight")
    for page in (teacher, one, other):
        at(page, "easy")
    assert one.evaluate("document.activeElement.className") == "sv-l-title"


def test_the_bars_that_a_teacher_opens_are_on_the_projected_screen(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    press_button(teacher, "lesson.present")
    guess(joined(visit, recorded, code), 1)
    teacher.locator(".sv-class-look > summary").click()
    assert shown(teacher) == ["0", "1", "0"]
    over = """([upper, lower]) => document.querySelector(upper).getBoundingClientRect().bottom
      <= document.querySelector(lower).getBoundingClientRect().top"""
    teacher.wait_for_function(over, arg=[".sv-class-look", ".sv-l-nav"])


@pytest.mark.parametrize("size", [(1440, 900), (1280, 720)])
def test_a_clicker_s_press_brings_the_count_onto_the_projected_screen(
    visit: Visit, recorded: str, size: tuple[int, int]
) -> None:
    teacher, code = opened(visit, recorded)
    teacher.set_viewport_size({"width": size[0], "height": size[1]})
    student = joined(visit, recorded, code)
    above = """(part) => document.querySelector(part).getBoundingClientRect().bottom
      <= document.querySelector('.sv-l-nav').getBoundingClientRect().top"""
    for name in [name for name, step in STEPS.items() if step.get("ask")]:
        teacher.goto(f"{recorded}/?place=lessons&lesson={SLUG}&step={name}&lang=en&present=1")
        at(teacher, name)
        expect(teacher.locator(".sv-class-guesses")).to_be_visible()
        press(teacher, "PageDown")
        expect(teacher.locator(".sv-l-ask [role=status]")).to_have_text(EN("classroom.guess.teacher"))
        teacher.wait_for_function(above, arg=".sv-class-guesses")
        at(student, name)
        field = student.locator(".sv-l-ask input").first
        field.check() if field.get_attribute("type") == "radio" else field.fill("1")
        press_button(student, "lesson.ask.commit")
        expect(teacher.locator(".sv-class-look > summary")).to_be_visible()
        teacher.wait_for_function(above, arg=".sv-class-guesses")


def test_a_run_is_sent_and_a_class_roams_and_comes_back(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded, "idea")
    one, other = joined(visit, recorded, code), joined(visit, recorded, code, viewport=PHONE)
    for page in (one, other):
        at(page, "idea")
    # A run other than the one that stands on every board at first.
    preset = next(each for each in load_presets() if each.name == "repeat")
    teacher.get_by_role("link", name=EN("shell.place.live")).click()
    drawn(teacher).locator("details.sv-presets > summary").click()
    teacher.get_by_role("button", name=re.compile(re.escape(preset.title["en"]))).click()
    expect(teacher.locator(".sv-composer textarea").first).to_have_value(preset.prompt)
    many = sum(len(each.nodes) + (each.emitted is not None) for each in preset.recorded()[0].rounds)
    # Its run comes after its prompt; what stands on the board is what is sent.
    expect(tiles(teacher)).to_have_count(many)
    press_button(teacher, "classroom.send")
    expect(said(teacher)).to_have_text(EN("classroom.sent"))
    for page in (one, other):
        expect(page.locator(".sv-composer textarea").first).to_have_value(preset.prompt)
        expect(tiles(page)).to_have_count(many)
        expect(tiles(page).first).to_be_in_viewport()

    # On their own: who is elsewhere stays there.
    press_button(teacher, "classroom.mode.roam")
    for page in (one, other):
        expect(said(page)).to_have_text(EN("classroom.student.roam", code=code))
    one.get_by_role("link", name=EN("shell.place.lessons")).click()
    at(one, "idea")
    press(one, "End", "ArrowRight")
    at(one, "lawyer")
    teacher.get_by_role("link", name=EN("shell.place.lessons")).click()
    teacher.locator(".sv-l-title").focus()
    press(teacher, "End", "ArrowRight")
    at(teacher, "lawyer")
    with teacher.expect_response("**/lead"):
        press(teacher, "ArrowRight")
    at(teacher, "round")
    # At once: the page has not asked since.
    back = one.get_by_role("button", name=EN("classroom.back"))
    expect(back).to_be_visible()
    at(one, "lawyer")
    back.click()
    at(one, "round")
    # A roaming guess shows its answer at once, and is counted all the same.
    one.locator(".sv-l-ask input").fill("2")
    press_button(one, "lesson.ask.commit")
    expect(one.locator(".sv-l-truth .sv-l-prose")).to_be_visible()
    expect(teacher.locator(".sv-class-guesses .sv-class-count")).to_have_text(
        EN("classroom.guess.count", n=1, members=2)
    )
    assert tiles(other).count() == many

    press_button(teacher, "classroom.mode.follow")
    for page in (one, other):
        expect(said(page)).to_have_text(EN("classroom.student.follow", code=code))
        at(page, "round")


def test_who_walks_off_is_told_so_and_taken_along_when_the_class_moves(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    page = joined(visit, recorded, code, "&place=lessons")
    at(page, GUESSED)
    follows, away = (EN(f"classroom.student.{way}", code=code) for way in ("follow", "away"))
    expect(said(page)).to_have_text(follows)
    page.get_by_role("link", name=EN("shell.place.lab"), exact=True).click()
    expect(said(page)).to_have_text(away)
    press_button(page, "classroom.back")
    at(page, GUESSED)
    expect(said(page)).to_have_text(follows)

    page.get_by_role("link", name=EN("shell.place.serve"), exact=True).click()
    expect(said(page)).to_have_text(away)
    press_button(teacher, "lesson.skip")
    at(page, "easy")
    expect(said(page)).to_have_text(follows)


def test_a_page_that_knows_it_has_no_network_says_so_at_once(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    page = joined(visit, recorded, code, "&place=lessons")
    for each, before in ((page, EN("classroom.student.follow", code=code)), (teacher, EN("classroom.teacher.follow"))):
        at(each, GUESSED)
        # No time passes on the page, so nothing is said because of waiting.
        each.clock.install()
        each.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
        expect(said(each)).to_have_text(before)
        each.context.set_offline(True)
        expect(said(each)).to_have_text(EN("classroom.lost"))
        each.context.set_offline(False)
        expect(said(each)).to_have_text(before)


def test_who_comes_back_is_where_the_class_is(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    one = joined(visit, recorded, code)
    # The Live page has its own word for a server that is away.
    other = joined(visit, recorded, code, "&place=lessons")
    at(one, GUESSED)
    guess(one, 1)
    expect(one.locator(".sv-l-truth [role=status]")).to_be_visible()
    # A page that is loaded again has its guess, and is nobody new.
    one.reload()
    expect(one.locator(".sv-l-truth [role=status]")).to_have_text(EN("classroom.guess.waits"))
    count = teacher.locator(".sv-class-guesses .sv-class-count")
    expect(count).to_have_text(EN("classroom.guess.count", n=1, members=2))

    # Without a network the step stays and the page says so; with it the class is found where it went meanwhile.
    at(other, GUESSED)
    other.context.set_offline(True)
    expect(said(other)).to_have_text(EN("classroom.lost"))
    at(other, GUESSED)
    press_button(teacher, "lesson.skip")
    at(one, "easy")
    at(other, GUESSED)
    other.context.set_offline(False)
    at(other, "easy")
    expect(said(other)).to_have_text(EN("classroom.student.follow", code=code))

    # The teacher's page goes on leading when it is loaded again; nobody else's can.
    teacher.reload()
    expect(said(teacher)).to_have_text(EN("classroom.teacher.follow"))
    expect(teacher.locator(".sv-class-inner > .sv-class-count")).to_have_text(EN("classroom.members", n=2))
    assert one.get_by_role("button", name=EN("classroom.end")).count() == 0

    press_button(teacher, "classroom.end")
    press_button(teacher, "classroom.end.keep")
    press_button(teacher, "classroom.end")
    press_button(teacher, "classroom.end.sure")
    for page, key in ((teacher, "classroom.over"), (one, "classroom.gone"), (other, "classroom.gone")):
        expect(said(page)).to_have_text(EN(key, code=code))
        assert "class=" not in page.url
        at(page, "easy")
        press_button(page, "classroom.close")
        expect(page.locator(".sv-class")).to_be_hidden()
    # From here each goes on alone.
    one.locator(".sv-l-title").focus()
    press_button(one, "lesson.skip")
    at(one, "idea")
    assert one.evaluate("sessionStorage.length") == 0


def test_a_code_that_is_none_is_said_and_left(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?class=22222&lang=vi")
    expect(said(page)).to_have_text(words("vi")("classroom.error.none", code="22222"))
    page.get_by_role("button", name=words("vi")("classroom.close"), exact=True).click()
    expect(page.locator(".sv-class")).to_be_hidden()
    assert "class=" not in page.url


def joins(page: Page, code: str) -> None:
    """Enter a code in the one form for it that is seen."""
    form = page.locator(".sv-class-join:visible")
    expect(form).to_have_count(1)
    form.get_by_label(EN("classroom.join.code")).fill(code)
    press(page, "Enter")
    expect(said(page)).to_have_text(EN("classroom.student.follow", code=code))
    expect(form).to_have_count(0)


@pytest.mark.parametrize("place", ["", "&place=lessons", f"&place=lessons&lesson={SLUG}&step=idea", "&place=serve"])
def test_a_wrong_code_is_put_right_where_it_is_said(visit: Visit, recorded: str, place: str) -> None:
    _, code = opened(visit, recorded)
    page = visit(f"{recorded}/?class=22222&lang=en{place}")
    expect(said(page)).to_have_text(EN("classroom.error.none", code="22222"))
    if place != "&place=lessons":
        expect(page.locator(".sv-class-join:visible input")).to_have_value("22222")
    joins(page, code)


def test_one_form_takes_a_code_wherever_the_page_goes(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?class=22222&lang=en&place=lessons&lesson={SLUG}&step=idea")
    form = page.locator(".sv-class-join:visible")
    at(page, "idea")
    expect(form).to_have_count(1)
    press_button(page, "lesson.all")
    expect(page.locator(".sv-l-cards")).to_be_visible()
    expect(form).to_have_count(1)
    for place in ("live", "lessons"):
        page.get_by_role("link", name=EN(f"shell.place.{place}"), exact=True).click()
        expect(page.locator(".sv-l-cards")).to_be_visible(visible=place == "lessons")
        expect(form).to_have_count(1)
    page.locator(".sv-l-cards a").first.click()
    at(page, next(iter(STEPS)))
    expect(form).to_have_count(1)


def test_who_lost_a_class_joins_the_next_one_there_and_the_presenter_opens_it(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded)
    page = joined(visit, recorded, code, "&place=lessons")
    at(page, GUESSED)
    teacher.get_by_role("button", name=EN("lesson.present"), exact=True).click()
    opener = teacher.get_by_role("button", name=EN("classroom.open"), exact=True)
    expect(opener).to_be_hidden()
    press_button(teacher, "classroom.end")
    press_button(teacher, "classroom.end.sure")
    expect(said(page)).to_have_text(EN("classroom.gone", code=code))
    opener.click()
    code = teacher.get_by_role("dialog").locator(".sv-class-large").inner_text()
    expect(teacher.locator(".sv-class-join:visible")).to_have_count(0)
    joins(page, code)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_class_is_read_by_all(visit: Visit, recorded: str, theme: str) -> None:
    teacher, code = opened(visit, recorded)
    phone = visit(f"{recorded}/?class={code}&lang=vi&theme={theme}", viewport=PHONE, has_touch=True, is_mobile=True)
    at_vi = next(step for step in lesson("vi")["steps"] if step["id"] == GUESSED)["title"]
    expect(phone.locator(".sv-l-title")).to_have_text(at_vi)
    guess_button = words("vi")("lesson.ask.commit")
    phone.locator(".sv-l-ask input").first.check()
    phone.get_by_role("button", name=guess_button).click()
    expect(teacher.locator(".sv-class-guesses .sv-class-count")).to_have_text(
        EN("classroom.guess.count", n=1, members=1)
    )
    for page in (teacher, phone):
        page.evaluate(AXE.read_text(encoding="utf-8"))
        assert violations(page) == []
        assert overflow(page) <= 0
    small = phone.locator(".sv-class, .sv-class-guesses").evaluate_all(
        """(roots) => roots.flatMap((root) => [...root.querySelectorAll('button, summary')])
          .filter((node) => node.checkVisibility()).map((node) => node.getBoundingClientRect().height)
          .filter((height) => height < 40)"""
    )
    assert small == []
    # The code stands large before everything, and Esc takes it away.
    teacher.locator(".sv-class-code").focus()
    press(teacher, "Enter")
    expect(teacher.get_by_role("dialog")).to_be_visible()
    assert violations(teacher) == []
    height = "node => parseFloat(getComputedStyle(node).fontSize)"
    assert teacher.locator(".sv-class-large").evaluate(height) > 100
    press(teacher, "Escape")
    expect(teacher.get_by_role("dialog")).to_have_count(0)
    press_button(teacher, "classroom.guess.show")
    expect(phone.locator(".sv-class-look li").first).to_be_visible()
    assert violations(phone) == []
    assert overflow(phone) <= 0
