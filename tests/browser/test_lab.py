"""The Lab: the learner's path from a slow run to a better γ, both rooms, by keyboard, in both languages and themes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.lab import theory
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, press
from tests.browser.conftest import Visit
from tests.browser.test_look import AXE, PHONE, overflow, serious
from tests.browser.test_run import ask, ended, ready
from tests.integration.launch import served
from tests.integration.rooms import PROMPT, loaded, ready_room

pytestmark = pytest.mark.browser

FORMULAS = "import('./sv/js/theory.js')"


def verdict(page: Page) -> Locator:
    return page.locator(".sv-lab-verdict")


def plots(page: Page, count: int) -> None:
    """Wait until so many charts are drawn."""
    page.wait_for_function(
        """(count) => {
          const all = [...document.querySelectorAll('.sv-lab-room .sv-chart-plot')];
          const plots = all.filter((plot) => plot.checkVisibility());
          return plots.length === count && plots.every((plot) => plot.querySelector('.main-svg'));
        }""",
        arg=count,
    )


def slider(page: Page, name: str) -> Locator:
    return page.locator(f"[data-part={name}] input[type=range]")


def open_ask(page: Page, name: str) -> Locator:
    ask = page.locator(f"#sv-lab-{name}")
    if ask.get_attribute("open") is None:
        ask.locator("summary").click()
    return ask


def sentence(language: str, key: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(words(language).table[key])))


def test_the_page_and_the_lab_reckon_alike(visit: Visit, recorded: str) -> None:
    """One formula, two languages: theory.js answers as theory.py on a grid."""
    page = drawn(visit(recorded))
    cases: list[tuple[str, list[Any], Any]] = []
    for alpha in (0.0, 0.37, 0.8, 0.99, 1.0):
        for gamma in (1, 4, 12):
            cases.append(("expectedTokens", [alpha, gamma], theory.expected_tokens(alpha, gamma)))
            cases.append(("acceptedLengthLaw", [alpha, gamma], list(theory.accepted_length_law(alpha, gamma))))
            cases.append(("operationsRatio", [alpha, gamma, 0.1], theory.operations_ratio(alpha, gamma, 0.1)))
            if alpha < 1:
                cases.append(("wrongExpectedTokens", [alpha, gamma], theory.wrong_expected_tokens(alpha, gamma)))
            for costs in ([0.0], [0.1, 1.3], [0.9, 1.0, 0.05]):
                cases.append(("speedup", [alpha, gamma, *costs], theory.speedup(alpha, gamma, *costs)))
                cases.append(("breakEven", [gamma, *costs], theory.break_even(gamma, *costs)))
    cases.append(("ridgeTokens", [989e12, 4.8e12, 2], theory.ridge_tokens(989e12, 4.8e12, 2)))
    asked = [[name, arguments] for name, arguments, _ in cases]
    answers = page.evaluate(
        f"async (cases) => {{ const all = await {FORMULAS}; return cases.map(([name, args]) => all[name](...args)); }}",
        asked,
    )
    for (name, arguments, expected), answer in zip(cases, answers, strict=True):
        wanted = expected if expected is None else pytest.approx(expected, abs=1e-9)
        assert answer == wanted, (name, arguments)
    pairs = [(alpha, c) for alpha in (0.3, 0.5, 0.8, 0.9) for c in (0.01, 0.1, 0.3)]
    best = page.evaluate(
        f"async (pairs) => {{ const all = await {FORMULAS}; return pairs.map(([a, c]) => all.bestGamma(a, c)); }}",
        pairs,
    )
    for (alpha, c), found in zip(pairs, best, strict=True):
        gamma, speedup = theory.best_gamma(alpha, c)
        assert (found["gamma"], found["speedup"]) == (gamma, pytest.approx(speedup)), (alpha, c)


@contextmanager
def priced_passes() -> Iterator[None]:
    """A whole pass of the tiny model takes long, and two fifths as long again for each further token."""
    whole = loaded().model

    def wait(module: object, _args: object, given: dict[str, Any]) -> None:
        # A drafter's pass over the first layers is a pass of a copy.
        if module is whole:
            threading.Event().wait(0.060 + 0.024 * (given["input_ids"].shape[1] - 1))

    handle = whole.register_forward_pre_hook(wait, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def test_a_live_run_is_slow_and_the_gamma_that_the_formula_names_makes_it_fast(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run live, ask why it is slower, change γ on the formula, run again: the promise must hold on this machine."""
    with served(ready_room(monkeypatch)) as base, priced_passes():
        # Its first layer keeps about half of its drafts: eight of them cost more than they bring, two do not.
        made = "drafter=early_exit&options=layers:1&gamma=8&temperature=0.7&seed=1&max_new_tokens=32&chat=0&race=1"
        page = ready(visit(f"{base}/?preset=&{made}"))
        ask(page, PROMPT)
        ended(page, "length")
        expect(page.locator(".sv-verdict")).to_contain_text("slower than plain decoding")
        page.locator("details.sv-ask[data-hide=faster] > summary").click()
        page.locator("details.sv-ask[data-hide=faster]").get_by_role("link", name=EN("lab.link")).click()
        expect(page.locator(".sv-lab-headline")).to_have_text(sentence("en", "lab.here.headline"))
        expect(slider(page, "gamma")).to_have_value("8")
        expect(verdict(page)).to_contain_text("Slower than plain decoding")
        slider(page, "gamma").focus()
        press(page, *["ArrowLeft"] * 6)
        expect(verdict(page)).to_contain_text("times as fast as plain decoding")
        page.get_by_role("button", name=EN("lab.try", gamma=2)).click()
        page.wait_for_url(re.compile("gamma=2.*race=1"))
        page.get_by_role("button", name=EN("control.run"), exact=True).click()
        ended(page, "length")
        expect(page.locator(".sv-verdict")).to_contain_text("times as fast as plain decoding")


@pytest.mark.parametrize("language", ["vi", "en"])
def test_from_a_slow_run_to_a_better_gamma(visit: Visit, recorded: str, language: str) -> None:
    """Run, ask why, see it on the formula, change γ, go back with it."""
    t = words(language)
    page = drawn(visit(f"{recorded}/?preset=wrong_layer&lang={language}"))
    page.locator("details.sv-ask[data-hide=faster] > summary").click()
    page.locator("details.sv-ask[data-hide=faster]").get_by_role("link", name=t("lab.link")).click()
    expect(page.locator(".sv-lab-headline")).to_have_text(sentence(language, "lab.here.headline"))
    expect(page.locator(".sv-lab-steps").first.locator("li")).to_have_count(5)
    page.wait_for_url(re.compile("place=lab.*lab_alpha=0.6557"))
    assert slider(page, "gamma").input_value() == "4"
    plots(page, 1)
    before = verdict(page).inner_text()
    slider(page, "gamma").focus()
    press(page, "ArrowRight", "ArrowRight")
    expect(verdict(page)).not_to_have_text(before)
    page.get_by_role("button", name=t("lab.try", gamma=6)).click()
    page.wait_for_url(re.compile("gamma=6.*race=1"))
    drawn(page)
    page.locator("details.sv-settings > summary").click()
    expect(page.get_by_label(t("control.gamma"))).to_have_value("6")


def test_the_sliders_say_what_the_formula_says(visit: Visit, recorded: str) -> None:
    address = f"{recorded}/?place=lab&lab_alpha=0.8&lab_gamma=4&lab_c=0.1&lab_slope=0&lab_overhead=0"
    page = visit(address)
    expect(verdict(page)).to_contain_text("2.40 times")
    best, speedup = theory.best_gamma(0.8, 0.1)
    expect(verdict(page)).to_contain_text(f"γ = {best} would be best: {speedup:.2f}")
    page.get_by_role("button", name=EN("lab.use_best", gamma=best)).click()
    expect(verdict(page)).to_contain_text(EN("lab.verdict.here"))
    page.wait_for_url(re.compile(f"lab_gamma={best}"))
    wrong = open_ask(page, "wrong")
    for said in ("1.694", "5.00", "25.4"):
        expect(wrong.locator(".sv-lab-reasons")).to_contain_text(said)
    open_ask(page, "best")
    open_ask(page, "lengths")
    plots(page, 4)
    for plot in page.locator(".sv-lab-room .sv-chart-plot").all():
        assert len(plot.get_attribute("aria-label") or "") > 40
    slider(page, "c").fill("0.9")
    expect(verdict(page)).to_contain_text(EN("lab.verdict.dearest.draft"))


def test_a_hostile_address_gets_sliders_within_bounds(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=attic&lab_alpha=7&lab_gamma=999&lab_c=<b>&lab_rule=x")
    expect(verdict(page)).to_be_visible()
    assert slider(page, "alpha").input_value() == "1"
    assert slider(page, "gamma").input_value() == "15"
    page.get_by_role("link", name=EN("lab.room.law")).click()
    expect(page.locator(".sv-lab-room--law .sv-run")).to_be_visible()


@pytest.mark.parametrize("language", ["vi", "en"])
def test_the_law_room_fills_up_to_p_or_beside_it(visit: Visit, recorded: str, language: str) -> None:
    t = words(language)
    page = visit(f"{recorded}/?place=lab&room=law&lang={language}&lab_drafter=prompt_lookup")
    room = page.locator(".sv-lab-room--law")
    said = room.locator(".sv-break-said")
    expect(said).to_have_text(t("lab.watch.start"))
    run = room.get_by_role("button", name=t("lab.watch.run"))
    run.click()
    expect(room.locator(".sv-break-row")).to_have_count(7)
    room.locator(".sv-run").click()
    expect(said).to_have_text(sentence(language, "lab.watch.holds"))
    room.get_by_role("combobox").nth(1).select_option("synthetic")
    expect(said).to_have_text(t("lab.watch.start"))
    room.locator(".sv-run").click()
    expect(room.locator(".sv-break-row")).to_have_count(7)
    room.locator(".sv-run").click()
    expect(said).to_have_text(sentence(language, "lab.watch.lossy"))
    page.wait_for_url(re.compile("lab_rule=synthetic"))


def test_bars_faults_and_rolls(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=lab&room=law")
    room = page.locator(".sv-lab-room--law")
    room.get_by_role("button", name="5", exact=True).click()
    expect(room.get_by_role("slider")).to_have_count(10)
    first = room.get_by_role("slider").first
    first.focus()
    press(page, "Home")
    expect(first).to_have_attribute("aria-valuenow", "0.00")
    reroll = open_ask(page, "reroll")
    reroll.get_by_role("button", name="1000×").click()
    expect(reroll.locator(".sv-l-caption")).to_contain_text("1000 rolls")
    open_ask(page, "break").get_by_role("link", name=EN("break.fault.siblings")).click()
    expect(page.locator("input[value=siblings]")).to_be_checked()
    page.wait_for_url(re.compile("place=break.*fault=siblings"))
    page.go_back()
    expect(room).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_both_rooms(visit: Visit, recorded: str, theme: str) -> None:
    page = visit(f"{recorded}/?place=lab&theme={theme}", reduced_motion="reduce")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for name in ("best", "lengths", "wrong", "machine"):
        open_ask(page, name)
    plots(page, 4)
    assert serious(page) == []
    page.get_by_role("link", name=EN("lab.room.law")).click()
    for name in ("watch", "break", "reroll"):
        open_ask(page, name)
    expect(page.locator(".sv-lab-room--law .sv-run")).to_be_visible()
    assert serious(page) == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_a_phone_holds_both_rooms(visit: Visit, recorded: str, language: str) -> None:
    page = visit(f"{recorded}/?place=lab&lang={language}", viewport=PHONE, has_touch=True, is_mobile=True)
    for name in ("best", "lengths", "wrong", "machine"):
        open_ask(page, name)
    plots(page, 4)
    assert overflow(page) <= 0
    page.get_by_role("link", name=words(language)("lab.room.law")).tap()
    for name in ("watch", "break", "reroll"):
        open_ask(page, name)
    expect(page.locator(".sv-lab-room--law .sv-run")).to_be_visible()
    assert overflow(page) <= 0


def test_this_machine_is_measured_and_takes_the_line_s_place(visit: Visit, live: str) -> None:
    page = visit(f"{live}/?place=lab&lab_slope=0.9&lab_gamma=8")
    slow = verdict(page).inner_text()
    machine = open_ask(page, "machine")
    machine.get_by_role("button", name=EN("lesson.cost.live.run")).click()
    expect(machine.get_by_text(EN("lab.ridge.measured"), exact=True)).to_be_visible(timeout=120_000)
    expect(verdict(page)).not_to_have_text(slow)
    expect(slider(page, "slope")).to_be_disabled()
    page.get_by_role("button", name=EN("lab.pass.line")).click()
    expect(verdict(page)).to_have_text(slow)
