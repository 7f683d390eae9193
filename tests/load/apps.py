"""The app in a process of its own, as a person starts it: with the real model, or with the tiny one of the tests.

python -m tests.load.apps        # the app with the tiny model, at GRADIO_SERVER_PORT
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.integration.ports import LOCAL, free_port

ROOT = Path(__file__).parents[2]
STARTING = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class App:
    """Where it answers, its process, and the name of its model."""

    address: str
    pid: int
    model: str

    def megabytes(self) -> float:
        """What the process holds in memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


def usual_model() -> str:
    """The default target where its weights are here, else `tiny`."""
    from spec_viz.models.catalogue import DEFAULT
    from spec_viz.models.weights import is_cached

    return DEFAULT if is_cached(DEFAULT) else "tiny"


@contextmanager
def running(model: str, env: Mapping[str, str] | None = None) -> Iterator[App]:
    """The app, once its model is ready."""
    port = free_port()
    told = {"GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": LOCAL, "HF_HUB_OFFLINE": "1", **(env or {})}
    command = [sys.executable, "-m", "tests.load.apps"] if model == "tiny" else [sys.executable, "app.py"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **told}, stdout=subprocess.DEVNULL)
    try:
        address = f"http://{LOCAL}:{port}"
        _until_ready(address, process)
        yield App(address, process.pid, model)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTING
    told = "the app does not answer"
    with httpx.Client(base_url=address, trust_env=False, timeout=10) as client:
        while time.monotonic() < end:
            if process.poll() is not None:
                raise SystemExit(f"The app ended by itself, with exit code {process.returncode}.")
            try:
                state = client.post("gradio_api/component_server", json=call(board_of(client), "state", None)).json()
            except httpx.TransportError:
                time.sleep(0.2)
                continue
            if state["ready"]:
                return
            told = json.dumps(state)
            time.sleep(0.2)
    raise SystemExit(f"The model was not ready after {STARTING:.0f} s: {told}")


def board_of(client: httpx.Client) -> int:
    """The id of the page's one component."""
    components = client.get("config").json()["components"]
    return next(int(each["id"]) for each in components if each["props"].get("elem_id") == "specviz")


def call(board: int, name: str, asked: object, session: str = "load") -> dict[str, object]:
    """The body of a question beside the queue."""
    return {"data": asked, "fn_name": name, "component_id": board, "session_hash": session}


def _tiny() -> None:
    """The app, its model replaced before it asks for one."""
    from spec_viz.models import load, weights
    from tests.integration.rooms import loaded

    weights.fetch = lambda *_: ROOT
    load.load = lambda *_: loaded()
    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")


if __name__ == "__main__":
    _tiny()
