"""What a person does on the page and sees there, said once; and a small trace of our own to open."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import FilePayload, Locator, Page, expect

from spec_viz.content.presets import load_presets
from spec_viz.engine.trace import SCHEMA, Trace
from spec_viz.ui.boot import FIRST
from spec_viz.ui.wording import words

EN = words("en")


def first_bundle() -> tuple[Trace, ...]:
    """The recorded run and baseline that stand on the board at first."""
    return next(preset for preset in load_presets() if preset.name == FIRST).recorded()


def tiles(page: Page) -> Locator:
    """The tiles that are seen, in order."""
    return page.locator(".sv-rows .sv-tile:not(.sv-tile--hidden):visible")


def rows(page: Page) -> Locator:
    return page.locator(".sv-rows > li:visible")


def drawn(page: Page) -> Page:
    """Wait until the board has tiles."""
    expect(tiles(page).first).to_be_visible()
    return page


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def picture(page: Page) -> tuple[str, ...]:
    """What the board shows: the words of every tile that is seen, and the counter."""
    names = tiles(page).evaluate_all("tiles => tiles.map(tile => tile.getAttribute('aria-label') ?? tile.textContent)")
    return (*names, page.locator(".sv-board-counter").inner_text())


def said(page: Page) -> str:
    """The alert."""
    return page.locator(".sv-alert").inner_text()


def open_trace(page: Page, content: str | bytes, name: str = "trace.ndjson") -> None:
    """Open a trace file by the button a person uses."""
    body = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open trace").or_(page.get_by_role("button", name="Mở trace")).first.click()
    chooser.value.set_files(FilePayload(name=name, mimeType="application/x-ndjson", buffer=body))


def open_questions(page: Page) -> None:
    """Open every question under the board."""
    for question in page.locator("details.sv-ask:visible").all():
        if question.get_attribute("open") is None:
            question.locator("summary").click()


def small_trace(texts: list[str], **meta: Any) -> str:
    """A bundle of one round whose tokens say what they are told: two drafts kept, one refused, one never judged."""
    ids = range(100, 100 + len(texts))
    top = [[token, 0.2] for token in ids][:5]
    facts = {"p": 0.4, "q": 0.5, "p_raw": 0.3, "q_raw": 0.2, "u": 0.25, "accept": 0.8, "beta": 0.6}

    def node(place: int, status: str) -> dict[str, Any]:
        why = {"key": [ids[0]], "found": "prompt", "copied": 1, texts[0]: texts[-1]}
        tops = {"p_top": top, "q_top": top, "residual_top": top, "why": why}
        return {"id": ids[place % len(ids)], "parent": place - 1, "depth": place + 1, "status": status, **facts, **tops}

    kv = {"target": [3, 8, 5], "drafter": None}
    ms = {"propose": 1.0, "verify": 20.0, "judge": 1.0, "rollback": 0.1}
    own = {"p": 0.4, "p_raw": 0.3, "u": 0.5, "p_top": top}
    fates = ("accepted", "accepted", "rejected", "discarded")
    lines = [
        {
            "schema": SCHEMA,
            "run": "small",
            "origin": "live",
            "meta": {"target": "toy", "drafter": "scripted", "rule": "token", "gamma": 4, "temperature": 0.8, **meta},
            "prompt": [100],
            "tokens": {str(token): [text, None] for token, text in zip(ids, texts, strict=True)},
        },
        {"round": 0, "prefill": True, "nodes": [], "emitted": {"id": 100, "kind": "plain", **own}, "kv": kv, "ms": ms},
        {
            "round": 1,
            "nodes": [node(place, fate) for place, fate in enumerate(fates)],
            "emitted": {"id": ids[-1], "kind": "correction", **own},
            "kv": kv,
            "ms": ms,
        },
        {"finish": "length"},
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
