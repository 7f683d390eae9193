"""The nginx block of DEPLOY.md, word for word, in a real nginx: what it lets through, whom it names, whom it cuts."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from spec_viz.ui.door import MOST_BYTES
from spec_viz.ui.room import Room
from tests.browser.proxy import Proxy, started
from tests.integration.launch import served
from tests.integration.ports import LOCAL, free_port

pytestmark = pytest.mark.nginx

DEPLOY = Path(__file__).parents[2] / "DEPLOY.md"
SITE = "specviz.example.org"
# Another visitor's: every address below 127 is this computer's.
OTHER = "127.0.0.2"


def before(nginx: str, folder: Path, page: str, **changes: str) -> Proxy:
    """The proxy that an operator gets who copies the block, on a port of ours before a page of ours."""
    (text,) = re.findall(r"^```nginx\n(.*?)^```$", DEPLOY.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    here = f"{LOCAL}:{free_port()}"
    own = {"listen 80;": f"listen {here};", "http://127.0.0.1:7860;": f"{page};"}
    for words, others in (own | changes).items():
        assert text.count(words) == 1, words
        text = text.replace(words, others)
    return Proxy(nginx, folder, f"http://{here}", text)


def visitor(proxy: Proxy, address: str = LOCAL, **headers: str) -> httpx.Client:
    """A visitor of the site who comes from this address."""
    way = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=proxy.address, headers={"Host": SITE, **headers}, transport=way, timeout=60)


class Behind:
    """Who stands behind the proxy: it tells whom it takes the visitor for, and holds those who ask for that."""

    def __init__(self) -> None:
        self.held = threading.Semaphore(0)
        self.go_on = threading.Event()

    async def tell(self, request: Request) -> JSONResponse:
        size = len(await request.body())
        host = request.client.host if request.client else None
        return JSONResponse({"client": host, "page": str(request.base_url), "bytes": size})

    async def hold(self, _: Request) -> JSONResponse:
        self.held.release()
        await to_thread.run_sync(self.go_on.wait, 30)
        return JSONResponse({})


@pytest.fixture
def holder() -> Behind:
    return Behind()


@pytest.fixture
def behind(holder: Behind, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address; uvicorn serves it as it serves the page, and reads by itself whom it believes."""
    text = DEPLOY.read_text(encoding="utf-8")
    (believed,) = re.findall(r"^Environment=.*FORWARDED_ALLOW_IPS=(\S+)", text, re.MULTILINE)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", believed)
    routes = [Route("/hold", holder.hold), Route("/{path:path}", holder.tell, methods=["GET", "POST"])]
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), host=LOCAL, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://{LOCAL}:{port}"
    finally:
        holder.go_on.set()
        server.should_exit = True
        thread.join(20)


def test_nginx_takes_the_block_and_the_page_comes_through_it(
    nginx: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECVIZ_PUBLIC", "1")
    with served(Room()) as page:
        proxy = before(nginx, tmp_path, page)
        command = [nginx, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "test is successful" in told.stderr
        assert "warn" not in told.stderr
        with started(proxy), visitor(proxy) as web:
            answer = web.get("/")
            assert answer.status_code == 200
            assert "sv/js/app.js" in answer.text
            assert web.get("/config").json()["root"] == f"http://{SITE}"
            assert web.get("/sv/js/app.js").status_code == 200


def test_a_visitor_is_who_connected_and_the_page_is_the_site(nginx: str, tmp_path: Path, behind: str) -> None:
    with started(before(nginx, tmp_path, behind)) as proxy:
        for claims in ({}, {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": f"{LOCAL}, 192.0.2.1"}):
            with visitor(proxy, OTHER, **claims) as web:
                told = web.get("/").json()
            assert (told["client"], told["page"]) == (OTHER, f"http://{SITE}/")


def test_what_the_page_takes_comes_through_and_more_does_not(nginx: str, tmp_path: Path, behind: str) -> None:
    with started(before(nginx, tmp_path, behind)) as proxy, visitor(proxy) as web:
        assert web.post("/", content=b"a" * MOST_BYTES).json()["bytes"] == MOST_BYTES
        assert web.post("/", content=b"a" * (MOST_BYTES + 1_000_000)).status_code == 413


HALVES = {
    "nothing": b"",
    "half a line": b"GET / HT",
    "half a header": b"GET / HTTP/1.1\r\nHost: specviz.example.org\r\nX-A",
    "half a body": b"POST / HTTP/1.1\r\nHost: specviz.example.org\r\nContent-Length: 9\r\n\r\nhalf",
}


def test_who_does_not_go_on_is_cut(nginx: str, tmp_path: Path, behind: str) -> None:
    sooner = {f"client_{part}_timeout 10s;": f"client_{part}_timeout 1s;" for part in ("header", "body")}
    with started(before(nginx, tmp_path, behind, **sooner)) as proxy:
        place = urlsplit(proxy.address)
        for name, half in HALVES.items():
            with socket.create_connection((place.hostname, place.port), timeout=30) as line:
                line.sendall(half)
                told = b""
                # Ends with a TimeoutError where nobody cuts it.
                while more := line.recv(4096):
                    told += more
            assert told == b"" or b" 408 " in told.splitlines()[0], name


def test_no_address_takes_all_connections(nginx: str, tmp_path: Path, behind: str, holder: Behind) -> None:
    few = {"limit_conn specviz 400;": "limit_conn specviz 2;"}
    with (
        started(before(nginx, tmp_path, behind, **few)) as proxy,
        visitor(proxy) as one,
        visitor(proxy) as two,
        visitor(proxy) as three,
        visitor(proxy, OTHER) as other,
    ):
        asked = [threading.Thread(target=each.get, args=["/hold"]) for each in (one, two)]
        for each in asked:
            each.start()
            assert holder.held.acquire(timeout=30)
        assert three.get("/").status_code == 503
        assert other.get("/").status_code == 200
        holder.go_on.set()
        for each in asked:
            each.join(30)
        assert three.get("/").status_code == 200
