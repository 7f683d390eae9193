"""The door: headers on every answer, addresses that are closed, who may ask, and how much may be sent."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import unquote, urljoin

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from spec_viz.content.files import ASSETS
from spec_viz.serving.gate import PUBLIC
from spec_viz.ui.door import MOST_BYTES, MOST_OF_A_RUN, MOST_OF_A_WORD, Door
from spec_viz.ui.preview import introduced
from spec_viz.ui.room import Room
from spec_viz.ui.wording import usual_language, words
from tests.integration.launch import served
from tests.load.apps import board_of

JSON = {"content-type": "application/json"}
# Gradio's, which the page does not use.
CLOSED = [
    "gradio_api/upload",
    "gradio_api/upload_progress?upload_id=x",
    "gradio_api/file=/etc/passwd",
    "gradio_api/file/app.py",
    "gradio_api/proxy=http://127.0.0.1:1/",
    "gradio_api/deep_link?session_hash=x",
    "gradio_api/run/run",
    "gradio_api/call/run",
    "gradio_api/api/run",
    "gradio_api/stream/x",
    "gradio_api/openapi.json",
    "openapi.json",
    "docs",
    "redoc",
    "login",
    "logout",
    "monitoring",
    "monitoring/summary",
    "gradio_api/vibe-edit",
    "gradio_api/runs",
    "gradio_api/run-history/records",
    "gradio_api/dev/reload",
    "gradio_api/process_recording",
    "gradio_api/custom_component/1/client/component/x.js",
    "svelte/x.js",
    "manifest.json",
    "pwa_icon",
    "pwa_icon/512",
]


@pytest.fixture(scope="module")
def web() -> Iterator[httpx.Client]:
    with served(Room()) as address, httpx.Client(base_url=address, trust_env=False) as client:
        yield client


ANSWERS = [
    ("GET", "/", 200),
    ("HEAD", "/", 200),
    ("GET", "/sv/js/app.js", 200),
    ("GET", "/sv/js/no.js", 404),
    ("GET", "/sv/%00", 404),
    ("GET", "/sv/lesson/5_1_principles.vi.json", 200),
    ("GET", "/sv/lesson/no.vi.json", 404),
    ("GET", "/sv/family.csv", 200),
    ("GET", "/sv/class/AAAAA", 400),
    ("POST", "/sv/class", 400),
    ("GET", "/gradio_api/info", 200),
    ("GET", "/config", 200),
    ("POST", "/gradio_api/component_server", 400),
    ("POST", "/gradio_api/queue/join", 400),
    ("GET", "/nothing", 404),
    ("GET", "/?page=nothing", 500),
    ("GET", "/theme.css", 200),
    ("GET", "/gradio_api/upload", 404),
]


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS, ids=[f"{method} {path}" for method, path, _ in ANSWERS])
def test_every_answer_says_what_the_browser_may_do(web: httpx.Client, method: str, path: str, status: int) -> None:
    answer = web.request(method, path, headers=JSON if method == "POST" else {})
    assert answer.status_code == status
    said = {name: words for name, _, words in (each.partition(" ") for each in policy_of(answer))}
    assert said["default-src"] == said["connect-src"] == said["base-uri"] == said["form-action"] == "'self'"
    assert said["object-src"] == said["frame-src"] == "'none'"
    assert said["frame-ancestors"] == "'self'"
    assert "'unsafe-inline'" not in said["script-src"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert "camera=()" in answer.headers["permissions-policy"]


def policy_of(answer: Any) -> list[str]:
    policy: str = answer.headers["content-security-policy"]
    return policy.split("; ")


def test_a_page_names_its_own_scripts_and_another_page_does_not(web: httpx.Client) -> None:
    page = web.get("/")
    inline = re.findall(r"<script(?![^>]*src=)(?![^>]*application/json)", page.text)
    assert len(re.findall("'sha256-", policy_of(page)[1])) >= len(inline) >= 3
    assert "'sha256-" not in web.get("/config").headers["content-security-policy"]


def test_on_a_space_the_hub_may_frame_the_page(web: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_ID", "someone/spec-viz")
    assert policy_of(web.get("/config"))[-1] == "frame-ancestors 'self' https://huggingface.co https://*.hf.space"


def test_what_changes_with_a_version_is_asked_for_again(web: httpx.Client) -> None:
    for path in ("/sv/js/app.js", "/sv/css/base.css", "/sv/lessons/presets/weather.ndjson"):
        assert web.get(path).headers["cache-control"] == "no-cache"
    assert web.get("/sv/vendor/plotly.min.js").headers["cache-control"] == "max-age=604800"
    assert web.get("/sv/class/AAAAA").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("place", CLOSED)
def test_what_the_page_does_not_use_is_closed(web: httpx.Client, place: str) -> None:
    for slash in ("", "/"):
        assert web.get(f"/{place}{slash}").status_code == 404
        assert web.post(f"/{place}{slash}", json={}).status_code == 404


def test_a_form_with_a_file_goes_nowhere(web: httpx.Client) -> None:
    for place in ("upload", "component_server", "component_server/", "queue/join"):
        answer = web.post(f"/gradio_api/{place}", files={"files": ("x.txt", b"x")}, data={"fn_name": "state"})
        assert answer.status_code in (404, 415), place


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_website_changes_nothing(web: httpx.Client, site: str) -> None:
    for place in ("/sv/class", "/gradio_api/queue/join", "/gradio_api/component_server"):
        assert web.post(place, json={}, headers={"Sec-Fetch-Site": site}).status_code == 403
    assert web.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[::1].x", "169.254.169.254", ""]
)
def test_a_name_that_somebody_leads_to_this_computer_is_not_answered(
    web: httpx.Client, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert web.get("/config", headers={"Host": host}).status_code == 421
    # Where others may look, names are given by whoever serves the page.
    monkeypatch.setenv(PUBLIC, "1")
    assert web.get("/config", headers={"Host": host}).status_code == 200


# What a proxy says of whom it speaks for, by the headers that proxies use, and what nginx asks in.
PROXIED = [
    {"X-Forwarded-For": "203.0.113.9"},
    {"X-Forwarded-For": "127.0.0.1, 203.0.113.9"},
    {"X-Forwarded-For": "unknown"},
    {"X-Real-IP": "2001:db8::1"},
    {"X-Forwarded-Host": "specviz.example"},
    {"Forwarded": 'for="[2001:db8::1]:4711";proto=https'},
    {"Forwarded": "for=127.0.0.1, FOR = 203.0.113.9"},
    {"Forwarded": "proto=https;host=specviz.example"},
    {"Origin": "https://specviz.example"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "https://localhost@evil.example"},
    {"Origin": "x"},
]


@pytest.mark.parametrize("headers", PROXIED, ids=str)
def test_behind_a_proxy_nobody_is_taken_for_this_computer(
    web: httpx.Client, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = {"data": [], "fn_index": 0, "session_hash": "s", "event_data": {"request": {"wire": {}}}}
    answers = [web.get("/", headers=headers), web.post("/gradio_api/queue/join", json=ask, headers=headers)]
    assert [answer.status_code for answer in answers] == [421, 421]
    assert "SPECVIZ_PUBLIC=1" in answers[0].json()["detail"]
    monkeypatch.setenv(PUBLIC, "1")
    assert web.get("/", headers=headers).status_code == 200


def test_a_proxy_that_says_nothing_is_known_by_the_protocol_of_nginx(
    web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(version: str) -> bytes:
        with socket.create_connection((web.base_url.host, web.base_url.port or 80)) as line:
            line.sendall(f"GET /config HTTP/{version}\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return line.makefile("rb").readline().split()[1]

    assert (status("1.0"), status("1.1")) == (b"421", b"200")
    monkeypatch.setenv(PUBLIC, "1")
    assert (status("1.0"), status("1.1")) == (b"200", b"200")


HERE = [
    {},
    {"Origin": "null"},
    {"Origin": "http://localhost:7860"},
    {"Origin": "http://[::1]:7860"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-For": "::1"},
    {"X-Real-IP": "127.0.0.1:50000"},
    {"Forwarded": 'for=127.0.0.1;host="localhost:7860";proto=http'},
    {"X-Forwarded-Host": "localhost:7860"},
]


@pytest.mark.parametrize("headers", HERE, ids=str)
def test_a_proxy_of_this_computer_for_this_computer_is_let_in(web: httpx.Client, headers: dict[str, str]) -> None:
    assert web.get("/", headers=headers).status_code == 200


# Where a browser says nothing of sites: a page that came over plain HTTP from another computer.
LAN = "192.168.1.5:7860"
OWN = [
    (LAN, f"http://{LAN}", True),
    (LAN, "null", True),
    (LAN, None, True),
    # A proxy that leaves the port out, or names the usual one.
    ("192.168.1.5", f"http://{LAN}", True),
    ("specviz.example:443", "https://specviz.example", True),
    ("SpecViz.example", "https://specviz.example", True),
    ("[2001:db8::1]:7860", "http://[2001:db8::1]:7860", True),
    (LAN, "http://evil.example", False),
    (LAN, "http://192.168.1.5:8000", False),
    (LAN, "http://192.168.1.5", False),
    (LAN, f"http://{LAN}.evil.example", False),
    (LAN, f"http://evil.example/{LAN}", False),
    (LAN, "http://", False),
    ("", "http://", False),
    ("", "x", False),
    ("127.0.0.1:7860", "https://specviz.example", False),
]


@pytest.mark.parametrize(("host", "origin", "ours"), OWN, ids=str)
def test_without_word_of_the_site_a_request_that_changes_something_names_its_origin(
    web: httpx.Client, host: str, origin: str | None, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC, "1")
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    for place in ("/sv/class", "/gradio_api/queue/join", "/gradio_api/component_server"):
        for method in ("POST", "PUT", "DELETE"):
            assert (web.request(method, place, json={}, headers=headers).status_code == 403) is not ours, place
    # To look is free.
    assert web.get("/config", headers=headers).status_code == 200
    if origin is not None:
        # Where the browser knows, it is believed, and no proxy need pass the host on.
        told = {**headers, "Sec-Fetch-Site": "same-origin"}
        assert web.post("/sv/class", json={}, headers=told).status_code == 400
        # A website may have it say this, and a proxy passes it on.
        named = {**headers, "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": origin.partition("://")[2]}
        assert (web.post("/sv/class", json={}, headers=named).status_code == 403) is not ours


@pytest.mark.parametrize("host", ["localhost", "localhost:7860", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:7860"])
def test_this_computer_is_known_by_all_its_names(web: httpx.Client, host: str) -> None:
    assert web.get("/config", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("place", ["cancel", "reset", "cancel/", "reset/"])
def test_to_give_a_run_up_takes_few_words_and_none_are_said_back(web: httpx.Client, place: str) -> None:
    path = f"/gradio_api/{place}"
    for body in (b'{"session_hash": "' + b"x" * MOST_OF_A_WORD + b'"}', b"{" + b" " * MOST_BYTES):
        assert web.post(path, content=body, headers=JSON).status_code == 413
    for told in ({"session_hash": "zyx"}, {"event_id": 1, "x": "zyx"}, ["zyx"], "zyx"):
        answer = web.post(path, json=told)
        assert (answer.status_code, "zyx" in answer.text) == (422, False)
    fits = {"session_hash": "s", "fn_index": 0, "event_id": "e"}
    assert web.post(path.rstrip("/"), json=fits).status_code == 200


# What Gradio fails at, logs, or says back.
CALL: dict[str, Any] = {"data": [], "fn_index": 0, "trigger_id": 1, "session_hash": "s", "event_data": {}}
ASKED: dict[str, Any] = {"data": None, "fn_name": "state", "component_id": 1, "session_hash": "s"}
BODIES: list[Any] = [[], None, 1, "zyx", {}, {"data": []}]
NO_CALLS: list[tuple[str, Any]] = [
    *(("queue/join", CALL | {"fn_index": number}) for number in (1, 2, -1, 10**30)),
    *(("queue/join", CALL | {"fn_index": odd}) for odd in (None, "0", 0.5, True, [0])),
    *(("queue/join", CALL | {"session_hash": odd}) for odd in (None, "", "x" * 65, 1, ["s"])),
    *(("queue/join", CALL | {name: {"zyx": 1}}) for name in ("data", "trigger_id", "event_id", "simple_format")),
    *(("queue/join", body) for body in BODIES),
    *(("component_server", ASKED | {"component_id": odd}) for odd in (0, 2, -1, 10**30, "1", None, 1.5, True, [1])),
    *(("component_server", ASKED | {"fn_name": odd}) for odd in (None, 1, "", "no", "__init__", "x" * 65, ["state"])),
    *(("component_server", ASKED | {"session_hash": odd}) for odd in (None, "", "x" * 65, 1, ["s"])),
    *(("component_server", body) for body in BODIES),
]
NO_JSON = [
    b"[1e999999]",
    b'{"data": [1e999999]}',
    b'{"data": [], "session_hash": NaN, "fn_index": -Infinity}',
    b"[" * 100_000,
    b'{"data":' * 10_000,
    b"9" * 100_000,
    b"\xff\xfe",
    b"{",
    b"",
]


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is logged or printed meanwhile."""
    caplog.set_level(logging.WARNING)
    capfd.readouterr()
    yield
    assert [record.getMessage() for record in caplog.records] == []
    assert capfd.readouterr() == ("", "")


def test_what_the_page_sends_goes_through_whole(web: httpx.Client) -> None:
    # Gradio counts the components of every page in this process.
    board = board_of(web)
    asked, call = ASKED | {"component_id": board}, CALL | {"trigger_id": board}
    answer = web.post("/gradio_api/component_server", json=asked)
    assert (answer.status_code, answer.json()["ready"]) == (200, False)
    # Half a letter, as a page sends it that has one in its prompt.
    said = json.dumps(asked | {"fn_name": "drift", "data": {"fault": "no", "text": "é\ud800" * 1000}})
    answer = web.post("/gradio_api/component_server", content=said, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["key"]) == (200, "break.failed")
    told = json.dumps(call | {"event_data": {"request": {"nonce": "n0nce", "prompt": "\ud800" * 1000}}})
    joined = web.post("/gradio_api/queue/join", content=told, headers=JSON)
    assert joined.status_code == 200
    heard = web.get("/gradio_api/queue/data", params={"session_hash": "s"}).text
    assert "n0nce" in heard
    assert joined.json()["event_id"] in heard


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("place", "body"), NO_CALLS, ids=lambda each: str(each)[:60])
def test_a_call_of_nothing_that_is_there_is_refused(web: httpx.Client, place: str, body: Any) -> None:
    for slash in ("", "/"):
        answer = web.post(f"/gradio_api/{place}{slash}", json=body)
        assert 400 <= answer.status_code < 500
        assert "zyx" not in answer.text


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("place", ["queue/join", "component_server", "cancel", "reset"])
@pytest.mark.parametrize("body", NO_JSON, ids=lambda each: repr(each)[:30])
def test_a_body_that_is_none_is_refused(web: httpx.Client, place: str, body: bytes) -> None:
    assert web.post(f"/gradio_api/{place}", content=body, headers=JSON).status_code in (400, 413, 422)


@pytest.mark.usefixtures("quiet")
def test_who_listens_to_a_page_that_is_not_there_is_told_so(web: httpx.Client) -> None:
    answer = web.get("/gradio_api/queue/data", params={"session_hash": "zzz"})
    assert answer.status_code == 200
    assert '"session_not_found":true' in answer.text


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("folder", ["/static/", "/assets/", "/sv/", "/sv/js/", "/sv/lesson/"])
@pytest.mark.parametrize("name", ["a" * 5000, "a" * 256, "%C3%A9" * 128, "b/" * 300 + "a" * 256, "a" * 255])
def test_a_name_that_no_file_has_is_not_found(web: httpx.Client, folder: str, name: str) -> None:
    assert web.get(folder + name).status_code in (404, 422)


@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Gradio-Server"])
def test_nobody_gives_the_page_another_address(web: httpx.Client, header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PUBLIC, "1")
    for value in ("https://evil.example", "evil.example", "["):
        for path in ("/", "/config"):
            answer = web.get(path, headers={header: value})
            assert answer.status_code == 200
            assert "evil.example" not in answer.text
            assert web.get(path, headers={header: value}).text == web.get(path).text
            assert answer.headers["cache-control"] == "no-cache"


def test_a_proxy_that_is_trusted_says_by_which_address_the_page_is_asked(
    web: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLIC, "1")
    told = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": "specviz.example", "X-Forwarded-Proto": "https"}
    assert web.get("/config", headers=told).json()["root"] == "https://specviz.example"
    # A proxy may pass on what a visitor made up.
    assert web.get("/config", headers=told | {"X-Forwarded-Host": "["}).status_code == 200
    assert "evil" not in web.get("/config", headers=told | {"X-Gradio-Server": "https://evil.example"}).text


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "host", ["[", "a b", "a:b", "a" * 5000, "http://x", "é", "a/b?c#d", "%00", "@", ":80", "a:999999"]
)
def test_a_host_that_is_none_breaks_no_page(web: httpx.Client, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PUBLIC, "1")
    for path in ("/", "/config"):
        assert web.get(path, headers=[(b"Host", host.encode())]).status_code < 500


@pytest.mark.parametrize(
    ("place", "most"),
    [("/gradio_api/component_server", MOST_BYTES), ("/gradio_api/queue/join", MOST_OF_A_RUN)],
)
def test_too_much_is_refused_as_it_comes_and_before_it_comes(web: httpx.Client, place: str, most: int) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(most // 1_000_000 + 2):
            yield b"1" * 1_000_000

    assert web.post(place, content=pieces(), headers=JSON).status_code == 413
    assert web.post(place, content=b"1" * (most + 1), headers=JSON).status_code == 413
    # The largest that a page sends is read, and refused for what it is.
    assert web.post(place, content=b"1" * most, headers=JSON).status_code == 400


def test_the_page_says_itself_what_it_is(web: httpx.Client) -> None:
    page = web.get("/").text
    head = page.partition("<script")[0]
    assert re.findall(r"<title>(.*?)</title>", head) == ["SpecViz"]
    told = dict(re.findall(r'<meta (?:property|name)="((?:og|twitter):\w+|description)" content="([^"]*)">', head))
    assert told["og:title"] == "SpecViz"
    assert told["og:description"] == told["description"] == words(usual_language())("shell.preview")
    assert not re.search("gradio", head, re.IGNORECASE)
    assert len(re.findall(r"<meta\s+(?:property|name)=.(?:og|twitter):", page)) == len(told) - 1
    # All that is linked lies in the page's own folder, wherever a proxy puts that.
    links = re.findall(r'<link[^>]* href="([^"]*)"', page.partition("</head>")[0])
    assert "sv/manifest.json" in links
    # Within the page: a file would be asked for again whenever the address changes.
    icons = [unquote(link).partition(",")[2] for link in links if link.startswith("data:image/svg+xml,")]
    assert icons == [(ASSETS / "icon.svg").read_text()]
    assert not [link for link in links if link.startswith("/") or "://" in link]
    manifest = web.get("/sv/manifest.json").json()
    assert manifest["name"] == "SpecViz"
    assert urljoin("/sv/manifest.json", manifest["start_url"]) == "/"
    assert urljoin("/sv/manifest.json", manifest["icons"][0]["src"]) == "/sv/icon.svg"
    for link in ("/sv/icon.svg", "/favicon.ico"):
        answer = web.get(link)
        assert (answer.text, answer.headers["content-type"]) == ((ASSETS / "icon.svg").read_text(), "image/svg+xml")
    assert web.head("/").headers["content-length"] == str(len(web.get("/").content))


def test_what_stands_in_scripts_and_pages_without_any_stay_as_they_are() -> None:
    script = b'<script>x = \'<meta property="og:title" content="x">\'</script>'
    assert introduced(b'<meta property="og:title" content="x">' + script).endswith(script)
    assert introduced(b"<p>none</p>") == b"<p>none</p>"


# ---------------------------------------------------------------- alone, before an app of our own


async def _fails(_: Request) -> Response:
    raise RuntimeError("what a visitor sent")


async def _streams(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"piece\n"
            await anyio.sleep(0)

    return StreamingResponse(pieces(), media_type="text/event-stream")


async def _breaks(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"piece\n"
        raise RuntimeError("what a visitor sent")

    return StreamingResponse(pieces(), media_type="text/event-stream")


async def _page(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"<script>one"
        yield b"()</script><script src='x.js'></script><script type='module'>two()</script>"

    return StreamingResponse(pieces(), media_type="text/html")


async def _strict(_: Request) -> Response:
    return HTMLResponse("x", headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"})


async def _heard(request: Request) -> Response:
    return JSONResponse(dict(request.headers))


async def _reads(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture
def small() -> Iterator[TestClient]:
    ways = {"fails": _fails, "streams": _streams, "breaks": _breaks, "page": _page, "strict": _strict, "heard": _heard}
    routes = [*(Route(f"/sv/{name}", way) for name, way in ways.items()), Route("/sv/reads", _reads, methods=["POST"])]
    with TestClient(Starlette(routes=routes, middleware=[Middleware(Door)]), base_url="http://127.0.0.1") as client:
        yield client


def test_what_fails_is_answered_and_logged_without_its_words(
    small: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = small.get("/sv/fails")
    assert (answer.status_code, answer.json()) == (500, {"detail": "Internal Server Error"})
    assert "content-security-policy" in answer.headers
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("a request failed: RuntimeError\n")
    assert "test_door.py:" in record.getMessage()
    assert "visitor sent" not in caplog.text


def test_a_stream_goes_through_piece_by_piece_and_ends_where_it_breaks(
    small: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with small.stream("GET", "/sv/streams") as answer:
        assert list(answer.iter_lines()) == ["piece"] * 3
    assert small.get("/sv/breaks").text == "piece\n"
    assert "visitor sent" not in caplog.text


def test_scripts_of_a_page_that_comes_in_pieces_are_named(small: TestClient) -> None:
    answer = small.get("/sv/page")
    # sha256 of "one()" and of "two()", made by: printf 'one()' | openssl dgst -sha256 -binary | base64
    assert policy_of(answer)[1].split() == [
        "script-src",
        "'self'",
        "'unsafe-eval'",
        "'sha256-HR7iaask9daLMRRskMI++QeJtjWDOjyPA6lGzYGzKW4='",
        "'sha256-iMrPAWirDC2X0OhZzLsM2MRIWSmepJGI4r7D8ZlwBOw='",
    ]
    assert answer.text.startswith("<script>one()</script>")


def test_what_a_visitor_says_of_proxies_goes_no_further(small: TestClient) -> None:
    made_up = {"X-Forwarded-Host": "localhost", "X-Forwarded-Proto": "https", "X-Gradio-Server": "x"}
    assert not {name.lower() for name in made_up} & set(small.get("/sv/heard", headers=made_up).json())


def test_a_stricter_answer_stays_as_it_is(small: TestClient) -> None:
    answer = small.get("/sv/strict")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("length", ["99999999999999999999", "9" * 5000, "x"])
def test_a_length_that_is_none_is_not_believed(small: TestClient, length: str) -> None:
    assert small.post("/sv/reads", content=b"abc", headers={"content-length": length}).status_code in (200, 413)


def test_under_the_folder_of_a_proxy_the_same_addresses_are_open() -> None:
    routes = [Route("/sv/strict", _strict)]
    with TestClient(
        Starlette(routes=routes, middleware=[Middleware(Door)]), base_url="http://127.0.0.1", root_path="/viz"
    ) as client:
        assert client.get("/viz/sv/strict").status_code == 200
        assert client.get("/viz/gradio_api/upload").status_code == 404
