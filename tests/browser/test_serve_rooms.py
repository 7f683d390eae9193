"""The Serve place's other rooms: saved runs without a server; a server asked, compared, lost; who may ask."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, Route, expect

from spec_viz.content.served import run_of, view_of
from spec_viz.engine.trace import TokenTable
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.weights import is_cached
from spec_viz.serving.compare import to_json
from spec_viz.serving.local import program, serving
from spec_viz.ui.room import Room
from spec_viz.ui.wording import words
from tests.browser.acts import EN
from tests.browser.conftest import PATIENCE, Visit
from tests.browser.servers import KEPT, WORDS, Toy, standing
from tests.browser.test_look import AXE, PHONE, overflow, serious
from tests.integration.launch import served
from tests.server.served import MISSING

pytestmark = pytest.mark.browser

CHARTS = ("served_tpot", "served_tau", "served_positions", "served_ttft", "served_throughput")


def titles(page: Page) -> list[str]:
    """The charts that are drawn, by their titles."""
    page.wait_for_function(
        """() => {
          const all = [...document.querySelectorAll('.sv-serve-plots .sv-chart-plot')];
          const plots = all.filter((plot) => plot.checkVisibility());
          return plots.length && plots.every((plot) => plot.querySelector('.main-svg'));
        }""",
        timeout=90_000,
    )
    return page.locator(".sv-serve-plots .sv-chart:visible h3").all_inner_texts()


def seen(page: Page) -> list[str]:
    """The tiles of the board that is seen, as a voice reads them."""
    tiles = page.locator(".sv-rows .sv-tile:not(.sv-tile--hidden):visible")
    expect(tiles.first).to_be_visible()
    return [str(each.get_attribute("aria-label")) for each in tiles.all()]


# ---------------------------------------------------------------- rooms


def test_rooms_are_reached_by_keyboard_and_by_address(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&lang=en")
    expect(page.locator(".sv-serve-code")).to_be_visible()
    page.get_by_role("navigation", name=EN("serve.rooms")).get_by_role("link", name=EN("serve.room.saved")).press(
        "Enter"
    )
    page.wait_for_url(re.compile("room=saved"))
    expect(page.locator(".sv-serve-room--config")).to_be_hidden()
    page.reload()
    expect(page.get_by_role("link", name=EN("serve.room.saved"), exact=True)).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name=EN("serve.room.config"), exact=True).press("Enter")
    page.get_by_role("link", name=EN("serve.way.ask")).press("Enter")
    expect(page.get_by_label(EN("serve.connect.address"), exact=True)).to_be_visible()


def test_until_numbers_come_the_room_says_that_they_are_being_read(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&lang=en")
    expect(page.locator(".sv-serve-code")).to_be_visible()
    held: list[Route] = []
    page.route("**/component_server", lambda route: held.append(route))
    page.get_by_role("link", name=EN("serve.room.saved"), exact=True).click()
    instead = page.locator(".sv-serve-room--saved .sv-none")
    expect(instead).to_have_text(EN("serve.reading"))
    page.unroute("**/component_server")
    for route in held:
        route.continue_()
    titles(page)
    expect(instead).to_be_hidden()
    chosen = page.locator(".sv-serve-runs input:checked")
    while chosen.count():
        chosen.first.uncheck()
    expect(instead).to_have_text(EN("serve.saved.none"))


def test_the_lab_and_serve_call_their_rooms_by_one_name_and_keep_their_own(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en")
    titles(page)
    page.get_by_role("link", name=EN("shell.place.lab"), exact=True).click()
    page.wait_for_function("() => !new URL(location).searchParams.has('room')")
    page.get_by_role("link", name=EN("lab.room.law"), exact=True).click()
    page.wait_for_url(re.compile("room=law"))
    page.get_by_role("link", name=EN("shell.place.serve"), exact=True).click()
    page.wait_for_url(re.compile("room=saved"))
    expect(page.locator(".sv-serve-room--saved")).to_be_visible()


# ---------------------------------------------------------------- saved runs


@pytest.mark.parametrize("language", ["vi", "en"])
def test_saved_runs_are_charts_a_sentence_and_conditions(visit: Visit, recorded: str, language: str) -> None:
    t = words(language)
    page = visit(f"{recorded}/?place=serve&room=saved&lang={language}", reduced_motion="reduce")
    assert titles(page) == [t(f"chart.{key}") for key in CHARTS]
    tau = view_of("eagle3", 1).tau
    assert tau is not None
    page.locator(".sv-x-main summary", has_text=t("serve.table")).click()
    row = page.locator(".sv-x-table tr", has_text="EAGLE-3").first
    expect(row).to_contain_text(f"{tau.value:.2f}".replace(".", "," if language == "vi" else "."))
    for fact in ("vLLM 0.32.0", "AMD EPYC", "2026-11-30"):
        expect(page.locator(".sv-serve-conditions")).to_contain_text(fact)
    page.locator("summary", has_text=t("serve.commands")).click()
    expect(page.locator(".sv-serve-conditions pre").last).to_contain_text("--speculative-config")
    page.get_by_label(t("lesson.runs.name.ngram"), exact=True).check()
    page.wait_for_url(re.compile("serve_runs=baseline%2Cngram%2Ceagle3"))
    expect(page.locator(".sv-x-table tr", has_text=t("lesson.runs.name.ngram")).first).to_be_attached()


def test_the_sentence_follows_the_load_and_says_slower_where_it_was(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en")
    verdict = page.locator(".sv-x-verdict:visible")
    expect(verdict).to_contain_text("EAGLE-3 is faster than plain decoding")
    page.get_by_role("group", name=EN("serve.levels")).get_by_role("button", name=EN("serve.level", count=4)).click()
    expect(verdict).to_contain_text("4 questions at a time: speculation is slower than plain decoding")
    page.wait_for_url(re.compile("serve_at=4"))


def test_a_saved_question_is_replayed_as_tiles_with_the_unknown_left_open(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en", reduced_motion="reduce")
    page.locator(".sv-serve-question").nth(2).press("Enter")
    expect(page.locator(".sv-serve-replay")).to_be_focused()
    trace = view_of("eagle3", 1).readings[2].trace
    assert trace is not None
    nodes = [node for round_ in trace.rounds for node in round_.nodes]
    names = seen(page)
    assert len(names) == len(nodes) + sum(round_.emitted is not None for round_ in trace.rounds)
    expect(page.locator(".sv-rows .sv-unknown, .sv-rows .sv-tile--no:visible").first).to_contain_text("…")
    page.locator(".sv-rows .sv-tile--ok:visible").first.click()
    expect(page.locator(".sv-inspector-numbers:visible .sv-unknown").first).to_have_text(EN("inspector.unknown"))
    page.keyboard.press("Home")
    expect(page.locator(".sv-rows .sv-tile:not(.sv-tile--hidden):visible")).to_have_count(0)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sv-rows .sv-tile:not(.sv-tile--hidden):visible").first).to_be_visible()
    page.get_by_role("group", name=EN("serve.replay.who")).get_by_role("button", name="plain").click()
    expect(page.locator(".sv-board--baseline:visible")).to_be_visible()


def test_a_row_whose_draft_was_not_told_says_so(visit: Visit, recorded: str) -> None:
    readings = view_of("ngram", 1).readings
    place, open_ = next(
        (place, reading.unsettled)
        for place, reading in enumerate(readings)
        if any(stretch.steps for stretch in reading.unsettled)
    )
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en&serve_runs=ngram", reduced_motion="reduce")
    page.locator(".sv-serve-question").nth(place).press("Enter")
    seen(page)
    untold = sum(stretch.last - stretch.first + 1 for stretch in open_ if stretch.steps)
    kinds = page.locator(".sv-rows .sv-row-kind").all_inner_texts()
    assert kinds.count(EN("board.kind.untold")) == untold > 0
    trace = readings[place].trace
    assert trace is not None
    silent = sum(not round_.nodes and not round_.prefill for round_ in trace.rounds) - untold
    assert kinds.count(EN("board.kind.nodraft")) == silent


def test_what_is_saved_as_a_file_is_what_was_shown(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en", accept_downloads=True)
    titles(page)
    with page.expect_download() as sheet:
        page.get_by_role("button", name=EN("experiments.csv"), exact=True).click()
    rows = list(csv.DictReader(io.StringIO(Path(sheet.value.path()).read_text(encoding="utf-8"))))
    # Two servers, two loads.
    assert [(row["server"], row["concurrency"]) for row in rows] == [
        ("baseline", "1"),
        ("baseline", "4"),
        ("eagle3", "1"),
        ("eagle3", "4"),
    ]
    with page.expect_download() as record:
        page.get_by_role("button", name=EN("experiments.json"), exact=True).click()
    assert "eagle3" in json.dumps(json.loads(Path(record.value.path()).read_text(encoding="utf-8")))
    with page.expect_download() as picture:
        page.get_by_role("button", name=EN("experiments.png"), exact=True).click()
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_hostile_address_shows_what_there_is(visit: Visit, recorded: str) -> None:
    page = visit(
        f"{recorded}/?place=serve&room=saved&lang=en&serve_runs=%3Cb%3E,ngram,ngram&serve_at=64&serve_question=99"
    )
    titles(page)
    expect(page.locator(".sv-serve-replay")).to_be_hidden()
    expect(page.locator(".sv-x-verdict:visible")).to_contain_text("n-gram")


# ---------------------------------------------------------------- a server


@pytest.fixture
def toy() -> Iterator[tuple[Toy, str]]:
    made = Toy()
    with standing(made) as address:
        yield made, address


def connect(page: Page, address: str, beside: str = "", patience: int = PATIENCE) -> None:
    page.get_by_label(EN("serve.connect.address"), exact=True).fill(address)
    if beside:
        page.locator("summary", has_text=EN("serve.connect.beside")).click()
        page.get_by_label(EN("serve.connect.address.beside"), exact=True).fill(beside)
    page.get_by_role("button", name=EN("serve.connect"), exact=True).click()
    expect(page.locator(".sv-serve-is p")).to_have_count(2 if beside else 1, timeout=patience)


def send(page: Page) -> None:
    page.get_by_role("button", name=EN("serve.connect.send"), exact=True).click()


def test_a_server_is_asked_and_its_answer_becomes_tiles(visit: Visit, recorded: str, toy: tuple[Toy, str]) -> None:
    made, address = toy
    page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
    connect(page, address)
    told = page.locator(".sv-serve-is")
    for fact in ("vLLM 0.32.0", "toy-model", EN("serve.is.speculates.yes"), EN("serve.is.tells.lists")):
        expect(told).to_contain_text(fact)
    page.get_by_label(EN("serve.connect.prompt"), exact=True).fill("Count.")
    send(page)
    names = seen(page)
    # Four drafts a step; the prefill's token and one of the target's own a step.
    assert len(names) == 4 * len(KEPT) + 1 + len(KEPT)
    assert made.asked[-1]["messages"][0]["content"] == "Count."
    facts = page.locator(".sv-serve-facts")
    expect(facts).to_contain_text(f"{sum(KEPT)}/{4 * len(KEPT)}")
    expect(facts).to_contain_text(EN("serve.fact.bursts.said", count=1 + len(KEPT), largest=1 + max(KEPT)))
    expect(page.locator(".sv-serve-came .main-svg").first).to_be_visible()
    assert page.locator(".sv-serve-room--connect b", has_text="four").count() == 0


def test_a_plain_server_beside_it_is_asked_the_same_and_compared(
    visit: Visit, recorded: str, toy: tuple[Toy, str]
) -> None:
    _, address = toy
    plain = Toy(speculates=False, pause=0.06)
    with standing(plain) as other:
        page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
        connect(page, address, other)
        expect(page.locator(".sv-serve-is")).to_contain_text(EN("serve.is.speculates.no"))
        send(page)
        expect(page.locator(".sv-x-verdict:visible")).to_contain_text("times as fast")
        expect(page.locator(".sv-x-verdict:visible")).to_contain_text(EN("serve.connect.same"))
        page.get_by_role("group", name=EN("serve.replay.who")).get_by_role("button").nth(1).click()
        expect(page.locator(".sv-board--baseline:visible")).to_be_visible()
        assert len(seen(page)) == len(WORDS)
    assert len(plain.asked) == 2


def test_text_is_seen_as_it_comes_and_stop_keeps_it(visit: Visit, recorded: str) -> None:
    gate = threading.Event()
    with standing(Toy()) as address:
        page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
        connect(page, address)
    slow = Toy(gate=gate)
    with standing(slow) as address:
        gate.set()
        connect(page, address)
        gate.clear()
        send(page)
        expect(page.locator(".sv-serve-coming")).to_contain_text("One")
        page.get_by_role("button", name=EN("control.stop"), exact=True).click()
        expect(page.locator(".sv-serve-replay-body .sv-serve-text")).to_have_text("One")
        expect(page.locator(".sv-serve-replay-body > .sv-alert")).to_have_text(EN("error.server_stopped"))


def test_a_server_that_dies_in_the_middle_leaves_what_came(visit: Visit, recorded: str, toy: tuple[Toy, str]) -> None:
    made, address = toy
    page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
    connect(page, address)
    made.dies = 3
    send(page)
    expect(page.locator(".sv-serve-replay-body .sv-serve-text")).to_have_text("One two three <b>four</b> five")
    expect(page.locator(".sv-serve-replay-body > .sv-alert")).to_have_text(EN("error.server_broke", address=address))
    # What became of the drafts would have come with the end: no tiles, one sentence why, and the arrivals as they were.
    expect(page.locator(".sv-serve-replay-body > .sv-l-about")).to_have_text(EN("serve.gap.broken"))
    assert page.locator(".sv-serve-replay-body .sv-tile").count() == 0
    expect(page.locator(".sv-serve-facts")).to_contain_text(EN("serve.fact.bursts.said", count=3, largest=3))
    expect(page.locator(".sv-serve-came .main-svg").first).to_be_visible()


def test_an_answer_stays_with_its_name_when_the_next_connection_fails(
    visit: Visit, recorded: str, toy: tuple[Toy, str]
) -> None:
    _, address = toy
    page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
    connect(page, address)
    send(page)
    tiles = len(seen(page))
    page.get_by_label(EN("serve.connect.address"), exact=True).fill("http://127.0.0.1:9")
    page.get_by_role("button", name=EN("serve.connect"), exact=True).click()
    alert = page.locator(".sv-serve-room--connect > .sv-alert")
    expect(alert).to_have_text(EN("error.server_away", address="http://127.0.0.1:9"))
    # The page is built anew in another language, from what it keeps.
    page.get_by_role("button", name="VI", exact=True).click()
    expect(page.locator(".sv-serve-room--connect > .sv-lead")).to_have_text(words("vi")("serve.connect.lead"))
    assert len(seen(page)) == tiles
    expect(page.locator(".sv-serve-room--connect")).to_contain_text(address.removeprefix("http://"))


def test_a_server_more_has_a_name_that_no_other_has(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&room=compare&lang=en")
    add = page.get_by_role("button", name=EN("serve.compare.add"))
    add.click()
    page.get_by_role("button", name=EN("serve.compare.away", name=EN("serve.compare.name", place=1))).click()
    add.click()
    names = page.get_by_label(EN("serve.compare.called"), exact=True)
    expect(names).to_have_count(3)
    assert len({each.input_value() for each in names.all()}) == 3


@pytest.mark.parametrize(("tells", "gap"), [("sums", "no_lists"), ("nothing", "no_metrics")])
def test_what_a_server_does_not_tell_is_said_and_not_drawn(
    visit: Visit, recorded: str, toy: tuple[Toy, str], tells: str, gap: str
) -> None:
    made, address = toy
    made.tells = tells
    page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
    connect(page, address)
    expect(page.locator(".sv-serve-is")).to_contain_text(EN(f"serve.is.tells.{tells}"))
    send(page)
    expect(page.locator(".sv-serve-replay-body")).to_contain_text(EN(f"serve.gap.{gap}"))
    assert page.locator(".sv-serve-replay-body .sv-tile").count() == 0
    # Of an answer without an account the counters say what became of the drafts.
    expect(page.locator(".sv-serve-facts")).to_contain_text(f"{sum(KEPT)}/{4 * len(KEPT)}")


def test_nobody_there_and_elsewhere_are_one_sentence_each(visit: Visit, recorded: str) -> None:
    with standing(Toy()) as address:
        pass
    page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
    box = page.get_by_label(EN("serve.connect.address"), exact=True)
    alert = page.locator(".sv-serve-room--connect > .sv-alert")
    for typed, said in (
        (address, EN("error.server_away", address=address)),
        ("http://169.254.169.254/latest", EN("error.server_not_here")),
        ("file:///etc/passwd", EN("error.server_address")),
    ):
        box.fill(typed)
        page.get_by_role("button", name=EN("serve.connect"), exact=True).click()
        expect(alert).to_have_text(said)
        expect(page.locator(".sv-serve-ask")).to_be_hidden()


# ---------------------------------------------------------------- comparing


def compare(page: Page, *addresses: str) -> None:
    boxes = page.get_by_label(EN("serve.compare.address"), exact=True)
    expect(boxes).to_have_count(len(addresses))
    for box, address in zip(boxes.all(), addresses, strict=True):
        box.fill(address)
    page.get_by_role("button", name=EN("serve.compare.run"), exact=True).click()


def test_two_servers_are_compared_and_a_question_is_replayed(visit: Visit, recorded: str, toy: tuple[Toy, str]) -> None:
    made, address = toy
    plain = Toy(speculates=False, pause=0.06)
    with standing(plain) as other:
        page = visit(f"{recorded}/?place=serve&room=compare&lang=en", reduced_motion="reduce")
        page.get_by_label(EN("experiments.prompts"), exact=True).select_option("0")
        page.get_by_label(EN("experiments.own"), exact=True).fill("One?\nTwo?\nThree?\nFour?")
        compare(page, address, other)
        done = EN("serve.compare.stage.done", done=16, total=16)
        expect(page.locator(".sv-x-said:visible")).to_have_text(done, timeout=60_000)
    assert titles(page) == [EN(f"chart.{key}") for key in CHARTS]
    verdict = page.locator(".sv-x-verdict:visible")
    expect(verdict).to_contain_text("Server 1 is faster than plain decoding")
    expect(page.locator(".sv-x-differ:visible")).to_have_count(0)
    asked = [body["messages"][0]["content"] for body in made.asked]
    assert all(asked.count(text) >= 2 for text in ("One?", "Two?", "Three?", "Four?"))
    page.locator(".sv-serve-question:visible", has_text="Three?").click()
    names = seen(page)
    assert len(names) == 4 * len(KEPT) + 1 + len(KEPT)
    assert any("four" in name for name in names)


def test_a_comparison_that_is_stopped_keeps_what_was_measured(
    visit: Visit, recorded: str, toy: tuple[Toy, str]
) -> None:
    made, address = toy
    made.pause = 0.2
    with standing(Toy(speculates=False, pause=0.1)) as other:
        page = visit(f"{recorded}/?place=serve&room=compare&lang=en", reduced_motion="reduce")
        compare(page, address, other)
        expect(page.locator(".sv-serve-plots .main-svg:visible").first).to_be_visible(timeout=60_000)
        page.get_by_role("button", name=EN("control.stop"), exact=True).click()
        expect(page.locator(".sv-x-said:visible")).to_contain_text("What was measured is kept.")
        expect(page.get_by_role("button", name=EN("serve.compare.run"), exact=True)).to_be_visible()
    assert len(page.locator(".sv-serve-question:visible").all()) >= 1
    expect(page.locator(".sv-serve-plots .main-svg:visible").first).to_be_visible()
    page.locator(".sv-serve-question:visible").first.click()
    names = seen(page)
    assert any("“two”" in name for name in names), names
    assert not any("#10" in name for name in names)


# ---------------------------------------------------------------- a file


def open_file(page: Page, content: bytes, name: str = "run.json") -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=EN("serve.saved.open"), exact=True).click()
    chooser.value.set_files(FilePayload(name=name, mimeType="application/json", buffer=content))


def test_a_comparison_is_saved_and_opened_again(visit: Visit, recorded: str, toy: tuple[Toy, str]) -> None:
    with standing(Toy(speculates=False, pause=0.06)) as other:
        page = visit(f"{recorded}/?place=serve&room=compare&lang=en", reduced_motion="reduce", accept_downloads=True)
        page.get_by_label(EN("experiments.prompts"), exact=True).select_option("0")
        page.get_by_label(EN("experiments.own"), exact=True).fill("One?\nTwo?")
        page.locator(".sv-x-tick:visible", has_text="4").locator("input").uncheck()
        compare(page, toy[1], other)
        done = EN("serve.compare.stage.done", done=4, total=4)
        expect(page.locator(".sv-x-said:visible")).to_have_text(done, timeout=60_000)
    verdict = page.locator(".sv-x-verdict:visible")
    said = verdict.inner_text()
    with page.expect_download() as kept:
        page.locator("button:visible", has_text=EN("experiments.json")).click()
    page.get_by_role("link", name=EN("serve.room.saved"), exact=True).click()
    titles(page)
    recorded_ones = verdict.inner_text()
    assert recorded_ones != said
    open_file(page, Path(kept.value.path()).read_bytes(), "mine.json")
    expect(page.locator(".sv-serve-opened")).to_have_text(EN("serve.saved.opened", name="mine.json"))
    expect(verdict).to_have_text(said)
    expect(page.locator(".sv-serve-runs")).to_be_hidden()
    page.locator(".sv-serve-question:visible", has_text="Two?").click()
    assert any("four" in name for name in seen(page))
    assert page.locator(".sv-serve-room--saved b", has_text="four").count() == 0
    # A file is nobody else's: the address does not speak of it.
    assert "serve_question" not in page.url
    page.get_by_role("button", name=EN("serve.saved.away"), exact=True).press("Enter")
    expect(page.get_by_role("button", name=EN("serve.saved.open"), exact=True)).to_be_focused()
    expect(verdict).to_have_text(recorded_ones)


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b"", "error.saved_bad"),
        (b"\x89PNG\r\n\x1a\n", "error.saved_bad"),
        (b'{"schema": "specviz.result/1"}', "error.saved_bad"),
        (b" " * 8_000_001, "experiments.import.big"),
    ],
    ids=["empty", "picture", "result", "large"],
)
def test_a_file_that_is_no_comparison_is_one_sentence_and_what_stood_there_stays(
    visit: Visit, recorded: str, content: bytes, key: str
) -> None:
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en")
    before = titles(page)
    open_file(page, content)
    alert = page.locator(".sv-serve-room--saved > .sv-alert")
    expect(alert).to_contain_text(EN(key).split("{")[0])
    expect(page.locator(".sv-serve-opened")).to_be_empty()
    assert titles(page) == before


def test_words_of_a_file_stay_words(visit: Visit, recorded: str) -> None:
    evil = "<img src=x onerror='window.hit=1'><b>x</b>"
    run = run_of("ngram")
    asked = tuple(
        replace(each, prompt=f"{evil} {number}", answer=replace(each.answer, text=evil))
        for number, each in enumerate(run.passes[0].asked)
    )
    tokens: TokenTable = dict.fromkeys(run.tokens, (evil, None))
    made = replace(
        run,
        method=evil,
        target=evil,
        created=evil,
        machine={"note": evil, "host": evil},
        versions={"vllm": evil},
        command=(evil,),
        tokens=tokens,
        passes=(replace(run.passes[0], asked=asked),),
    )
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en", reduced_motion="reduce")
    titles(page)
    open_file(page, to_json([made]).encode(), f"{evil[:20]}.json")
    expect(page.locator(".sv-serve-conditions:visible")).to_contain_text(evil)
    page.locator(".sv-serve-question:visible").first.click()
    seen(page)
    titles(page)
    assert page.locator(".sv-serve-room--saved :is(img, a[href^='javascript'])").count() == 0
    assert page.locator(".sv-serve-room--saved b", has_text=re.compile("^x$")).count() == 0
    assert page.evaluate("window.hit") is None


# ---------------------------------------------------------------- who may ask


def test_a_public_host_has_no_box_and_points_to_saved_runs(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_PUBLIC", "1")
    monkeypatch.delenv("SPECVIZ_SERVERS", raising=False)
    with served(Room()) as address:
        for room in ("connect", "compare"):
            page = visit(f"{address}/?place=serve&room={room}&lang=en")
            expect(page.locator(f".sv-serve-room--{room}")).to_contain_text(EN("error.server_off"))
            assert page.locator(f".sv-serve-room--{room} input").count() == 0
            page.get_by_role("link", name=EN("serve.off.saved")).click()
            titles(page)


def test_a_public_host_with_servers_offers_those_and_no_box(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, toy: tuple[Toy, str]
) -> None:
    _, address = toy
    monkeypatch.setenv("SPECVIZ_PUBLIC", "1")
    monkeypatch.setenv("SPECVIZ_SERVERS", address)
    with served(Room()) as page_address:
        page = visit(f"{page_address}/?place=serve&room=connect&lang=en")
        assert page.locator(".sv-serve-where input").count() == 0
        page.get_by_role("button", name=EN("serve.connect"), exact=True).click()
        expect(page.locator(".sv-serve-is")).to_contain_text("toy-model")


# ---------------------------------------------------------------- every reader


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, recorded: str, toy: tuple[Toy, str], theme: str) -> None:
    page = visit(f"{recorded}/?place=serve&room=saved&lang=en&theme={theme}&serve_question=0", reduced_motion="reduce")
    titles(page)
    seen(page)
    page.locator(".sv-x-main summary").first.click()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert serious(page) == []
    page.get_by_role("link", name=EN("serve.room.connect"), exact=True).click()
    connect(page, toy[1])
    send(page)
    seen(page)
    assert serious(page) == []
    page.get_by_role("link", name=EN("serve.room.compare"), exact=True).click()
    assert serious(page) == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_the_rooms_fit_a_phone(visit: Visit, recorded: str, language: str) -> None:
    t = words(language)
    page = visit(
        f"{recorded}/?place=serve&room=saved&lang={language}&serve_question=1",
        viewport=PHONE,
        has_touch=True,
        is_mobile=True,
    )
    titles(page)
    seen(page)
    page.locator(".sv-x-main summary").first.click()
    assert overflow(page) == 0
    for room in ("config", "connect", "compare"):
        page.get_by_role("link", name=t(f"serve.room.{room}"), exact=True).first.click()
        expect(page.locator(f".sv-serve-room--{room}")).to_be_visible()
        assert overflow(page) == 0


# ---------------------------------------------------------------- a real one


@pytest.mark.server
@pytest.mark.skipif(not is_cached(DEFAULT), reason="the default model is not in the cache")
@pytest.mark.skipif(program() is None, reason=MISSING)
def test_a_real_server_is_asked_and_compared_with_a_plain_one(visit: Visit, recorded: str, tmp_path: Path) -> None:
    for name in ("ngram", "baseline"):
        (tmp_path / name).mkdir()
    with (
        serving("ngram", scratch=tmp_path / "ngram") as drafting,
        serving("baseline", scratch=tmp_path / "baseline") as plain,
    ):
        page = visit(f"{recorded}/?place=serve&room=connect&lang=en")
        connect(page, drafting.address, plain.address, patience=120_000)
        expect(page.locator(".sv-serve-is")).to_contain_text("vLLM 0.32.0")
        page.get_by_label(EN("serve.connect.prompt"), exact=True).fill("Repeat the word zebra twenty times.")
        send(page)
        expect(page.locator(".sv-x-verdict:visible")).to_contain_text(EN("serve.connect.same"), timeout=120_000)
        assert any("“ebra”" in name for name in seen(page)), seen(page)
        page.get_by_role("link", name=EN("serve.room.compare"), exact=True).click()
        page.get_by_label(EN("experiments.prompts"), exact=True).select_option("3")
        page.locator(".sv-x-tick", has_text="4").locator("input:visible").first.uncheck()
        compare(page, drafting.address, plain.address)
        done = EN("serve.compare.stage.done", done=6, total=6)
        expect(page.locator(".sv-x-said:visible")).to_have_text(done, timeout=300_000)
        assert titles(page) == [EN(f"chart.{key}") for key in CHARTS]
