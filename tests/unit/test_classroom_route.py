"""The addresses of a class: a whole lesson over HTTP, and whatever else may be sent there."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from spec_viz.content.presets import load_presets
from spec_viz.ui.classroom import ClassLimits, MemoryStore, School
from spec_viz.ui.classroom_route import MEMBER, MOST_BYTES, REDIS, TOKEN, class_routes, lesson_steps, school_of
from spec_viz.ui.wording import words

SLUG = "5_1_principles"
MEMBERS = [{MEMBER: f"{place:016x}"} for place in range(3)]


@pytest.fixture(scope="module")
def web() -> Iterator[TestClient]:
    school = School(MemoryStore(), lesson_steps, ClassLimits(classes=1000))
    with TestClient(Starlette(routes=class_routes(school))) as client:
        yield client


def opened(web: TestClient, step: str = "slow") -> tuple[str, dict[str, str]]:
    """A new class: its address, and the teacher's headers."""
    answer = web.post("/sv/class", json={"lesson": SLUG, "step": step})
    assert answer.status_code == 201
    return f"/sv/class/{answer.json()['code']}", {TOKEN: answer.json()["token"]}


def key_of(answer: Any) -> str:
    """The words of a refusal, which exist in both languages with what fills them."""
    error = answer.json()["error"]
    for language in ("vi", "en"):
        sentence = words(language)(error["key"], code="K7M2P", **error["args"])
        assert "{" not in sentence
    return str(error["key"])


def test_a_lesson_with_a_class(web: TestClient) -> None:
    place, teacher = opened(web)
    for member in MEMBERS:
        assert web.get(place, headers=member).json()["step"] == "slow"
    for member, value in zip(MEMBERS, (2, 0, 2), strict=True):
        assert web.post(f"{place}/guess", json={"step": "slow", "value": value}, headers=member).status_code == 204
    seen = web.get(place, headers=teacher).json()
    assert (seen["members"], seen["guesses"]) == (3, {"slow": [[0, 1], [2, 2]]})
    assert web.get(place, headers=MEMBERS[0]).json()["guesses"] == {}
    assert web.post(f"{place}/lead", json={"reveal": "slow"}, headers=teacher).status_code == 204
    assert web.get(place, headers=MEMBERS[0]).json()["guesses"] == {"slow": [[0, 1], [2, 2]]}
    assert web.post(f"{place}/lead", json={"step": "easy", "follow": False}, headers=teacher).status_code == 204
    seen = web.get(place, headers=MEMBERS[0]).json()
    assert (seen["step"], seen["follow"]) == ("easy", False)
    assert web.post(f"{place}/end", headers=teacher).status_code == 204
    answer = web.get(place, headers=MEMBERS[0])
    assert (answer.status_code, key_of(answer)) == (404, "classroom.error.none")


def test_nothing_is_sent_while_nothing_has_changed(web: TestClient) -> None:
    place, teacher = opened(web)
    for headers, step in ((teacher, "easy"), (MEMBERS[0], "idea")):
        web.get(place, headers=headers)
        tag = web.get(place, headers=headers).json()["tag"]
        again = web.get(f"{place}?since={tag}", headers=headers)
        assert (again.status_code, again.content, again.headers["cache-control"]) == (204, b"", "no-store")
        web.post(f"{place}/lead", json={"step": step}, headers=teacher)
        assert web.get(f"{place}?since={tag}", headers=headers).json()["step"] == step


def test_a_code_in_small_letters_is_the_same_class(web: TestClient) -> None:
    place, _ = opened(web)
    code = place.rpartition("/")[2]
    assert web.get(f"/sv/class/{code[:2].lower()}-{code[2:]}", headers=MEMBERS[0]).status_code == 200


def test_a_run_goes_to_all(web: TestClient) -> None:
    run = next(iter(load_presets())).trace_path.read_bytes()
    place, teacher = opened(web)
    assert web.post(f"{place}/send", content=run, headers=MEMBERS[0]).status_code == 403
    id_ = web.post(f"{place}/send", content=run, headers=teacher).json()["sent"]
    assert web.get(place, headers=MEMBERS[0]).json()["sent"] == id_
    assert web.get(f"{place}/sent/{id_}").content == run
    assert key_of(web.get(f"{place}/sent/other")) == "classroom.error.no_run"
    for body in (b"", b"\xff\xfe", b"{}", run[: len(run) // 2]):
        assert key_of(web.post(f"{place}/send", content=body, headers=teacher)) == "classroom.error.trace"
    big = web.post(f"{place}/send", content=run + b"\n" * ClassLimits().sent, headers=teacher)
    assert (big.status_code, key_of(big)) == (413, "classroom.error.big")


@pytest.mark.parametrize("value", [True, "1", None, [1], {"a": 1}, 10**400])
def test_a_guess_of_the_wrong_kind_is_refused(web: TestClient, value: Any) -> None:
    place, _ = opened(web)
    answer = web.post(f"{place}/guess", json={"step": "slow", "value": value}, headers=MEMBERS[0])
    assert (answer.status_code, key_of(answer)) == (400, "classroom.error.wrong")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_none_is_refused(web: TestClient, text: str) -> None:
    place, _ = opened(web)
    body = f'{{"step": "round", "value": {text}}}'
    assert web.post(f"{place}/guess", content=body, headers=MEMBERS[0]).status_code == 400


@pytest.mark.parametrize("member", ["", "a", "A" * 16, "z" * 16, "a" * 65, "../../x", "an@address.example"])
def test_a_member_s_name_says_nothing_of_anybody(web: TestClient, member: str) -> None:
    place, _ = opened(web)
    assert web.get(place, headers={MEMBER: member}).status_code == 400


def test_a_body_that_is_too_long_is_refused(web: TestClient) -> None:
    place, teacher = opened(web)
    body = b'{"step": "' + b"x" * MOST_BYTES + b'"}'
    ways: list[tuple[str, dict[str, str]]]
    ways = [("/sv/class", {}), (f"{place}/lead", teacher), (f"{place}/guess", MEMBERS[0])]
    for way, headers in ways:
        answer = web.post(way, content=body, headers=headers)
        assert (answer.status_code, key_of(answer)) == (413, "classroom.error.wrong")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["lesson", "step", "follow", "reveal", "value", "guess", "__proto__"])
VALUES = JSON | st.sampled_from([SLUG, "slow", 1, True])
BODIES = st.binary(max_size=60) | (JSON | st.dictionaries(NAMES, VALUES)).map(lambda body: json.dumps(body).encode())
CODES = st.text(st.characters(codec="utf-8"), max_size=12).map(lambda code: quote(code, safe=""))
VERBS = st.sampled_from(["", "/lead", "/guess", "/send", "/end", "/sent/x", "/sent/", "/x"])
HEADERS = st.dictionaries(st.sampled_from([TOKEN, MEMBER]), st.text(st.characters(codec="latin-1"), max_size=70))
RIGHT = st.just("right")


@given(code=CODES | RIGHT, verb=VERBS, method=st.sampled_from(["GET", "POST"]), body=BODIES, headers=HEADERS | RIGHT)
def test_nothing_that_is_sent_breaks_the_server(
    web: TestClient, code: str, verb: str, method: str, body: bytes, headers: dict[str, str] | str
) -> None:
    place, teacher = opened(web) if code == "right" else (f"/sv/class/{code}", {TOKEN: "x"})
    sent = teacher | MEMBERS[0] if isinstance(headers, str) else headers
    # Line breaks and zeros never pass a real server's parser.
    raw = [(name, re.sub(rb"[\r\n\0]", b"", value.encode("latin-1")).strip()) for name, value in sent.items()]
    answer = web.request(method, place + verb, content=body, headers=[(name.encode(), value) for name, value in raw])
    assert answer.status_code < 500
    if answer.status_code in (400, 403, 409, 413):
        key_of(answer)
    if code == "right":
        web.post(f"{place}/end", headers=teacher)


@given(body=BODIES)
def test_no_body_opens_a_class_at_no_step(web: TestClient, body: bytes) -> None:
    answer = web.post("/sv/class", content=body)
    assert answer.status_code == (201 if body == b'{"lesson": "5_1_principles", "step": "slow"}' else 400)


# ---------------------------------------------------------------- the operator's edge


def test_without_a_shared_store_there_is_one_process_and_its_memory() -> None:
    assert school_of({}) is not None
    assert school_of({REDIS: ""}) is not None


def test_who_asks_for_redis_is_told_that_it_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        school = school_of({REDIS: "redis://127.0.0.1:6379/0"})
    assert school is None
    assert "SPECVIZ_REDIS is set" in caplog.text
    assert "Serve one replica" in caplog.text
    # The address may hold a password.
    assert "6379" not in caplog.text
    with TestClient(Starlette(routes=class_routes(school))) as web:
        answers = [web.post("/sv/class", json={"lesson": SLUG, "step": "slow"}), web.get("/sv/class/K7M2P")]
    assert {(answer.status_code, key_of(answer)) for answer in answers} == {(503, "classroom.error.off")}


def test_a_lesson_s_steps_say_what_is_guessed() -> None:
    steps = lesson_steps(SLUG)
    assert steps is not None
    assert (steps["before"], steps["slow"], steps["round"]) == (None, "choice", "number")
    for slug in ("", "..", "_template", "presets", "5_1_principles/../5_1_principles"):
        assert lesson_steps(slug) is None
