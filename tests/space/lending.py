"""The service that lends GPUs on ZeroGPU, as far as `spaces` 0.51.3 asks it (zero/api.py); it has none to lend."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.integration.ports import LOCAL


@dataclass(slots=True)
class Service:
    """What was asked of it: the questions in order, and the seconds of every loan. `is_spent`: no quota is left."""

    asked: list[str] = field(default_factory=list)
    seconds: list[int] = field(default_factory=list)
    is_spent: bool = False


class _Handler(BaseHTTPRequestHandler):
    service: Service

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def do_POST(self) -> None:
        place = urlsplit(self.path)
        self.service.asked.append(place.path)
        if place.path != "/schedule":
            self._send(200, {})
            return
        self.service.seconds.append(int(parse_qs(place.query)["durationSeconds"][0]))
        if self.service.is_spent:
            self._send(429, {"left": 0, "wait": 3600})
            return
        is_idle = len(self.service.seconds) > 1
        self._send(200, {"idle": is_idle, "nvidiaIndex": 0, "nvidiaUUID": "GPU-none", "allowToken": "token"})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        sent = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@contextmanager
def lending() -> Iterator[tuple[str, Service]]:
    """Its address, and what it was asked."""
    asked = Service()

    class Own(_Handler):
        service = asked

    server = ThreadingHTTPServer((LOCAL, 0), Own)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="lending", kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield f"http://{LOCAL}:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
