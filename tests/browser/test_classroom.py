"""A class as its teacher and two students live it: each in a browser of their own, over one server."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.content.presets import load_presets
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, press, tiles
from tests.browser.conftest import Visit
from tests.browser.test_lesson import lesson, violations
from tests.browser.test_look import AXE, PHONE, overflow

pytestmark = pytest.mark.browser

SLUG = "5_1_principles"
GUESSED = "slow"
STEPS = {step["id"]: step for step in lesson("en")["steps"]}


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


def joined(visit: Visit, base: str, code: str, more: str = "") -> Page:
    page = visit(f"{base}/?class={code}&lang=en{more}")
    expect(said(page)).to_have_text(EN("classroom.student.follow", code=code))
    return page


def guess(page: Page, option: int) -> None:
    page.locator(".sv-l-ask input").nth(option).check()
    press_button(page, "lesson.ask.commit")


def shown(page: Page) -> list[str]:
    """The counts of the class's guesses, as they stand on the page."""
    expect(page.locator(".sv-class-look li").first).to_be_visible()
    return page.locator(".sv-class-look li .sv-l-law-value").all_inner_texts()


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


def test_a_run_is_sent_and_a_class_roams_and_comes_back(visit: Visit, recorded: str) -> None:
    teacher, code = opened(visit, recorded, "idea")
    one, other = joined(visit, recorded, code), joined(visit, recorded, code)
    for page in (one, other):
        at(page, "idea")
    # A run other than the one that stands on every board at first.
    preset = next(each for each in load_presets() if each.name == "repeat")
    teacher.get_by_role("link", name=EN("shell.place.live")).click()
    drawn(teacher).locator("details.sv-presets > summary").click()
    teacher.get_by_role("button", name=re.compile(re.escape(preset.title["en"]))).click()
    expect(teacher.locator(".sv-composer textarea").first).to_have_value(preset.prompt)
    press_button(teacher, "classroom.send")
    expect(said(teacher)).to_have_text(EN("classroom.sent"))
    many = tiles(teacher).count()
    for page in (one, other):
        expect(page.locator(".sv-composer textarea").first).to_have_value(preset.prompt)
        expect(tiles(page)).to_have_count(many)

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
    for page in (teacher, one, other):
        expect(said(page)).to_have_text(EN("classroom.over", code=code))
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
        page.add_script_tag(path=str(AXE))
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
