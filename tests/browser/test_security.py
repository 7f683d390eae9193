"""The page under its content security policy: every place works, and nothing of it is refused by the browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from spec_viz.ui.room import Room
from tests.browser.acts import drawn, open_trace, small_trace
from tests.browser.conftest import Visit
from tests.integration.launch import served

pytestmark = pytest.mark.browser

# What the browser refuses is told to the page, before anything of it has run.
WATCH = """window.refused = [];
addEventListener('securitypolicyviolation', ({violatedDirective, blockedURI}) => {
  refused.push(violatedDirective + ' ' + blockedURI);
});"""

PLACES = {
    "?place=live": ".sv-rows",
    "?place=lessons": ".sv-page a[href*=lesson], .sv-page button",
    "?place=lessons&lesson=5_1_principles&step=slow": ".sv-l-prose",
    "?place=lessons&lesson=5_1_principles&present=1": ".sv-l-prose",
    "?place=lab": ".sv-page .js-plotly-plot",
    "?place=lab&room=law": ".sv-page",
    "?place=lab&room=experiments": ".sv-x-parts",
    "?place=lab&room=family": ".sv-page table",
    "?place=lab&room=paged": ".sv-page",
    "?place=break": ".sv-page",
    "?place=serve": ".sv-page",
    "?place=serve&room=connect": ".sv-page",
    "?place=serve&room=compare": ".sv-page",
    "?place=serve&room=saved": ".sv-page .js-plotly-plot",
    "?place=about": ".sv-page",
}


@pytest.fixture(scope="module")
def recorded() -> Iterator[str]:
    with served(Room()) as address:
        yield address


def refused(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.refused")
    return found


@pytest.mark.parametrize("place", list(PLACES))
def test_nothing_of_a_place_is_refused(visit: Visit, recorded: str, place: str) -> None:
    page = visit("about:blank")
    page.add_init_script(WATCH)
    page.goto(f"{recorded}/{place}")
    expect(page.locator(PLACES[place]).first).to_be_visible()
    page.wait_for_load_state("networkidle")
    # As a printer and a dark room have it.
    page.emulate_media(media="print")
    page.emulate_media(media="screen", color_scheme="dark")
    assert refused(page) == []


def test_pictures_files_and_links_leave_the_page(visit: Visit, recorded: str) -> None:
    page = visit("about:blank")
    page.add_init_script(WATCH)
    page.goto(f"{recorded}/?place=live")
    drawn(page)
    with page.expect_download() as trace:
        page.get_by_role("button", name="Save trace").click()
    assert trace.value.path().read_bytes().startswith(b'{"schema"')
    open_trace(page, small_trace(["a", "b", "c"]))
    drawn(page)
    # The way a chart becomes a PNG: drawn by Plotly into a data address, laid on a canvas, saved as a blob.
    page.goto(f"{recorded}/?place=lab")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    with page.expect_download() as picture:
        page.evaluate(
            """async () => {
              const {savePng} = await import('/sv/js/lab/results.js');
              const chart = {title: 'x', figure: {data: [{x: [1, 2], y: [3, 4]}], layout: {margin: {b: 20}}}};
              await savePng([chart], {name: 'x.png', verdict: 'x', conditions: 'x', ground: '#fff', ink: '#000'});
            }"""
        )
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")
    assert refused(page) == []


def test_markup_that_gets_in_runs_nothing(browser: Browser, recorded: str) -> None:
    """What the policy is for: were there a hole, this is what would go through it."""
    # No visitor's page, whose console must stay empty: the browser reports each refusal there.
    page = browser.new_page()
    page.add_init_script(WATCH)
    page.goto(recorded)
    drawn(page)
    page.evaluate(
        """() => {
          const hole = document.createElement('div');
          document.body.append(hole);
          hole.innerHTML = '<img src="data:x" onerror="ran = 1"><iframe srcdoc="<script>top.ran=1</script>"></iframe>';
          const script = document.createElement('script');
          script.textContent = 'window.ran = 1';
          hole.append(script);
          const other = document.createElement('script');
          other.src = 'https://elsewhere.example/x.js';
          hole.append(other);
        }"""
    )
    page.wait_for_function("window.refused.length >= 3")
    assert page.evaluate("window.ran") is None
    page.close()
