"""A page that runs another target than its examples were recorded on: it says so, and what to fetch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from spec_viz.models.catalogue import CATALOGUE, DEFAULT
from spec_viz.ui.room import Room
from spec_viz.ui.wording import words
from tests.browser.conftest import Visit
from tests.integration.launch import served

pytestmark = pytest.mark.browser

TARGET = "qwen3-4b"


@pytest.fixture
def bigger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a page for a target that is not here, nor anything beside it."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    with served(Room(target=TARGET)) as address:
        yield address


@pytest.mark.parametrize("lang", ["en", "vi"])
def test_a_page_of_another_target_says_what_was_recorded_on_which(bigger: str, visit: Visit, lang: str) -> None:
    page = visit(f"{bigger}?lang={lang}")
    said = words(lang)("shell.recorded_on", target=CATALOGUE[TARGET].title, recorded=CATALOGUE[DEFAULT].title)
    line = page.locator(".sv-recorded-on")
    expect(line).to_have_text(said)
    expect(line).to_be_visible()
    page.locator("details.sv-settings > summary").click()
    drafter = page.locator("select.sv-select").nth(1)
    missing = drafter.locator("option[value=eagle3]")
    expect(missing).to_contain_text("python -m spec_viz models fetch eagle3-qwen3-4b")
    expect(missing).to_be_disabled()
    expect(drafter.locator("option[value=medusa]")).to_be_disabled()
    expect(drafter.locator("option[value=prompt_lookup]")).to_be_enabled()


def test_the_default_page_says_nothing_of_it(recorded: str, visit: Visit) -> None:
    page = visit(recorded)
    expect(page.locator("details.sv-settings")).to_be_visible()
    expect(page.locator(".sv-recorded-on")).to_be_hidden()
