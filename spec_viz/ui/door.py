"""The door before every address: which there are, who may ask, how much may be sent, and what a browser may do.

Gradio opens more addresses than the page uses: uploads, a proxy, files, calls beside the queue. They are closed here,
so that what is open stands in one list. Every answer, errors too, says what the browser may load and who may frame it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Iterable

from gradio.routes import App
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spec_viz.serving.gate import is_public
from spec_viz.ui.calls import GRADIO, JOIN, SHAPES, misfit
from spec_viz.ui.faults import where
from spec_viz.ui.origin import is_from_here, is_host, is_own_page
from spec_viz.ui.preview import introduced

log = logging.getLogger(__name__)

# Of Gradio's addresses, those that the page, its host or a health check asks for.
PLACES = frozenset(
    ["/", "/config", "/favicon.ico", "/robots.txt", "/theme.css"]
    + [GRADIO + name for name in ("info", "startup-events", "queue/data", "theme.css")]
    + [*SHAPES]
)
FOLDERS = ("/sv/", "/assets/", "/static/", f"{GRADIO}heartbeat/")
# The longest thing a page sends is a comparison of eight million letters (`serve_view.MOST_BYTES`), escaped as JSON.
MOST_BYTES = 12_000_000
# A run waits in line with all that was asked, many at a time: 24 prompts of 8,000 letters, escaped, are 1.2 MB.
MOST_OF_A_RUN = 2_000_000
# To give a run up takes three short names.
MOST_OF_A_WORD = 1000
# No file system that Gradio looks for a name in has longer ones.
_LONGEST_NAME = 255
# These change from one version to the next, and half of each makes no page.
_KEPT_LONG = ("/sv/fonts/", "/sv/vendor/")
# Named by their content, or the same for everybody.
_GRADIOS_OWN = ("/assets/", "/static/", "/favicon.ico")
_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
# A Space is shown in a frame of its hub.
_HUB = ("https://huggingface.co", "https://*.hf.space")

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # The address holds the code of a class.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": ", ".join(
        f"{name}=()"
        for name in ("camera", "microphone", "geolocation", "display-capture", "payment", "usb", "midi", "serial")
    ),
}


def policy(scripts: Iterable[str] = ()) -> str:
    """The content security policy; `scripts` are the sha256 of a page's own inline scripts, in base64.

    Gradio makes functions out of its templates, so eval stays open; markup that would run as script does not.
    """
    framed_by = ("'self'", *_HUB) if os.environ.get("SPACE_ID") else ("'self'",)
    return "; ".join(
        [
            "default-src 'self'",
            " ".join(["script-src 'self' 'unsafe-eval'", *(f"'sha256-{digest}'" for digest in scripts)]),
            # Svelte and Plotly write style attributes.
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "frame-src 'none'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            f"frame-ancestors {' '.join(framed_by)}",
        ]
    )


class Door:
    """ASGI middleware; what streams, streams."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = _path(scope)
        answer = _Answer(send, path)
        if refusal := _refusal(scope, path):
            await answer.refuse(*refusal)
            return
        body = _Body(receive, answer, _most(path))
        try:
            called, app = path.rstrip("/"), scope.get("app")
            if scope["method"] == "POST" and called in SHAPES and isinstance(app, App):
                misfits = misfit(called, await body.read(), app.get_blocks())
                if misfits:
                    await answer.refuse(*misfits)
                    return
            await self._app(_told_by_proxies(scope), body.receive, answer.send)
        except ClientDisconnect:
            return
        except Exception as problem:  # noqa: BLE001 - logged without its words, which may quote what was sent
            if isinstance(problem.__cause__, HTTPException) and problem.__cause__.status_code < 500:
                # A stream of Gradio's says itself that it knows no such session, and fails after that.
                await answer.end()
                return
            log.error("a request failed: %s", where(problem))
            await answer.refuse(500, "Internal Server Error")


def _path(scope: Scope) -> str:
    """The path below the folder that a proxy serves the page in."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def _told_by_proxies(scope: Scope) -> Scope:
    """The request without what would have Gradio give the page another address, unless a trusted proxy says it.

    Where uvicorn trusts the proxy (FORWARDED_ALLOW_IPS), it has put the visitor's address, which has no port, in the
    proxy's place. The scheme it has taken over too.
    """
    client = scope.get("client")
    host = Headers(scope=scope).get("x-forwarded-host", "").partition(",")[0].strip()
    # The proxy may pass on what a visitor made up.
    is_told = client is not None and client[1] == 0 and is_host(host)
    dropped = {b"x-gradio-server"} if is_told else {b"x-gradio-server", b"x-forwarded-host", b"x-forwarded-proto"}
    return {**scope, "headers": [header for header in scope["headers"] if header[0] not in dropped]}


def _refusal(scope: Scope, path: str) -> tuple[int, str] | None:
    method, headers = scope["method"], Headers(scope=scope)
    if not is_public() and not is_from_here(scope, headers):
        return 421, "This page answers to this computer only, by its own names. Behind a proxy, set SPECVIZ_PUBLIC=1."
    # Gradio's own script asks with a slash behind the name, others without.
    plain = path.rstrip("/") or "/"
    is_name = all(len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME for name in path.split("/"))
    if (plain not in PLACES and not path.startswith(FOLDERS)) or not is_name:
        return 404, "Not Found"
    if method not in ("GET", "HEAD", "OPTIONS"):
        if not is_own_page(headers):
            return 403, "Other websites may not ask this page for anything. A proxy must pass the host on."
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if path.startswith(GRADIO) and kind != "application/json":
            # Forms carry files, and the page sends none.
            return 415, "Unsupported Media Type"
        length = headers.get("content-length", "0")
        most = _most(path)
        if len(length) > len(str(most)) or (length.isdecimal() and int(length) > most):
            return _too_much(most)
    return None


def _most(path: str) -> int:
    plain = path.rstrip("/")
    if plain == JOIN:
        return MOST_OF_A_RUN
    return MOST_OF_A_WORD if plain in (f"{GRADIO}cancel", f"{GRADIO}reset") else MOST_BYTES


def _too_much(most: int) -> tuple[int, str]:
    return 413, f"More than {most:,} bytes"


class _Body:
    """What is sent, as long as it is not too much."""

    def __init__(self, receive: Receive, answer: _Answer, most: int) -> None:
        self._receive, self._answer, self._most, self._size = receive, answer, most, 0
        self._read: bytes | None = None

    async def receive(self) -> Message:
        if self._read is not None:
            body, self._read = self._read, None
            return {"type": "http.request", "body": body}
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            # Whoever reads it sees a client that left, and ends.
            await self._answer.refuse(*_too_much(self._most))
            return {"type": "http.disconnect"}
        return message

    async def read(self) -> bytes:
        """All of it; `receive` then gives it once more. Raises `ClientDisconnect` where it does not come to its end."""
        parts: list[bytes] = []
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        self._read = b"".join(parts)
        return self._read


class _Answer:
    """The answer on its way out, with its headers; a page's own scripts are named in its policy."""

    def __init__(self, send: Send, path: str) -> None:
        self._send, self._path = send, path
        self._begun = self._refused = False
        # The head of a page waits for its body.
        self._head: Message | None = None
        self._page: list[bytes] = []

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type", "").startswith("text/html"):
                self._head = message
            else:
                await self._begin(message, policy())
        elif self._head is not None and message["type"] == "http.response.body":
            self._page.append(message.get("body", b""))
            if not message.get("more_body"):
                page = introduced(b"".join(self._page)) if self._path == "/" else b"".join(self._page)
                headers = MutableHeaders(raw=list(self._head["headers"]))
                if "content-length" in headers:
                    headers["content-length"] = str(len(page))
                head = {**self._head, "headers": headers.raw}
                await self._begin(head, policy(map(_digest, _SCRIPT.findall(page))))
                await self._send({**message, "body": page})
        else:
            await self._send(message)

    async def refuse(self, status: int, detail: str) -> None:
        """Answer with one sentence, unless an answer has begun; nothing else goes out after it."""
        self._refused = True
        if self._begun:
            return
        body = json.dumps({"detail": detail}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._begin({"type": "http.response.start", "status": status, "headers": headers}, policy())
        await self._send({"type": "http.response.body", "body": body})

    async def end(self) -> None:
        """End an answer that has begun: all of it was said."""
        if self._begun and not self._refused:
            self._refused = True
            await self._send({"type": "http.response.body", "body": b""})

    async def _begin(self, message: Message, said: str) -> None:
        self._begun = True
        headers = MutableHeaders(raw=list(message["headers"]))
        for name, value in {"Content-Security-Policy": said, **_HEADERS}.items():
            headers.setdefault(name, value)
        if headers.get("content-type", "").startswith("text/event-stream"):
            # nginx would hold a run back until its buffer is full.
            headers.setdefault("X-Accel-Buffering", "no")
        if not self._path.startswith(_GRADIOS_OWN):
            # The page too: it says by which address it was asked, and no cache between may give it to others.
            headers.setdefault("Cache-Control", "max-age=604800" if self._path.startswith(_KEPT_LONG) else "no-cache")
        await self._send({**message, "headers": headers.raw})


def _digest(script: bytes) -> str:
    return b64encode(hashlib.sha256(script).digest()).decode()
