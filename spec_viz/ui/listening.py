"""Who listens: a run whose page never asks for what comes of it gives its place up.

Gradio takes a run by one request and tells of it by another. A page that is closed ends the second, and Gradio the run;
one that never began it would hold a place in line as long as a run may take.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

STREAM = "/queue/data"
# Seconds. A page begins to listen with its next request, also over a slow network.
PATIENCE = 10.0


class Listeners:
    """The sessions that are being told of their runs."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def begin(self, session: str) -> None:
        self._open[session] += 1

    def end(self, session: str) -> None:
        self._open[session] -= 1
        if not self._open[session]:
            del self._open[session]

    def __contains__(self, session: str) -> bool:
        return session in self._open

    def heard(self, told: Generator[str], session: str, clock: Callable[[], float] = time.monotonic) -> Iterator[str]:
        """What is told, as long as somebody listens."""
        ends = clock() + PATIENCE
        with closing(told):
            for text in told:
                yield text
                if clock() > ends and session not in self:
                    return


class Listening:
    """ASGI middleware that keeps the list."""

    def __init__(self, app: ASGIApp, listeners: Listeners) -> None:
        self._app, self._listeners = app, listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].rstrip("/").endswith(STREAM):
            await self._app(scope, receive, send)
            return
        session = HTTPConnection(scope).query_params.get("session_hash", "")
        self._listeners.begin(session)
        try:
            await self._app(scope, receive, send)
        finally:
            self._listeners.end(session)
