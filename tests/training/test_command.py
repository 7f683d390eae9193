"""`train data` and `train stats` from the command line: they go on, stop at a signal, and say what they did."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from spec_viz import cli
from spec_viz.cli import train
from spec_viz.models.load import Loaded
from spec_viz.training.shards import shard_numbers


@pytest.fixture(autouse=True)
def small(tiny: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "load_model", lambda _name, _dtype=None: tiny)


def test_a_signal_ends_it_and_the_same_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "data", "--out", str(tmp_path), "--tokens", "2000", "--batch", "32"]
    handler = signal.getsignal(signal.SIGTERM)
    # Long before two hundred rows of a shard are written, and behind the making of the prompts.
    stop = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM))
    stop.start()
    assert cli.main(command) == 1
    stop.join()
    assert "Stopped with 0 tokens" in capsys.readouterr().out
    assert shard_numbers(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) is handler

    assert cli.main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tokens"] >= 2000
    assert not said["stopped"]
    assert shard_numbers(tmp_path) == [0]

    assert cli.main(["train", "stats", "--data", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1]["task"] == "all"
    assert rows[-1]["answer"] + rows[-1]["cut"] == said["tokens"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data", "--out", "{folder}", "--tokens", "0"], "At least one token"),
        (["stats", "--data", "{folder}"], "There is no corpus in"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert cli.main(["train", *(argument.format(folder=tmp_path) for argument in arguments)]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
