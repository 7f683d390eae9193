"""The command line: what it prints, its exit codes, and that a mistake is one sentence and never a stack trace."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spec_viz.cli import decode, main
from spec_viz.cli.measure import save
from spec_viz.cli.terminal import writable
from spec_viz.drafters.registry import families
from spec_viz.engine.trace import Round, loads
from spec_viz.lab.law import LawTest
from spec_viz.models.weights import is_cached
from spec_viz.ui.wording import words

EN = words("en")
needs_model = pytest.mark.skipif(not is_cached("smollm2-135m"), reason="the default model is not in the cache")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["law", "--rounds", "600"], "600 rounds are too few"),
        (["law", "--toy", "--rule", "nope"], "No rule is called nope; known: match"),
        (["bench", "--category", "nope"], "No preset is called nope; known: weather"),
        (["bench", "--drafters", "nope"], "No drafter is called nope; known: none"),
        (["quantise", "--forms", "nope"], "No form is called nope; known: int8"),
        (["record", "weather/nope"], "no preset or lesson is called weather/nope"),
        (["record", "5_1_principles/nope"], "5_1_principles records nothing called nope"),
        (["context", "--drafters", "nope"], "No drafter is called nope; known: none"),
        (["decode", "--prompt-file", "/nonexistent/prompt.txt"], "/nonexistent/prompt.txt: No such file"),
        (["bench", "--questions", "/nonexistent/q.jsonl"], "/nonexistent/q.jsonl: No such file"),
        (["decode", "--prompt", "Hi", "--trace", "/nonexistent/x.ndjson"], "/nonexistent/x.ndjson: No such file"),
        (["decode", "--prompt", "Hi", "--trace", "/"], "/: Is a directory"),
        (["bench", "--out", "/"], "/: Is a directory"),
        (["bench", "--held-out", "--questions", "q.jsonl"], "name two sets of prompts: leave one out"),
        (["concurrency", "--out", "/nonexistent/x.json"], "/nonexistent/x.json: No such file"),
        (["concurrency", "--drafters", "nope"], "No drafter is called nope; known: none"),
        (["concurrency", "--gamma", "2", "99"], "“gamma” must be a number from 1 to 12."),
        (["concurrency", "--gamma", "2", "2"], "the same value stands twice in 2, 2"),
        (["context", "--csv", "/"], "/: Is a directory"),
        (["context", "--length", *map(str, range(1, 10))], "at most 8 lengths"),
        (["sweep", "task", "--out", "x", "--csv", "x"], "x is named twice"),
        (["sweep", "gamma", "--gamma", "99"], "“gamma” must be a number from 1 to 12."),
        (["sweep", "gamma", "--temperature", "0", "1"], "--temperature takes one value here"),
        (["sweep", "task", "--seeds", *map(str, range(3000))], "more than the 5000 that a result holds"),
        (["bench", "--against", "vllm"], "--against vllm takes at least one --server"),
        (["bench", "--server", "x", "--against", "vllm"], "--server takes NAME=URL"),
        (["law", "--toy", "--rounds", "2000", "--rule", "typical"], "No test is of these drafters with these rules"),
        (["law", "--drafter", "nope"], "No drafter is called nope; known: none"),
        (["serve-local", "remove", "ngram"], "remove takes no method: one environment serves them all"),
        (["serve-local", "install", "eagle3"], "install takes no method"),
        (["serve-config", "ngram", *(f"--option=a{n}=1" for n in range(41))], "At most 40 options; 41 were given"),
        (["serve-config", "ngram", f"--option=a={'x' * 401}"], "--option a: a value has at most 400 characters"),
        pytest.param(["decode", "--prompt", " "], "prompt", marks=needs_model),
        pytest.param(["decode", "--prompt", "Hi", "--gamma", "0"], "gamma", marks=needs_model),
        pytest.param(["decode", "--prompt", "Hi", "--drafter", "nope"], "nope", marks=needs_model),
        pytest.param(["decode", "--prompt", "Hi", "--set", "colour=red"], "colour", marks=needs_model),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert sentence in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bench", "--limit", "0"], "argument --limit: 0 is less than 1"),
        (["bench", "--gamma", "-3"], "argument --gamma: -3 is less than 1"),
        (["bench", "--repeats", "x"], "argument --repeats: 'x' is no whole number"),
        (["sweep", "task", "--max-new-tokens", "1"], "argument --max-new-tokens: 1 is less than 2"),
        (["concurrency", "--batch", "1", "0"], "argument --batch: 0 is less than 1"),
        (["quantise", "--passes", "1"], "argument --passes: 1 is less than 2"),
        (["cost", "--max-n", "1"], "argument --max-n: 1 is less than 2"),
    ],
)
def test_a_number_out_of_range_is_named_at_once(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_asking_whether_a_file_can_be_written_leaves_it_as_it_was(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("kept", encoding="utf-8")
    writable(new, old, None)
    assert not new.exists()
    assert old.read_text(encoding="utf-8") == "kept"


def test_a_run_that_brought_nothing_leaves_an_older_result(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text("kept", encoding="utf-8")
    save(path, {"points": []}, "points")
    assert path.read_text(encoding="utf-8") == "kept"
    save(path, {"points": [1]}, "points")
    assert json.loads(path.read_text(encoding="utf-8")) == {"points": [1]}


def test_ctrl_c_before_anything_was_measured_is_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spec_viz.cli.measure.load_model", stop)
    assert main(["bench"]) == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_ctrl_c_keeps_the_tests_of_the_law_that_were_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Iterator[LawTest]:
        yield LawTest("one", 2000, 1.0, 0.5, True)
        os.kill(os.getpid(), signal.SIGINT)
        yield LawTest("two", 2000, 1.0, 0.5, True)
        yield LawTest("three", 2000, 1.0, 0.5, True)

    monkeypatch.setattr("spec_viz.lab.law.toy_tests", interrupted)
    assert main(["law", "--toy", "--rounds", "2000", "--json"]) == 1
    told = capsys.readouterr()
    assert [row["test"] for row in json.loads(told.out)] == ["one", "two"]
    assert "Stopped" in told.err


def test_law_fails_when_a_wrong_rule_is_planted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["law", "--toy", "--planted", "--rounds", "2000", "--drafter", "prompt_lookup", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {row["test"] for row in rows if row["verdict"] == "FAIL"} == {
        row["test"] for row in rows if "planted" in row["test"]
    }


def test_the_lists_are_complete_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafters", "--json"]) == 0
    drafters = json.loads(capsys.readouterr().out)
    assert {"none", "prompt_lookup", "early_exit", "scripted"} <= {row["name"] for row in drafters}
    assert all(row["rules"] for row in drafters)
    assert main(["models", "list", "--json"]) == 0
    assert "smollm2-135m" in {row["name"] for row in json.loads(capsys.readouterr().out)}


@needs_model
def test_bench_takes_presets_when_no_questions_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "--category", "repeat", "short", "--repeats", "1", "--max-new-tokens", "6", "--json"]
    assert main(command) == 0
    timings = json.loads(capsys.readouterr().out)["timings"]
    assert {timing["category"] for timing in timings} == {"repeat", "short"}
    assert len({timing["method"] for timing in timings}) == 4
    assert all(timing["tokens"] == 5 for timing in timings if timing["method"].startswith("ours"))


@needs_model
def test_concurrency_tells_speed_latency_crossing_and_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    command = ["concurrency", "--category", "repeat", "short", "--batch", "1", "2", "--gamma", "2", "--alpha", "0.8"]
    assert main([*command, "--repeats", "1", "--max-new-tokens", "8", "--out", str(path)]) == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    assert (result["schema"], result["kind"]) == ("specviz.result/1", "concurrency")
    assert {sample["batch"] for sample in result["samples"]} == {1, 2}
    assert all(schedule["table"][0][0] == 1 for schedule in result["schedules"])
    said = " ".join(capsys.readouterr().out.split())
    assert "where it stops paying" in said
    assert "p95" in said


@needs_model
def test_context_tells_passes_and_decodes_behind_each_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, table = tmp_path / "result.json", tmp_path / "result.csv"
    command = ["context", "--length", "200", "300", "--drafters", "prompt_lookup:max_ngram=2", "--passes", "2"]
    assert main([*command, "--max-new-tokens", "4", "--out", str(path), "--csv", str(table)]) == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    assert (result["schema"], result["kind"], result["finish"]) == ("specviz.result/1", "context", "done")
    assert {sample["prefix"] for sample in result["samples"]} == {200, 300}
    assert "prompt_lookup (max_ngram=2)" in {sample["drafter"] for sample in result["samples"]}
    assert len(table.read_text(encoding="utf-8").splitlines()) == 1 + len(result["samples"])
    said = " ".join(capsys.readouterr().out.split())
    assert "p50 / p95 / p99" in said
    assert "weights 538 MB" in said


@needs_model
def test_quantise_sets_each_form_beside_the_full_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.csv"
    command = ["quantise", "--category", "short", "--forms", "kv4", "--drafters", "prompt_lookup", "--passes", "2"]
    assert main([*command, "--max-new-tokens", "4", "--csv", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["schema"], result["kind"], result["finish"]) == ("specviz.result/1", "quantisation", "done")
    full, four = result["samples"]
    assert full["kl"][0] == 0 < four["kl"][0]
    assert four["kv_bytes"] < full["kv_bytes"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


@needs_model
def test_an_option_that_takes_text_may_be_a_number(tmp_path: Path) -> None:
    out = tmp_path / "run.ndjson"
    command = ["decode", "--prompt", "Hi", "--drafter", "layer_skip", "--set", "skip=25", "--max-new-tokens", "4"]
    assert main([*command, "--trace", str(out)]) == 0
    assert loads(out.read_text(encoding="utf-8"))[0].meta["drafter_options"]["skip"] == "25"


@needs_model
def test_a_race_says_whether_both_wrote_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["decode", "--prompt", "Say one two three, one two three.", "--max-new-tokens", "12", "--race"]
    assert main(command) == 0
    assert EN("race.same") in capsys.readouterr().out
    # Residual draws are other draws than plain decoding's.
    drawn = ["--drafter", "early_exit", "--temperature", "1", "--rule", "token"]
    assert main([*command, *drawn]) == 0
    assert EN("race.differs") in capsys.readouterr().out


@needs_model
@pytest.mark.parametrize("race", [[], ["--race"]])
def test_a_run_that_was_stopped_says_so(
    race: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[int] = []

    def stop_then_draw(round_: Round, table: dict[int, Any]) -> None:
        drawn.append(round_.round)
        if len(drawn) == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(decode, "_draw", stop_then_draw)
    assert main(["decode", "--prompt", "Count to a hundred: one, two", "--drafter", "none", *race]) == 1
    said = capsys.readouterr().out
    assert EN("board.finish.stopped") in " ".join(said.split())
    assert EN("race.same") not in said
    assert 2 <= len(drawn) <= 3


def test_drafters_tell_what_their_options_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafters", "--json"]) == 0
    rows = {row["name"]: row["options"] for row in json.loads(capsys.readouterr().out)}
    for family in families().values():
        for knob in family.knobs:
            assert f"{knob.name}={knob.default}" in rows[family.name]
            if knob.kind == "int":
                assert f"({knob.low}–{knob.high})" in rows[family.name]
            assert all(choice in rows[family.name] for choice in knob.choices)


@needs_model
def test_decode_writes_a_trace_that_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.ndjson"
    command = ["decode", "--prompt", "Say one two three, one two three.", "--max-new-tokens", "12", "--trace", str(out)]
    assert main(command) == 0
    (trace,) = loads(out.read_text(encoding="utf-8"))
    assert len(trace.output) == 12 or trace.finish == "eos"
    assert capsys.readouterr().out.strip()
