"""The paged room: a recorded batch in blocks, stepped through by keys, guessed at, in both languages and on a phone."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.content.files import ASSETS
from spec_viz.lab.paging import BLOCK, Recording, read
from spec_viz.ui.wording import words
from tests.browser.acts import EN, press
from tests.browser.conftest import Visit
from tests.browser.test_lab import open_ask
from tests.browser.test_look import AXE, PHONE, overflow, serious

pytestmark = pytest.mark.browser


def recording(drafter: str = "eagle3") -> Recording:
    return read(json.loads((ASSETS / "paged" / f"{drafter}.json").read_text(encoding="utf-8")))


def said(page: Page) -> Locator:
    return page.locator(".sv-pg-said")


def at(page: Page, step: int, drafter: str = "eagle3", language: str = "en") -> None:
    """The page shows so many steps, and each block what the recording says of it."""
    record = recording(drafter)
    counter = words(language)("paged.counter", step=step, steps=len(record.steps))
    expect(page.locator(".sv-pg-steps .sv-board-counter")).to_have_text(counter)
    shown = page.locator(".sv-pg-block").evaluate_all(
        """blocks => blocks.map(block => [
          block.dataset.request,
          ...['committed', 'kept', 'returned'].map(kind => block.querySelectorAll(`.sv-pg-slot--${kind}`).length),
        ])"""
    )
    expected: list[list[object]] = [["", 0, 0, 0] for _ in range(record.pool)]
    if step:
        now = record.steps[step - 1]
        for each in now.held:
            for place, block in enumerate(each.blocks):
                fates = [
                    max(min(end - place * BLOCK, BLOCK), 0) - max(min(start - place * BLOCK, BLOCK), 0)
                    for start, end in ((0, each.before), (each.before, each.after), (each.after, each.peak))
                ]
                expected[block] = [chr(65 + each.request), *fates]
        for block in now.freed:
            expected[block] = [chr(65 + now.about[0]), 0, 0, 0]
    assert shown == expected


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_run_is_stepped_through_by_keys(visit: Visit, recorded: str, language: str) -> None:
    t = words(language)
    last = len(recording().steps)
    page = visit(f"{recorded}/?place=lab&room=paged&lang={language}")
    expect(said(page)).to_have_text(t("paged.said.start", pool=24, requests=6, places=3))
    at(page, 0, language=language)
    press(page, "ArrowRight")
    expect(said(page)).to_contain_text(t("paged.said.join", name="A", tokens=46, blocks=3))
    press(page, "Space", "ArrowRight", "ArrowRight")
    at(page, 4, language=language)
    page.wait_for_url(re.compile("room=paged.*lab_step=4"))
    press(page, "ArrowLeft")
    at(page, 3, language=language)
    press(page, "End")
    at(page, last, language=language)
    expect(page.get_by_role("button", name=t("paged.do.next"), exact=True)).to_have_attribute("aria-disabled", "true")
    press(page, "ArrowRight", "Home")
    at(page, 0, language=language)


def test_every_step_shows_what_was_recorded_and_says_it_aloud(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=paged&lang=en", reduced_motion="reduce")
    expect(said(page)).to_be_visible()
    seek = page.get_by_role("slider", name=EN("paged.seek"))
    for step, now in enumerate(recording().steps, 1):
        press(page, "ArrowRight")
        at(page, step)
        assert f"Step {step}/" in (seek.get_attribute("aria-valuetext") or "")
        spoken = page.locator(".sv-pg-grid").get_attribute("aria-label") or ""
        assert EN("paged.spoken.free", free=now.free, pool=24) in spoken
        assert len(re.findall(r"holds blocks", spoken)) == len(now.held)


def test_the_address_holds_run_and_step_and_bad_ones_fall_back(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=paged&lang=en&lab_run=prompt_lookup&lab_step=20")
    at(page, 20, "prompt_lookup")
    page.get_by_role("button", name=EN("paged.run.none")).click()
    at(page, 0, "none")
    page.wait_for_url(re.compile("lab_run=none"))
    page.get_by_role("slider", name=EN("paged.seek")).fill("30")
    at(page, 30, "none")
    page.wait_for_url(re.compile("lab_step=30"))
    page = visit(f"{recorded}/?place=lab&room=paged&lang=en&lab_run=<b>&lab_step=9999")
    at(page, len(recording().steps))


def test_a_guess_comes_before_the_step_and_the_truth_after_it(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=paged&lang=en")
    guess = page.locator(".sv-pg-guess")
    expect(guess).to_contain_text(EN("paged.guess.join", name="A", tokens=46))
    guess.get_by_role("button", name="4", exact=True).click()
    at(page, 1)
    expect(guess).to_contain_text(EN("paged.guess.other", guess=4, truth=3))
    press(page, "ArrowRight")
    expect(guess).to_be_hidden()
    # The first request that leaves, guessed rightly.
    steps = recording().steps
    left = next(place for place, step in enumerate(steps) if step.kind == "leave")
    page = visit(f"{recorded}/?place=lab&room=paged&lang=en&lab_step={left}")
    truth = str(steps[left].free)
    guess = page.locator(".sv-pg-guess")
    guess.get_by_role("button", name=truth, exact=True).click()
    expect(guess).to_contain_text(EN("paged.guess.right", truth=truth))


def test_questions_below_compare_the_runs(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=paged&lang=en")
    expect(said(page)).to_be_visible()
    rows = open_ask(page, "paged_cost").locator("tbody tr")
    expect(rows).to_have_count(3)
    steps = [step for step in recording().steps if step.kind == "pass"]
    returned = sum(each.returned for step in steps for each in step.held)
    assert rows.nth(2).locator("td").nth(3).inner_text() == str(returned)
    assert rows.nth(0).locator("td").nth(3).inner_text() == "0"
    expect(open_ask(page, "paged_prefix")).to_contain_text("first 24 tokens in common: 1 whole block")
    expect(open_ask(page, "paged_ahead")).to_contain_text("longest possible answer")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_paged_room(visit: Visit, recorded: str, theme: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=paged&theme={theme}&lab_step=16", reduced_motion="reduce")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for name in ("paged_cost", "paged_ahead", "paged_prefix"):
        open_ask(page, name)
    assert serious(page) == []
    press(page, "Home")
    expect(page.locator(".sv-pg-guess")).to_be_visible()
    assert serious(page) == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_phone_holds_the_paged_room(visit: Visit, recorded: str, language: str) -> None:
    page = visit(
        f"{recorded}/?place=lab&room=paged&lang={language}&lab_step=12",
        viewport=PHONE,
        has_touch=True,
        is_mobile=True,
    )
    expect(page.locator(".sv-pg-svg")).to_be_visible()
    for name in ("paged_cost", "paged_ahead", "paged_prefix"):
        open_ask(page, name)
    assert overflow(page) <= 0
    page.get_by_role("button", name=words(language)("paged.do.next"), exact=True).tap()
    at(page, 13, language=language)
    assert overflow(page) <= 0
