"""How a drafter works: the drawing under its question, what it says to who cannot see it, and the run's own numbers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.content.presets import load_presets
from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import summarise
from spec_viz.ui.numerals import decimal
from spec_viz.ui.wording import words
from tests.browser.acts import drawn, open_trace, small_trace
from tests.browser.conftest import Visit
from tests.browser.test_look import PHONE, overflow

pytestmark = pytest.mark.browser

SAID = {
    ("en", "poem"): "Prompt lookup: reads the token ids from the target. Looked up, not computed: no pass of its own, "
    "whatever γ is. It has no weights.",
    ("en", "early_exit"): "Early exit: reads the token ids from the target. One token after another: a pass for each "
    "token, at most γ = 3 a round. It runs the target’s own layers.",
    ("vi", "poem"): "Tra trong prompt: lấy từ mô hình đích id của các token. Tra ra, không phải tính ra: không tốn "
    "lượt nào, dù γ là bao nhiêu. Nó không có trọng số nào.",
    ("vi", "early_exit"): "Thoát sớm: lấy từ mô hình đích id của các token. Lần lượt từng token: mỗi token một lượt, "
    "tối đa γ = 3 mỗi vòng. Nó chạy bằng chính các tầng của mô hình đích.",
}
PASSES = {"poem": 0, "early_exit": 3}


def opened(page: Page) -> Locator:
    """The question, open."""
    ask = page.locator("details.sv-ask[data-hide=anatomy]")
    ask.locator("summary").click()
    return ask


def recorded_run(name: str) -> Trace:
    traces = next(preset for preset in load_presets() if preset.name == name).recorded()
    return next(trace for trace in traces if trace.meta["drafter"] != "none")


@pytest.mark.parametrize(("language", "preset"), SAID)
def test_a_drafter_is_drawn_and_told(visit: Visit, recorded: str, language: str, preset: str) -> None:
    t, trace = words(language), recorded_run(preset)
    ask = opened(drawn(visit(f"{recorded}/?lang={language}&preset={preset}")))
    picture = ask.get_by_role("img", name=SAID[language, preset], exact=True)
    expect(picture).to_be_visible()
    expect(picture.locator(".sv-anatomy-level--read")).to_have_count(1)
    expect(picture.locator(".sv-anatomy-pass:not(.sv-anatomy-pass--none)")).to_have_count(PASSES[preset])

    summary = summarise(trace)
    values = dict(zip(ask.locator("dt").all_inner_texts(), ask.locator("dd b").all_inner_texts(), strict=True))
    passes = summary.drafted / summary.drafting_rounds if PASSES[preset] else 0
    assert values[t("anatomy.number.passes")] == decimal(passes, 2 if passes else 0, language)
    each = summary.ms["propose"].total / summary.drafted
    assert values[t("anatomy.number.per_token")] == t(
        "anatomy.number.ms", ms=decimal(each, 1 if each >= 10 else 3, language)
    )


def test_a_phone_draws_it_from_top_to_bottom_in_letters_that_can_be_read(visit: Visit, recorded: str) -> None:
    page = drawn(visit(f"{recorded}/?lang=vi", viewport=PHONE, has_touch=True, is_mobile=True))
    open_trace(page, small_trace([" a", " b", " c", " d", " e"], drafter="eagle3", gamma=8))
    picture = opened(page).get_by_role("img")
    box = picture.bounding_box()
    assert box is not None
    assert box["height"] > box["width"]
    smallest = picture.evaluate(
        """drawing => {
          const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
          return scale * Math.min(...[...drawing.querySelectorAll('text')]
            .map((text) => Number.parseFloat(getComputedStyle(text).fontSize)));
        }"""
    )
    assert smallest >= 12
    beyond = picture.evaluate(
        """drawing => {
          const edge = drawing.getBoundingClientRect();
          return [...drawing.querySelectorAll('text')].filter((text) => {
            const box = text.getBoundingClientRect();
            return box.left < edge.left || box.right > edge.right;
          }).map((text) => text.textContent);
        }"""
    )
    assert beyond == []
    assert overflow(page) <= 0
