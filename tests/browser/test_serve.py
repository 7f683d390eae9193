"""The Serve place: choose, point at a key, copy, repair with one click; by keyboard, in two languages, on a phone."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.ui.wording import words
from tests.browser.acts import EN
from tests.browser.conftest import Visit
from tests.browser.test_look import AXE, PHONE, overflow, serious

pytestmark = pytest.mark.browser


def code(page: Page) -> Locator:
    return page.locator(".sv-serve-code")


def speculative(page: Page) -> dict[str, object]:
    """The JSON of the command that is shown."""
    parts = shlex.split(code(page).inner_text().replace(" \\\n", " "))
    body: dict[str, object] = json.loads(parts[parts.index("--speculative-config") + 1])
    return body


def open_group(page: Page, name: str) -> None:
    page.locator(f"details[data-group={name}] > summary").click()


@pytest.mark.parametrize("language", ["vi", "en"])
def test_choose_a_method_and_read_its_keys(visit: Visit, recorded: str, language: str) -> None:
    t = words(language)
    page = visit(f"{recorded}/?place=serve&lang={language}")
    expect(code(page)).to_contain_text('"method": "ngram"')
    page.get_by_label(t("serve.field.method"), exact=True).select_option("eagle3")
    expect(code(page)).to_contain_text("EAGLE3-LLaMA3.1")
    assert speculative(page)["num_speculative_tokens"] == 3
    page.locator(".sv-serve-key[data-key=num_speculative_tokens]").hover()
    expect(page.locator(".sv-serve-said")).to_contain_text(t("serve.key.num_speculative_tokens"))
    page.locator(".sv-serve-key[data-key=enable_prefix_caching]").focus()
    expect(page.locator(".sv-serve-said")).to_contain_text(t("serve.key.enable_prefix_caching"))
    page.get_by_role("button", name="YAML", exact=True).press("Enter")
    expect(code(page)).to_contain_text("speculative-config:")
    page.wait_for_url(re.compile("serve_method=eagle3.*serve_form=yaml"))
    page.reload()
    expect(code(page)).to_contain_text('method: "eagle3"')


def test_a_fix_is_one_click_and_the_command_comes_back(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&lang=en&serve_method=eagle3")
    open_group(page, "speculative")
    page.locator("[data-option=rejection_sample_method] select").select_option("block")
    expect(page.locator(".sv-serve-remark--warn")).to_contain_text("one-hot")
    page.get_by_role("button", name=EN("serve.fix.set", option="draft_sample_method", value="probabilistic")).click()
    expect(page.locator(".sv-serve-remark")).to_have_count(0)
    assert speculative(page)["draft_sample_method"] == "probabilistic"
    field = page.locator("[data-option=num_speculative_tokens] input")
    field.fill("none")
    field.press("Enter")
    expect(page.locator(".sv-serve-remark--refuse")).to_be_visible()
    expect(code(page)).to_be_hidden()
    page.get_by_role("button", name=EN("serve.fix.remove", option="num_speculative_tokens")).click()
    page.get_by_role("button", name=EN("serve.fix.set", option="num_speculative_tokens", value="3")).click()
    expect(code(page)).to_be_visible()
    expect(page.locator(".sv-serve-remarks")).to_be_focused()
    assert speculative(page)["num_speculative_tokens"] == 3


@pytest.mark.parametrize(("hardware", "said"), [("nvidia-8", "full"), ("nvidia-80", "ok")])
def test_what_does_not_fit_is_not_said_to_have_nothing_in_its_way(
    visit: Visit, recorded: str, hardware: str, said: str
) -> None:
    page = visit(f"{recorded}/?place=serve&lang=en&serve_method=eagle3&serve_hardware={hardware}")
    expect(code(page)).to_be_visible()
    expect(page.locator(".sv-serve-fits")).to_have_class(re.compile("--fits" if said == "ok" else "--full"))
    expect(page.locator(".sv-serve-remarks")).to_contain_text(EN(f"serve.remarks.{said}"))


def test_what_is_copied_is_what_is_shown(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&lang=en")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(code(page)).to_be_visible()
    page.get_by_role("button", name=EN("serve.copy"), exact=True).click()
    expect(page.locator(".sv-serve-copy")).to_contain_text(EN("serve.copied"))
    assert page.evaluate("navigator.clipboard.readText()") == code(page).evaluate("node => node.textContent")


def test_a_model_of_ones_own_is_typed(visit: Visit, recorded: str) -> None:
    page = visit(f"{recorded}/?place=serve&lang=en")
    expect(code(page)).to_be_visible()
    page.get_by_label(EN("serve.field.target"), exact=True).select_option(label=EN("serve.other"))
    own = page.get_by_label(EN("serve.other.target"))
    expect(own).to_be_focused()
    own.fill("me/it's mine")
    own.press("Enter")
    expect(code(page)).to_contain_text("mine")
    assert "me/it's mine" in shlex.split(code(page).inner_text().replace(" \\\n", " "))


def test_a_hostile_address_gets_sentences_and_no_markup(visit: Visit, recorded: str) -> None:
    page = visit(
        f"{recorded}/?place=serve&lang=en&serve_method=%3Cimg%20src=x%3E&serve_options=a-1*__proto__-2*x.y-%3Cb%3E"
    )
    expect(page.locator(".sv-serve-remark--refuse").first).to_contain_text("<img src=x>")
    assert page.locator(".sv-serve-part img, .sv-serve-part b b").count() == 0
    expect(code(page)).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, recorded: str, theme: str) -> None:
    address = (
        f"{recorded}/?place=serve&lang=en&theme={theme}&serve_method=suffix&serve_options=rejection_sample_method-block"
    )
    page = visit(address, reduced_motion="reduce")
    expect(page.locator(".sv-serve-remark--refuse")).to_be_visible()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert serious(page) == []
    page.locator(".sv-serve-fix").first.click()
    expect(code(page)).to_be_visible()
    open_group(page, "speculative")
    page.locator(".sv-serve-all > summary").click()
    page.locator(".sv-serve-key").first.focus()
    assert serious(page) == []


@pytest.mark.parametrize("language", ["vi", "en"])
def test_it_fits_a_phone(visit: Visit, recorded: str, language: str) -> None:
    page = visit(
        f"{recorded}/?place=serve&lang={language}&serve_method=dspark", viewport=PHONE, has_touch=True, is_mobile=True
    )
    expect(code(page)).to_be_visible()
    page.locator(".sv-serve-key").nth(2).tap()
    expect(page.locator(".sv-serve-said code")).not_to_be_empty()
    assert overflow(page) == 0
