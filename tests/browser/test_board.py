"""The board under a person's hands: first paint, keys forward and back, what a tile says, the pin."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from spec_viz.engine.trace import Round
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, first_bundle, open_trace, picture, press, rows, small_trace, tiles
from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser


def steps(round_: Round) -> int:
    """The drafts appear, each judged one gets its verdict, the target's own token is written."""
    judged = sum(node.status != "discarded" for node in round_.nodes)
    return bool(round_.nodes) + judged + (round_.emitted is not None)


def counted(round_: Round) -> int:
    return len(round_.nodes) + (round_.emitted is not None)


def at_start(page: Page) -> None:
    press(page, "Home")
    expect(tiles(page)).to_have_count(0)


def test_the_first_paint_is_a_recorded_run_before_there_is_a_model(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    run = first_bundle()[0]
    expect(tiles(page)).to_have_count(sum(map(counted, run.rounds)))
    expect(rows(page)).to_have_count(len(run.rounds))
    expect(page.locator(".sv-board-badge")).to_contain_text(EN("shell.badge.recorded"))
    expect(page.get_by_role("status").filter(has_text=EN("error.model_starting"))).to_be_visible()
    button = page.get_by_role("button", name="Run", exact=True)
    expect(button).to_have_attribute("aria-disabled", "true")
    before = picture(page)
    button.click(force=True)
    assert picture(page) == before


def test_prompt_run_board_and_verdict_stand_on_the_first_screen(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    for part in (".sv-text", ".sv-run", ".sv-verdict"):
        expect(page.locator(part).first).to_be_in_viewport()
    expect(tiles(page).first).to_be_in_viewport()
    expect(page.locator(".sv-verdict")).not_to_be_empty()
    assert page.locator("details.sv-ask[open]").count() == 0


def test_a_person_steps_through_the_run_and_back_by_keys(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    end = picture(page)
    total = sum(map(steps, first_bundle()[0].rounds))
    at_start(page)
    forth = [picture(page)]
    for _ in range(total):
        press(page, "ArrowRight")
        forth.append(picture(page))
    assert forth[-1] == end
    assert len(set(forth)) == total + 1
    press(page, "ArrowRight")
    assert picture(page) == end
    back = [picture(page)]
    for _ in range(total):
        press(page, "ArrowLeft")
        back.append(picture(page))
    assert back == forth[::-1]
    press(page, "ArrowLeft")
    assert picture(page) == forth[0]
    press(page, "End")
    assert picture(page) == end


def test_reveal_shows_the_rest_of_the_round_and_space_goes_on(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    open_trace(page, small_trace(["a", "b", "c", "d"]))
    expect(tiles(page)).to_have_count(6)
    at_start(page)
    press(page, "r")
    expect(tiles(page)).to_have_count(1)
    # Space on the button that opened the file is that button's.
    page.locator(".sv-board-counter").click()
    press(page, "Space")
    expect(tiles(page)).to_have_count(5)
    expect(page.locator(".sv-rows .sv-tile--ok")).to_have_count(0)
    press(page, "r")
    expect(tiles(page)).to_have_count(6)
    expect(page.locator(".sv-rows .sv-tile--ok")).to_have_count(2)


def test_the_bar_does_what_the_keys_do(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    end = picture(page)
    page.get_by_role("button", name=EN("board.do.home")).click()
    expect(tiles(page)).to_have_count(0)
    page.get_by_role("button", name=EN("board.do.next"), exact=True).click()
    page.get_by_role("button", name=EN("board.do.back"), exact=True).click()
    expect(tiles(page)).to_have_count(0)
    page.get_by_role("button", name=EN("board.do.end")).click()
    assert picture(page) == end


def test_play_steps_by_itself_until_it_is_paused(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    at_start(page)
    press(page, "p")
    expect(page.get_by_role("button", name=EN("board.do.pause"))).to_be_visible()
    expect(tiles(page)).not_to_have_count(0)
    press(page, "p")
    expect(page.get_by_role("button", name=EN("board.do.play"))).to_be_visible()


def test_keys_leave_the_board_alone_while_a_person_types(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    before = picture(page)
    prompt = page.get_by_label(EN("control.prompt"))
    prompt.fill("")
    prompt.press_sequentially("p r p")
    press(page, "Home", "ArrowRight", "End", "ArrowLeft", "Escape")
    assert prompt.input_value() == "p r p"
    assert picture(page) == before
    seed = page.get_by_label(EN("control.seed"))
    page.get_by_text(EN("control.title"), exact=True).click()
    seed.focus()
    press(page, "Home", "ArrowLeft")
    assert picture(page) == before


def test_a_tile_says_p_q_and_u_under_the_pointer_and_keeps_them_when_pinned(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    run = first_bundle()[0]
    at = next(number for number, each in enumerate(run.rounds) if any(n.status == "rejected" for n in each.nodes))
    place = next(place for place, node in enumerate(run.rounds[at].nodes) if node.status == "rejected")
    node = run.rounds[at].nodes[place]
    red, kept = page.locator(".sv-rows .sv-tile--no").first, page.locator(".sv-rows .sv-tile--ok").first
    panel = page.locator(".sv-inspector-body")
    red.hover()
    for name, value in (("p", node.p), ("q", node.q), ("accept", node.accept)):
        shown = panel.locator("dl > div", has=page.get_by_text(EN(f"inspector.{name}"), exact=True)).locator("dd")
        assert value is not None
        assert float(re.sub(r"[<>\s]", "", shown.inner_text())) == pytest.approx(value, abs=0.006), name
    # Here the target draws a token of its own and compares: no number u decides, and none is called unknown.
    assert (run.meta["rule"], node.u) == ("match", None)
    expect(panel).not_to_contain_text(EN("inspector.unknown"))
    expect(panel).to_contain_text(EN("inspector.residual.match"))
    expect(panel.locator("figure").first).to_be_visible()
    expect(panel).to_contain_text(EN("legend.rejected"))
    refused = panel.inner_text()
    red.click()
    expect(red).to_have_attribute("aria-pressed", "true")
    kept.hover()
    assert panel.inner_text() == refused
    press(page, "Escape")
    expect(red).not_to_have_attribute("aria-pressed", "true")
    page.mouse.move(2, 2)
    kept.hover()
    expect(panel).to_contain_text(EN("legend.accepted"))
    page.mouse.move(2, 2)
    expect(panel).to_contain_text(EN("inspector.hint"))


def test_the_keyboard_alone_reaches_a_tile_and_what_it_says(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    page.get_by_role("button", name=EN("board.do.end")).focus()
    for _ in range(12):
        press(page, "Tab")
        if page.evaluate("document.activeElement.classList.contains('sv-tile')"):
            break
    expect(page.locator(".sv-tile:focus")).to_be_visible()
    expect(page.locator(".sv-inspector")).to_contain_text(EN("inspector.p"))
    press(page, "ArrowDown", "Shift+ArrowRight")
    focused = page.locator(".sv-tile:focus")
    expect(focused).to_have_attribute("aria-label", re.compile(r"^Round 1"))
    press(page, "Enter")
    expect(focused).to_have_attribute("aria-pressed", "true")
    press(page, "Escape")
    expect(page.locator(".sv-inspector")).to_contain_text(EN("inspector.hint"))


def test_a_number_u_that_decided_is_shown(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    open_trace(page, small_trace(["a", "b", "c", "d"]))
    expect(tiles(page)).to_have_count(6)
    page.locator(".sv-rows .sv-tile--no").hover()
    shown = page.locator(".sv-inspector dl > div", has=page.get_by_text(EN("inspector.u"), exact=True))
    expect(shown.locator("dd")).to_have_text("0.250")


@pytest.mark.parametrize("language", ["vi", "en"])
def test_why_red_is_asked_once(visit: Visit, recorded: str, language: str) -> None:
    page = drawn(visit(f"{recorded}/?lang={language}"))
    ask = words(language)("board.why").rstrip("?")
    page.locator("details.sv-ask").first.locator("summary").click()
    assert page.locator(".sv-page").inner_text().count(ask) == 1


def test_a_person_asks_why_a_tile_is_red(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    page.get_by_role("button", name=EN("board.why"), exact=True).click()
    expect(page.locator(".sv-rows .sv-tile--no").first).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".sv-inspector")).to_contain_text(EN("legend.rejected"))


def test_every_tile_has_its_four_channels(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    open_trace(page, small_trace(["a", "b", "c", "d"]))
    expect(tiles(page)).to_have_count(6)
    looks = tiles(page).evaluate_all(
        """tiles => tiles.map(tile => {
          const style = getComputedStyle(tile);
          return [tile.querySelector('.sv-tile-glyph').textContent, style.backgroundColor,
            `${style.borderStyle} ${style.borderColor}`, tile.getAttribute('aria-label').replace(/.*, |.*: /, '')];
        })"""
    )
    plain, kept, again, refused, unjudged, correction = looks
    assert kept[:3] == again[:3]
    for channel in range(3):
        different = {look[channel] for look in (plain, kept, refused, unjudged, correction)}
        assert len(different) >= (5 if channel == 0 else 4), (channel, looks)
    assert all(look[3] for look in looks)
