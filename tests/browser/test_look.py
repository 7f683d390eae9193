"""What the page owes every reader: small screens, both themes, assistive technology, charts without a network."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acts import EN, drawn, open_questions, open_trace, press, small_trace, tiles
from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PHONE = {"width": 390, "height": 844}


def overflow(page: Page) -> int:
    """By how many pixels the page can be moved sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def charts(page: Page) -> None:
    """Wait until every chart of the open questions is drawn."""
    page.wait_for_function(
        """() => {
          const plots = [...document.querySelectorAll('.sv-chart-plot')].filter((plot) => plot.checkVisibility());
          return plots.length >= 5 && plots.every((plot) => plot.querySelector('.main-svg'));
        }"""
    )


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_phone_never_scrolls_sideways(visit: Visit, recorded: str, language: str) -> None:
    page = drawn(visit(f"{recorded}/?lang={language}", viewport=PHONE, has_touch=True, is_mobile=True))
    assert overflow(page) <= 0
    page.locator("details.sv-presets > summary").click()
    assert overflow(page) <= 0
    press(page, "Escape")
    page.locator("details.sv-settings > summary").click()
    assert overflow(page) <= 0
    open_questions(page)
    charts(page)
    assert overflow(page) <= 0
    tiles(page).first.tap()
    expect(page.locator(".sv-inspector--open")).to_be_visible()
    assert overflow(page) <= 0
    press(page, "Escape")
    for link in page.locator("nav.sv-places a").all():
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        assert overflow(page) <= 0, link.inner_text()


def test_a_finger_finds_the_controls(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded, viewport=PHONE, has_touch=True, is_mobile=True))
    small = page.locator(".sv-app").evaluate(
        """root => [...root.querySelectorAll('button, summary, select')]
          .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > 0)
          .map((node) => [node.className || node.tagName, Math.round(node.getBoundingClientRect().height)])
          .filter(([, height]) => height < 40)"""
    )
    assert small == []


def test_a_phone_steps_by_the_bar(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded, viewport=PHONE, has_touch=True, is_mobile=True))
    page.locator(".sv-board-bar").evaluate("(bar) => bar.scrollIntoView()")
    page.get_by_role("button", name=EN("board.do.home")).tap()
    expect(tiles(page)).to_have_count(0)
    page.get_by_role("button", name=EN("board.do.next"), exact=True).tap()
    expect(tiles(page).first).to_be_in_viewport()
    expect(page.locator(".sv-board-caption")).not_to_be_empty()


def test_charts_draw_without_a_network_in_both_themes(visit: Visit, recorded: str) -> None:
    page = drawn(visit(f"{recorded}/?theme=light"))
    assert page.locator("script[src*=plotly]").count() == 0
    open_questions(page)
    charts(page)
    ink = "document.querySelector('.sv-chart-plot .xtick text').style.fill"
    light = page.evaluate(ink)
    page.get_by_role("button", name=EN("shell.theme.dark"), exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.wait_for_function(f"{ink} !== {light!r}")
    charts(page)
    for summary in page.locator(".sv-chart figcaption").all():
        expect(summary).not_to_be_empty()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, recorded: str, theme: str) -> None:
    page = drawn(visit(f"{recorded}/?theme={theme}", reduced_motion="reduce"))
    expect(page.locator("html")).to_have_attribute("data-theme", theme)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert serious(page) == []
    page.locator("details.sv-settings > summary").click()
    open_questions(page)
    charts(page)
    page.locator(".sv-rows .sv-tile--no").first.click()
    assert serious(page) == []
    page.get_by_role("link", name=EN("shell.place.about")).click()
    assert serious(page) == []


# Tokens that show marks and codes in place of letters.
UNSEEN = [
    ["\u00a0", " \u00a0", "\r", "\u3000"],
    ["      ", "    def", "a    ", "\t\tx"],
    ["x\u00a0y", "\u2003x", "\n\n", "\u200b"],
]


def test_a_tile_is_called_what_it_shows(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for texts in UNSEEN:
        open_trace(page, small_trace(texts))
        expect(tiles(page)).to_have_count(6)
        assert mismatched(page) == [], texts
    open_trace(page, small_trace(UNSEEN[0]))
    expect(tiles(page).first).to_have_text("U+00A0›")
    expect(tiles(page).first).to_have_attribute("aria-label", re.compile("“U\\+00A0”"))


def mismatched(page: Page) -> list[str]:
    """The tiles whose name lacks their visible text, as axe sees it; the rule is one that must be asked for."""
    found = page.evaluate(
        """() => axe.run({include: ['.sv-rows']}, {
            runOnly: ['label-content-name-mismatch'], rules: {'label-content-name-mismatch': {enabled: true}},
          }).then(({violations}) => violations.flatMap(({nodes}) => nodes.map(({html}) => html.slice(0, 240))))"""
    )
    return [str(line) for line in found]


def serious(page: Page) -> list[str]:
    """What axe calls serious or critical: the rule and the place. Plotly's drawings have a text beside them."""
    found = page.evaluate(
        """() => axe.run({include: ['.sv-app'], exclude: ['.js-plotly-plot']}, {resultTypes: ['violations']})
          .then((result) => result.violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
            .flatMap(({id, nodes}) => nodes.map((node) => `${id}: ${node.target.join(' ')} ${node.failureSummary}`)))"""
    )
    return [str(line) for line in found]


def test_who_wants_less_motion_gets_less(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded, reduced_motion="reduce"))
    moving = page.locator(".sv-app").evaluate(
        """root => [...root.querySelectorAll('*')].map((node) => [node.className, getComputedStyle(node)])
          .filter(([, style]) => [style.transitionDuration, style.animationDuration].join().split(',')
            .some((time) => parseFloat(time) > 0.02)).map(([name]) => String(name))"""
    )
    assert moving == []
