"""Nothing that a visitor sends stays behind: not in what the app prints or logs, and not in any file it writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from spec_viz.content.presets import load_presets
from spec_viz.serving.gate import SERVERS
from spec_viz.serving.wire import KEY
from spec_viz.ui.boot import FIRST
from spec_viz.ui.classroom_route import MEMBER, TOKEN
from tests.unit.toys import CHAT, Handler, Toy, running, vllm

ROOT = Path(__file__).parents[2]
CANARY = "canarytsilaiynhhcq"
SECRET = "keytsilaiynhhcq"


class App:
    """The running app: its visitors' client, and what is left of it."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder = folder
        places = {
            name: str(folder / name)
            for name in ("TMPDIR", "GRADIO_TEMP_DIR", "HOME", "XDG_CACHE_HOME", "SPECVIZ_CACHE", "HF_HOME")
        }
        for place in places.values():
            Path(place).mkdir()
        env = {
            **os.environ,
            **places,
            "PYTHONPATH": str(ROOT),
            KEY: SECRET,
            SERVERS: servers,
            "GRADIO_ANALYTICS_ENABLED": "False",
            "HF_HUB_OFFLINE": "1",
        }
        self._out = (folder / "out.txt").open("w+b")
        command = [sys.executable, "-u", "-m", "tests.integration.canary_app"]
        # Its working folder is empty too: what it writes beside itself is seen.
        (folder / "cwd").mkdir()
        self._process = subprocess.Popen(
            command, cwd=folder / "cwd", env=env, stdin=subprocess.PIPE, stdout=self._out, stderr=subprocess.STDOUT
        )
        self.web = httpx.Client(base_url=self._address(), trust_env=False, timeout=60)
        config = self.web.get("/config").json()
        self._event = config["dependencies"][0]["id"]
        self._board = next(each["id"] for each in config["components"] if each["type"] == "html")

    def _address(self) -> str:
        out = self.folder / "out.txt"
        while "http://" not in (said := out.read_text(encoding="utf-8", errors="replace")):
            assert self._process.poll() is None, said
            try:
                self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        return next(word.rstrip("/") for word in said.split() if word.startswith("http://"))

    def run(self, request: Any, session: str = CANARY) -> str:
        """What a run through the queue says, as its stream has it."""
        body = {
            "data": [],
            "fn_index": self._event,
            "trigger_id": self._board,
            "session_hash": session,
            "event_data": {"request": request},
        }
        self._post("queue/join", body).raise_for_status()
        said = []
        with self.web.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
            for line in stream.iter_lines():
                said.append(line)
                if '"process_completed"' in line:
                    break
        return "\n".join(said)

    def ask(self, name: str, data: Any) -> httpx.Response:
        """What a server function answers."""
        body = {"data": data, "component_id": self._board, "session_hash": CANARY, "fn_name": name}
        return self._post("component_server", body)

    def _post(self, place: str, body: Any) -> httpx.Response:
        # As ASCII, so that half a letter goes out too.
        json_ = {"content-type": "application/json"}
        return self.web.post(f"/gradio_api/{place}", content=json.dumps(body).encode(), headers=json_)

    def end(self) -> bytes:
        """Close it; all that it said."""
        self.web.close()
        self._process.communicate(timeout=60)
        self._out.seek(0)
        said = self._out.read()
        self._out.close()
        return said

    def files(self) -> Iterator[Path]:
        """Every file that is there now but its output."""
        return (path for path in self.folder.rglob("*") if path.is_file() and path.name != "out.txt")


@pytest.fixture
def toy() -> Iterator[Toy]:
    """A server of the operator's list."""
    toy = vllm()
    toy.routes[CHAT] = quoting
    with running(toy):
        yield toy


@pytest.fixture
def app(tmp_path: Path, toy: Toy) -> Iterator[App]:
    app = App(tmp_path, toy.address)
    yield app
    if not app.web.is_closed:
        app.end()


def quoting(handler: Handler, body: Any) -> None:
    """A server that says back whatever it was sent, as an error and as an answer."""
    handler.send(500, json.dumps({"error": str(body), "key": str(handler.headers)}).encode())


def test_nothing_of_a_visit_stays_behind(app: App, toy: Toy) -> None:
    _runs(app)
    _functions(app)
    _servers(app, toy)
    _classes(app)
    _addresses(app)
    said = app.end()
    # The failing runs were logged, and by their kind only.
    assert b"a run failed: ValueError" in said
    for word in (CANARY, SECRET):
        assert word.encode() not in said
        for path in app.files():
            assert word not in str(path)
            assert word.encode() not in path.read_bytes(), path


def _runs(app: App) -> None:
    plain = {
        "nonce": CANARY,
        "prompt": f"one two {CANARY} one two",
        "max_new_tokens": 4,
        "chat": False,
        "drafter": "prompt_lookup",
    }
    # The canary is heard on the way out, so it did come in.
    assert CANARY in app.run(plain)
    assert "error.unknown" in app.run({**plain, "prompt": f"BREAK {CANARY}"})
    for odd in (
        {"drafter": CANARY},
        {"rule": CANARY},
        {"length": CANARY},
        {"gamma": CANARY},
        {"options": {CANARY: CANARY}},
        {"drafter": "draft_model", "options": {"model": CANARY}},
        {"drafter": "draft_model", "options": {"model": f"{CANARY}\0"}},
        {"drafter": "draft_model", "options": {"model": CANARY * 300}},
        {"drafter": "draft_model", "options": {"model": f"../{CANARY}"}},
        {"drafter": "scripted", "options": {"script": CANARY}},
        {"against": [{"drafter": CANARY}]},
        {"against": CANARY},
        {"prompt": [CANARY]},
        {"prompt": CANARY * 2000},
        {"prompt": f"{CANARY}\ud800"},
        {"cost": {"max_n": CANARY}},
        {"sweep": {"kind": CANARY}},
        {"sweep": {"kind": "task", "drafters": [CANARY], "questions": {"set": "own", "prompts": [["a", CANARY]]}}},
    ):
        app.run({**plain, **odd})
    for body in (
        {"event_data": {"request": CANARY}},
        {"data": [CANARY], "fn_index": 999},
        {"fn_index": CANARY},
        [CANARY],
        CANARY,
    ):
        app.web.post("/gradio_api/queue/join", json=body)
        app.web.post(
            "/gradio_api/queue/join",
            json={
                "session_hash": CANARY,
                "data": [{"path": CANARY, "meta": {"_type": "gradio.FileData"}}],
                **(body if isinstance(body, dict) else {}),
            },
        )


def _functions(app: App) -> None:
    trace = next(preset for preset in load_presets() if preset.name == FIRST).trace_path.read_text(encoding="utf-8")
    trace = trace.replace('"prompt_text"', f'"{CANARY}": "{CANARY}", "prompt_text"', 1)
    assert app.ask("view", [trace, "vi", "light"]).status_code == 200
    for name in (
        "view",
        "place",
        "experiment",
        "served",
        "serve",
        "law",
        "drift",
        "state",
        "stop",
        CANARY,
        "__class__",
    ):
        for data in (
            CANARY,
            [CANARY] * 3,
            [trace[:200] + CANARY, CANARY, "x"],
            {CANARY: CANARY, "result": {"kind": CANARY}, "record": CANARY},
        ):
            app.ask(name, data)
    app.web.post(
        "/gradio_api/component_server",
        json={"data": CANARY, "component_id": 999, "session_hash": CANARY, "fn_name": CANARY},
    )
    app.web.post(
        "/gradio_api/component_server", content=f'{{"{CANARY}": '.encode(), headers={"content-type": "application/json"}
    )
    app.web.post("/gradio_api/upload", files={"files": (CANARY, CANARY.encode())})
    app.web.post("/gradio_api/component_server", files={"files": (CANARY, CANARY.encode())}, data={"fn_name": CANARY})


def _servers(app: App, toy: Toy) -> None:
    for address in (
        f"http://{CANARY}.example",
        f"http://{CANARY}@127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1:1/{CANARY}",
        CANARY * 30,
    ):
        app.run({"nonce": "n", "wire": {"look": {"address": address, "model": CANARY}}})
    server = {"name": CANARY, "address": toy.address, "model": ""}
    app.run({"nonce": "n", "wire": {"ask": {"prompt": CANARY, "max_tokens": 3, "servers": [server]}}})
    app.run(
        {
            "nonce": "n",
            "wire": {"compare": {"servers": [server, {**server, "name": "b"}], "prompts": [CANARY], "max_tokens": 3}},
        }
    )
    # The key and the prompt did go out.
    assert any(headers.get("authorization") == f"Bearer {SECRET}" for _, headers, _ in toy.seen)
    assert CANARY in str(toy.asked(CHAT))


def _classes(app: App) -> None:
    opened = app.web.post("/sv/class", json={"lesson": "5_1_principles", "step": "slow"}).json()
    place, teacher = f"/sv/class/{opened['code']}", {TOKEN: opened["token"]}
    trace = next(preset for preset in load_presets() if preset.name == FIRST).trace_path.read_text(encoding="utf-8")
    sent = trace.replace('"prompt_text"', f'"{CANARY}": 1, "prompt_text"', 1)
    assert app.web.post(f"{place}/send", content=sent.encode(), headers=teacher).status_code == 200
    app.web.post(f"{place}/send", content=f"{CANARY}".encode(), headers=teacher)
    app.web.post(f"{place}/guess", json={"step": CANARY, "value": CANARY}, headers={MEMBER: "0" * 16})
    app.web.post(f"{place}/guess", json={"step": "slow", "value": 1}, headers={MEMBER: CANARY})
    app.web.post("/sv/class", json={"lesson": CANARY, "step": CANARY})
    app.web.get(f"/sv/class/{CANARY}?since={CANARY}", headers={TOKEN: CANARY})


def _addresses(app: App) -> None:
    paths = [
        "?page={}",
        "?class={0}&prompt={0}",
        "?deep_link={}",
        "sv/{}",
        "sv/lesson/{}.vi.json",
        "{}",
        "gradio_api/{}",
    ]
    paths += ["gradio_api/heartbeat/{}x/y", "sv/%00{}", "sv/{0}{0}{0}{0}/" * 50]
    for path in (f"/{each.format(CANARY)}" for each in paths):
        app.web.get(
            path,
            headers={
                "Referer": f"http://x/{CANARY}",
                "Cookie": f"a={CANARY}",
                "User-Agent": CANARY,
                "Range": f"bytes={CANARY}",
            },
        )
    parts = urlsplit(str(app.web.base_url))
    for raw in (
        f"GET /{CANARY} HTTP/9.9\r\n\r\n",
        f"{CANARY}\r\n\r\n",
        f"POST / HTTP/1.1\r\nContent-Length: {CANARY}\r\n\r\n",
    ):
        with socket.create_connection((str(parts.hostname), int(parts.port or 0)), 5) as line:
            line.sendall(raw.encode())
            line.recv(4096)
