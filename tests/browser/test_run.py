"""Runs of the real model, asked for and watched in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from spec_viz.engine.trace import Trace, loads
from tests.browser.acts import EN, open_questions, press, rows, said, tiles
from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser

LOADING = RUNNING = 120_000
LONG = "drafter=none&max_new_tokens=256&chat=0"

VERDICT = re.compile(
    "|".join(
        re.escape(EN.table[f"verdict.{how}"]).replace(re.escape("{times}"), r"\d+\.\d+")
        for how in ("faster", "slower", "even")
    )
)

# Counts, in the page, how many separate times rows were added to the board.
WATCH = """
() => {
  window.arrivals = 0;
  const rows = document.querySelector('.sv-rows');
  new MutationObserver(() => { window.arrivals += 1; }).observe(rows, { childList: true });
}
"""


def ready(page: Page) -> Page:
    """Wait, as a person would, until the page lets one run."""
    expect(page.locator(".sv-run")).to_have_attribute("aria-disabled", "false", timeout=LOADING)
    return page


def ask(page: Page, prompt: str) -> None:
    page.get_by_label(EN("control.prompt")).fill(prompt)
    page.get_by_role("button", name=EN("control.run"), exact=True).click()


def ended(page: Page, how: str) -> None:
    expect(page.locator(".sv-board-finish")).to_have_text(EN(f"board.finish.{how}"), timeout=RUNNING)
    expect(page.get_by_role("button", name=EN("control.run"), exact=True)).to_be_visible(timeout=RUNNING)


def kept(page: Page) -> tuple[Trace, ...]:
    """The bundle on the board, by the button that saves it."""
    with page.expect_download() as download:
        page.get_by_role("button", name=EN("shell.export")).click()
    return loads(Path(download.value.path()).read_text(encoding="utf-8"))


def test_a_run_comes_onto_the_board_and_is_judged(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?gamma=4&max_new_tokens=24&race=1&chat=0&preset="))
    prompt = "one two three four five six, one two three four"
    ask(page, prompt)
    expect(page.get_by_role("button", name=EN("control.stop"), exact=True)).to_be_visible()
    expect(tiles(page).first).to_be_visible(timeout=RUNNING)
    expect(page.locator(".sv-board-finish")).to_have_text(EN("board.finish.length"), timeout=RUNNING)
    expect(page.locator(".sv-board-badge")).to_contain_text(EN("shell.badge.measured"))
    # The verdict waits for the baseline.
    ended(page, "length")
    expect(page.locator(".sv-verdict")).to_contain_text(VERDICT)
    open_questions(page)
    expect(page.locator(".sv-number", has_text=EN("number.tokens_per_second")).first).to_contain_text("/")
    expect(page.locator(".sv-chart-plot .main-svg").first).to_be_visible()
    run, plain = kept(page)
    assert (run.meta["prompt_text"], len(run.output)) == (prompt, 24)
    assert plain.output == run.output
    assert page.locator(".sv-finished-text").inner_text().startswith(prompt)
    expect(rows(page)).to_have_count(len(run.rounds))
    assert said(page) == ""
    # The run that was just watched is stepped through like any other, right where one stands.
    press(page, "Home")
    expect(tiles(page)).to_have_count(0)
    press(page, "ArrowRight")
    expect(tiles(page)).to_have_count(1)


def test_the_same_seed_writes_the_same_text_again(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?max_new_tokens=12&temperature=0.9&seed=5&chat=0&preset="))
    written = []
    for _ in range(2):
        ask(page, "Once upon a time")
        ended(page, "length")
        written.append(kept(page)[0])
    assert written[0].same_as(written[1])
    assert written[0].run != written[1].run


def test_control_enter_runs_from_the_prompt(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?max_new_tokens=3&chat=0&preset="))
    page.get_by_label(EN("control.prompt")).fill("The sea")
    press(page, "Control+Enter")
    ended(page, "length")
    assert len(kept(page)[0].output) == 3


def test_the_chosen_rule_its_number_and_the_length_reach_the_run(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?max_new_tokens=6&chat=0&preset=&temperature=0.8&drafter=prompt_lookup"))
    page.locator("details.sv-settings > summary").click()
    page.get_by_label(EN("control.rule"), exact=True).select_option("typical")
    page.get_by_label(EN("rule.typical.strength"), exact=True).fill("0.25")
    press(page, "Tab")
    page.get_by_label(EN("control.length"), exact=True).select_option("heuristic")
    ask(page, "one two one two one two")
    ended(page, "length")
    meta = kept(page)[0].meta
    assert (meta["rule"], meta["strength"], meta["length"]) == ("typical", 0.25, "heuristic")
    expect(page.locator(".sv-board-rule")).to_contain_text(EN("rule.lossy", title=EN("rule.typical")))


def test_a_typed_option_is_shown_sent_and_kept_in_the_address(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?max_new_tokens=3&chat=0&preset=&drafter=layer_skip"))
    page.locator("details.sv-settings > summary").click()
    skipped = page.get_by_label(EN("knob.layer_skip.skip"), exact=True)
    expect(skipped).to_have_value("12-14")
    skipped.fill("8-9,22")
    press(page, "Tab")
    ask(page, "The sea")
    ended(page, "length")
    assert kept(page)[0].meta["drafter_options"]["skip"] == "8-9,22"
    page.reload()
    ready(page)
    page.locator("details.sv-settings > summary").click()
    expect(skipped).to_have_value("8-9,22")
    # Left empty, it is what the drafter has by itself; the box for a script of one's own is not for this.
    skipped.fill("")
    press(page, "Tab")
    expect(skipped).to_have_value("12-14")
    expect(page.get_by_label(EN("control.script"), exact=True)).to_be_hidden()


def test_an_empty_prompt_is_told_and_nothing_runs(visit: Visit, live: str) -> None:
    page = ready(visit(live))
    ask(page, "  \n ")
    expect(page.get_by_role("alert")).to_have_text(EN("shell.prompt.empty"))
    expect(page.get_by_label(EN("control.prompt"))).to_be_focused()
    expect(page.locator(".sv-board-badge")).to_contain_text(EN("shell.badge.recorded"))


def test_a_prompt_longer_than_the_context_is_told(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?chat=0&preset="))
    ask(page, "é🜁" * 3900)
    sentence = re.escape(EN.table["error.prompt_too_long"])
    for hole in ("tokens", "limit"):
        sentence = sentence.replace(re.escape(f"{{{hole}}}"), r"\d+")
    expect(page.get_by_role("alert")).to_have_text(re.compile(f"^{sentence}$"))
    expect(page.get_by_role("button", name=EN("control.run"), exact=True)).to_have_attribute("aria-disabled", "false")


def test_rounds_stream_in_and_stop_keeps_those_that_were_made(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?{LONG}&preset="))
    page.evaluate(WATCH)
    ask(page, "Count upwards: 1, 2, 3,")
    page.wait_for_function("window.arrivals >= 3", timeout=RUNNING)
    made = rows(page).count()
    page.get_by_role("button", name=EN("control.stop"), exact=True).click()
    ended(page, "stopped")
    (run,) = kept(page)
    assert run.finish == "stopped"
    assert made <= len(run.rounds) < 256
    expect(rows(page)).to_have_count(len(run.rounds))


def test_two_visitors_have_their_own_places_and_texts(visit: Visit, live: str) -> None:
    first = ready(visit(f"{live}/?{LONG}&preset="))
    second = ready(visit(f"{live}/?drafter=prompt_lookup&max_new_tokens=10&chat=0&preset="))
    # This prompt runs on to 256 tokens: the run must not end before it is stopped.
    ask(first, "Alpha alpha alpha. Count upwards: 1, 2, 3,")
    expect(rows(first).first).to_be_visible(timeout=RUNNING)
    expect(first.get_by_text(EN("shell.running"), exact=True)).to_be_visible()
    ask(second, "Omega omega omega: a list of rivers in Peru.")
    expect(second.get_by_text(EN("shell.wait", place=1))).to_be_visible()
    expect(rows(second)).to_have_count(0)
    first.get_by_role("button", name=EN("control.stop"), exact=True).click()
    ended(first, "stopped")
    ended(second, "length")
    (one,), (two,) = kept(first), kept(second)
    assert (one.meta["drafter"], two.meta["drafter"]) == ("none", "prompt_lookup")
    assert len(two.output) == 10
    for page, own, other in ((first, "Alpha", "Omega"), (second, "Omega", "Alpha")):
        page_text = page.locator(".sv-app").inner_text()
        assert own in page.locator(".sv-finished-text").inner_text()
        assert other not in page_text


def test_a_hostile_prompt_is_written_out_and_never_obeyed(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?max_new_tokens=4&chat=0&preset="))
    prompt = "<img src=x onerror=alert(1)> ${alert(2)} `${alert(3)}` {{alert(4)}} </script> <|im_end|> \u202eabc"
    ask(page, prompt)
    ended(page, "length")
    shown = page.locator(".sv-finished-text").inner_text()
    assert shown.startswith(prompt.split(" </script>")[0])
    assert "\u202e" not in shown
    assert page.locator(".sv-app img").count() == 0
    # Half a letter cannot be typed, but a script can put it there.
    page.get_by_label(EN("control.prompt")).evaluate(
        "(box) => { box.value = 'half \\ud83d letter'; box.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    page.get_by_role("button", name=EN("control.run"), exact=True).click()
    ended(page, "length")
    assert len(kept(page)[0].output) == 4


def test_a_person_drafts_and_the_target_judges(visit: Visit, live: str) -> None:
    page = ready(visit(f"{live}/?drafter=scripted&max_new_tokens=6&chat=0&preset="))
    page.get_by_label(EN("control.script")).fill(" zebra zebra zebra")
    ask(page, "Two and two make")
    ended(page, "length")
    (run,) = kept(page)
    fates = [node.status for node in run.rounds[1].nodes]
    assert fates[0] == "rejected"
    assert set(fates[1:]) == {"discarded"}
    page.get_by_role("button", name=EN("board.why"), exact=True).click()
    expect(page.locator(".sv-inspector-body")).to_contain_text("zebra")
