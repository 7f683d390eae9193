"""The experiments room: one small sweep from the choice to its files, and the same result opened again."""

from __future__ import annotations

import csv
import json
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect

from spec_viz.engine.rows import Rows
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
        page.locator("[data-part=gamma]").get_by_label(gamma, exact=True).uncheck()
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
    page.evaluate(AXE.read_text(encoding="utf-8"))
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
    # Three charts under each other, each as high as it is wide by a third or so.
    width, height = struct.unpack(">II", files["png"].read_bytes()[16:24])
    assert (files["png"].read_bytes()[1:4], width) == (b"PNG", 2200)
    assert height > 3 * 900
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


def test_a_run_that_is_stopped_before_its_first_number_leaves_the_result_on_show(visit: Visit, address: str) -> None:
    page = visit(f"{address}/?place=lab&room=experiments", reduced_motion="reduce")
    choose(page)
    run(page)
    said = page.locator(".sv-x-said")
    expect(said).to_have_text(re.compile(r"Done: 2 runs"))
    drawn(page, 3)
    verdict = page.locator(".sv-x-verdict").inner_text()
    with Gate() as gate:
        gate.open.clear()
        run(page)
        expect(said).not_to_have_text(re.compile(r"Done: 2 runs"))
        page.get_by_role("button", name=EN("control.stop"), exact=True).click()
        expect(page.get_by_role("button", name=EN("experiments.run"), exact=True)).to_be_visible()
        expect(page.locator(".sv-x-verdict")).to_have_text(verdict)
        expect(page.locator(".sv-x-plots .sv-chart")).to_have_count(3)


def test_a_question_file_tells_what_was_left_out_of_it(visit: Visit, address: str, tmp_path: Path) -> None:
    page = visit(f"{address}/?place=lab&room=experiments&x=gamma*set-own", reduced_motion="reduce")
    said, size = page.locator(".sv-x-file .sv-help"), page.locator(".sv-x-go .sv-help")
    only_lookup(page, "en")
    path = tmp_path / "mine.jsonl"

    def read(*lines: str) -> None:
        path.write_text("\n".join(lines), encoding="utf-8")
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=EN("experiments.own.file"), exact=True).click()
        chooser.value.set_files(path)

    read('{"category": "rag", "turns": ["Who?"]}', "what?", "", '{"turns": []}', *['{"prompt": "p"}'] * 30)
    told = ("read", {"name": "mine.jsonl", "count": 24}), ("more", {"more": 7, "most": 24}), ("skipped", {"skipped": 2})
    expect(said).to_have_text(" ".join(EN(f"experiments.own.file.{key}", **args) for key, args in told))
    expect(size).to_contain_text("Runs: 96")
    read("what?")
    expect(said).to_have_text(EN("experiments.own.file.broken", name="mine.jsonl"))
    expect(size).to_have_text(EN("experiments.size.none"))


@contextmanager
def slow_batches(seconds: float) -> Iterator[list[float]]:
    """Every pass that requests share takes so long; yields the passes so far. The gate stands before lone ones only."""
    seen: list[float] = []
    verify = Rows.verify

    def slow(self: Rows, *given: Any) -> Any:
        seen.append(time.monotonic())
        time.sleep(seconds)
        return verify(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "verify", slow)
        yield seen


LOAD = "x=concurrency*drafters-prompt_lookup*batches-1-2*gammas-2*alphas-0.8*tasks-chat*tokens-16"


def test_requests_side_by_side_are_measured_batch_by_batch_and_the_run_survives_a_walk(
    visit: Visit, address: str, tmp_path: Path
) -> None:
    page = visit(f"{address}/?place=lab&room=experiments&{LOAD}", reduced_motion="reduce", accept_downloads=True)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    expect(page.get_by_text(EN("experiments.size.machine", runs=6))).to_be_visible()
    said = page.locator(".sv-x-said")
    with slow_batches(0.05) as passes:
        run(page)
        expect(said).to_have_text(re.compile(r"^[1-5] of 6 runs"), timeout=2 * PATIENCE)
        page.get_by_role("link", name=EN("lab.room.formula"), exact=True).click()
        expect(said).to_be_hidden()
        page.get_by_role("link", name=EN("shell.place.about"), exact=True).click()
        # Nobody stopped it: the passes go on.
        before = len(passes)
        page.wait_for_function("() => document.querySelector('.sv-x-said').textContent.startsWith('Done: 6 runs')")
        assert len(passes) > before
    page.get_by_role("link", name=EN("shell.place.lab"), exact=True).click()
    page.get_by_role("link", name=EN("lab.room.experiments"), exact=True).click()
    expect(said).to_have_text(re.compile(r"^Done: 6 runs"))
    drawn(page, 4)
    # Drawn where it can be seen, not while it was away: as wide as its place.
    widths = page.locator(".sv-x-plots .sv-chart-plot").evaluate_all(
        "plots => plots.map(plot => [plot.clientWidth, plot.querySelector('.main-svg').clientWidth])"
    )
    assert all(abs(place - svg) < 2 for place, svg in widths), widths
    expect(page.locator(".sv-x-verdict")).to_contain_text("Prompt lookup, γ = 2")
    expect(page.get_by_role("table").locator("tbody tr")).to_have_count(6)
    assert serious(page) == []
    with page.expect_download() as download:
        page.get_by_role("button", name=EN("experiments.json")).click()
    download.value.save_as(tmp_path / "load.json")
    record = json.loads((tmp_path / "load.json").read_text(encoding="utf-8"))
    assert (record["kind"], record["finish"], len(record["samples"])) == ("concurrency", "done", 6)
    assert [each["name"] for each in record["schedules"]] == ["prompt_lookup", "synthetic α = 0.8 (lossy)"]


def test_a_load_is_stopped_and_a_drafter_that_must_be_alone_is_named(visit: Visit, address: str) -> None:
    page = visit(f"{address}/?place=lab&room=experiments&{LOAD}", reduced_motion="reduce")
    said = page.locator(".sv-x-said")
    with slow_batches(0.1):
        run(page)
        expect(said).to_have_text(re.compile(r"^[1-5] of 6 runs"), timeout=2 * PATIENCE)
        page.get_by_role("button", name=EN("control.stop"), exact=True).click()
    expect(said).to_have_text(re.compile(r"^Stopped after [1-5] of 6"))
    expect(page.locator(".sv-lab-filled")).to_contain_text(re.compile(r"From [1-5] of 6 runs"))
    drafters = page.locator("[data-part=drafters]")
    drafters.locator("summary").click()
    drafters.get_by_label(EN("drafter.token_recycling"), exact=True).check()
    page.get_by_text(EN("experiments.more"), exact=True).click()
    page.locator(".sv-x-choose", has_text=EN("experiments.tokens")).locator("select").select_option("32")
    run(page)
    alert = page.locator(".sv-x-main .sv-alert")
    expect(alert).to_have_text(EN("error.load_tree", drafter=EN("drafter.token_recycling")))
    expect(page.get_by_role("button", name=EN("experiments.run"), exact=True)).to_be_visible()


def test_a_run_elsewhere_takes_the_place_and_what_was_measured_stays(visit: Visit, address: str) -> None:
    page = visit(f"{address}/?place=lab&room=experiments&{LOAD}", reduced_motion="reduce")
    with slow_batches(0.1):
        run(page)
        expect(page.locator(".sv-x-said")).to_have_text(re.compile(r"^[1-5] of 6 runs"), timeout=2 * PATIENCE)
        page.get_by_role("link", name=EN("shell.place.live"), exact=True).click()
        page.get_by_role("textbox", name=EN("control.prompt")).fill("rất đẹp rất")
        page.get_by_role("button", name=EN("control.run"), exact=True).click()
        page.get_by_role("link", name=EN("shell.place.lab"), exact=True).click()
        expect(page.locator(".sv-x-main .sv-alert")).to_have_text(EN("experiments.taken"))
    expect(page.locator(".sv-x-said")).to_have_text(re.compile(r"^Stopped after [1-5] of 6"))


def test_the_address_holds_the_choices(visit: Visit, address: str) -> None:
    page = visit(f"{address}/?place=lab&room=experiments", reduced_motion="reduce")
    assert "x=" not in page.url
    page.get_by_label(EN("experiments.kind.concurrency"), exact=True).check()
    page.locator("[data-part=batches]").get_by_label("16", exact=True).uncheck()
    page.locator("[data-part=alphas]").get_by_label("0.9", exact=True).check()
    page.locator("[data-part=prompts]").get_by_label(EN("experiments.task.code"), exact=True).uncheck()
    page.get_by_text(EN("experiments.more"), exact=True).click()
    page.locator(".sv-x-choose", has_text=EN("experiments.tokens")).locator("select").select_option("48")
    page.get_by_label(EN("experiments.policies"), exact=True).check()
    expect(page).to_have_url(
        re.compile(
            r"[?&]x=concurrency\*batches-1-2-4-8\*alphas-0\.6-0\.8-0\.9\*tasks-chat-list\*tokens-48\*policies-1(&|$)"
        )
    )
    again = visit(page.url, reduced_motion="reduce")
    assert form(again) == form(page)
    # What nobody offers is left out, and the rest is read.
    odd = visit(
        f"{address}/?place=lab&room=experiments&x=task*drafters-ngram-oracle*tokens-64*__proto__-1*gamma-99*tasks-code",
        reduced_motion="reduce",
    )
    assert form(odd)["kind"] == "task"
    assert set(form(odd)["ticked"]) <= {"ngram", "code"}
    unknown = visit(f"{address}/?place=lab&room=experiments&x=%3Cscript%3E*set-own", reduced_motion="reduce")
    assert form(unknown)["kind"] == "gamma"


def form(page: Page) -> dict[str, Any]:
    """What is chosen on the page, in its own names."""
    expect(page.locator(".sv-x-parts")).to_be_visible()
    found: dict[str, Any] = page.evaluate(
        """() => ({
          kind: document.querySelector('.sv-x-kinds input:checked').value,
          ticked: [...document.querySelectorAll('.sv-x-parts input[type=checkbox]:checked')].map((each) => each.value),
          chosen: [...document.querySelectorAll('.sv-x-parts select')].map((each) => each.value),
        })"""
    )
    return found
