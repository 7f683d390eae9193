"""A small vLLM that a test writes: it lists a model, counts, and answers a chat turn as it was told to."""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from spec_viz.serving.gate import Gate, Place
from tests.unit.answers import account

LOCAL = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """Hands a request to the toy's function for its path."""

    toy: Toy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self.serve(None)

    def do_POST(self) -> None:
        self.serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def serve(self, body: Any) -> None:
        self.close_connection = True
        self.toy.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        try:
            self.toy.routes.get(self.path, missing)(self, body)
        except OSError:
            # A client that had enough hangs up.
            self.toy.hung_up.set()

    def send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def tell(self, body: Any) -> None:
        self.send(200, json.dumps(body).encode())

    def begin(self) -> None:
        """The head of a stream of events, without a length: it ends with the connection."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, body: Any) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()


Route = Callable[[Handler, Any], None]


def missing(handler: Handler, _body: Any) -> None:
    handler.send(404, b"{}")


@dataclass
class Toy:
    """Its model, its paths, who asked what, and what its counters say."""

    model: str = "m"
    routes: dict[str, Route] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    counts: dict[str, int] = field(default_factory=dict)
    address: str = ""

    @property
    def place(self) -> Place:
        return Gate("local").admit(self.address)

    @property
    def listed(self) -> Place:
        """As one of the operator's list."""
        return Gate("listed", (Place.of(self.address),)).admit(self.address)

    def asked(self, path: str) -> list[Any]:
        return [body for where, _, body in self.seen if where == path]


CHAT = "/v1/chat/completions"
POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
# (drafted, kept) of each step, by default: a prefill, a step that keeps two of four, one that keeps none.
STEPS = ((4, 2), (4, 0))


def chunk(text: str, ids: Sequence[int] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice | ({"token_ids": ids} if ids else {})], **more}


def vllm(
    steps: Sequence[tuple[int, int]] | None = STEPS,
    *,
    model: str = "m",
    version: str = "0.32.0",
    lists: bool = True,
    pause: float = 0.0,
) -> Toy:
    """A server whose answers are a prefill and these steps, or single tokens where it does not speculate."""
    toy = Toy(model)
    lock = threading.Lock()
    sizes = [1, 1, 1, 1, 1] if steps is None else [1, *(kept + 1 for _, kept in steps)]

    def chat(handler: Handler, _body: Any) -> None:
        handler.begin()
        told = 0
        for place, size in enumerate(sizes):
            ids = list(range(10 + told, 10 + told + size))
            told += size
            time.sleep(pause)
            more = {"prompt_token_ids": [1, 2, 3]} if not place else {}
            handler.event(chunk(f"t{place} ", ids, "length" if place == len(sizes) - 1 else None, **more))
        with lock:
            toy.counts["generation_tokens_total"] += told
            toy.counts["time_to_first_token_seconds_count"] += 1
            for drafted, kept in steps or ():
                toy.counts["spec_decode_num_drafts_total"] += 1
                toy.counts["spec_decode_num_draft_tokens_total"] += drafted
                toy.counts["spec_decode_num_accepted_tokens_total"] += kept
                for place in range(kept):
                    toy.counts[f"{POSITION} {place}"] += 1
        usage: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": told}}
        if lists and steps is not None:
            usage["metrics"] = {"speculative_decoding": account(steps)}
        handler.event(usage)
        handler.event("[DONE]")

    def metrics(handler: Handler, _body: Any) -> None:
        lines = []
        for name, value in toy.counts.items():
            plain, _, place = name.partition(" ")
            lines.append(f'vllm:{plain}{{engine="0"' + (f',position="{place}"' if place else "") + f"}} {value}.0\n")
        handler.send(200, "".join(lines).encode(), "text/plain")

    toy.counts = dict.fromkeys(("generation_tokens_total", "prompt_tokens_total"), 100)
    toy.counts["time_to_first_token_seconds_count"] = 7
    if steps is not None:
        names = ("drafts", "draft_tokens", "accepted_tokens")
        toy.counts |= {f"spec_decode_num_{name}_total": 0 for name in names}
        toy.counts |= {f"{POSITION} {place}": 0 for place in range(4)}
    toy.routes = {
        "/v1/models": lambda handler, _: handler.tell({"data": [{"id": model, "max_model_len": 2048}]}),
        "/version": lambda handler, _: handler.tell({"version": version}),
        "/metrics": metrics,
        CHAT: chat,
        "/detokenize": lambda handler, body: handler.tell({"prompt": f"<{body['tokens'][0]}>"}),
    }
    return toy


@contextmanager
def running(toy: Toy, tls: ssl.SSLContext | None = None) -> Iterator[Toy]:
    """The toy behind a port of this computer."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # A handler that drips or waits is not waited for.
        block_on_close = False
        request_queue_size = 64

        def handle_error(self, *asked: Any) -> None:
            # Who does not trust its certificate hangs up.
            if not isinstance(sys.exception(), ssl.SSLError):
                super().handle_error(*asked)

    server = Server((LOCAL, 0), type("Told", (Handler,), {"toy": toy}))
    if tls is not None:
        # The greeting is the handler's thread's: who stalls keeps nobody else out.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    toy.address = f"http://{LOCAL}:{server.server_port}"
    try:
        yield toy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
