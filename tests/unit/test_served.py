"""Saved server runs in lessons: what words may speak of, what figures are given, and the faults that are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spec_viz.content import served
from spec_viz.content.check import problems
from spec_viz.content.expressions import evaluate, fill_in, unmark
from spec_viz.content.figures import Command, Reported, Runs, Served
from spec_viz.content.lessons import lesson_json, load_lesson
from spec_viz.engine.trace import loads
from spec_viz.serving import saved as store
from spec_viz.serving.client import Answer, Arrival
from spec_viz.serving.counters import Counts, Scrape
from spec_viz.serving.saved import Asked, Pass, Saved

# A silent round, which is in no list; then four drafted and two kept; then four drafted and none kept.
KEPT = [2, 0]
CONFIG = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
LOG = "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 2 tokens, Avg Draft acceptance rate: 25.0%"


def account() -> dict[str, Any]:
    return {
        "time_to_first_token_ms": 50.1234,
        "speculative_decoding": {
            "mean_acceptance_length": 2.0,
            "acceptance_histogram": [1, 0, 1, 0, 0],
            "num_spec_steps": 2,
            "num_accepted_draft_tokens": 2,
            "num_draft_tokens": 8,
            "num_spec_tokens": 4,
            "per_step_accepted": KEPT,
            "per_step_drafted": [4, 4],
        },
    }


def answer(*, plain: bool, pace: float) -> Answer:
    """Six tokens, `pace` milliseconds from one arrival to the next."""
    sizes = [1] * 6 if plain else [1, 1, 3, 1]
    arrivals = tuple(Arrival(50 + pace * i, size) for i, size in enumerate(sizes))
    metrics = {"time_to_first_token_ms": 50.0} if plain else account()
    return Answer("text", tuple(range(10, 16)), arrivals, 6, metrics, (1, 2, 3), "length")


def run(method: str, *, pace: float = 20.0) -> Saved:
    plain = method == "baseline"
    before, after = (None, None) if plain else (Counts(5, 20, 7, (5, 2)), Counts(7, 28, 9, (6, 3)))
    one = Pass(
        1,
        0.5,
        Scrape(0.0, 100, 50, 3, before),
        Scrape(0.5, 106, 53, 4, after),
        () if plain else (LOG,),
        (Asked("chat", "Name the days.", 0.0, answer(plain=plain, pace=pace)),),
    )
    flags = ["vllm", "serve", "TARGET", "--dtype", "float32", "--enforce-eager"]
    return Saved(
        schema=store.SCHEMA,
        method=method,
        created="2026-11-30T08:00:00+00:00",
        versions={"vllm": "0.32.0"},
        machine={"processor": "toy", "cores": 2},
        target="smollm2-135m",
        command=tuple(flags if plain else [*flags, served.CONFIG, "{}"]),
        environment={},
        speculative=None if plain else CONFIG,
        head=None,
        max_tokens=6,
        warm_up=0,
        tokens={i: (f" {i}", None) for i in range(20)},
        passes=(one,),
    )


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two saved runs in a folder of their own."""
    place = tmp_path / "served"
    monkeypatch.setattr(store, "SERVED", place)
    for method in ("baseline", "ngram"):
        store.write(run(method), place / f"{method}.json")
    return place


def said(expression: str) -> Any:
    return evaluate(expression, {"served": served.ServedRuns()})


def printed(line: served.Line) -> str:
    return "".join(str(piece["text"]) for piece in line)


def test_words_may_speak_of_counts_times_and_answers() -> None:
    assert said("served.ngram.gamma") == 4
    assert said("served.ngram.speculative.prompt_lookup_max") == 3
    assert said("served.ngram.at[1].told.length.value") == 2.0
    assert said("served.ngram.at[1].told.rate.value") == 2 / 8
    # Five tokens after the first in three rounds, one of them silent: it is in no list, and counts here.
    assert said("served.ngram.at[1].tau.value") == 5 / 3
    assert said("served.baseline.at[1].tau.value") == 1.0
    assert said("served.ngram.at[1].tpot.p50") == 12.0
    assert said("served.baseline.at[1].tpot.p50") == 20.0
    assert said("served.ngram.at[1].ttft.p50") == 50.0
    assert said("served.ngram.at[1].throughput.value") == 12.0
    assert said("served.ngram.at[1].window.speculation.drafts") == 2
    assert said("served.ngram.at[1].answers[0].rounds | length") == 3
    assert said("served.ngram.at[1].answers[0].arrivals") == [1, 1, 3, 1]
    assert said("served.ngram.at[1].answers[0].span_ms") == 60.0
    # Two kept, and one refused in either round: the drafts behind were never judged.
    assert said("served.ngram.at[1].answers[0].judged") == 4
    assert said("served.ngram.at[1].same") == 1
    assert said("served.ngram.at[1].answers[0].ids == served.baseline.at[1].answers[0].ids") is True
    assert (
        unmark(fill_in("{{ served.ngram.at[1].tau.value | fixed(1) }}", {"served": served.ServedRuns()}, "vi")) == "1,7"
    )


def test_a_run_that_is_recorded_anew_is_read_anew(runs: Path) -> None:
    assert said("served.ngram.at[1].tpot.p50") == 12.0
    path = runs / "ngram.json"
    before = path.stat().st_mtime_ns
    store.write(run("ngram", pace=40.0), path)
    assert path.stat().st_mtime_ns != before
    assert said("served.ngram.at[1].tpot.p50") == 24.0


def test_the_command_stands_as_it_is_typed_and_its_keys_can_be_explained() -> None:
    figure = Command("command", "ngram")
    assert [printed(line) for line in served.lines(figure)] == [
        "vllm serve TARGET \\",
        "  --dtype float32 \\",
        "  --enforce-eager \\",
        "  --speculative-config '{",
        '    "method": "ngram",',
        '    "num_speculative_tokens": 4,',
        '    "prompt_lookup_max": 3',
        "  }'",
    ]
    assert served.keys_of(figure) == [
        "--dtype", "--enforce-eager", "--speculative-config", "method", "num_speculative_tokens", "prompt_lookup_max",
    ]  # fmt: skip
    assert [printed(line) for line in served.lines(Command("command", "baseline"))][-1] == "  --enforce-eager"


def test_what_the_server_reports_stands_line_by_line() -> None:
    told = [printed(line) for line in served.lines(Reported("reported", "ngram", "answer"))]
    assert told[:3] == ["{", '  "metrics": {', '    "time_to_first_token_ms": 50.123,']
    assert '      "per_step_accepted": [2, 0],' in told
    assert told[-3:] == ["    }", "  }", "}"]
    counters = [printed(line) for line in served.lines(Reported("reported", "ngram", "counters"))]
    assert counters[0] == "vllm:spec_decode_num_drafts_total  5 → 7"
    assert 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"}  2 → 3' in counters
    assert counters[-1] == "vllm:generation_tokens_total  100 → 106"
    log = Reported("reported", "ngram", "log")
    assert [printed(line) for line in served.lines(log)] == [LOG]
    assert served.keys_of(log)[1:] == ["Mean acceptance length", "Accepted", "Avg Draft acceptance rate"]


def test_an_answer_becomes_a_trace_with_what_was_not_told_left_open() -> None:
    (trace,) = loads(served.figure_json(Served("served", "ngram", 0))["ndjson"])
    assert trace.origin == "server"
    assert [[node.status for node in round_.nodes] for round_ in trace.decoding] == [
        [],
        ["accepted", "accepted", "rejected", "discarded"],
        ["rejected", "discarded", "discarded", "discarded"],
    ]
    refused = trace.decoding[1].nodes[2]
    assert (refused.id, refused.p, refused.q, refused.u) == (None, None, None, None)
    assert trace.output == tuple(range(10, 16))


def test_runs_stand_side_by_side() -> None:
    both = ("baseline", "ngram")
    tpot = served.figure_json(Runs("runs", "tpot", both))
    assert [row["values"] for row in tpot["rows"]] == [[20.0, 20.0], [12.0, 12.0]]
    assert tpot["conditions"] == {
        "target": "smollm2-135m", "vllm": "0.32.0", "created": "2026-11-30", "processor": "toy", "cores": 2,
    }  # fmt: skip
    tau = served.figure_json(Runs("runs", "tau", both))
    # Plain decoding has no rounds with a draft, so their mean length is unknown.
    assert [row["values"] for row in tau["rows"]] == [[1.0, None], [5 / 3, 2.0]]
    positions = served.figure_json(Runs("runs", "positions", ("ngram",)))
    assert [(row["name"], row["values"]) for row in positions["rows"]] == [
        ("1", [0.5]), ("2", [0.5]), ("3", [0.0]), ("4", [0.0]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "fault"),
    [
        (Command("command", "eagle3"), "no server run of eagle3 is saved"),
        (Served("served", "ngram", 0, concurrency=4), "no pass with 4 side by side"),
        (Served("served", "ngram", 3), "names answer 3, of which there is no trace"),
        (Served("served", "ngram", 0, (1, 9)), "shows rounds 1 to 9 of 4"),
        (Reported("reported", "ngram", "answer", 2), "names answer 2, which the run does not have"),
        (Runs("runs", "tpot", ("baseline", "eagle3")), "no server run of eagle3 is saved"),
    ],
    ids=str,
)
def test_a_figure_of_what_is_not_saved_is_a_fault(figure: served.Server, fault: str) -> None:
    (found,) = served.faults(figure)
    assert fault in found


def test_a_run_that_cannot_be_read_is_a_fault(runs: Path) -> None:
    (runs / "ngram.json").write_text("{}", encoding="utf-8")
    assert list(served.faults(Command("command", "ngram"))) != []
    assert served.trace_of(Served("served", "ngram", 0)) is None


# ---------------------------------------------------------------- in a lesson

YAML = """
number: "5.5"
steps:
  - id: start
    figure: {kind: command, run: ngram}
  - id: replay
    figure: {kind: served, run: ngram, answer: 0, rounds: [2, 2], start: hidden}
    claim: rounds[1].path | length == 2 and served.ngram.at[1].tau.value > served.baseline.at[1].tau.value
    ask: {kind: number, answer: "rounds[1].path | length"}
"""
WORDS = """---
title: T
question: Q?
---
## start | A
One flag.
### keys
- `--dtype` How numbers are kept.
- `method` Who drafts.
## replay | B
It wrote [this](tile:2.emitted).
### ask
How many?
### reveal
{{ rounds[1].path | length }} of {{ rounds[1].nodes | length }}, {{ told.accepted }} in all.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "5_5_toy"
    place.mkdir()
    (place / "lesson.yaml").write_text(YAML)
    for language in ("vi", "en"):
        (place / f"{language}.md").write_text(WORDS)
    return place


def test_a_lesson_about_saved_runs_is_checked_and_given_to_the_page(folder: Path) -> None:
    lesson = load_lesson(folder)
    assert problems(lesson) == []
    start, replay = lesson_json(lesson, "en")["steps"]
    assert (start["figure"]["show"], start["figure"]["lines"][1][1]["key"]) == ("command", "--dtype")
    assert "<code>method</code> Who drafts." in start["figure"]["keys"]
    assert replay["ask"]["answer"] == 2
    assert "2 of 4, 2 in all." in replay["reveal"]
    assert replay["figure"]["rounds"] == (2, 2)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("`method` Who", "`model` Who", "'keys' explains model, which the figure does not show"),
        ("- `method` Who", "- Who", "begins with no key as code"),
        ("tile:2.emitted", "tile:9.0", "the link tile:9.0 leads nowhere"),
        ("### keys\n- `--dtype` How numbers are kept.\n- `method` Who drafts.\n", "", "the section 'keys' is missing"),
        ("One flag.", "It took 20 ms.", "the number 20 is typed by hand"),
    ],
)
def test_faults_in_the_words_are_found(folder: Path, old: str, new: str, fault: str) -> None:
    text = (folder / "en.md").read_text()
    assert old in text
    (folder / "en.md").write_text(text.replace(old, new, 1))
    assert any(fault in problem for problem in problems(load_lesson(folder)))


def test_a_claim_that_the_runs_do_not_show_is_found(folder: Path) -> None:
    text = (folder / "lesson.yaml").read_text()
    (folder / "lesson.yaml").write_text(text.replace("tau.value > served", "tau.value < served"))
    assert any("does not show its claim" in problem for problem in problems(load_lesson(folder)))
