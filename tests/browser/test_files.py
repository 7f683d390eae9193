"""Traces that come from elsewhere: opened, kept, refused in one sentence, and never more than text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from spec_viz.engine.trace import loads
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, open_questions, open_trace, picture, press, said, small_trace, tiles
from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser

ATTACKS = [
    "<img src=x onerror=alert(1)>",
    "${alert(2)}",
    "`${alert(3)}`",
    "{{alert(4)}}{{{alert(5)}}}",
    "</script><script>alert(6)</script>",
    "\u202egnirts\u2066\u200b\ufeff\u0000\u001b",
    "javascript:alert(7)",
    "'\"><svg onload=alert(8)>",
]


def test_a_trace_is_opened_as_a_recording_and_kept_again(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    sent = small_trace(["one", " two", " three", " four"], prompt_text="Count", chat=False, gamma=6, seed=11)
    open_trace(page, sent)
    expect(tiles(page)).to_have_count(6)
    expect(page.locator(".sv-board-badge")).to_contain_text(EN("shell.badge.recorded"))
    expect(page.get_by_label(EN("control.prompt"))).to_have_value("Count")
    page.locator("details.sv-settings > summary").click()
    expect(page.get_by_label(EN("control.gamma"), exact=True)).to_have_value("6")
    expect(page.get_by_label(EN("control.seed"), exact=True)).to_have_value("11")
    expect(page.locator(".sv-finished-text")).to_contain_text("one two four")
    with page.expect_download() as download:
        page.get_by_role("button", name=EN("shell.export")).click()
    (kept,) = loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert kept.origin == "recorded"
    assert kept.same_as(loads(sent)[0])


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "broken": ("{not json", "error.bad_trace_line"),
    "empty": ("", "error.bad_trace_line"),
    "another file": (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "error.bad_trace_line"),
    "cut short": (small_trace(["a", "b", "c", "d"])[:700], "error.bad_trace_line"),
    "a list": ("[[[[]]]]", "error.bad_trace_line"),
    "wrong type": (small_trace(["a", "b", "c", "d"]).replace('"p": 0.4', '"p": "much"'), "error.bad_trace"),
    "broken tree": (small_trace(["a", "b", "c", "d"]).replace('"parent": 1', '"parent": 9'), "error.bad_trace"),
    "too large a number": (
        small_trace(["a", "b", "c", "d"]).replace('"verify": 20.0', '"verify": 1e308'),
        "error.bad_trace",
    ),
    "another version": (small_trace(["a", "b", "c", "d"]).replace("trace/1", "trace/9"), "error.trace_version"),
    "lone surrogate": (small_trace(["a", "b", "c", "d"]).replace('"a"', r'"\ud800"'), "error.bad_trace_line"),
    "no rounds": (small_trace(["a", "b", "c", "d"]).splitlines()[0], "shell.import.none"),
    "huge": (" " * 4_000_001, "shell.import.big"),
}


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_file_that_is_no_trace_gets_one_sentence_and_the_board_stays(
    visit: Visit, recorded: str, language: str
) -> None:
    page = drawn(visit(f"{recorded}/?lang={language}"))
    before = picture(page)
    for name, (content, key) in REFUSED.items():
        open_trace(page, content)
        sentence = re.sub(r"\\\{\w+\\\}", r"[\\w.'/]+", re.escape(words(language).table[key]))
        expect(page.get_by_role("alert")).to_have_text(re.compile(f"^{sentence}$"))
        sentence = said(page)
        assert len(sentence) < 300, name
        assert picture(page) == before, name
        # The next sentence must be a new one.
        page.evaluate("document.querySelector('.sv-alert').textContent = ''")
    open_trace(page, small_trace(["a", "b", "c", "d"]))
    expect(tiles(page)).to_have_count(6)
    expect(page.locator(".sv-alert")).to_have_text("")


NO_ROUND = {
    "shell.verdict.at_once": ("eos", True),
    "shell.verdict.at_once.plain": ("eos", False),
    "shell.verdict.none": ("length", False),
    "shell.lead": ("stopped", True),
}


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_run_that_ended_with_its_prefill_says_why_it_has_no_round(visit: Visit, recorded: str, language: str) -> None:
    page = drawn(visit(f"{recorded}/?lang={language}"))
    for key, (finish, chat) in NO_ROUND.items():
        header, prefill, *_ = small_trace(["a", "b", "c", "d"], chat=chat).splitlines()
        open_trace(page, "\n".join([header, prefill, json.dumps({"finish": finish})]))
        expect(page.locator(".sv-verdict")).to_have_text(words(language)(key))


def look_everywhere(page: Page) -> None:
    open_questions(page)
    for tile in tiles(page).all():
        tile.hover()
        tile.click()
        press(page, "Escape")
    press(page, "Home")
    for _ in range(6):
        press(page, "ArrowRight")
    page.locator(".sv-finished .sv-choice button").last.click()
    for language in ("VI", "EN"):
        page.get_by_role("button", name=language, exact=True).click()


@pytest.mark.parametrize("drafter", ["scripted", "none", "<img src=x onerror=alert(9)>"])
def test_a_hostile_trace_is_only_text(visit: Visit, recorded: str, drafter: str) -> None:
    page = drawn(visit(recorded))
    attack = " ".join(ATTACKS)
    meta: dict[str, Any] = dict.fromkeys(
        ("target", "prompt_text", "device", "device_name", "dtype", "created", "rule"), attack
    )
    meta |= {"drafter": drafter, "drafter_options": {"script": attack, attack: attack}, "chat": False}
    sent = small_trace(ATTACKS, **meta).replace('"run": "small"', f'"run": {json.dumps(attack)}')
    open_trace(page, sent)
    expect(page.locator(".sv-finished-text")).to_contain_text(ATTACKS[0])
    expect(page.locator(".sv-rows")).to_contain_text(ATTACKS[0])
    expect(page.locator(".sv-rows")).not_to_contain_text("\u202e")
    look_everywhere(page)
    expect(page.get_by_label(EN("control.prompt"))).to_have_value(attack)
    inside = page.locator(".sv-app img, .sv-app script, .sv-app iframe, .sv-app a[href^=javascript]")
    assert inside.count() == 0
    assert page.locator(".sv-app svg[onload], .sv-app [onerror]").count() == 0
    assert said(page) == ""


def test_a_right_to_left_mark_turns_nothing_around(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    open_trace(page, small_trace(["\u202eabc", " two", " three", " four"]))
    expect(page.locator(".sv-rows")).to_contain_text("U+202E")
    expect(page.locator(".sv-finished-text")).to_contain_text("U+202E")
    for where in (".sv-rows", ".sv-finished-text"):
        assert "\u202e" not in page.locator(where).inner_text()


def test_a_link_holds_what_was_typed(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded, permissions=["clipboard-read", "clipboard-write"]))
    page.get_by_label(EN("control.prompt")).fill("<b>Ký ức</b> & ${x}")
    page.get_by_role("button", name=EN("shell.link")).click()
    expect(page.get_by_text(EN("shell.link.copied"))).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    again = visit(link)
    expect(again.get_by_label(EN("control.prompt"))).to_have_value("<b>Ký ức</b> & ${x}")


@pytest.mark.parametrize("language", ["vi", "en"])
def test_on_a_phone_what_the_tools_say_stands_in_the_column(visit: Visit, recorded: str, language: str) -> None:
    word = words(language)
    phone = {"viewport": {"width": 390, "height": 844}, "permissions": ["clipboard-read", "clipboard-write"]}
    page = drawn(visit(f"{recorded}/?lang={language}", **phone))
    page.get_by_role("button", name=word("shell.link")).click()
    told = page.get_by_text(word("shell.link.copied"))
    expect(told).to_be_visible()
    lefts = page.evaluate(
        """(nodes) => nodes.map((node) => {
          const range = document.createRange();
          range.selectNodeContents(node);
          return Math.round(range.getBoundingClientRect().left);
        })""",
        [told.element_handle(), page.get_by_role("button", name=word("shell.export")).element_handle()],
    )
    column = round(page.get_by_label(word("control.prompt")).evaluate("node => node.getBoundingClientRect().left"))
    assert lefts == [column, column]
