"""Servers that fail, stall, lie and send too much: each ends soon, in one sentence, and what had come is kept."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spec_viz.serving import client
from spec_viz.serving.client import BrokenOffError, Server
from spec_viz.serving.connect import Outcome, ask
from spec_viz.serving.counters import scrape
from spec_viz.serving.gate import Place
from spec_viz.serving.problems import ServerError
from spec_viz.serving.wire import KEY, Bounds
from spec_viz.ui.wording import LANGUAGES, words
from tests.unit.toys import CHAT, LOCAL, Handler, Route, Toy, chunk, running, vllm

SMALL = Bounds(1_000_000, 1.0, 0.5)
# A slow machine may need a second more than the bound itself.
SOON = 4.0


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of every request, small enough to wait for."""
    monkeypatch.setattr(client, "SHORT", SMALL)
    monkeypatch.setattr(client, "STREAM", SMALL)
    monkeypatch.setattr("spec_viz.serving.counters.METRICS", SMALL)


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON


def fails(do: Callable[[], object]) -> ServerError:
    """The problem that it ends with, soon; both languages have its sentence, with every hole filled."""
    with soon(), pytest.raises(ServerError) as told:
        do()
    for language in LANGUAGES:
        assert "{" not in words(language)(told.value.key, **told.value.fields)
    return told.value


def drip(handler: Handler, _body: Any) -> None:
    """A byte now and then, before any header is whole: no timeout of a socket ever comes."""
    for letter in "HTTP/1.1 200 OK\r\nX: " + "x" * 1000:
        handler.wfile.write(letter.encode())
        handler.wfile.flush()
        time.sleep(0.05)


def drip_body(handler: Handler, _body: Any) -> None:
    handler.begin()
    for _ in range(1000):
        handler.wfile.write(b": still here\n")
        handler.wfile.flush()
        time.sleep(0.05)


def silent(handler: Handler, _body: Any) -> None:
    handler.toy.hung_up.wait(20)


def endless(handler: Handler, _body: Any) -> None:
    handler.begin()
    while True:
        handler.wfile.write(b"x" * 65536)


def redirecting(status: int, where: str) -> Route:
    return lambda handler, _body: handler.send(status, b"", Location=where)


def page(handler: Handler, _body: Any) -> None:
    handler.send(200, b"<!DOCTYPE html><script>alert(1)</script>", "text/html; charset=utf-8")


def no_page(handler: Handler, _body: Any) -> None:
    handler.send(404, b"<!DOCTYPE HTML><title>Error response</title>", "text/html;charset=utf-8")


def no_gateway(handler: Handler, _body: Any) -> None:
    handler.send(502, b"<html><h1>502 Bad Gateway</h1></html>", "text/html")


def packed(handler: Handler, _body: Any) -> None:
    handler.send(200, b"\x1f\x8b" + b"\0" * 50, Content_Encoding="gzip")


def says(status: int) -> Route:
    return lambda handler, _body: handler.send(status, b"{}")


FAULTS: list[tuple[Route, str]] = [
    (drip, "error.server_slow"),
    (drip_body, "error.server_slow"),
    (silent, "error.server_silent"),
    (endless, "error.server_large"),
    (redirecting(302, "http://169.254.169.254/latest/meta-data/"), "error.server_redirects"),
    (redirecting(307, "/v1/elsewhere"), "error.server_redirects"),
    (redirecting(301, "file:///etc/passwd"), "error.server_redirects"),
    (page, "error.server_web"),
    (no_page, "error.server_web"),
    (no_gateway, "error.server_said"),
    (packed, "error.server_odd"),
    (says(401), "error.server_key"),
    (says(500), "error.server_said"),
]


@pytest.mark.parametrize(("route", "key"), FAULTS)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", CHAT])
def test_a_bad_server_ends_soon_and_in_a_sentence(path: str, route: Route, key: str) -> None:
    with running(vllm()) as toy:
        place = toy.place
        server = Server(place)
        toy.routes[path] = route
        do = {
            "/v1/models": lambda: server.models(),
            "/metrics": lambda: scrape(place),
            CHAT: lambda: server.ask("count", 5),
        }[path]
        assert fails(do).key == key
        # Nobody went where it pointed to.
        assert "/v1/elsewhere" not in [where for where, _, _ in toy.seen]
        toy.hung_up.set()


def test_a_port_where_something_else_speaks_and_one_where_nobody_listens() -> None:
    with socket.create_server((LOCAL, 0)) as other:

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        place = Place.of(f"http://{LOCAL}:{other.getsockname()[1]}")
        assert fails(lambda: Server(place)).key == "error.server_broke"
        thread.join()
    assert fails(lambda: Server(place)).key == "error.server_away"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"data": 5}',
        b'{"data": [{"id": 5}]}',
        b'{"data": [{}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_models_that_are_none_are_odd(body: bytes) -> None:
    with running(vllm()) as toy:
        toy.routes["/v1/models"] = lambda handler, _: handler.send(200, body)
        assert fails(lambda: Server(toy.place)).key == "error.server_odd"


ODD: list[Any] = [
    "{not json",
    "NaN",
    "[]",
    '{"choices": 5}',
    '{"choices": [{"delta": {"content": 5}}]}',
    '{"choices": [{"delta": {"content": ["<b>"]}}]}',
    '{"choices": [{}]}',
    '{"choices": [{"delta": {"content": "a"}, "token_ids": [-1]}]}',
    '{"choices": [{"delta": {"content": "a"}, "token_ids": [1.5]}]}',
    '{"choices": [{"delta": {"content": "a"}, "token_ids": [1e999]}]}',
    '{"choices": [], "usage": {"completion_tokens": -3}}',
    '{"choices": [], "metrics": {"x": NaN}}',
    '{"choices": [], "metrics": [1]}',
    '{"choices": [{"delta": {"content": "\\ud800"}}]}',
    "[" * 100_000,
]


@pytest.mark.parametrize("event", ODD)
def test_an_event_that_is_none_ends_the_answer_and_keeps_what_came(event: str) -> None:
    def chat(handler: Handler, _body: Any) -> None:
        handler.begin()
        handler.event(chunk("One ", [5], prompt_token_ids=[1, 2]))
        handler.event(event)

    problem = fails(lambda: answered(chat))
    assert problem.key == "error.server_odd"
    assert isinstance(problem, BrokenOffError)
    assert (problem.answer.text, problem.answer.ids, problem.answer.tokens) == ("One ", (5,), 1)


def answered(chat: Route) -> object:
    with running(vllm()) as toy:
        toy.routes[CHAT] = chat
        server = Server(toy.place)
        return server.ask("count", 5)


@pytest.mark.parametrize("with_length", [True, False])
def test_a_server_that_is_killed_in_the_middle_leaves_what_it_wrote(with_length: bool) -> None:
    def chat(handler: Handler, _body: Any) -> None:
        if with_length:
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
        else:
            handler.begin()
        handler.event(chunk("One ", [5], prompt_token_ids=[1, 2]))
        handler.event(chunk("two", [6, 7]))
        handler.connection.shutdown(socket.SHUT_RDWR)

    problem = fails(lambda: answered(chat))
    assert problem.key == "error.server_broke"
    assert isinstance(problem, BrokenOffError)
    assert (problem.answer.text, problem.answer.ids) == ("One two", (5, 6, 7))
    assert [each.tokens for each in problem.answer.arrivals] == [1, 2]


@pytest.mark.parametrize(
    ("route", "key"),
    [(silent, "error.server_silent"), (drip_body, "error.server_slow"), (endless, "error.server_large")],
)
def test_what_came_before_a_stall_or_a_flood_is_kept(route: Route, key: str) -> None:
    def chat(handler: Handler, body: Any) -> None:
        handler.begin()
        handler.event(chunk("One ", [5], prompt_token_ids=[1, 2]))
        route(handler, body)

    problem = fails(lambda: answered(chat))
    assert problem.key == key
    assert isinstance(problem, BrokenOffError)
    assert problem.answer.text == "One "


def test_an_answer_without_an_event_is_odd() -> None:
    for body in (b"", b'{"choices": [{"message": {"content": "whole"}}]}', b"event: x\n\n: y\n"):
        assert fails(lambda body=body: answered(lambda handler, _: handler.send(200, body))).key == "error.server_odd"  # type: ignore[misc]


def test_a_server_that_reports_an_error_in_its_stream_gave_up() -> None:
    def chat(handler: Handler, _body: Any) -> None:
        handler.begin()
        handler.event(chunk("One ", [5]))
        handler.event({"error": {"message": "<script>alert(1)</script>"}})

    problem = fails(lambda: answered(chat))
    assert problem.key == "error.server_gave_up"
    assert "script" not in f"{problem} {problem.fields}"


def test_a_line_of_a_megabyte_in_small_pieces_takes_no_long_time() -> None:
    def chat(handler: Handler, _body: Any) -> None:
        handler.begin()
        handler.wfile.write(b"data: ")
        for _ in range(2000):
            handler.wfile.write(b"x" * 400)
            handler.wfile.flush()
        handler.wfile.write(b"\n\n")

    assert fails(lambda: answered(chat)).key == "error.server_odd"


def test_a_server_without_ids_is_counted_by_what_it_says_of_its_tokens() -> None:
    def chat(handler: Handler, _body: Any) -> None:
        handler.begin()
        for text, counted in (("One", 1), (" two three", 3)):
            handler.event(chunk(text, None, "length", usage={"completion_tokens": counted}))
        handler.event({"choices": [], "usage": {"completion_tokens": 3}})
        handler.event("[DONE]")

    answer = answered(chat)
    assert isinstance(answer, client.Answer)
    assert (answer.ids, answer.tokens, [each.tokens for each in answer.arrivals]) == (None, 3, [1, 2])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html></html>",
        b"\xff\xfe\x00",
        b"vllm:generation_tokens_total{engine=} 5\n",
        b"vllm:generation_tokens_total -5\nvllm:prompt_tokens_total 1\nvllm:time_to_first_token_seconds_count 1\n",
        b"vllm:generation_tokens_total 1e300\nvllm:prompt_tokens_total 1\nvllm:time_to_first_token_seconds_count 1\n",
        b"vllm:generation_tokens_total{" + b'a="\\\\' * 100_000 + b"} 1\n",
        b"vllm:generation_tokens_total 1\n" * 30_000,
        b"vllm:generation_tokens_total{" * 20_000,
    ],
)
def test_counters_that_are_none_are_said_to_be_none_soon(text: bytes) -> None:
    with running(vllm()) as toy:
        toy.routes["/metrics"] = lambda handler, _: handler.send(200, text, "text/plain")
        assert fails(lambda: scrape(toy.place)).key == "error.server_metrics"


def test_a_stop_ends_a_request_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without it, each would take far longer.
    monkeypatch.setattr("spec_viz.serving.counters.METRICS", Bounds(1_000_000, 30.0, 30.0))
    for route in (silent, drip, drip_body):
        with running(vllm()) as toy:
            toy.routes["/metrics"] = route
            ends = time.monotonic() + 0.15
            problem = fails(lambda place=toy.place, ends=ends: scrape(place, lambda: time.monotonic() > ends))  # type: ignore[misc]
            assert problem.key == "error.server_stopped"
            toy.hung_up.set()


def test_nothing_runs_on_when_a_request_is_over() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with running(vllm()) as toy:
        server = Server(toy.place)
        server.ask("count", 5)
    assert not {thread.name for thread in threading.enumerate()} - before


# ---------------------------------------------------------------- the key


def test_the_key_is_sent_and_said_nowhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(KEY, "sk-secret")
    caplog.set_level(logging.DEBUG)

    def echo(handler: Handler, _body: Any) -> None:
        handler.send(401, f"wrong key {handler.headers['Authorization']}".encode())

    with running(vllm()) as toy:
        *_, outcome = ask(toy.listed, "m", "count", 5)
        assert isinstance(outcome, Outcome)
        assert outcome.reading is not None
        assert outcome.reading.trace is not None
        assert "sk-secret" not in repr(outcome)
        assert {headers.get("authorization") for _, headers, _ in toy.seen} == {"Bearer sk-secret"}
        assert not any("sk-secret" in f"{path} {body}" for path, _, body in toy.seen)
        toy.routes[CHAT] = echo
        *_, outcome = ask(toy.listed, "m", "count", 5)
        assert isinstance(outcome, Outcome)
        assert outcome.problem is not None
        assert outcome.problem.key == "error.server_key"
        assert "sk-secret" not in repr(outcome)
    assert "sk-secret" not in caplog.text


def test_a_server_that_a_visitor_typed_gets_no_key_and_one_that_the_operator_named_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEY, "sk-secret")

    def told(place: Callable[[Toy], str | Place]) -> set[str | None]:
        with running(vllm()) as toy:
            Server(place(toy)).ask("count", 5)
            scrape(place(toy))
            return {headers.get("authorization") for _, headers, _ in toy.seen}

    assert told(lambda toy: toy.place) == {None}
    assert told(lambda toy: toy.listed) == {"Bearer sk-secret"}
    # As the command line names it.
    assert told(lambda toy: toy.address) == told(lambda toy: Place.of(toy.address)) == {"Bearer sk-secret"}


@pytest.mark.parametrize("key", ["sk-secret\nX: y", "sk-sécret"])
def test_a_key_that_no_header_can_hold_is_said_so_and_not_quoted(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, key)
    with running(vllm()) as toy:
        problem = fails(lambda: Server(toy.listed))
        assert toy.seen == []
    assert problem.key == "error.server_bad_key"
    assert "cret" not in f"{problem}{problem.__cause__}{problem.__context__}"


def test_a_proxy_of_the_environment_is_not_asked_by_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{LOCAL}:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with running(vllm()) as toy:
        server = Server(toy.place)
        assert server.ask("count", 5).tokens == 5


def test_what_is_sent_names_the_host_that_was_typed() -> None:
    with running(Toy(routes=vllm().routes)) as toy:
        port = toy.address.rpartition(":")[2]
        place = Place("http", "vllm.example", int(port), ip=LOCAL)
        Server(place)
        assert [headers["host"] for _, headers, _ in toy.seen] == [f"vllm.example:{port}"]
