"""A real server per method, asked what the recordings asked: its answers, its counters and its log say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.weights import is_cached
from spec_viz.serving.counters import NOTHING
from spec_viz.serving.local import program
from spec_viz.serving.record import record
from spec_viz.serving.saved import load, readings, write
from spec_viz.training.prompts import TASKS, held_out_prompts
from tests.server import lines
from tests.server.served import MISSING

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not is_cached(DEFAULT), reason="the default model is not in the cache"),
    pytest.mark.skipif(program() is None, reason=MISSING),
]


@pytest.mark.parametrize("method", ["baseline", "ngram", "draft_model"])
def test_answers_counters_and_log_of_a_real_server_agree(method: str, tmp_path: Path) -> None:
    run = record(method, held_out_prompts(TASKS, 2)[:10], "a test", print)
    assert run.versions["vllm"] == "0.32.0"
    for each in run.passes:
        found = list(readings(run, each.asked))
        assert len(found) == 10
        told = sum((reading.told.counts for reading in found if reading.told is not None), NOTHING)
        window = each.window
        assert window is not None
        assert window.generated == sum(asked.answer.tokens for asked in each.asked)
        assert window.answers == 10
        if method == "baseline":
            assert (window.speculation, each.log) == (None, ())
            assert all(reading.trace is not None for reading in found)
        else:
            assert window.speculation == told
            lines.check(told, each.log)
            if method == "draft_model":
                # It drafts at every step, so nothing stays open.
                assert all(reading.trace is not None and not reading.unsettled for reading in found)
                # A model that kept next to nothing on both sides would agree too, and say nothing.
                assert told.accepted > told.drafts / 2
    write(run, tmp_path / "run.json")
    assert load(tmp_path / "run.json") == run
