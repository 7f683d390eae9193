"""The addresses of a class: a whole lesson over HTTP, and whatever else may be sent there."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from spec_viz.content.presets import load_presets
from spec_viz.serving.gate import PUBLIC
from spec_viz.ui.classroom import ALONE, ClassLimits, MemoryStore, School
from spec_viz.ui.classroom_redis import RedisStore, place_of
from spec_viz.ui.classroom_route import (
    MEMBER,
    MOST_BYTES,
    REDIS,
    TOKEN,
    class_routes,
    lesson_steps,
    school_of,
)
from spec_viz.ui.wording import words
from tests.integration.ports import LOCAL, free_port
from tests.integration.redis_server import SECRET, RedisServer, redis_server

SLUG = "5_1_principles"
MEMBERS = [{MEMBER: f"{place:016x}"} for place in range(3)]


@pytest.fixture(scope="module", params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
def web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The addresses over either store."""
    limits = replace(ALONE, classes=1000, address_classes=1000)
    if request.param == "memory":
        with web_of(School(MemoryStore(), lesson_steps, limits)) as client:
            yield client
        return
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        store = RedisStore(redis.address)
        with web_of(School(store, lesson_steps, limits)) as client:
            yield client
        store.close()


def web_of(school: School | None) -> TestClient:
    return TestClient(Starlette(routes=class_routes(school)))


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


# The client asks as testserver.
@pytest.mark.parametrize(
    "at",
    [
        "",
        "specviz",
        "//testserver/",
        "javascript:alert(1)//testserver/",
        "file://testserver/",
        "http:///",
        f"http://testserver/{'x' * 300}",
        # Bytes count, not letters.
        f"http://testserver/{'é' * 140}",
        f"http://testserver/{'😀' * 70}",
        "http://[x",
        "http://[::1",
        "http://[::1]x/",
        "http://]",
        "http://[v1.x]/",
        "https://h\u2100.x/",
        "http://testserver\u3002/",
        "http://testserver@evil.example/",
        "http://somebody@testserver/",
        "http://testserver:p@evil.example/",
        "http://testserver:80@/",
        "https://evil.example/",
        "http://testserver.evil.example/",
        "http://evil.example/testserver",
        "http://testserver\\.evil.example/",
        "http://tests\u00e9rver/",
        "\x00",
        "http://testserver\x00/",
    ],
)
def test_only_the_address_of_a_page_is_drawn_for_cameras(web: TestClient, at: str) -> None:
    place, _ = opened(web)
    answer = web.get(f"{place}/square.svg", params={"at": at})
    assert (answer.status_code, key_of(answer)) == (400, "classroom.error.wrong")


@pytest.mark.parametrize(
    "at", ["http://testserver/", "https://testserver:8443/a/", "HTTP://TESTSERVER", "http://testserver/é"]
)
def test_the_address_of_the_page_is_drawn_whatever_stands_before_it(web: TestClient, at: str) -> None:
    place, _ = opened(web)
    assert web.get(f"{place}/square.svg", params={"at": at}).status_code == 200


def test_behind_a_proxy_that_renames_the_host_the_browser_says_that_the_page_asks(web: TestClient) -> None:
    place, _ = opened(web)
    for site, status in (("same-origin", 200), ("none", 400), ("same-site", 400), ("cross-site", 400), (None, 400)):
        headers = {"Host": "127.0.0.1:7860"} | ({"Sec-Fetch-Site": site} if site else {})
        answer = web.get(f"{place}/square.svg", params={"at": "https://specviz.example/"}, headers=headers)
        assert answer.status_code == status


def test_no_square_is_drawn_of_a_class_that_is_not_there(web: TestClient) -> None:
    place, teacher = opened(web)
    web.post(f"{place}/end", headers=teacher)
    for path in (place, "/sv/class/AAAAAA", "/sv/class/%00", f"/sv/class/{'A' * 3000}"):
        answer = web.get(f"{path}/square.svg", params={"at": "http://testserver/"})
        assert (answer.status_code, key_of(answer)) == (404, "classroom.error.none")


def test_who_asks_for_a_square_is_no_member(web: TestClient) -> None:
    place, teacher = opened(web)
    web.get(f"{place}/square.svg", params={"at": "http://testserver/"}, headers=MEMBERS[0])
    assert web.get(place, headers=teacher).json()["members"] == 0


def test_what_is_drawn_for_cameras_is_a_picture_and_nothing_else(web: TestClient) -> None:
    place, _ = opened(web)
    answer = web.get(f"{place}/square.svg", params={"at": "https://testserver/a?b=<script>#</svg>"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert set(re.findall(r"<(\w+)", answer.text)) == {"svg", "path"}
    assert "script" not in answer.text


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


# ---------------------------------------------------------------- one address and the others

CLASS = {"lesson": SLUG, "step": "slow"}


def web_at(address: str, school: School) -> TestClient:
    """A visitor at this address."""
    return TestClient(Starlette(routes=class_routes(school)), client=(address, 50000))


def test_an_address_opens_three_classes_and_leaves_the_others_to_others() -> None:
    school = School(MemoryStore(), lesson_steps)
    flood = web_at("203.0.113.9", school)
    answers = [flood.post("/sv/class", json=CLASS) for _ in range(20)]
    assert [answer.status_code for answer in answers] == [201] * 3 + [429] * 17
    assert {key_of(answer) for answer in answers[3:]} == {"classroom.error.own"}
    assert web_at("203.0.113.10", school).post("/sv/class", json=CLASS).status_code == 201
    # A household has as many IPv6 addresses as it likes.
    found = [web_at(f"2001:db8:1:2::{n:x}", school).post("/sv/class", json=CLASS).status_code for n in range(6)]
    assert found == [201] * 3 + [429] * 3
    # A class that is over makes place for another one.
    old = answers[0].json()
    assert flood.post(f"/sv/class/{old['code']}/end", headers={TOKEN: old["token"]}).status_code == 204
    assert [flood.post("/sv/class", json=CLASS).status_code for _ in range(2)] == [201, 429]


def test_a_school_behind_one_router_gets_into_its_three_classes_and_fills_no_fourth() -> None:
    school = School(MemoryStore(), lesson_steps)
    router = web_at("203.0.113.9", school)
    places = [f"/sv/class/{router.post('/sv/class', json=CLASS).json()['code']}" for _ in range(3)]
    most = school.limits.members
    for number, place in enumerate(places):
        for pupil in range(most):
            assert router.get(place, headers={MEMBER: f"{number:08x}{pupil:08x}"}).status_code == 200
    other = f"/sv/class/{web_at('203.0.113.10', school).post('/sv/class', json=CLASS).json()['code']}"
    made_up = {MEMBER: "f" * 16}
    for answer in (
        router.get(other, headers=made_up),
        router.post(f"{other}/guess", json={"step": "slow", "value": 1}, headers=made_up),
        # Codes are not tried out without end either.
        router.get("/sv/class/AAAAA", headers=made_up),
    ):
        assert (answer.status_code, key_of(answer)) == (429, "classroom.error.crowd")
    # Who is in a class stays in it, and others get in elsewhere.
    assert router.get(places[0], headers={MEMBER: f"{0:08x}{0:08x}"}).status_code == 200
    assert web_at("203.0.113.11", school).get(other, headers=made_up).status_code == 200


def test_on_a_computer_of_one_s_own_nobody_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for public, most in (("", ALONE.classes), ("1", ClassLimits().address_classes)):
        monkeypatch.setenv(PUBLIC, public)
        school = school_of({})
        assert school is not None
        found = [web_at("127.0.0.1", school).post("/sv/class", json=CLASS).status_code for _ in range(ALONE.classes)]
        assert found.count(201) == most


# ---------------------------------------------------------------- the operator's edge


def test_without_a_shared_store_there_is_one_process_and_its_memory() -> None:
    assert school_of({}) is not None
    assert school_of({REDIS: ""}) is not None


def refusals(school: School | None) -> set[tuple[int, str]]:
    """What every address of a class answers, from a teacher and from a member."""
    teacher, below = {TOKEN: "x"}, "/sv/class/K7M2P"
    web = web_of(school)
    answers = [
        web.post("/sv/class", json={"lesson": SLUG, "step": "slow"}),
        web.get(below, headers=MEMBERS[0]),
        web.get(below, headers=teacher),
        web.post(f"{below}/guess", json={"step": "slow", "value": 1}, headers=MEMBERS[0]),
        web.post(f"{below}/lead", json={"step": "slow"}, headers=teacher),
        web.post(f"{below}/send", content=b"x", headers=teacher),
        web.post(f"{below}/end", headers=teacher),
        web.get(f"{below}/sent/a1"),
    ]
    return {(answer.status_code, key_of(answer)) for answer in answers}


@pytest.mark.parametrize(
    "address",
    [
        "yes",
        "127.0.0.1:6379",
        "http://:s3cret@127.0.0.1:6379",
        "redis://",
        "redis:///0",
        "redis://:s3cret@",
        "redis://:s3cret@127.0.0.1:port",
        "redis://:s3cret@127.0.0.1:99999",
        "redis://:s3cret@127.0.0.1:6379/first",
        "redis://:s3cret@127.0.0.1:6379/0?retry=often",
        "redis://:s3cret@127.0.0.1:6379/0?socket_timeout=900",
        "redis://:s3cret@127.0.0.1:6379/0?s3cret",
        "rediss://:s3cret@127.0.0.1:6379/0?ssl_anything=s3cret",
        "redis://:s3cret@127.0.0.1:6379/0?db=s3cret",
        "redis://:s3cret@127.0.0.1:6379/0#1",
        "redis://127.0.0.1:6379/s3cret@elsewhere",
        "redis://:12/s3cret@127.0.0.1:6379",
        "redis://user:12?s3cret@127.0.0.1:6379",
        "redis://user:12#s3cret@127.0.0.1:6379",
        "redis://[s3cret",
        "unix://",
        "unix://s3cret",
    ],
)
def test_an_address_that_is_none_is_told_without_its_password(address: str, caplog: pytest.LogCaptureFixture) -> None:
    school = school_of({REDIS: address})
    assert school is None
    assert f"{REDIS} is no address of a Redis" in caplog.text
    assert "redis://:PASSWORD@HOST" in caplog.text
    assert SECRET not in caplog.text
    assert refusals(school) == {(503, "classroom.error.off")}


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("redis://localhost", "localhost:6379"),
        ("redis://:s3cret@10.0.0.7:6380/2", "10.0.0.7:6380"),
        ("rediss://user:s3%2Fcret@redis.example:6379/", "redis.example:6379"),
        ("redis://[::1]:6379/0", "::1:6379"),
        ("rediss://:s3cret@redis.example?ssl_cert_reqs=none", "redis.example:6379"),
        ("unix:///run/redis.sock?db=1&password=s3cret", "/run/redis.sock"),
    ],
)
def test_where_an_address_leads_is_told_without_the_password(address: str, place: str) -> None:
    assert place_of(address) == place
    store = RedisStore(address)
    assert store.place == place
    store.close()


@pytest.mark.redis
def test_classes_wait_for_a_redis_that_is_away_and_go_on_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis = RedisServer(tmp_path)
    school = school_of({REDIS: redis.address})
    assert school is not None
    assert f"Redis at {LOCAL}:{redis.port} gave no answer (ConnectionError)" in caplog.text
    assert SECRET not in caplog.text
    assert refusals(school) == {(503, "classroom.error.store")}
    # Said once, not with every poll.
    assert caplog.text.count("gave no answer") == 1
    redis.start()
    try:
        web = web_of(school)
        code = come_back(web)
        assert web.get(f"/sv/class/{code}", headers=MEMBERS[0]).json()["step"] == "slow"
        assert caplog.text.count("answers again") == 1
    finally:
        redis.stop()


def come_back(web: TestClient) -> str:
    """Open a class, as often as it takes."""
    while True:
        answer = web.post("/sv/class", json={"lesson": SLUG, "step": "slow"})
        if answer.status_code == 201:
            return str(answer.json()["code"])
        assert key_of(answer) == "classroom.error.store"
        time.sleep(0.05)


@pytest.mark.redis
def test_a_wrong_password_is_told_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with redis_server(tmp_path) as redis:
        school = school_of({REDIS: redis.address.replace(SECRET, "wr0ng")})
        assert "AuthenticationError" in caplog.text
        assert "wr0ng" not in caplog.text
        assert refusals(school) == {(503, "classroom.error.store")}


def test_a_redis_that_never_was_leaves_no_trace_of_its_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        school = school_of({REDIS: f"redis://somebody:{SECRET}@{LOCAL}:{free_port()}/0"})
        assert refusals(school) == {(503, "classroom.error.store")}
    assert SECRET not in caplog.text
    assert "somebody" not in caplog.text


def test_a_lesson_s_steps_say_what_is_guessed() -> None:
    steps = lesson_steps(SLUG)
    assert steps is not None
    assert (steps["before"], steps["slow"], steps["round"]) == (None, "choice", "number")
    for slug in ("", "..", "_template", "presets", "5_1_principles/../5_1_principles"):
        assert lesson_steps(slug) is None
