"""Bounded requests: what a server may cost in bytes and seconds, and a visitor who can stop it at any time.

One connection a request, to the address that `gate` judged; redirects are not followed, compressed bodies not
accepted. A server that sends a byte now and then never runs into a timeout, so a watch beside each request cuts its
connection when its time is over. The official `openai` client speaks through the same connection (`Wire.speak`); it
accepts one of ours. The key, where a server wants one, is read from SPECVIZ_SERVER_KEY, goes into one header, to
servers that the operator named (`Place.gets_key`), and nowhere else.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import httpx

from spec_viz.serving.gate import Place
from spec_viz.serving.problems import ServerError

if TYPE_CHECKING:
    import openai

KEY = "SPECVIZ_SERVER_KEY"
CONNECT = 5.0
# Between two looks of the watch.
TICK = 0.1
MEGABYTE = 1_000_000

Stop = Callable[[], bool]


def never() -> bool:
    """A stop that does not come."""
    return False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an answer may cost: bytes, seconds in all, and seconds without a byte."""

    size: int
    seconds: float
    idle: float


# A server that computes on two cores answers late, but it answers.
SHORT = Bounds(2 * MEGABYTE, 30.0, 30.0)
# vLLM's own page is 50 to 100 KB; each further engine adds as much.
METRICS = Bounds(4 * MEGABYTE, 30.0, 30.0)
# Of a whole answer: its prefill may take long, and wait for others.
STREAM = Bounds(16 * MEGABYTE, 600.0, 300.0)


@dataclass
class _Watch:
    """Cuts a connection when its time is over, or when its visitor stops."""

    bounds: Bounds
    stop: Stop
    why: str | None = None
    # When the request's first byte went out, on the clock of `perf_counter`.
    began: float = field(default_factory=time.perf_counter)
    _socket: socket.socket | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def heard(self, event: str, told: Mapping[str, Any]) -> None:
        """What httpx's transport does: https://www.encode.io/httpcore/extensions/#trace."""
        if event == "connection.connect_tcp.complete":
            # Its own handle of the connection: TLS takes the first one away.
            self._socket = told["return_value"].get_extra_info("socket").dup()
            if self.why:
                self._cut()
        elif event.endswith("send_request_headers.started"):
            self.began = time.perf_counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look, name="watch-server", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
            if self._socket is not None:
                self._socket.close()

    def _look(self) -> None:
        ends = time.monotonic() + self.bounds.seconds
        while not self._done.wait(TICK):
            if self.stop():
                self.why = "stopped"
            elif time.monotonic() >= ends:
                self.why = "slow"
            if self.why:
                self._cut()
                return

    def _cut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _Lines(httpx.SyncByteStream):
    """An answer's lines as they come, bounded; one that never ended is dropped, as the protocol of events has it."""

    def __init__(self, stream: httpx.SyncByteStream, watch: _Watch, address: str) -> None:
        self._stream, self._watch, self._address = stream, watch, address

    def __iter__(self) -> Iterator[bytes]:
        parts: list[bytes] = []
        for piece in _bounded(self._stream, self._watch, self._address):
            whole, end, rest = piece.rpartition(b"\n")
            if end:
                yield b"".join((*parts, whole, end))
                parts.clear()
            parts.append(rest)

    def close(self) -> None:
        self._stream.close()


def _bounded(pieces: Iterable[bytes], watch: _Watch, address: str) -> Iterator[bytes]:
    """An answer's bytes as they come; ServerError where they are too many."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > watch.bounds.size:
            megabytes = watch.bounds.size // MEGABYTE
            said = f"{address} sent more than {megabytes} MB"
            raise ServerError("error.server_large", said, address=address, megabytes=megabytes)
        yield piece
    if watch.why:
        # Without a length, a connection that was cut ends as one that is done.
        raise ServerError("error.server_broke", f"{address} was cut", address=address)


class Wire:
    """Requests to one server."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.address = place.address

    def read(self, path: str, bounds: Bounds, *, body: Any = None, stop: Stop = never) -> bytes:
        """The whole answer to a GET, or to a POST where there is a body to send as JSON."""
        with self._connected(bounds, stop) as (http, watch):
            request = http.build_request(
                "GET" if body is None else "POST", self.place.base + path, json=body, headers=_key(self.place)
            )
            response = http.send(request, stream=True)
            try:
                return b"".join(_bounded(response.iter_raw(), watch, self.address))
            finally:
                response.close()

    @contextmanager
    def speak(self, bounds: Bounds, *, stop: Stop = never) -> Iterator[tuple[openai.OpenAI, Callable[[], float]]]:
        """The official client for one streamed answer, and the milliseconds since its request was sent.

        Inside the block a fault of the connection becomes a ServerError, as does what the client makes of one.
        """
        # Its import takes as long as a small page: only who asks a server waits for it.
        import openai

        key = _key(self.place)
        with self._connected(bounds, stop) as (http, watch):

            def listen(response: httpx.Response) -> None:
                if isinstance(response.stream, httpx.SyncByteStream):
                    response.stream = _Lines(response.stream, watch, self.address)

            http.event_hooks["response"].append(listen)
            client = openai.OpenAI(
                base_url=f"{self.place.base}/v1",
                api_key=os.environ[KEY].strip() if key else "none",
                max_retries=0,
                # It takes httpx clients as well as those of its own branch of httpx, which its types name.
                http_client=cast("Any", http),
            )
            if not key:
                http.event_hooks["request"].append(lambda request: request.headers.pop("Authorization", None))
            try:
                yield client, lambda: 1000 * (time.perf_counter() - watch.began)
            except openai.APIConnectionError as problem:
                # What it wraps says more: our own hooks' verdict, or the transport's fault.
                fault = problem.__cause__ or httpx.ReadError(str(problem))
                raise fault from fault.__cause__
            except openai.APIError:
                said = f"{self.address} gave up in the middle"
                raise ServerError("error.server_gave_up", said, address=self.address) from None
            except (openai.OpenAIError, json.JSONDecodeError, UnicodeDecodeError, RecursionError):
                # Not their words: they quote what was sent.
                said = f"{self.address} sent what is no answer"
                raise ServerError("error.server_odd", said, address=self.address) from None

    @contextmanager
    def _connected(self, bounds: Bounds, stop: Stop) -> Iterator[tuple[httpx.Client, _Watch]]:
        """A client for one request under watch. Inside the block a fault of the connection becomes a ServerError."""
        place, watch = self.place, _Watch(bounds, stop)

        def send(request: httpx.Request) -> None:
            request.extensions |= {"trace": watch.heard, "sni_hostname": place.host}

        http = httpx.Client(
            follow_redirects=False,
            # A proxy that the environment names would look names up itself, and connect to what it finds.
            trust_env=place.ip is None,
            # To load the authorities' certificates takes longer than a short answer, and plain HTTP asks for none. The
            # operator's own stand in SSL_CERT_FILE.
            verify=httpx.create_ssl_context() if place.scheme == "https" else False,
            limits=httpx.Limits(max_keepalive_connections=0),
            headers={"Host": place.named, "Accept-Encoding": "identity"},
            timeout=httpx.Timeout(bounds.idle, connect=min(CONNECT, bounds.seconds)),
            event_hooks={"request": [send], "response": [self._check]},
        )
        with watch.watching(), self._told(watch), http:
            yield http, watch

    def _check(self, response: httpx.Response) -> None:
        status, kind = response.status_code, response.headers.get("Content-Type", "").lower()
        is_page = kind.startswith(("text/html", "application/xhtml"))
        key = None
        if 300 <= status < 400:
            key = "error.server_redirects"
        elif status in (401, 403):
            key = "error.server_key"
        elif is_page and (response.is_success or status == 404):
            # A web server that has no such page says that in a page.
            key = "error.server_web"
        elif not response.is_success:
            key = "error.server_said"
        elif response.headers.get("Content-Encoding", "identity").lower() != "identity":
            key = "error.server_odd"
        if key:
            raise ServerError(key, f"{self.address} answered {status}", address=self.address, status=status)

    @contextmanager
    def _told(self, watch: _Watch) -> Iterator[None]:
        """What the transport's errors mean, in a sentence for a person."""
        address = self.address
        try:
            yield
        except ServerError:
            if not watch.why:
                raise
            # An answer that was cut may look like an odd one.
            raise self._cut(watch) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as problem:
            if watch.why:
                raise self._cut(watch) from problem
            if isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout | httpx.InvalidURL):
                raise ServerError(_unconnected(problem), f"{address} does not answer", address=address) from problem
            if isinstance(problem, httpx.TimeoutException):
                idle = round(watch.bounds.idle)
                said = f"{address} sent nothing for {idle} s"
                raise ServerError("error.server_silent", said, address=address, seconds=idle) from problem
            raise ServerError("error.server_broke", f"{address} broke off", address=address) from problem

    def _cut(self, watch: _Watch) -> ServerError:
        if watch.why == "stopped":
            return ServerError("error.server_stopped", "stopped")
        seconds = round(watch.bounds.seconds)
        said = f"{self.address} took more than {seconds} s"
        return ServerError("error.server_slow", said, address=self.address, seconds=seconds)


def _unconnected(problem: BaseException | None) -> str:
    """The sentence for a connection that did not come about: nobody there, no TLS there, or somebody else."""
    seen: list[BaseException] = []
    # Contexts may go round in a circle.
    while problem is not None and problem not in seen:
        if isinstance(problem, ssl.SSLCertVerificationError):
            return "error.server_certificate"
        if isinstance(problem, ssl.SSLError):
            return "error.server_tls"
        seen.append(problem)
        # httpcore's pool raises its error anew without the cause.
        problem = problem.__cause__ or problem.__context__
    return "error.server_away"


def _key(place: Place) -> dict[str, str]:
    key = os.environ.get(KEY, "").strip()
    # Behind an address that a visitor typed may listen whoever likes to.
    if not key or not place.gets_key:
        return {}
    if not key.isascii() or not key.isprintable():
        # Said here: the transport would quote it.
        raise ServerError("error.server_bad_key", f"{KEY} holds what no header can")
    return {"Authorization": f"Bearer {key}"}
