"""Saved server runs: written and read again, refused where they are no such thing, and true to themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spec_viz.lab.metrics import summarise
from spec_viz.serving import METHODS
from spec_viz.serving.client import Answer, Arrival
from spec_viz.serving.counters import NOTHING, Counts, Scrape
from spec_viz.serving.local import SPECULATIVE, command
from spec_viz.serving.saved import (
    MAX_BYTES,
    SCHEMA,
    Asked,
    Pass,
    Saved,
    SavedError,
    load,
    path_of,
    readings,
    write,
)
from spec_viz.training.prompts import TASKS, held_out_prompts
from tests.server import lines
from tests.unit.answers import account

LINE = (
    "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: 0.10 tokens/s, Drafted throughput: "
    "0.40 tokens/s, Accepted: 2 tokens, Drafted: 8 tokens, Per-position acceptance rate: 0.500, 0.500, 0.000, 0.000, "
    "Avg Draft acceptance rate: 25.0%"
)


def small() -> Saved:
    told = {"speculative_decoding": account([(4, 2), (4, 0)]), "time_to_first_token_ms": 9.5}
    arrivals = (Arrival(10.0, 1), Arrival(20.0, 3), Arrival(31.5, 1))
    answer = Answer("one two", (5, 6, 7, 8, 9), arrivals, 5, told, (1, 2), "length")
    each = Pass(
        1,
        0.5,
        Scrape(1.0, 10, 4, 2, Counts(3, 12, 1, (1,))),
        Scrape(1.5, 15, 6, 3, Counts(5, 20, 3, (2, 1, 0, 0))),
        (LINE,),
        (Asked("chat", "Say it.", 0.2, answer),),
    )
    tokens: dict[int, tuple[str, str | None]] = {id_: (f" t{id_}", None) for id_ in (1, 2, 5, 6, 7, 8, 9, 77)}
    tokens[9] = ("�", "f09f")
    return Saved(
        SCHEMA,
        "draft_model",
        "2026-11-30T09:00:00+00:00",
        {"vllm": "0.32.0"},
        {"processor": "a processor", "cores": 2, "note": "nothing else"},
        "smollm2-135m",
        command("draft_model"),
        {"HF_HUB_OFFLINE": "1"},
        SPECULATIVE["draft_model"],
        "ab" * 32,
        64,
        2,
        tokens,
        (each,),
    )


def test_every_method_that_is_saved_can_be_started() -> None:
    assert tuple(SPECULATIVE) == METHODS


def test_reading_saved_runs_needs_no_model() -> None:
    # The page reads them at its start.
    script = "import sys, spec_viz.serving.saved; print(*sys.modules)"
    root = Path(__file__).parents[2]
    loaded = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers"} & set(loaded.split())


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write(small(), tmp_path / "new" / "run.json")
    assert load(tmp_path / "new" / "run.json") == small()


def test_a_run_gives_traces_counts_and_times() -> None:
    (each,) = small().passes
    (reading,) = readings(small(), each.asked)
    assert reading.trace is not None
    assert (reading.trace.output, reading.trace.prompt, reading.trace.finish) == ((5, 6, 7, 8, 9), (1, 2), "length")
    assert reading.trace.meta["drafter"] == "draft_model"
    assert reading.trace.meta["gamma"] == 4
    # The texts of its own ids, and of no others.
    assert sorted(reading.trace.tokens) == [1, 2, 5, 6, 7, 8, 9]
    assert reading.told is not None
    assert each.window is not None
    assert reading.told.counts == each.window.speculation == Counts(2, 8, 2, (1, 1, 0, 0))
    lines.check(reading.told.counts, each.log)
    assert each.latency.throughput.value == 10.0
    assert small().at(1) is not None
    with pytest.raises(KeyError):
        small().at(4)


@pytest.mark.parametrize(
    ("counts", "log"),
    [
        (Counts(2, 8, 3, (2, 1, 0, 0)), (LINE,)),
        (Counts(2, 7, 2, (1, 1, 0, 0)), (LINE,)),
        (Counts(3, 8, 2, (1, 1, 0, 0)), (LINE,)),
        (Counts(2, 8, 2, (2, 0, 0, 0)), (LINE,)),
        (Counts(2, 8, 2, (1, 1, 0, 0)), ()),
        (Counts(2, 8, 2, (1, 1, 0, 0)), (LINE, LINE)),
    ],
)
def test_a_line_that_says_otherwise_is_noticed(counts: Counts, log: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        lines.check(counts, log)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "file"),
        ("[]", "file"),
        ('{"schema": "specviz.served/2"}', "schema"),
        (" " * (MAX_BYTES + 1), "file"),
    ],
)
def test_other_files_are_refused(text: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SavedError) as told:
        load(path)
    assert told.value.field == field


def test_a_field_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write(small(), path)
    body = json.loads(path.read_text(encoding="utf-8"))
    body["passes"][0]["asked"][0]["answer"]["arrivals"][1]["tokens"] = "3"
    path.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(SavedError, match=r"passes\.0\.asked\.0\.answer\.arrivals\.1\.tokens"):
        load(path)


# ---------------------------------------------------------------- those that come with SpecViz


@pytest.fixture(scope="module", params=METHODS)
def run(request: pytest.FixtureRequest) -> Saved:
    return load(path_of(request.param))


def test_a_saved_run_says_what_ran(run: Saved) -> None:
    assert path_of(run.method).stat().st_size < MAX_BYTES
    assert run.versions["vllm"] == "0.32.0"
    # What is started today is what was recorded.
    assert (run.command, run.speculative) == (command(run.method), SPECULATIVE[run.method])
    assert [each.concurrency for each in run.passes] == [1, 4]
    asked = held_out_prompts(TASKS, 2)[:10]
    for each in run.passes:
        assert [(one.task, one.prompt) for one in each.asked] == asked


def test_the_answers_of_a_saved_run_add_up_to_its_counters_and_its_log(run: Saved) -> None:
    for each in run.passes:
        found = list(readings(run, each.asked))
        told = sum((reading.told.counts for reading in found if reading.told is not None), NOTHING)
        window = each.window
        assert window is not None
        assert window.generated == sum(one.answer.tokens for one in each.asked)
        assert window.prompted == sum(len(one.answer.prompt or ()) for one in each.asked)
        assert window.answers == len(each.asked)
        if run.method == "baseline":
            assert (window.speculation, each.log, told) == (None, (), NOTHING)
        else:
            assert window.speculation == told
            lines.check(told, each.log)


def test_one_after_another_every_answer_of_a_saved_run_has_a_trace_that_counts_as_it_was_told(run: Saved) -> None:
    each = run.at(1)
    for one, reading in zip(each.asked, readings(run, each.asked), strict=True):
        assert reading.trace is not None, reading.gap
        assert reading.trace.output == one.answer.ids
        if reading.told is None or reading.unsettled:
            continue
        summary = summarise(reading.trace)
        assert (summary.drafted, summary.drafting_rounds) == (reading.told.counts.drafted, reading.told.counts.drafts)
        last = reading.trace.rounds[-1]
        if last.emitted is not None:
            # An end that cut no round: every kept draft was sent.
            assert summary.accepted == reading.told.counts.accepted


def test_all_methods_wrote_the_same_text_one_after_another() -> None:
    texts = {method: [one.answer.ids for one in load(path_of(method)).at(1).asked] for method in METHODS}
    plain = texts.pop("baseline")
    for method, ids in texts.items():
        # Lossless up to near-ties between two logits, which round otherwise in a wider pass: at most one of ten.
        assert sum(mine == theirs for mine, theirs in zip(ids, plain, strict=True)) >= 9, method
