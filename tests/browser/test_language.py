"""Two languages, and the address that holds the whole page: what it says is checked like anything from outside."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from spec_viz.content.presets import load_presets
from spec_viz.ui.room import Room
from spec_viz.ui.wording import LANGUAGES, words
from tests.browser.acts import EN, drawn, open_questions, picture, tiles
from tests.browser.conftest import Visit
from tests.integration.launch import served

pytestmark = pytest.mark.browser

# Everything a person can read or hear on the page.
SPOKEN = """
() => {
  const said = [];
  const shown = NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT;
  const walk = document.createTreeWalker(document.querySelector('.sv-app'), shown);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) said.push(node.data);
    else for (const name of ['aria-label', 'title', 'placeholder', 'aria-valuetext', 'alt']) {
      if (node.hasAttribute(name)) said.push(node.getAttribute(name));
    }
  }
  return said.map((text) => text.trim()).filter(Boolean);
}
"""


def check_words(page: Page) -> None:
    keys = set(EN.table)
    for text in page.evaluate(SPOKEN):
        assert not re.fullmatch(r"[a-z_]+\.[a-z_.]+", text), text
        assert not keys & set(re.findall(r"[a-z_]+(?:\.[a-z_A-Z0-9]+)+", text)), text
        assert not re.search(r"(?<!\$)\{\w+\}", text), text
        assert "undefined" not in text, text
        assert "NaN" not in text, text


def address_of(page: Page, **wanted: str) -> None:
    """Wait until the address says what is wanted."""
    for name, value in wanted.items():
        expect(page).to_have_url(re.compile(rf"[?&]{name}={re.escape(quote(value))}(&|$)"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_word_is_missing_anywhere(visit: Visit, recorded: str, language: str) -> None:
    page = drawn(visit(f"{recorded}/?lang={language}"))
    page.locator("details.sv-settings > summary").click()
    open_questions(page)
    expect(page.locator(".sv-number").first).to_be_visible()
    check_words(page)
    page.locator(".sv-rows .sv-tile--no").first.click()
    check_words(page)
    page.locator(".sv-finished .sv-choice button").last.click()
    for name in ("prompt_lookup", "early_exit", "scripted", "none"):
        page.locator(".sv-settings select").nth(1).select_option(name)
        check_words(page)
    page.get_by_role("link", name=words(language)("shell.place.about")).click()
    expect(page.locator(".sv-about")).to_be_visible()
    check_words(page)


def test_the_switch_changes_every_word_is_remembered_and_stands_in_the_address(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    html = page.locator("html")
    expect(html).to_have_attribute("lang", "en")
    address_of(page, lang="en")
    page.locator("details.sv-presets > summary").click()
    page.keyboard.press("Escape")
    before = picture(page)
    page.get_by_role("button", name="VI", exact=True).click()
    expect(html).to_have_attribute("lang", "vi")
    address_of(page, lang="vi")
    expect(page.get_by_role("heading", level=1)).to_have_text(words("vi")("shell.title"))
    assert len(picture(page)) == len(before)
    assert picture(page) != before
    for key in ("control.run", "board.why", "shell.export"):
        expect(page.get_by_role("button", name=words("vi")(key), exact=True).first).to_be_visible()
    again = drawn(visit(recorded, page.context))
    expect(again.locator("html")).to_have_attribute("lang", "vi")
    again.get_by_role("button", name="EN", exact=True).click()
    expect(again.locator("html")).to_have_attribute("lang", "en")
    assert picture(again) == before


def test_a_vietnamese_browser_is_greeted_in_vietnamese(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded, locale="vi-VN"))
    expect(page.locator("html")).to_have_attribute("lang", "vi")
    expect(page.locator(".sv-state-note")).to_contain_text("SmolLM2")


def test_what_is_typed_stays_when_the_language_changes(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    page.get_by_label(EN("control.prompt")).fill("My own words")
    page.get_by_role("button", name="VI", exact=True).click()
    expect(page.get_by_label(words("vi")("control.prompt"))).to_have_value("My own words")


def test_a_link_sets_the_whole_page(visit: Visit, recorded: str) -> None:
    preset = next(each for each in load_presets() if each.trace_path.is_file() and each.name != "weather")
    link = f"preset={preset.name}&drafter=early_exit&gamma=7&temperature=0.5&seed=42&lang=vi&options=layers:24"
    page = drawn(visit(f"{recorded}/?{link}"))
    vi = words("vi")
    expect(page.locator("html")).to_have_attribute("lang", "vi")
    expect(page.get_by_label(vi("control.prompt"))).to_have_value(preset.prompt.rstrip("\r"))
    expect(tiles(page)).to_have_count(
        sum(len(each.nodes) + (each.emitted is not None) for each in preset.recorded()[0].rounds)
    )
    page.locator("details.sv-settings > summary").click()
    for name, value in (("drafter", "early_exit"), ("gamma", "7"), ("temperature", "0.5"), ("seed", "42")):
        expect(page.get_by_label(vi(f"control.{name}"), exact=True)).to_have_value(value)
    expect(page.get_by_label(vi("knob.early_exit.layers"))).to_have_value("24")
    page.get_by_label(vi("control.gamma"), exact=True).fill("9")
    address_of(page, gamma="9", seed="42", lang="vi")
    page.reload()
    expect(page.get_by_label(vi("control.gamma"), exact=True)).to_have_value("9")


@pytest.mark.parametrize(
    "words_of", ["prompt=Write+about+a+fox", "script=one+two", "preset=", "preset=repeat&prompt=My+own"]
)
def test_a_link_with_other_words_than_an_example_s_shows_no_run_of_it(
    visit: Visit, recorded: str, words_of: str
) -> None:
    page = visit(f"{recorded}/?lang=en&{words_of}")
    expect(page.locator(".sv-verdict")).to_have_text(EN("shell.lead"))
    expect(tiles(page)).to_have_count(0)
    expect(page.locator(".sv-presets > summary")).to_have_text(EN("shell.preset.none"))


def test_an_example_is_named_as_long_as_its_words_stand(visit: Visit, recorded: str) -> None:
    page = drawn(visit(f"{recorded}/?lang=en"))
    (first,) = (each for each in load_presets() if each.name == "weather")
    name, claim = page.locator(".sv-presets > summary"), page.locator(".sv-lesson")
    prompt = page.get_by_label(EN("control.prompt"))
    expect(name).to_have_text(EN("shell.preset", title=first.title["en"]))
    prompt.fill("Name the days of the week.")
    expect(name).to_have_text(EN("shell.preset.none"))
    expect(claim).to_have_text("")
    expect(page.locator(".sv-state-note")).to_have_text("" if first.settings["chat"] else EN("shell.continues"))
    prompt.fill(first.prompt)
    expect(name).to_have_text(EN("shell.preset", title=first.title["en"]))
    expect(claim).to_have_text(first.lesson["en"])
    expect(page.locator(".sv-state-note")).to_have_text("")


HOSTILE = [
    "preset=<img src=x onerror=alert(1)>&lang=xx&drafter=__proto__&theme=toString&place=constructor",
    "gamma=1e99&temperature=nan&seed=-5&top_k=Infinity&top_p=0x1&max_new_tokens=${alert(1)}",
    "race=constructor&chat=__proto__&options=__proto__:1,constructor:2&hide=<script>,tools,toString",
    "gamma=999999&temperature=99&max_new_tokens=100000&seed=9999999999999999&top_p=0.00001",
    "prompt=<img src=x onerror=alert(1)>${alert(2)}`${alert(3)}`{{alert(4)}}\u202eabc"
    "&script='\"><script>alert(5)</script>",
    "lang=" + "v" * 3000 + "&__theme=javascript:alert(1)",
]


def _sound(url: str) -> bool:
    # The page writes its address a moment after it has settled.
    asked = parse_qs(urlsplit(url).query)
    return set(asked.get("chat", []) + asked.get("race", [])) <= {"0", "1"}


@pytest.mark.parametrize("link", HOSTILE)
def test_a_hostile_link_opens_a_sound_page(visit: Visit, recorded: str, link: str) -> None:
    pairs = [part.partition("=") for part in link.split("&")]
    page = visit(f"{recorded}/?" + "&".join(f"{name}={quote(value)}" for name, _, value in pairs))
    expect(tiles(page)).to_have_count(0) if "prompt=" in link else drawn(page)
    expect(page.locator("html")).to_have_attribute("lang", re.compile("^(vi|en)$"))
    expect(page.locator("html")).to_have_attribute("data-theme", re.compile("^(light|dark)$"))
    page.locator("details.sv-settings > summary").click()
    for name, low, high in (("gamma", 1, 12), ("temperature", 0, 2), ("top_k", 0, 1000), ("max_new_tokens", 1, 256)):
        value = page.get_by_label(EN(f"control.{name}"), exact=True).input_value()
        assert low <= float(value) <= high, name
    page.wait_for_url(_sound)
    assert page.locator(".sv-app img, .sv-app script").count() == 0
    if "prompt=" not in link:
        check_words(page)


def test_every_place_can_be_reloaded_where_it_stands(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    for link in page.locator("nav.sv-places a").all():
        name = link.inner_text()
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        page.wait_for_timeout(400)  # the address is written when it rests
        page.reload()
        expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")
        page.goto(page.get_by_role("link", name=name, exact=True).evaluate("link => link.href"))
        expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")


def test_a_teacher_s_link_takes_parts_away(visit: Visit, recorded: str) -> None:
    page = drawn(visit(f"{recorded}/?hide=settings,tools,questions"))
    expect(page.locator("details.sv-settings")).to_be_hidden()
    expect(page.get_by_role("button", name=EN("shell.import"))).to_be_hidden()
    expect(page.locator("details.sv-ask").first).to_be_hidden()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("locale", "path", "expected"), [("fr-FR", "", "vi"), ("en-GB", "", "en"), ("fr-FR", "/?lang=en", "en")]
)
def test_the_host_s_language_is_for_who_speaks_neither_and_has_chosen_none(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, locale: str, path: str, expected: str
) -> None:
    monkeypatch.setenv("SPECVIZ_LANGUAGE", "vi")
    with served(Room()) as address:
        page = drawn(visit(f"{address}{path}", locale=locale))
        expect(page.locator("html")).to_have_attribute("lang", expected)
        # What is chosen here stays.
        other = "en" if expected == "vi" else "vi"
        page.get_by_role("button", name=other.upper(), exact=True).click()
        page.goto(address)
        expect(drawn(page).locator("html")).to_have_attribute("lang", other)
