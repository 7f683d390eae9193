"""A client asked against a server that the test writes: what it reads, what it refuses, and how it says so."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spec_viz.lab.bench import Question, server_peers
from spec_viz.serving.client import Server
from spec_viz.serving.problems import ServerError
from spec_viz.serving.wire import KEY

LOCAL = "127.0.0.1"
PIECES: Sequence[tuple[str, list[int]]] = (("One", [5]), (" two three", [6, 7, 8]), (" four", [9, 2]))
METRICS = {
    "speculative_decoding": {"per_step_accepted": [2, 0, 4], "per_step_drafted": [4, 4, 4]},
    "time_to_first_token_ms": 3.0,
}


class Handler(BaseHTTPRequestHandler):
    """Lists one model, and answers a chat turn as the test's server was told to."""

    answer: Callable[[Handler], None]
    models: Sequence[str]
    seen: list[tuple[dict[str, str], dict[str, Any]]]

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self.send_json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(({name.lower(): value for name, value in self.headers.items()}, body))
        type(self).answer(self)

    def send_json(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def send_events(self, events: Sequence[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"data: {event}\n\n".encode())


def chunk(text: str, ids: list[int] | None, finish: str | None = None) -> str:
    choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    return json.dumps({"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]})


def cut(handler: Handler) -> None:
    """An answer that ends in the middle."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(f"data: {chunk('One', [5])}\n\n".encode())


def usage(tokens: int, metrics: Any) -> str:
    told = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    body = {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [], "usage": told}
    return json.dumps(body | ({"metrics": metrics} if metrics else {}))


def speaks(with_ids: bool = True, metrics: Any = METRICS) -> Callable[[Handler], None]:
    events = [chunk("", None), *(chunk(text, ids if with_ids else None) for text, ids in PIECES)]
    return lambda handler: handler.send_events([*events, chunk("", None, "stop"), usage(6, metrics), "[DONE]"])


@contextmanager
def serving(answer: Callable[[Handler], None], models: Sequence[str] = ("m",)) -> Iterator[tuple[str, list[Any]]]:
    seen: list[Any] = []
    kind = type("Told", (Handler,), {"answer": staticmethod(answer), "models": models, "seen": seen})
    server = ThreadingHTTPServer((LOCAL, 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOCAL}:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_text_ids_and_arrivals_are_those_that_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")
    with serving(speaks()) as (address, seen):
        server = Server(address)
        answer = server.ask("count", 6)
    assert (answer.text, answer.ids, answer.metrics) == ("One two three four", (5, 6, 7, 8, 9, 2), METRICS)
    assert [each.tokens for each in answer.arrivals] == [1, 3, 2]
    assert [each.ms for each in answer.arrivals] == sorted(each.ms for each in answer.arrivals)
    tokens, seconds = answer.after_first
    assert tokens == 5
    assert seconds == pytest.approx((answer.arrivals[-1].ms - answer.arrivals[0].ms) / 1000)
    ((headers, body),) = seen
    assert headers["authorization"] == "Bearer secret"
    assert (body["temperature"], body["max_tokens"], body["return_token_ids"]) == (0.0, 6, True)


def test_a_server_that_tells_less_is_still_read() -> None:
    with serving(speaks(with_ids=False, metrics=None)) as (address, _):
        server = Server(address)
        answer = server.ask("count", 6)
    assert (answer.ids, answer.metrics, answer.tokens) == (None, None, 6)


def said(problem: pytest.ExceptionInfo[ServerError]) -> str:
    return problem.value.key


def test_nobody_listens() -> None:
    with pytest.raises(ServerError) as problem:
        Server("http://127.0.0.1:9")
    assert said(problem) == "error.server_away"


def test_a_server_without_a_model() -> None:
    with serving(speaks(), models=()) as (address, _), pytest.raises(ServerError) as problem:
        Server(address)
    assert said(problem) == "error.server_empty"


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        (lambda handler: handler.send_json(500, {"error": "no"}), "error.server_said"),
        (lambda handler: handler.send_json(404, {"error": "no"}), "error.server_said"),
        (lambda handler: handler.send_events([json.dumps({"error": {"message": "died"}})]), "error.server_gave_up"),
        (lambda handler: handler.send_events(["{not json"]), "error.server_odd"),
        (cut, "error.server_broke"),
    ],
)
def test_a_bad_answer_is_a_sentence(answer: Callable[[Handler], None], key: str) -> None:
    with serving(answer) as (address, _):
        server = Server(address)
        with pytest.raises(ServerError) as problem:
            server.ask("count", 6)
    assert said(problem) == key
    assert problem.value.fields["address"] == address


def test_the_benchmark_reads_rates_off_the_lists_of_a_request() -> None:
    with serving(speaks()) as (address, _):
        (method,) = server_peers({"spec": address}, 6).values()
        measured = method(Question("chat", "count"))
    # Of four drafts a step: two kept and the third refused; the first refused; all kept.
    assert measured.positions == ((3, 2), (2, 2), (2, 1), (1, 1))
    assert measured.alpha == pytest.approx(6 / 8)
    assert (measured.tokens, measured.output) == (5, (5, 6, 7, 8, 9, 2))


def test_a_question_that_is_no_chat_turn_is_refused() -> None:
    with serving(speaks()) as (address, _):
        (method,) = server_peers({"spec": address}, 6).values()
        with pytest.raises(ValueError, match="chat"):
            method(Question("bare", "count", chat=False))
