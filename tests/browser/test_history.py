"""The browser's own Back and Forward go from place to place, and never off the page by surprise."""

from playwright.sync_api import Page, expect

from tests.browser.acts import drawn
from tests.browser.conftest import Visit


def at(page: Page, name: str) -> None:
    expect(page.locator(f'.sv-place[href="?place={name}"]')).to_have_attribute("aria-current", "page")


def test_back_and_forward_visit_the_places_in_the_order_they_were_seen(recorded: str, visit: Visit) -> None:
    page = drawn(visit(f"{recorded}?lang=en"))
    for name in ("lessons", "about"):
        page.locator(f'.sv-place[href="?place={name}"]').click()
        at(page, name)
    page.go_back()
    at(page, "lessons")
    page.go_back()
    at(page, "live")
    expect(page.locator(".sv-tile").first).to_be_visible()
    page.go_forward()
    at(page, "lessons")
    assert "place=lessons" in page.url
