"""The experiments room: one small sweep from the choice to its files, and the same result opened again."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from spec_viz.ui.wording import words
from tests.browser.acts import EN
from tests.browser.conftest import PATIENCE, Visit
from tests.browser.test_look import AXE, PHONE, overflow, serious
from tests.integration.launch import served
from tests.integration.rooms import Gate, ready_room

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A page over the tiny model, on one thread where the browser wants the other core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        room = ready_room(patch)
    with served(room) as address:
        yield address
    torch.set_num_threads(before)


def only_lookup(page: Page, language: str) -> None:
    """Heads that are ready are chosen too, but they fit the real target only."""
    drafters = page.locator("[data-part=drafters]")
    expect(drafters.locator(":checked").first).to_be_visible()
    for title in drafters.locator("label").filter(has=page.locator(":checked")).all_inner_texts():
        if title != words(language)("drafter.prompt_lookup"):
            drafters.get_by_label(title, exact=True).uncheck()


def choose(page: Page, language: str = "en") -> None:
    """Prompt lookup on one short prompt, γ = 1 and 2."""
    t = words(language)
    page.get_by_role("combobox", name=t("experiments.prompts"), exact=True).select_option("own")
    page.get_by_label(t("experiments.own"), exact=True).fill("rất đẹp rất")
    for gamma in ("4", "8"):
        page.locator("[data-part=values]").get_by_label(gamma, exact=True).uncheck()
    only_lookup(page, language)
    expect(page.get_by_text(t("experiments.size", runs=2, plain=1))).to_be_visible()


def drawn(page: Page, charts: int) -> None:
    page.wait_for_function(
        """(count) => {
          const plots = [...document.querySelectorAll('.sv-x-plots .sv-chart-plot')];
          return plots.length === count && plots.every((plot) => plot.querySelector('.main-svg'));
        }""",
        arg=charts,
    )


def run(page: Page, language: str = "en") -> None:
    page.get_by_role("button", name=words(language)("experiments.run"), exact=True).click()


def test_a_sweep_from_the_choice_to_its_files(visit: Visit, address: str, tmp_path: Path) -> None:
    page = visit(f"{address}/?place=lab&room=experiments", reduced_motion="reduce", accept_downloads=True)
    page.add_script_tag(path=str(AXE))
    choose(page)
    run(page)
    expect(page.locator(".sv-x-said")).to_have_text(re.compile(r"Done: 2 runs"))
    drawn(page, 3)
    verdict = page.locator(".sv-x-verdict")
    expect(verdict).to_contain_text(re.compile(r"Prompt lookup at γ = [12]|Prompt lookup is fastest at γ = [12]"))
    table = page.get_by_role("table")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".sv-x-main .sv-l-about")).to_contain_text("smollm2-135m on test, 1 threads, float32")
    assert serious(page) == []
    files = {}
    for kind in ("csv", "json", "png"):
        with page.expect_download() as download:
            page.get_by_role("button", name=EN(f"experiments.{kind}")).click()
        files[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[kind])
    rows = list(csv.DictReader(files["csv"].read_text(encoding="utf-8").splitlines()))
    assert [(row["drafter"], row["gamma"]) for row in rows] == [("prompt_lookup", "1"), ("prompt_lookup", "2")]
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    # The same file opened beside it, from another machine.
    record = json.loads(files["json"].read_text(encoding="utf-8"))
    record["conditions"]["threads"] = 64
    files["json"].write_text(json.dumps(record), encoding="utf-8")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=EN("experiments.import")).click()
    chooser.value.set_files(files["json"])
    expect(page.locator(".sv-x-differ")).to_have_text(EN("experiments.differ", names="threads"))
    expect(page.locator(".sv-x-plots").get_by_text("≠ other threads").first).to_be_visible()
    page.get_by_role("button", name=EN("experiments.beside.away")).click()
    expect(page.locator(".sv-x-differ")).to_have_count(0)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=EN("experiments.import")).click()
    chooser.value.set_files(files["csv"])
    expect(page.locator(".sv-x-main .sv-alert")).to_contain_text("no result file of SpecViz")


def test_stop_keeps_what_is_there_on_a_phone_in_vietnamese(visit: Visit, address: str) -> None:
    t = words("vi")
    page = visit(
        f"{address}/?place=lab&room=experiments&lang=vi&theme=dark", viewport=PHONE, has_touch=True, is_mobile=True
    )
    only_lookup(page, "vi")
    with Gate() as gate:
        gate.pause = 0.05
        run(page, "vi")
        # Twelve runs of 32 passes each: there is time to press Stop after the first.
        expect(page.locator(".sv-x-said")).to_have_text(re.compile(r"^[1-9]/12 lần chạy"), timeout=2 * PATIENCE)
        page.get_by_role("button", name=t("control.stop"), exact=True).click()
    expect(page.locator(".sv-x-said")).to_have_text(re.compile(r"^Đã dừng sau \d+/12"))
    drawn(page, 3)
    expect(page.locator(".sv-lab-filled")).to_contain_text(re.compile(r"Từ \d+/12 lần chạy"))
    expect(page.locator(".sv-x-verdict")).not_to_be_empty()
    assert overflow(page) <= 0
