"""See it break: a fault is planted, drifts, is repaired; by keyboard, in both languages, on every screen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from spec_viz.lab.drift import FAULTS, exact_law
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, press
from tests.browser.conftest import Visit
from tests.browser.test_look import AXE, PHONE, overflow, serious

pytestmark = pytest.mark.browser


def start(page: Page) -> Page:
    expect(page.locator(".sv-break-faults")).to_be_visible()
    return page


def wait(page: Page) -> None:
    """Until this method has had all its rounds."""
    expect(page.locator(".sv-break-actions .sv-run")).to_have_attribute("aria-disabled", "true")


def sentence(language: str, key: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(words(language).table[key])))


def numbers(page: Page) -> list[float]:
    """What was counted, as the bars say it."""
    texts = page.locator(".sv-break-value:nth-child(4)").all_inner_texts()
    return [float(text.split()[-1].replace(",", ".")) for text in texts]


@pytest.mark.parametrize("language", ["vi", "en"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_drifts_and_its_repair_comes_back(visit: Visit, recorded: str, language: str, fault: str) -> None:
    page = start(visit(f"{recorded}/?place=break&lang={language}"))
    t = words(language)
    page.locator(f"input[value={fault}]").check()
    said = page.locator(".sv-break-said")
    expect(said).to_have_text(t("break.start"))
    expect(page.locator(".sv-break-what")).to_have_text(t(f"break.fault.{fault}.wrong"))
    page.get_by_role("button", name=t("break.run")).click()
    wait(page)
    expect(said).to_have_text(sentence(language, "break.verdict.broken"))
    assert numbers(page) == pytest.approx(exact_law(FAULTS[fault].wrong), abs=0.03)
    page.get_by_role("button", name=t("break.repair")).click()
    expect(page.locator(".sv-break-what")).to_have_text(t(f"break.fault.{fault}.right"))
    wait(page)
    expect(said).to_have_text(sentence(language, "break.verdict.holds"))
    assert numbers(page) == pytest.approx(exact_law(FAULTS[fault].right), abs=0.03)
    expect(page.locator(".sv-break-line--wrong")).to_have_count(2)
    expect(page.locator(".sv-break-line--right")).to_have_count(2)


def test_it_is_reached_from_about_and_belongs_to_the_lab(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    page.get_by_role("link", name=EN("shell.place.about")).click()
    page.get_by_role("link", name=EN("break.link")).click()
    expect(page.get_by_role("heading", name=EN("break.title"))).to_be_visible()
    page.wait_for_url(re.compile("place=break"))
    expect(page.get_by_role("link", name=EN("shell.place.lab"))).to_have_attribute("aria-current", "true")
    assert page.locator("nav.sv-places a").count() == 5
    expect(page).to_have_title(f"{EN('shell.place.break')} · SpecViz")


def test_it_runs_by_keyboard_and_only_when_asked(visit: Visit, recorded: str) -> None:
    page = start(visit(f"{recorded}/?place=break"))
    expect(page.locator(".sv-break-row")).to_have_count(0)
    page.locator("input[value=argmax]").focus()
    press(page, "ArrowDown", "ArrowDown")
    expect(page.locator("input[value=residual]")).to_be_checked()
    press(page, "Tab", "Enter")
    expect(page.get_by_role("button", name=EN("break.pause"))).to_be_focused()
    expect(page.locator(".sv-break-row")).to_have_count(6)
    press(page, "Enter")
    expect(page.get_by_role("button", name=EN("break.more"))).to_be_visible()
    expect(page.locator(".sv-break-said")).to_have_text(sentence("en", "break.verdict.broken"))
    press(page, "Tab", "Enter")
    expect(page.get_by_role("button", name=EN("break.break"))).to_be_focused()
    wait(page)
    page.locator(".sv-break-numbers > summary").click()
    rows = page.locator(".sv-break-scroll tbody tr")
    assert EN("break.line.wrong") in rows.first.inner_text()
    assert rows.last.inner_text().split("\t")[:2] == [EN("break.line.right"), "10000"]
    page.get_by_role("button", name=EN("break.again")).click()
    expect(page.locator(".sv-break-row")).to_have_count(0)


def test_who_goes_elsewhere_asks_no_more(visit: Visit, recorded: str) -> None:
    page = start(visit(f"{recorded}/?place=break"))
    page.get_by_role("button", name=EN("break.run")).click()
    expect(page.locator(".sv-break-row")).to_have_count(6)
    page.get_by_role("link", name=EN("shell.place.live")).click()
    drawn(page)
    page.get_by_role("link", name=EN("shell.place.about")).click()
    page.get_by_role("link", name=EN("break.link")).click()
    expect(page.get_by_role("button", name=EN("break.more"))).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_broken_rule(visit: Visit, recorded: str, theme: str) -> None:
    page = start(visit(f"{recorded}/?place=break&theme={theme}", reduced_motion="reduce"))
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert serious(page) == []
    page.get_by_role("button", name=EN("break.run")).click()
    wait(page)
    page.locator(".sv-break-numbers > summary").click()
    assert serious(page) == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_phone_sees_it_break(visit: Visit, recorded: str, language: str) -> None:
    page = start(visit(f"{recorded}/?place=break&lang={language}", viewport=PHONE, has_touch=True, is_mobile=True))
    assert overflow(page) <= 0
    page.get_by_role("button", name=words(language)("break.run")).tap()
    wait(page)
    page.locator(".sv-break-numbers > summary").tap()
    assert overflow(page) <= 0
    small = page.locator(".sv-break-actions button, .sv-break-fault, .sv-break-numbers > summary").evaluate_all(
        "nodes => nodes.map(node => node.getBoundingClientRect().height).filter(height => height < 40)"
    )
    assert small == []
