"""A page whose operator forgot SPECVIZ_PUBLIC, behind a real nginx that only passes on: nobody outside is let in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from spec_viz.serving.gate import PUBLIC
from spec_viz.ui.room import Room
from tests.browser.proxy import Proxy, started
from tests.integration.launch import served
from tests.integration.ports import LOCAL, free_port

pytestmark = pytest.mark.nginx

CONFIG = """
server {
  listen HERE;
  location / {
    proxy_pass PAGE;
    MORE
  }
}
"""
# As it comes; as it is set up to keep connections; and with headers that a guide adds.
WAYS = [
    "",
    "proxy_http_version 1.1; proxy_set_header X-Forwarded-For $remote_addr;",
    "proxy_http_version 1.1; proxy_set_header X-Real-IP 203.0.113.9;",
    "proxy_http_version 1.1; proxy_set_header Host $http_host;",
]
SITE = {"Host": "specviz.example"}
# A program says nothing of where it comes from, a browser of a visitor does.
VISITORS = [SITE, SITE | {"Origin": "https://specviz.example", "Sec-Fetch-Site": "same-origin"}]


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with served(Room()) as address:
        yield address


@pytest.mark.parametrize("more", WAYS, ids=lambda more: more or "as it comes")
def test_nobody_outside_is_taken_for_this_computer(
    nginx: str, tmp_path: Path, page: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = f"{LOCAL}:{free_port()}"
    more = more.replace("$remote_addr", "203.0.113.9")
    text = CONFIG.replace("HERE", here).replace("PAGE", page).replace("MORE", more)
    ask = {"data": [], "fn_index": 0, "session_hash": "s", "event_data": {"request": {"wire": {"look": {}}}}}
    # It is asked until it answers.
    monkeypatch.setenv(PUBLIC, "1")
    with started(Proxy(nginx, tmp_path, f"http://{here}", text)), httpx.Client(trust_env=False) as web:
        for public, statuses in (("1", {200}), ("", {421})):
            monkeypatch.setenv(PUBLIC, public)
            for headers in VISITORS:
                join = f"http://{here}/gradio_api/queue/join"
                answers = [web.get(f"http://{here}/", headers=headers), web.post(join, json=ask, headers=headers)]
                assert {answer.status_code for answer in answers} == statuses
