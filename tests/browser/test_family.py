"""The family room: a table that sorts by keyboard, says what is not trained, holds on a phone, and can be kept."""

from __future__ import annotations

import csv
import io

import pytest
from playwright.sync_api import Page, expect

from spec_viz.content import family
from spec_viz.ui.wording import words
from tests.browser.acts import EN
from tests.browser.conftest import Visit
from tests.browser.test_look import AXE, PHONE, overflow, serious

pytestmark = pytest.mark.browser


def order(page: Page) -> list[str]:
    expect(page.locator(".sv-fam-table")).to_be_visible()
    found: list[str] = page.locator(".sv-fam-table tbody tr").evaluate_all(
        "rows => rows.map(row => row.dataset.method)"
    )
    return found


def test_columns_sort_by_keyboard_and_back(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=family&lang=en")
    members = family.members()
    ideas = [member.method for member in members]
    assert order(page) == ideas
    head = page.locator(".sv-fam-col--alpha")
    expect(head).to_have_attribute("aria-sort", "none")
    head.get_by_role("button").focus()
    known = [member for member in members if member.alpha is not None]
    rest = [member.method for member in members if member.alpha is None]
    for way, back in (("descending", True), ("ascending", False)):
        page.keyboard.press("Enter")
        expect(head).to_have_attribute("aria-sort", way)
        best = sorted(known, key=lambda member: member.alpha or 0.0, reverse=back)
        assert order(page) == [member.method for member in best] + rest
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "none")
    assert order(page) == ideas


@pytest.mark.parametrize("language", ["vi", "en"])
def test_rows_say_what_was_measured_and_published(visit: Visit, recorded: str, language: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=family&lang={language}")
    for member in family.members():
        row = page.locator(f"tr[data-method={member.method}]")
        expect(row.locator(".sv-fam-none")).to_have_count(0 if member.trained else 1)
        expect(row.locator(".sv-fam-slot b:not(:empty)")).to_have_count(len(member.slots))
        expect(row.locator(".sv-fam-cell--published")).to_contain_text(member.claims[0].when[language])  # type: ignore[index]
        expect(row.locator(".sv-fam-cell--published a")).to_have_count(len(member.claims))


def test_the_table_can_be_kept(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=family&lang=en")
    with page.expect_download() as kept:
        page.get_by_role("link", name=EN("family.save.csv")).click()
    rows = csv.DictReader(io.StringIO(kept.value.path().read_text(encoding="utf-8")))
    assert [row["method"] for row in rows] == list(family.published())


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_phone_scrolls_the_table_under_its_names(visit: Visit, recorded: str, language: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=family&lang={language}", viewport=PHONE, has_touch=True, is_mobile=True)
    expect(page.get_by_role("link", name=words(language)("lab.room.family"))).to_have_attribute("aria-current", "page")
    name = page.locator("tr[data-method=eagle3] .sv-fam-name")
    expect(name).to_be_visible()
    assert overflow(page) <= 0
    before = name.bounding_box()
    page.locator(".sv-fam-scroll").evaluate("box => box.scrollLeft = 300")
    assert name.bounding_box() == before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, recorded: str, theme: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=family&theme={theme}", reduced_motion="reduce")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    expect(page.locator(".sv-fam-table")).to_be_visible()
    assert serious(page) == []
