"""The app as an operator starts it: a wrong setting ends the start with one sentence, the log says what is amiss."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from threading import Timer
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.integration.ports import LOCAL, free_port

ROOT = Path(__file__).parents[2]
# Generous: it only ends what hangs.
SECONDS = 120


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """The environment of a start: nothing of this project's is set but what is told."""
    prefixes = ("SPECVIZ_", "GRADIO_", "SPACE", "FORWARDED_", "WEB_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, "PYTHONUNBUFFERED": "1", "SPECVIZ_CACHE": str(tmp_path), **more}


def refused(tmp_path: Path, **more: str) -> str:
    """What a start says that must end by itself."""
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment(tmp_path, **more),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removesuffix("\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPECVIZ_SERVERS", "ftp://x"),
        # Gradio reads it when it is imported.
        ("GRADIO_SERVER_PORT", "abc"),
        ("GRADIO_SERVER_NAME", "192.0.2.1"),
        ("SPECVIZ_DEVICE", "toaster"),
    ],
)
def test_a_wrong_setting_ends_the_start_with_one_sentence(name: str, value: str, tmp_path: Path) -> None:
    told = refused(tmp_path, **{name: value})
    assert told.startswith("SpecViz: ")
    assert name in told


def test_a_set_port_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    with socket.create_server((LOCAL, 0)) as other:
        port = str(other.getsockname()[1])
        assert f"Port {port} of {LOCAL} is taken" in refused(tmp_path, GRADIO_SERVER_PORT=port)


def test_where_no_cache_can_be_written_the_start_says_which_setting_names_one(tmp_path: Path) -> None:
    # A file in the place of the folder that would be made.
    (tmp_path / f"specviz-{os.getuid()}").touch()
    told = refused(tmp_path, HOME="/proc/nohome", XDG_CACHE_HOME="", TMPDIR=str(tmp_path))
    assert "XDG_CACHE_HOME" in told


def test_a_start_says_where_it_is_whom_it_may_ask_and_why_there_is_no_model(tmp_path: Path) -> None:
    port, nobody = str(free_port()), f"http://{LOCAL}:{free_port()}"
    (tmp_path / "file").touch()
    env = environment(
        tmp_path / "file",
        GRADIO_SERVER_PORT=port,
        GRADIO_SHARE="",
        WEB_CONCURRENCY="abc",
        SPECVIZ_SERVERS="nonsense, 10.0.0.5:8000/v1",
        # A proxy on the way to the world has no say in what goes to this computer.
        http_proxy=nobody,
        HTTP_PROXY=nobody,
        no_proxy="",
        NO_PROXY="",
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as app:
        guard = Timer(SECONDS, app.kill)
        guard.start()
        try:
            assert app.stdout is not None
            told = [app.stdout.readline().strip() for _ in range(4)]
            with build_opener(ProxyHandler({})).open(f"http://{LOCAL}:{port}/", timeout=20) as answer:
                assert answer.status == 200
        finally:
            guard.cancel()
            app.terminate()
    assert told[0].startswith("SpecViz: one process serves, whatever WEB_CONCURRENCY says.")
    assert told[1] == f"SpecViz: http://{LOCAL}:{port}/"
    assert told[2] == "SpecViz: Serve may ask http://nonsense, http://10.0.0.5:8000."
    assert told[3].startswith("SpecViz: The folder ")
    assert "SPECVIZ_CACHE" in told[3]
