"""The page's address, and files that are opened in it: read in a real browser, whatever they say.

Many cases go to one page at once: a visit takes a second, what it reads its address with a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, expect, sync_playwright

from spec_viz.ui.room import Room
from tests.browser.acts import small_trace
from tests.browser.conftest import FLAGS, HARMLESS
from tests.browser.conftest import _dismiss as note_dialog
from tests.fuzz.cases import RAN, SNIPPETS, WANTED, case, cases, mutated, vandalised
from tests.fuzz.test_traces import bundles, files
from tests.integration.launch import served

pytestmark = pytest.mark.browser
BATCH = 100

NAMES = [
    "place",
    "lang",
    "theme",
    "__theme",
    "hide",
    "preset",
    "fault",
    "room",
    "lab_alpha",
    "lab_gamma",
    "lab_drafter",
    "lab_run",
    "lab_step",
    "serve_runs",
    "serve_at",
    "serve_question",
    "serve_method",
    "serve_target",
    "serve_options",
    "serve_form",
    "target",
    "drafter",
    "options",
    "rule",
    "strength",
    "length",
    "gamma",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "max_new_tokens",
    "chat",
    "race",
    "against",
    "prompt",
    "script",
    "lesson",
    "step",
    "present",
    "class",
    "experiment",
]
VALUES = [
    "live",
    "lessons",
    "lab",
    "serve",
    "about",
    "break",
    "vi",
    "en",
    "dark",
    "auto",
    "weather",
    "eagle_tree",
    "experiments",
    "family",
    "config",
    "saved",
    "0",
    "1",
    "4",
    "-1",
    "99999999999999999",
    "0.5",
    "1e9",
    "NaN",
    "Infinity",
    "prompt_lookup",
    "eagle3",
    "draft_model",
    "scripted",
    "token",
    "match",
    "typical",
    "fixed",
    "tree:6,width:2",
    "layers:1;2;3",
    "a:b,c:d",
    "size:__proto__:1",
    "num_speculative_tokens-4*max_model_len-%2A",
    "__proto__-x*constructor-y",
    "baseline,eagle3",
    "prompt,settings,lang",
    "5_1_principles",
    "slow",
    "K7M2P",
    "gamma*gamma-1-2",
    "concurrency*policies-1*tokens-32*limit-2*batches-1",
    "__proto__",
    "context*repeats-2*lengths-256",
    "quantisation*variants-int8",
    "temperature*set-own*presets-weather",
    "task*tasks-chat",
    "<img src=x onerror=alert(1)>",
    "${alert(1)}",
    "javascript:alert(1)",
    "",
    " ",
    "x" * 9000,
]
queries = st.one_of(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.text(max_size=12)), max_size=8).map(
        lambda pairs: "?" + urlencode(pairs, errors="replace")
    ),
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES).flatmap(lambda value: vandalised(value, 2))),
        max_size=5,
    ).map(lambda pairs: "?" + urlencode(pairs, errors="replace")),
    st.text(max_size=60).map(lambda text: "?" + quote(text, safe="&=%+?#", errors="replace")),
    st.lists(
        st.sampled_from([*NAMES, *VALUES[:40], *SNIPPETS[:12], "&", "=", "%", "%zz", "%00", "+", "#"]), max_size=12
    ).map(lambda parts: "?" + "".join(parts).encode("utf-8", "replace").decode()),
)

# What a page does with its address, and with the header of a trace; all of it without a change of the real address.
READ = """async ({queries, headers, texts}) => {
  const {State} = await import('/sv/js/state.js');
  const {readAddress} = await import('/sv/js/lesson/address.js');
  const kinds = await import('/sv/js/lab/kinds.js');
  const {Bundle} = await import('/sv/js/trace.js');
  const {asRecorded, traceLines} = await import('/sv/js/run.js');
  const {readQuestions, parsed} = await import('/sv/js/lab/results.js');
  const boot = JSON.parse(document.getElementById('sv-boot').textContent);
  const places = ['live', 'lessons', 'lab', 'serve', 'about', 'break'];
  const {setTimeout, addEventListener} = window;
  window.setTimeout = () => 0;
  window.addEventListener = () => {};
  const wrong = [];
  const attempt = (what, given, act) => {
    try {
      const said = act();
      if (said) wrong.push([what, given, said]);
    } catch (error) {
      wrong.push([what, given, String(error.stack)]);
    }
  };
  try {
    for (const query of queries) {
      attempt('state', query, () => {
        const first = new State(boot, places, query).address({ whole: true });
        const again = new State(boot, places, new URL(first).search).address({ whole: true });
        return first === again ? null : `${first} becomes ${again}`;
      });
      attempt('lesson', query, () => void readAddress(query));
      attempt('experiment', query, () => {
        const first = kinds.written(kinds.read(new URLSearchParams(query).get('experiment') ?? '', boot), boot);
        const again = kinds.written(kinds.read(first, boot), boot);
        return first === again ? null : `${first} becomes ${again}`;
      });
    }
    for (const header of headers) {
      attempt('header', header, () => {
        const state = new State(boot, places, '');
        state.adopt(header);
        state.address({ whole: true });
      });
    }
    for (const text of texts) {
      attempt('trace', text, () => void Bundle.of(traceLines(asRecorded(text))));
      attempt('questions', text, () => void readQuestions(text, 24));
      attempt('result', text, () => void parsed(text));
    }
  } finally {
    window.setTimeout = setTimeout;
    window.addEventListener = addEventListener;
  }
  return wrong;
}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(Room()) as address:
        yield address


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser: Browser, address: str) -> Page:
    page = browser.new_page()
    page.goto(address)
    expect(page.locator(".sv-app")).to_be_visible()
    return page


def read_in(page: Page, **given_: list[Any]) -> None:
    """Let the page read a batch of each kind; nothing may go wrong in it."""
    batches = {"queries": [], "headers": [], "texts": []} | given_
    told = json.dumps(batches, allow_nan=True).replace("Infinity", "1e999").replace("NaN", "null")
    assert page.evaluate(READ, _sendable(json.loads(told))) == []


def batch(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=BATCH // 2, max_size=BATCH)


def test_what_the_page_reads(page: Page) -> None:
    header = bundles()[0][0]["meta"] | {"options": {"width": 2}, "prompt": "x"}
    surfaces = ("addresses: what the page reads", "addresses: headers of opened traces")

    @cases(1, each=BATCH)
    @given(batch(queries), batch(mutated([header]).filter(lambda each: isinstance(each, dict))))
    def each(asked: list[str], headers: list[Any]) -> None:
        with case("batches in a real page"):
            read_in(page, queries=asked, headers=headers)
            for surface, held in zip(surfaces, (asked, headers), strict=True):
                RAN[surface] += len(held)

    while min(RAN[surface] for surface in surfaces) < max(WANTED, 1):
        each()


def test_files_that_are_opened_in_the_page(page: Page) -> None:
    surface = "addresses: opened files in the page"

    @cases(1, each=BATCH)
    @given(st.lists(files().map(lambda text: text[:20_000]), min_size=5, max_size=20))
    def each(texts: list[str]) -> None:
        with case("batches of files in a real page"):
            read_in(page, texts=texts)
            RAN[surface] += len(texts)

    while RAN[surface] < max(WANTED, 1):
        each()


TOKENS: list[Any] = [
    None,
    3,
    "ab",
    [],
    {"5": None},
    {"5": 3},
    {"5": []},
    {"5": [3, None]},
    {"5": ["a", 3]},
    {"5": {"0": "a"}},
]


@pytest.mark.parametrize("tokens", TOKENS, ids=json.dumps)
@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_line_whose_tokens_are_none_is_left_out(page: Page, tokens: Any, line: int) -> None:
    lines = [json.loads(each) for each in small_trace(["a", "b"]).splitlines()]
    lines[line]["tokens"] = tokens
    text = "".join(json.dumps(each) + "\n" for each in lines)
    read_in(page, texts=[text])


def _sendable(value: Any) -> Any:
    """Without what the wire to the browser does not carry: numbers beyond a float, halves of letters."""
    if isinstance(value, dict):
        return {_sendable(name): _sendable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_sendable(each) for each in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return float(2**53)
    return value


def test_a_visit(browser: Browser, address: str) -> None:
    @cases(3, each=100)
    @given(queries)
    def each(query: str) -> None:
        with case("addresses: whole visits"):
            seen: list[str] = []
            page = browser.new_page()
            page.on("pageerror", lambda error: seen.append(str(error)))
            page.on("dialog", lambda dialog: note_dialog(dialog, seen))
            page.on(
                "console",
                lambda said: (
                    seen.append(said.text) if said.type == "error" and not HARMLESS.search(said.text) else None
                ),
            )
            # The host's own names in an address are the host's matter, and so is an address too long for it.
            page.goto(address + "/" + query.replace("?page=", "?").replace("&page=", "&")[:4000])
            expect(page.locator(".sv-app main, .sv-app .sv-place").first).to_be_visible(timeout=20_000)
            page.close()
            assert seen == []

    each()
