"""The quantisation experiment on a tiny model, through its file, and what the page shows of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from spec_viz.engine.target import CachedModel
from spec_viz.lab import quantisation
from spec_viz.lab.bench import Question
from spec_viz.lab.quantisation import (
    FULL,
    Left,
    Plan,
    Replay,
    Result,
    Variant,
    begin,
    measure,
    rates,
    size,
    to_csv,
    validate,
)
from spec_viz.lab.results import read
from spec_viz.lab.run import RequestError
from spec_viz.lab.sweep import Choice, ResultError
from spec_viz.models.quantise import in_float64, quantise
from spec_viz.ui.quantisation_charts import shown
from spec_viz.ui.wording import words
from tests.law.test_run import PROMPT, loaded
from tests.unit.test_quantise import logits, small

QUESTIONS = (Question("vi", PROMPT, False), Question("en", "A rose is a rose is a", False))
LOOKUP, EXIT = Choice("prompt_lookup"), Choice("early_exit", {"layers": 1})
FORMS = (Variant("int8"), Variant(bits=4, rotated=True), Variant(bits=2), Variant("int8", 3))
PLAN = Plan(QUESTIONS, (LOOKUP, EXIT), FORMS, max_new_tokens=12, passes=2)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def result() -> Result:
    found = read(json.loads(json.dumps(measure(loaded(), PLAN))))
    assert isinstance(found, Result)
    return found


# ---------------------------------------------------------------- measuring


def test_the_full_target_comes_first_and_every_form_once(result: Result) -> None:
    assert [sample.variant for sample in result.samples] == [FULL, *FORMS]
    assert size(PLAN) == size(replace(PLAN, variants=(FULL, *FORMS, FORMS[0]))) == 5
    assert result.finish == "done"
    assert result.plan == PLAN


def test_the_full_target_lies_nowhere_from_itself(result: Result) -> None:
    full, *others = result.samples
    assert max(full.kl) == 0
    assert full.agreed == full.places == 2 * PLAN.max_new_tokens
    assert list(full.apart) == [None, None]
    assert all(sample.kl[0] > 0 for sample in others)
    by_form = {sample.variant: sample for sample in result.samples}
    assert by_form[Variant(bits=2)].kl[0] > by_form[Variant(bits=4, rotated=True)].kl[0]


def test_bytes_are_those_that_the_forms_hold(result: Result) -> None:
    full, int8, kv4, kv2, both = result.samples
    assert full.weight_bytes == kv4.weight_bytes == kv2.weight_bytes == loaded().weight_bytes
    assert int8.weight_bytes == both.weight_bytes == quantise(loaded(), "int8").weight_bytes
    # Two layers, keys and values, two heads of eight numbers; a scale is four bytes a head.
    assert [sample.kv_bytes for sample in result.samples] == [8 * each for each in (8 * 4, 8 * 4, 4 + 4, 2 + 4, 3 + 4)]


def test_a_text_that_leaves_its_own_target_does_not_in_float64(result: Result) -> None:
    for sample in result.samples:
        assert len(sample.runs) == len(QUESTIONS) * 2
        assert all(run.left is None or run.left.exact for run in sample.runs)
    full = result.samples[0]
    assert all(run.left is None for run in full.runs)
    # A target of two bits writes other texts than the full one.
    assert any(place is not None for sample in result.samples for place in sample.apart)


def test_every_width_s_loss_is_told_with_the_full_target(result: Result) -> None:
    lost = {(each.what, each.bits, each.rotated): each.error for each in result.samples[0].lost}
    assert len(lost) == 3 * 4 * 2
    assert all(not sample.lost for sample in result.samples[1:])
    for what in ("keys", "values", "loud"):
        for rotated in (False, True):
            errors = [lost[what, bits, rotated] for bits in (2, 3, 4, 8)]
            assert errors == sorted(errors, reverse=True)
    assert lost["loud", 4, True] < lost["loud", 4, False]


def test_rates_are_ratios_of_totals(result: Result) -> None:
    for sample in result.samples:
        for choice in PLAN.drafters:
            runs = [run for run in sample.runs if run.drafter == choice.label]
            found = rates(sample, choice.label)
            assert found
            assert found.tau == sum(run.tokens for run in runs) / sum(run.rounds for run in runs)
            judged = sum(run.judged for run in runs)
            assert found.alpha == (sum(run.accepted for run in runs) / judged if judged else None)
            assert found.texts == len(runs) == 2
    assert rates(result.samples[0], "medusa") is None


def test_a_stopped_run_keeps_whole_samples() -> None:
    asked = iter(range(10_000))
    record = measure(loaded(), PLAN, stop=lambda: next(asked) > 300)
    assert record["finish"] == "stopped"
    assert len(record["samples"]) < size(PLAN)
    assert measure(loaded(), PLAN, stop=lambda: True)["samples"] == []
    assert begin(loaded(), PLAN)["finish"] == "stopped"


def test_a_replay_drafts_the_text_from_where_it_stands() -> None:
    replay = Replay(3, (10, 11, 12, 13))
    draws: Any = None
    assert replay.propose([1, 2, 3, 10], 2, draws).tokens == (11, 12)
    assert replay.propose([1, 2, 3, 10, 11, 12], 4, draws).tokens == (13,)
    assert replay.propose([1, 2, 3, 10, 11, 12, 13], 4, draws).tokens == ()


@pytest.mark.parametrize("weights", ["full", "int8", "int4"])
def test_a_model_in_float64_is_the_same_model(weights: Any) -> None:
    given = quantise(small(), weights)
    exact = in_float64(given)
    assert {each.dtype for each in exact.model.parameters()} == {torch.float64}
    torch.testing.assert_close(logits(exact), logits(given), atol=1e-4, rtol=1e-4)
    # The original has not changed.
    assert given.model.dtype == torch.float32
    assert CachedModel(exact.model, exact.cache).model.dtype == torch.float64


@pytest.mark.parametrize(
    "broken",
    [
        {"questions": ()},
        {"drafters": ()},
        {"drafters": (Choice("none"),)},
        {"drafters": (Choice("prompt_lookup"), Choice("prompt_lookup"))},
        {"questions": PLAN.questions * 100},
        {"passes": 1},
        {"variants": (Variant(rotated=True),)},
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"needed|none itself|turned before|twice|at most"):
        validate(replace(PLAN, **broken))


def test_a_plan_s_numbers_are_those_of_any_run() -> None:
    with pytest.raises(RequestError, match="gamma"):
        validate(replace(PLAN, gamma=99))


def test_a_kernel_that_is_not_here_has_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantisation, "can_run", lambda weights: weights != "int8_bfloat16")
    with pytest.raises(RequestError, match=r"error.quantisation_kernel .*int8_bfloat16"):
        validate(replace(PLAN, variants=(Variant("int8_bfloat16"),)))


def test_a_model_that_does_not_fit_has_its_sentence() -> None:
    # Rows of 32 weights make no group of 64.
    with pytest.raises(RequestError, match=r"error.quantisation_shape"):
        measure(loaded(), replace(PLAN, variants=(Variant("int4"),)))


# ---------------------------------------------------------------- files and the page


def test_a_file_that_cannot_be_is_refused(result: Result) -> None:
    record: Any = json.loads(json.dumps({**asdict(result), "schema": "specviz.result/1", "kind": "quantisation"}))
    assert read(record) == result
    for path, value in (
        (("samples", 1, "variant", "bits"), 5),
        (("samples", 1, "runs", 0, "accepted"), 10**6),
        (("samples", 1, "agreed"), 10**6),
        (("samples", 1, "kl", 0), float("nan")),
        (("samples", 1, "one"), [1.0, 2.0]),
        (("plan", "variants", 0, "weights"), "int3"),
    ):
        broken = json.loads(json.dumps(record))
        place: Any = broken
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        with pytest.raises(ResultError):
            read(broken)


def test_the_csv_has_a_line_a_run(result: Result) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert len(lines) == sum(len(sample.runs) for sample in result.samples)
    assert {line["weights"] for line in lines} == {"full", "int8"}
    assert {line["kv_bits"] for line in lines} == {"", "2", "3", "4"}


@pytest.mark.parametrize("language", ["en", "vi"])
def test_the_page_shows_what_is_kept_and_what_is_not(result: Result, language: str) -> None:
    told = shown(result, None, words(language), "light")
    assert [chart["key"] for chart in told["charts"]] == [
        "quant_law",
        "quant_alpha",
        "quant_speed",
        "quant_memory",
        "quant_error",
    ]
    runs = [run for sample in result.samples for run in sample.runs]
    kept = sum(run.left is None for run in runs)
    assert f"{kept}" in told["verdict"]
    assert f"{len(runs)}" in told["verdict"]
    assert "{" not in json.dumps([told["verdict"], told["conditions"], told["table"]["rows"]], ensure_ascii=False)
    assert len(told["table"]["rows"]) == 10
    assert {len(row) for row in told["table"]["rows"]} == {len(told["table"]["columns"])}
    assert told["partial"] is None
    speed = told["charts"][2]["figure"]["data"]
    assert speed[0]["x"] == [pytest.approx(1 / sample.slower, abs=1e-4) for sample in result.samples]
    memory = next(chart for chart in told["charts"] if chart["key"] == "quant_memory")["figure"]
    whole = sum(trace["x"][0] for trace in memory["data"])
    full = result.samples[0]
    assert whole == pytest.approx((full.weight_bytes + 128 * full.kv_bytes) / 1e6, abs=0.2)


def test_texts_that_left_are_counted_with_those_that_float64_keeps(result: Result) -> None:
    full, first, *rest = result.samples
    runs = (replace(first.runs[0], left=Left(3, 0.5, True)), replace(first.runs[1], left=Left(2, 0.1, False)))
    parted = replace(result, samples=(full, replace(first, runs=(*runs, *first.runs[2:])), *rest))
    told = shown(parted, None, words("en"), "dark")
    own, exact = (
        next(trace for trace in told["charts"][0]["figure"]["data"] if trace["name"] == words("en")(key))
        for key in ("experiments.quantisation.own", "experiments.quantisation.exact")
    )
    assert own["x"][1] == 0.5
    assert exact["x"][0] == 0.75
    assert "Texts that left it: 2." in told["verdict"]
    assert "1 of 2 stayed" in told["verdict"]


def test_a_result_without_samples_or_beside_another_is_drawn(result: Result) -> None:
    empty = shown(replace(result, samples=(), finish="stopped"), None, words("en"), "light")
    assert empty["charts"] == []
    assert empty["table"] is None
    assert empty["partial"] == {"done": 0, "of": 5}
    other = replace(result, conditions={**result.conditions, "threads": 64})
    both = shown(result, other, words("en"), "light")
    assert len(both["charts"][1]["figure"]["data"]) == 2 * len(PLAN.drafters)
    assert both["differ"] == [words("en")("experiments.condition.threads")]
    # A file may hold the full target alone, or no runs at all.
    alone = replace(result, samples=(replace(result.samples[0], runs=()),))
    assert shown(alone, None, words("en"), "light")["table"]["rows"][0][-1] == "–"
