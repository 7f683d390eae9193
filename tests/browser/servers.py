"""A small server that speaks as vLLM does: it streams the same words to every question, with drafts or without."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOCAL = "127.0.0.1"
MODEL = "toy-model"
VERSION = "0.32.0"
GAMMA = 4
PROMPT = (1, 2, 3)
# Markup in an answer must stay text.
WORDS = (
    " One",
    " two",
    " three",
    " <b>four</b>",
    " five",
    " six",
    " seven",
    " eight",
    " nine",
    " ten",
    " eleven",
    " end",
)
FIRST_ID = 100
# Drafts kept step by step; with the prefill's token and one of the target's own a step they make all the words.
KEPT = (2, 0, 4, 1)


@dataclass(slots=True)
class Toy:
    """How a server answers: `tells` is what it says of its drafts, `dies` after how many arrivals it hangs up.

    With a `gate` everything after the first arrival waits until that is set.
    """

    speculates: bool = True
    tells: str = "lists"
    pause: float = 0.02
    dies: int | None = None
    gate: threading.Event | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    generated: int = 0
    answers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def sizes(self) -> Sequence[int]:
        """Tokens an arrival."""
        return (1, *(kept + 1 for kept in KEPT)) if self.speculates else (1,) * len(WORDS)

    def account(self) -> dict[str, Any] | None:
        if not self.speculates or self.tells == "nothing":
            return None
        body: dict[str, Any] = {
            "acceptance_histogram": [KEPT.count(count) for count in range(GAMMA + 1)],
            "num_spec_steps": len(KEPT),
            "num_draft_tokens": GAMMA * len(KEPT),
            "num_accepted_draft_tokens": sum(KEPT),
            "num_spec_tokens": GAMMA,
        }
        lists = {"per_step_accepted": list(KEPT), "per_step_drafted": [GAMMA] * len(KEPT)}
        return {"speculative_decoding": body | (lists if self.tells == "lists" else {})}

    def counters(self) -> str:
        rows = {
            "generation_tokens_total": self.generated,
            "prompt_tokens_total": len(PROMPT) * self.answers,
            "time_to_first_token_seconds_count": self.answers,
        }
        if self.speculates:
            rows |= {
                "spec_decode_num_drafts_total": len(KEPT) * self.answers,
                "spec_decode_num_draft_tokens_total": GAMMA * len(KEPT) * self.answers,
                "spec_decode_num_accepted_tokens_total": sum(KEPT) * self.answers,
            }
            for place in range(GAMMA):
                kept = sum(each > place for each in KEPT) * self.answers
                rows[f'spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}}'] = kept
        return "".join(f"vllm:{name} {float(value)}\n" for name, value in rows.items())


class Handler(BaseHTTPRequestHandler):
    """The paths of vLLM that are asked."""

    toy: Toy

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(self.toy.counters().encode(), "text/plain")
        elif self.path == "/version":
            self._send_json({"version": VERSION})
        elif self.path == "/v1/models":
            self._send_json({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 2048}]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/detokenize":
            texts = [WORDS[id_ - FIRST_ID] if id_ >= FIRST_ID else f"<{id_}>" for id_ in body["tokens"]]
            self._send_json({"prompt": "".join(texts)})
        elif self.path == "/v1/chat/completions":
            self.toy.asked.append(body)
            try:
                self._stream()
            except OSError:
                # Who asked has gone.
                self.close_connection = True
        else:
            self.send_error(404)

    def _stream(self) -> None:
        toy = self.toy
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        at = 0
        for number, size in enumerate(toy.sizes):
            if number == toy.dies:
                return
            if toy.gate is not None and number:
                toy.gate.wait(30)
            ids = list(range(FIRST_ID + at, FIRST_ID + at + size))
            choice: dict[str, Any] = {
                "index": 0,
                "delta": {"content": "".join(WORDS[at : at + size])},
                "token_ids": ids,
            }
            at += size
            choice["finish_reason"] = "length" if at == len(WORDS) else None
            self._event({"choices": [choice]} | ({} if number else {"prompt_token_ids": PROMPT}))
            time.sleep(toy.pause)
        with toy.lock:
            toy.generated += at
            toy.answers += 1
        account = toy.account()
        self._event({"choices": [], "usage": {"completion_tokens": at}} | ({"metrics": account} if account else {}))
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, body: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())
        self.wfile.flush()

    def _send_json(self, body: Any) -> None:
        self._send(json.dumps(body).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def standing(made: Toy) -> Iterator[str]:
    """The address of a server that answers so."""

    class Own(Handler):
        toy = made

    server = ThreadingHTTPServer((LOCAL, 0), Own)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="toy-server", kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://{LOCAL}:{server.server_port}"
    finally:
        if made.gate is not None:
            made.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
