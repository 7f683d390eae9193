"""Servers that lie: whatever bytes come back, a visitor gets an answer or one sentence."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.serving import client, counters
from spec_viz.serving.client import Answer, Arrival
from spec_viz.serving.connect import Outcome, ask, look
from spec_viz.serving.gate import Gate
from spec_viz.serving.problems import ServerError
from spec_viz.serving.reader import read, read_told
from spec_viz.serving.wire import Bounds
from spec_viz.ui.serve_view import answer_of
from tests.fuzz.cases import anything, case, cases, mutated, sendable, vandalised
from tests.unit.answers import account
from tests.unit.toys import LOCAL, chunk

MODELS = {"data": [{"id": "m", "max_model_len": 4096}]}
CHUNKS = [
    chunk("a", [1], prompt_token_ids=[5, 6]),
    chunk("bcd", [2, 3, 4], usage={"completion_tokens": 4}),
    chunk("", None, "length", metrics={"speculative_decoding": account([(4, 2)])}),
]
COUNTS = "".join(
    f'vllm:{name}{{engine="0"}} {value}\n'
    for name, value in (
        ("generation_tokens_total", 5),
        ("prompt_tokens_total", 3),
        ("time_to_first_token_seconds_count", 1),
        ("spec_decode_num_drafts_total", 2),
        ("spec_decode_num_draft_tokens_total", 8),
        ("spec_decode_num_accepted_tokens_total", 2),
    )
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, bytes]:
    """What a server answers on each path."""
    told = {
        "/v1/models": json.dumps(draw(mutated([MODELS]) | anything)),
        "/version": json.dumps(draw(mutated([{"version": "0.32.0"}]) | anything)),
        "/metrics": draw(vandalised(COUNTS)),
        "/v1/chat/completions": "".join(f"data: {json.dumps(each)}\n\n" for each in _listed(draw(mutated([CHUNKS]))))
        + "data: [DONE]\n\n",
        "/detokenize": json.dumps(draw(mutated([{"prompt": "a"}]))),
    }
    # Mostly the answer itself is odd, now and then what wraps it.
    return {path: draw(vandalised(body, 1)).encode("utf-8", "surrogatepass") for path, body in told.items()}


def _listed(body: Any) -> list[Any]:
    return body if isinstance(body, list) else [body]


heads = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"] * 6
    + [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 999 \r\n\r\n",
        b"HTTP/1.0 200\r\n\r\n",
        b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n",
        b"\r\n\r\n",
        b"SSH-2.0\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: \xff\xfe\r\n\r\n",
    ]
)


class Liar:
    """Answers every request on its socket with the bytes that stand ready for its path, and hangs up."""

    def __init__(self) -> None:
        self.head, self.bodies = b"", dict[str, bytes]()
        self._socket = socket.create_server((LOCAL, 0))
        self.place = Gate("local").admit(f"{LOCAL}:{self._socket.getsockname()[1]}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    asked = connection.recv(65536)
                    path = asked.split(b" ", 2)[1].decode() if asked.count(b" ") > 1 else ""
                    connection.sendall(self.head + self.bodies.get(path, b"{}"))
                    # What is unread would cut the answer short.
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    small = Bounds(200_000, 5.0, 2.0)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((client, "SHORT"), (client, "STREAM"), (counters, "METRICS")):
            patch.setattr(module, name, small)
        liar = Liar()
        yield liar
        liar.close()


def test_over_the_wire(liar: Liar) -> None:
    @cases(25)
    @given(heads, bodies())
    def each(head: bytes, told: dict[str, bytes]) -> None:
        liar.head, liar.bodies = head, told
        with case("servers that lie: over the wire"):
            try:
                sendable({"models": look(liar.place).models})
            except ServerError as problem:
                sendable(problem.fields)
            *_, last = ask(liar.place, None, "x", 4)
            assert isinstance(last, Outcome)
            sendable(answer_of(last.answer, last.reading, None))

    each()


@pytest.mark.parametrize(
    "event", [[CHUNKS[1]], [[CHUNKS[1], 1]], {"choices": [CHUNKS[1]]}, {"choices": CHUNKS[1]}, None, 3, "x", True, []]
)
def test_an_event_that_holds_a_chunk_in_the_wrong_place_is_no_answer(liar: Liar, event: object) -> None:
    """The client makes objects of its own of what it finds, at whatever depth, and hands lists on as they are."""
    liar.head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    liar.bodies = {
        "/v1/models": json.dumps(MODELS).encode(),
        "/v1/chat/completions": f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode(),
    }
    *_, last = ask(liar.place, None, "x", 4)
    assert isinstance(last, Outcome)
    assert last.problem is not None
    assert last.problem.key == "error.server_odd"
    with pytest.raises(ServerError):
        look(liar.place)


@cases(60)
@given(
    mutated([{"speculative_decoding": account([(4, 2), (4, 0)])}, {"speculative_decoding": account([])}]) | anything,
    st.lists(st.integers(1, 6), max_size=8),
    st.booleans(),
)
def test_accounts(metrics: Any, sizes: list[int], plain: bool) -> None:
    with case("servers that lie: their accounts"):
        tokens = sum(sizes)
        arrivals = tuple(Arrival(10.0 * place, size) for place, size in enumerate(sizes))
        answer = Answer(
            "t", tuple(range(tokens)), arrivals, tokens, metrics if isinstance(metrics, dict) else None, (1,), "stop"
        )
        try:
            read_told(answer.metrics)
            sendable(answer_of(answer, read(answer, {}, {}, run="r", plain=plain), None))
        except ServerError as problem:
            sendable(problem.fields)


@cases(60)
@given(vandalised(COUNTS, 5))
def test_counters(text: str) -> None:
    with case("servers that lie: their counters"):
        try:
            found = counters.parse(text, 1.0)
        except ValueError as problem:
            assert str(problem)
        else:
            assert found.generated >= 0
