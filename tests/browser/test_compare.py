"""Several drafters on one clock: opened from a file, played by keyboard, and run side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.engine.trace import Trace, dumps
from spec_viz.lab.metrics import summarise
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, open_trace, press
from tests.browser.conftest import Visit
from tests.browser.test_look import AXE, PHONE, overflow, serious
from tests.integration.launch import served
from tests.integration.rooms import ready_room
from tests.unit.traces import plain, run

pytestmark = pytest.mark.browser

TOKENS: dict[int, tuple[str, str | None]] = {
    7: (" own", None),
    **{100 + place: (f" d{place}", None) for place in range(4)},
}


def recording(trace: Trace, name: str, **meta: object) -> Trace:
    meta = {**trace.meta, "temperature": 0, "seed": 1, "prompt_text": "Count", "chat": False, **meta}
    return replace(trace, run=name, origin="recorded", tokens=TOKENS, meta=meta)


SLOW = recording(run("aaar", "aard", "aaar", ms=(100.0, 50.0, 1.0, 1.0)), "slow", drafter="early_exit", rule="token")
FAST = recording(run("aaaa", "aard", "", ms=(1.0, 24.0, 1.0, 1.0)), "fast")
LOSSY = recording(run("aaar", "aaaa", ms=(1.0, 40.0, 1.0, 1.0)), "lossy", drafter="suffix", rule="typical")
PLAIN = recording(plain(9, ms=(0.0, 20.0, 1.0, 0.0)), "plain", rule="match")
BUNDLE = dumps(SLOW, FAST, LOSSY, PLAIN)
ASKED = ["drafter.early_exit", "drafter.prompt_lookup", "drafter.suffix", "race.baseline"]


def opened(page: Page) -> Page:
    open_trace(drawn(page), BUNDLE)
    expect(page.locator(".sv-compare-why").first).to_be_visible()
    return page


def names(page: Page) -> list[str]:
    return page.locator(".sv-compare-head > b").all_inner_texts()


def lane(page: Page, name: str) -> Locator:
    return page.locator(".sv-compare-lane").filter(has=page.locator(".sv-compare-head > b", has_text=name))


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_file_of_several_drafters_stands_side_by_side_by_speed(visit: Visit, recorded: str, language: str) -> None:
    page = opened(visit(f"{recorded}/?lang={language}"))
    t = words(language)
    assert names(page) == [t(ASKED[1]), t(ASKED[2]), t(ASKED[3]), t(ASKED[0])]
    fast = lane(page, t("drafter.prompt_lookup"))
    times = summarise(FAST, PLAIN).speedup
    assert times is not None
    shown = f"{times.value:.2f}".replace(".", "," if language == "vi" else ".")
    expect(fast.locator(".sv-compare-speedup")).to_have_text(f"{shown}× {t('compare.speedup.baseline')}")
    expect(fast.locator(".sv-compare-numbers")).to_contain_text("6 / 7")
    expect(fast.locator(".sv-compare-why")).to_contain_text(re.compile(r"2.+3.+→"))
    expect(lane(page, t("drafter.suffix")).locator(".sv-compare-lossy")).to_have_text(t("compare.lossy"))
    expect(page.locator(".sv-compare-lossy")).to_have_count(1)
    slow = lane(page, t("drafter.early_exit")).locator(".sv-compare-why")
    expect(slow).to_contain_text(t("compare.why.drafts").split("{")[0])
    expect(page.locator(".sv-board-tab")).to_have_text([t(key) for key in ASKED[:3]] + [t("board.tab.baseline")])


def test_the_clock_is_played_by_keyboard_and_never_by_itself(visit: Visit, recorded: str) -> None:
    page = opened(visit(recorded))
    board = page.locator(".sv-board-counter").inner_text()
    scrub, time = page.get_by_role("slider", name=EN("compare.scrub")), page.locator(".sv-compare-time")
    whole = time.inner_text()
    scrub.focus()
    assert time.inner_text() == whole
    press(page, "Home")
    assert names(page) == [EN(key) for key in ASKED]
    assert set(page.locator(".sv-compare-count").all_inner_texts()) == {EN("compare.count.tokens", tokens=0)}
    expect(page.locator(".sv-compare-speedup").first).to_be_hidden()
    press(page, "ArrowRight")
    # Every prefill is as long as the others, so one step takes them all to their first token.
    assert set(page.locator(".sv-compare-count").all_inner_texts()) == {EN("compare.count.tokens", tokens=1)}
    press(page, "ArrowRight")
    expect(lane(page, EN("race.baseline")).locator(".sv-compare-count")).to_contain_text("2 tokens")
    expect(page.locator(".sv-compare [role=status]")).to_contain_text(f"{EN('race.baseline')}: 2")
    press(page, "ArrowLeft", "End")
    assert time.inner_text() == whole
    expect(page.locator(".sv-compare-head > b").first).to_have_text(EN("drafter.prompt_lookup"))
    press(page, " ")
    play = page.locator(".sv-compare-bar button").nth(2)
    expect(play).to_have_attribute("aria-label", EN("board.do.pause"))
    press(page, " ")
    expect(play).to_have_attribute("aria-label", EN("compare.do.play"))
    stood = time.inner_text()
    assert stood != whole
    press(page, "p")
    expect(time).to_have_text(whole)
    expect(play).to_have_attribute("aria-label", EN("compare.do.play"))
    assert page.locator(".sv-board-counter").inner_text() == board


def test_text_grows_in_the_colours_of_its_tokens(visit: Visit, recorded: str) -> None:
    page = opened(visit(recorded))
    fast = lane(page, EN("drafter.prompt_lookup"))
    kept = ".sv-piece--accepted:not(.sv-compare-later)"
    expect(fast.locator(kept)).to_have_count(6)
    page.get_by_role("button", name=EN("compare.do.home")).click()
    expect(fast.locator(kept)).to_have_count(0)
    for _ in range(4):
        page.get_by_role("button", name=EN("compare.do.next")).click()
    assert 0 < fast.locator(kept).count() < 6


def test_who_wants_less_motion_steps(visit: Visit, recorded: str) -> None:
    page = opened(visit(recorded, reduced_motion="reduce"))
    expect(page.get_by_role("button", name=EN("compare.do.play"))).to_be_hidden()
    page.get_by_role("slider", name=EN("compare.scrub")).focus()
    press(page, "Home", "End")
    assert names(page)[0] == EN("drafter.prompt_lookup")
    assert page.locator(".sv-compare-lanes").evaluate("list => list.getAnimations({subtree: true}).length") == 0


def test_a_pair_is_no_comparison(visit: Visit, recorded: str) -> None:
    page = opened(visit(recorded))
    open_trace(page, dumps(FAST, PLAIN))
    expect(page.locator(".sv-compare")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_comparison(visit: Visit, recorded: str, theme: str) -> None:
    page = opened(visit(f"{recorded}/?theme={theme}", reduced_motion="reduce"))
    page.locator("details.sv-settings > summary").click()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert serious(page) == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_phone_stacks_the_lanes(visit: Visit, recorded: str, language: str) -> None:
    page = opened(visit(f"{recorded}/?lang={language}", viewport=PHONE, has_touch=True, is_mobile=True))
    assert overflow(page) <= 0
    page.locator("details.sv-settings > summary").click()
    assert overflow(page) <= 0
    small = page.locator(".sv-compare button:visible, .sv-against button").evaluate_all(
        "nodes => nodes.map(node => node.getBoundingClientRect().height).filter(height => height < 40)"
    )
    assert small == []


def test_up_to_three_drafters_are_added_and_stand_in_the_address(visit: Visit, recorded: str) -> None:
    page = drawn(visit(f"{recorded}/?drafter=prompt_lookup"))
    page.locator("details.sv-settings > summary").click()
    select = page.get_by_label(EN("compare.against"), exact=True).and_(page.locator("select"))
    for name in ("suffix", "early_exit", "anpd"):
        select.select_option(name)
    expect(select).to_be_disabled()
    expect(page.get_by_text(EN("compare.against.full", most=3))).to_be_visible()
    page.wait_for_url(re.compile("against=suffix%2Cearly_exit%2Canpd"))
    page.get_by_role("button", name=EN("compare.against.remove", drafter=EN("drafter.early_exit"))).click()
    expect(select).to_be_focused()
    page.wait_for_url(re.compile("against=suffix%2Canpd"))
    assert select.locator("option[value=prompt_lookup]").is_disabled()
    assert select.locator("option[value=none], option[value=scripted]").count() == 0


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a page that decodes with the tiny model."""
    with served(ready_room(monkeypatch)) as address:
        yield address


def test_drafters_run_one_after_another_and_end_side_by_side(visit: Visit, tiny: str) -> None:
    page = drawn(visit(f"{tiny}/?drafter=prompt_lookup&against=anpd,suffix&race=1&max_new_tokens=12"))
    expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false")
    page.locator(".sv-run").click()
    expect(page.locator(".sv-compare-lane")).to_have_count(4)
    expect(page.locator(".sv-compare-why")).to_have_count(4)
    assert sorted(names(page)) == sorted(
        EN(key) for key in ("drafter.prompt_lookup", "drafter.anpd", "drafter.suffix", "race.baseline")
    )
    expect(page.get_by_text(EN("shell.done"))).to_be_visible()
    assert page.locator(".sv-compare-same", has_text=EN("compare.text.same").split("{")[0]).count() == 3
