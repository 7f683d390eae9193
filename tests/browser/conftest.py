"""One Chromium, the page in two forms (without a model in this process, with the real one in its own), and visitors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

from spec_viz.models import weights
from spec_viz.models.catalogue import DEFAULT
from spec_viz.ui.room import Room
from tests.integration.launch import served
from tests.integration.ports import LOCAL, free_port

ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
ELSEWHERE = re.compile(r"^(?!(https?|wss?)://(127\.0\.0\.1|localhost)[:/])(https?|wss?):")
# Closing a page ends its streams, which the browser reports; a recorded run that is missing has its own sentence, and
# so has a run that is cut, which Gradio reports too.
HARMLESS = re.compile(
    "Failed to load resource|AbortError|Connection errored out|net::ERR_ABORTED|Unexpected error cut$"
    # A page says its own sentence of a server that is away, and what it was about in the console.
    "|the server gave no answer"
)

# A test waits for what it expects and never sleeps, so patience costs nothing unless something is wrong.
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)

Visit = Callable[..., Page]


@pytest.fixture(scope="package")
def recorded() -> Iterator[str]:
    """The address of a page whose model never comes: recorded runs only."""
    with served(Room()) as address:
        yield address


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    """The address of the app as a person starts it, with the real model."""
    if not weights.is_cached(DEFAULT):
        try:
            weights.fetch(DEFAULT)
        except weights.WeightsError as problem:
            pytest.skip(f"the weights of {DEFAULT} cannot be had: {problem}")
    port = free_port()
    env = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": LOCAL}
    app = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=env)
    address = f"http://{LOCAL}:{port}"
    try:
        _until_answered(address, app)
        yield address
    finally:
        app.terminate()
        app.wait(20)


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Open a page as a new visitor; at the end nothing may have failed, popped up, or left this machine."""
    seen: list[str] = []
    contexts: list[BrowserContext] = []

    def visit(address: str, context: BrowserContext | None = None, **options: object) -> Page:
        if context is None:
            asked = {"locale": "en-US", "viewport": {"width": 1440, "height": 900}, **options}
            context = browser.new_context(**asked)  # type: ignore[arg-type]
            contexts.append(context)
            context.route(ELSEWHERE, lambda route: route.abort())
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: _note_elsewhere(request, seen))
        page.on("pageerror", lambda error: seen.append(f"error in the page: {error}"))
        page.on("console", lambda message: _note_error(message, seen))
        page.on("dialog", lambda dialog: _dismiss(dialog, seen))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert seen == []


def _note_elsewhere(request: Request, seen: list[str]) -> None:
    if ELSEWHERE.match(request.url):
        seen.append(f"asked another machine: {request.url}")


def _note_error(message: ConsoleMessage, seen: list[str]) -> None:
    if message.type == "error" and not HARMLESS.search(message.text):
        seen.append(f"console: {message.text}")


def _until_answered(address: str, app: subprocess.Popen[bytes], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert app.poll() is None, "the app ended by itself"
        try:
            with urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the app does not answer")


def _dismiss(dialog: Dialog, seen: list[str]) -> None:
    seen.append(f"dialog: {dialog.message}")
    dialog.dismiss()
