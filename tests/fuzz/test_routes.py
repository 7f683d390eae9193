"""Addresses of classes, lessons and files: any path, header and body gets an answer below 500."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from spec_viz.content.presets import load_presets
from spec_viz.ui.classroom import ClassLimits, MemoryStore, School
from spec_viz.ui.classroom_route import MEMBER, TOKEN, class_routes, lesson_steps
from spec_viz.ui.door import Door
from spec_viz.ui.page import launch_options
from spec_viz.ui.room import Room
from tests.fuzz.cases import SNIPPETS, anything, case, cases, mutated, vandalised

SLUG = "5_1_principles"
BODIES = [
    {"lesson": SLUG, "step": "slow"},
    {"lesson": SLUG, "step": "easy", "follow": False, "reveal": "slow"},
    {"step": "slow", "value": 1},
    {"step": "idea", "value": 0.5},
]
VERBS = ("", "/lead", "/guess", "/send", "/end", "/sent/0", "/sent/x", "/no")


@pytest.fixture(scope="module")
def web() -> Iterator[TestClient]:
    school = School(
        MemoryStore(), lesson_steps, ClassLimits(100_000, address_classes=100_000, address_openings=100_000)
    )
    app = Starlette(routes=class_routes(school), middleware=[Middleware(Door)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def files() -> Iterator[TestClient]:
    app = Starlette(routes=launch_options(Room())["app_kwargs"]["routes"], middleware=[Middleware(Door)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


# What an address, and a header, can hold at all.
addressed = st.text(max_size=30) | st.sampled_from(
    ["%00", "%2e%2e/", "..%2f", "%ff", "%c3%28", "//", "a" * 3000, "%0d%0a", ";", "~"]
)
headed = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)


def asked(web: TestClient, surface: str, method: str, path: str, **more: Any) -> None:
    with case(surface):
        # A client sends no other letters in an address; what is escaped already stays so.
        answer = web.request(method, quote(path, safe="/%&=;~?", errors="replace"), **more)
        assert answer.status_code < 500
        assert answer.headers["x-content-type-options"] == "nosniff"
        if answer.content and answer.headers["content-type"] == "application/json":
            answer.json()


def test_classes(web: TestClient) -> None:
    opened = web.post("/sv/class", json=BODIES[0]).json()
    run = next(iter(load_presets())).trace_path.read_text(encoding="utf-8")[:3000]

    @cases(80)
    @given(
        st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS"]),
        st.sampled_from([opened["code"], "", "XXXXX", "5_1"]) | addressed,
        st.sampled_from(VERBS) | addressed,
        st.one_of(
            mutated(BODIES).map(lambda body: json.dumps(body).encode()),
            anything.map(lambda body: json.dumps(body).encode()),
            vandalised(run).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.binary(max_size=60),
        ),
        st.sampled_from([opened["token"], "", None]) | headed,
        st.sampled_from(["0" * 16, "", None]) | headed,
    )
    def each(method: str, code: str, verb: str, body: bytes, token: str | None, member: str | None) -> None:
        # A class that was ended is opened again.
        headers = {name: value for name, value in ((TOKEN, token), (MEMBER, member)) if value is not None}
        path = f"/sv/class/{code}{verb}" if code else "/sv/class"
        asked(web, "class addresses", method, path, content=body, headers=headers)
        if verb == "/end":
            opened.update(web.post("/sv/class", json=BODIES[0]).json())

    each()


def test_lessons_families_and_files(files: TestClient) -> None:
    known = st.sampled_from(
        [
            f"/sv/lesson/{SLUG}.vi.json",
            f"/sv/lesson/{SLUG}/cost.en.json",
            "/sv/lesson/5_4_speed/gamma.vi.json",
            "/sv/family.json",
            "/sv/family.csv",
            "/sv/js/app.js",
            "/sv/lessons/presets/weather.ndjson",
            "/sv/vendor/plotly.min.js",
        ]
    )

    @st.composite
    def paths(draw: st.DrawFn) -> str:
        path = draw(known)
        if draw(st.integers(0, 3)):
            at = draw(st.integers(4, len(path)))
            path = path[:at] + draw(addressed | st.sampled_from(SNIPPETS[:14])) + path[at + draw(st.integers(0, 9)) :]
        return path

    @cases(60)
    @given(
        st.sampled_from(["GET", "GET", "GET", "HEAD", "POST"]),
        paths(),
        st.sampled_from([{}, {"range": "bytes=0-9"}, {"range": "bytes=9-0,x"}]),
    )
    def each(method: str, path: str, headers: dict[str, str]) -> None:
        asked(files, "lesson, family and file addresses", method, path, headers=headers)

    each()
