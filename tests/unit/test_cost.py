"""Costs measured on a clock that is made up, and on a tiny model; and what a lesson records with them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.cache_utils import DynamicCache

from spec_viz.content.check import check_lessons
from spec_viz.content.lessons import load_lesson
from spec_viz.content.record import record_lesson
from spec_viz.lab import cost
from spec_viz.models.load import Loaded
from tests.law.test_run import loaded


class Clockwork:
    """A target whose pass over n tokens takes 10 + 2n milliseconds, and every seventh ten times as long."""

    context_limit = 100

    def __init__(self, model: Any) -> None:
        self.length = 0
        self.passes = 0
        self.seconds = 0.0

    def prefill(self, prompt: Sequence[int]) -> None:
        self.feed(prompt, 1)

    def feed(self, tokens: Sequence[int], keep: int) -> None:
        self.passes += 1
        self.length += len(tokens)
        self.seconds += (10 + 2 * len(tokens)) / 1000 * (10 if self.passes % 7 == 0 else 1)

    def roll_back(self, length: int) -> None:
        self.length = length

    def now(self) -> float:
        return self.seconds

    def close(self) -> None:
        assert self.length == 20


def test_v_is_the_pass_over_n_tokens_by_the_pass_over_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "CachedModel", Clockwork)
    result = cost.measure(loaded(), max_n=4, context=20, repeats=15, drafters={})
    assert result["step_ms"] == pytest.approx(12.0)
    assert [row["n"] for row in result["v"]] == [1, 2, 3, 4]
    # The slow passes are outliers, which a median does not see.
    assert [row["ratio"] for row in result["v"]] == pytest.approx([12 / 12, 14 / 12, 16 / 12, 18 / 12])
    assert [row["ms"] for row in result["v"]] == pytest.approx([12, 14, 16, 18])


def whole(**fields: Any) -> Loaded:
    """The tiny target with the bytes that its weights really have."""
    weights = sum(each.nbytes for each in loaded().model.parameters())
    return replace(loaded(), weight_bytes=weights, **fields)


def test_operations_of_a_token_are_those_torch_counts() -> None:
    model = copy.deepcopy(loaded().model)
    model.set_attn_implementation("eager")
    cache: Any = DynamicCache()
    model(input_ids=torch.arange(16)[None], cache=cache, use_cache=True)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.tensor([[5]]), cache=cache, use_cache=True)
    found = cost.roofline(whole(), 17, {1: 1.0})
    assert found is not None
    # Turning positions and the norms' weights are counted by one of the two alone.
    assert found["flops_per_token"] == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_pass_reads_the_matrices_and_the_cache() -> None:
    model = loaded().model
    cache: Any = DynamicCache()
    model(input_ids=torch.arange(16)[None], cache=cache, use_cache=True)
    held = sum(each.nbytes for layer in cache.layers for each in (layer.keys, layer.values))
    matrices = sum(each.nbytes for name, each in model.named_parameters() if "embed" not in name)
    found = cost.roofline(whole(), 16, {1: 0.5})
    assert found is not None
    assert found["bytes_per_pass"] == held + matrices
    assert found["bytes_per_second"] == 2 * (held + matrices)


def test_tied_rows_are_read_as_the_output_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = cost.roofline(whole(), 16, {1: 1.0})
    monkeypatch.setattr(loaded().model.config, "tie_word_embeddings", True)
    tied = cost.roofline(whole(), 16, {1: 1.0})
    assert apart is not None
    assert tied is not None
    embedding = loaded().model.get_input_embeddings().weight.nbytes
    assert tied["bytes_per_pass"] - apart["bytes_per_pass"] == embedding


def test_the_knee_is_where_arithmetic_takes_as_long_as_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "CachedModel", Clockwork)
    found = cost.measure(whole(), max_n=4, context=20, repeats=15, drafters={})["roofline"]
    assert found["knee"] * found["flops_per_token"] / found["flops_per_second"] == pytest.approx(0.012)
    assert found["bytes_per_pass"] / found["bytes_per_second"] == pytest.approx(0.012)
    # Passes over one token take 12 ms, and arithmetic is fastest in those over four, 18 ms.
    assert found["knee"] == pytest.approx(4 * 12 / 18)


def test_a_mixture_of_experts_has_no_roofline_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded().model.config, "num_experts", 8, raising=False)
    assert cost.roofline(whole(), 16, {1: 1.0}) is None


def test_a_context_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "CachedModel", Clockwork)
    with pytest.raises(ValueError, match="do not fit"):
        cost.measure(loaded(), max_n=4, context=97, repeats=3, drafters={})


def test_c_of_a_drafter_comes_with_its_options_and_conditions() -> None:
    result = cost.measure(loaded(), max_n=2, context=16, repeats=3, drafters={"early_exit": {"layers": 1}})
    c = result["drafters"]["early_exit"]
    assert c["options"] == {"layers": 1}
    assert 0 < c["low"] <= c["c"] <= c["high"]
    assert result["conditions"]["context"] == 16
    assert result["conditions"]["dtype"] == "float32"


def test_a_drafter_that_drafts_nothing_has_no_cost() -> None:
    with pytest.raises(ValueError, match="drafted nothing"):
        cost.measure(loaded(), max_n=2, context=16, repeats=3, drafters={"none": {}})


LESSON = """
number: "5.1"
traces:
  toy: {prompt: Thời tiết hôm nay, drafter: scripted, options: {script: " rất"}, temperature: 0.8, chat: false,
        max_new_tokens: 8, race: true}
results:
  cost: {kind: cost, max_n: 2, context: 8, repeats: 3}
steps:
  - {id: race, figure: {kind: race, trace: toy}, claim: same_text}
"""
WORDS = "---\ntitle: t\nquestion: q\n---\n## race | r\n{{ summary.emitted }} {{ results.cost.v[1].ratio }}\n"


def test_what_a_lesson_records_is_what_its_recipes_ask_for(tmp_path: Path) -> None:
    folder = tmp_path / "5_1_toy"
    folder.mkdir()
    (folder / "lesson.yaml").write_text(LESSON)
    for language in ("vi", "en"):
        (folder / f"{language}.md").write_text(WORDS)
    assert "no readable recorded run" in check_lessons(tmp_path)[0]
    record_lesson(loaded(), load_lesson(folder))
    assert check_lessons(tmp_path, loaded()) == []
    assert load_lesson(folder).bundles["toy"][0].origin == "recorded"
    # The recipe changes and its trace does not.
    (folder / "lesson.yaml").write_text(LESSON.replace("temperature: 0.8", "temperature: 1.2"))
    stale = check_lessons(tmp_path, loaded())
    assert any("another temperature" in problem for problem in stale)
    assert any("departs from the recorded one" in problem for problem in stale)
    (folder / "lesson.yaml").write_text(LESSON.replace("{prompt: Thời", "{target: big, prompt: Thời"))
    with pytest.raises(ValueError, match="recorded for big"):
        record_lesson(loaded(), load_lesson(folder))
