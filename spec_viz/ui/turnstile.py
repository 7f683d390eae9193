"""The turnstile before the queue: no address asks for runs faster than a class does.

A run that the line refuses is told so within milliseconds. But whoever asks for thousands a second keeps the server at
nothing else, and fills the queue that carries everybody's requests to the line.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from spec_viz.ui.bucket import Buckets
from spec_viz.ui.visitor import network

JOIN = "/queue/join"
# A class of thirty that presses Run at one word, again and again, is far below both.
BURST = 120
EACH_SECOND = 10.0


class Turnstile:
    """ASGI middleware: a bucket of runs for each address, refilled steadily. Who finds it empty gets status 429."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._buckets = Buckets(BURST, EACH_SECOND, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith(JOIN) and not self.admits(_host(scope)):
            # For programs; the page says it in its own words when its queue takes no run.
            said = {"detail": "Too many runs were asked for from your address. Wait a minute."}
            await JSONResponse(said, 429, {"Retry-After": "60"})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def admits(self, host: str) -> bool:
        """Take one run out of the bucket of this host's address; False where none is left."""
        return self._buckets.take(network(host))


def _host(scope: Scope) -> str:
    """The client's host; behind a trusted proxy the one that it names (FORWARDED_ALLOW_IPS, read by uvicorn)."""
    client = scope.get("client")
    return str(client[0]) if client else ""
