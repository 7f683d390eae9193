"""Servers asked the same questions by turns, and runs, live and saved, held side by side."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from spec_viz.cli import main
from spec_viz.serving import METHODS
from spec_viz.serving import compare as comparing
from spec_viz.serving.compare import Entrant, Plan, State, compare, differences, parse, sides, to_csv, to_json
from spec_viz.serving.counters import Counts
from spec_viz.serving.problems import ServerError
from spec_viz.serving.saved import SCHEMA, Saved, SavedError, load, path_of
from spec_viz.ui.wording import LANGUAGES, words
from tests.unit.toys import CHAT, Handler, Toy, chunk, missing, running, vllm

QUESTIONS = tuple(("chat", f"question {number}") for number in range(10))
PLAN = Plan(QUESTIONS, max_tokens=5, widths=(1, 4), warm_up=2)


def states_of(toys: dict[str, Toy], plan: Plan = PLAN, **more: Any) -> list[State]:
    with ExitStack() as stack:
        entrants = [Entrant(name, stack.enter_context(running(toy)).place) for name, toy in toys.items()]
        return list(compare(entrants, plan, **more))


def two() -> dict[str, Toy]:
    return {"spec": vllm(), "plain": vllm(None)}


def prompts(toy: Toy) -> list[str]:
    return [body["messages"][0]["content"] for body in toy.asked(CHAT)]


def test_all_are_asked_the_same_and_the_warm_up_is_dropped() -> None:
    toys = two()
    *_, last = states_of(toys)
    assert (last.stage, last.done, last.total, last.problems) == ("done", 40, 40, ())
    asked = [text for _, text in QUESTIONS]
    for toy in toys.values():
        assert prompts(toy)[:12] == [*asked[:2], *asked]
        assert sorted(prompts(toy)[12:]) == asked
    spec, plain = last.runs
    assert [(each.concurrency, len(each.asked)) for each in spec.passes] == [(1, 10), (4, 10)]
    assert [one.prompt for one in plain.passes[1].asked] == asked
    assert (spec.versions, spec.target, spec.speculative) == ({"vllm": "0.32.0"}, "m", {"num_speculative_tokens": 4})
    assert plain.speculative is None


def test_one_machine_is_one_however_its_address_was_typed() -> None:
    with running(vllm()) as spec, running(vllm(None)) as plain:
        entrants = [Entrant("spec", spec.place), Entrant("plain", replace(plain.place, host="localhost"))]
        *_, last = compare(entrants, PLAN)
    assert [run.machine for run in last.runs] == [{"host": "localhost"}] * 2
    assert "machine" not in {each.name for each in differences(last.runs)}


def test_servers_take_turns_and_each_second_time_in_the_other_order() -> None:
    order: list[str] = []
    toys = two()
    for name, toy in toys.items():
        answered = toy.routes[CHAT]

        def chat(handler: Handler, body: Any, name: str = name, answered: Any = answered) -> None:
            order.append(name)
            answered(handler, body)

        toy.routes[CHAT] = chat
    states_of(toys, replace(PLAN, warm_up=0))
    assert order[:8] == ["spec", "plain", "plain", "spec", "spec", "plain", "plain", "spec"]
    # Ten questions, four side by side: two turns of five, begun the other way round.
    assert order[20:] == ["plain"] * 5 + ["spec"] * 10 + ["plain"] * 5


def test_so_many_are_asked_at_once_and_no_more() -> None:
    import threading

    lock, now, most = threading.Lock(), 0, 0
    toy = vllm(pause=0.05)
    answered = toy.routes[CHAT]

    def chat(handler: Handler, body: Any) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        answered(handler, body)
        with lock:
            now -= 1

    toy.routes[CHAT] = chat
    states_of({"spec": toy, "plain": vllm(None)}, replace(PLAN, widths=(4,), warm_up=0))
    assert most == 4


def test_every_state_has_the_runs_so_far() -> None:
    seen = [state for state in states_of(two()) if state.stage == "asking"]
    counts = [sum(len(each.asked) for run in state.runs for each in run.passes) for state in seen]
    assert counts == [state.done for state in seen] == sorted(counts)
    assert counts[:3] == [1, 2, 3]
    # Half of it can be read as the whole can.
    assert [side.answers for side in sides(seen[4].runs)] == [3, 2]
    json.dumps([asdict(state) for state in seen[:3]], allow_nan=False)


def test_numbers_are_those_that_were_told() -> None:
    *_, last = states_of(two())
    spec, _, plain, _ = sides(last.runs)
    assert (spec.name, spec.concurrency, spec.answers, spec.failed, spec.odd, spec.shared) == (
        "spec",
        1,
        10,
        0,
        0,
        False,
    )
    assert (spec.counts, spec.source) == (Counts(20, 80, 20, (10, 10, 0, 0)), "answers")
    # Four tokens after the prefill, in two rounds.
    assert spec.tau is not None
    assert (spec.tau.numerator, spec.tau.denominator) == (40, 20)
    assert plain.tau is not None
    assert (plain.tau.value, plain.counts, plain.source) == (1.0, None, None)
    assert spec.first is not None
    assert spec.token is not None
    assert (len(spec.firsts), len(spec.paces)) == (10, 10)
    assert min(spec.firsts) <= spec.first.p50 <= spec.first.p95 <= spec.first.p99 <= max(spec.firsts)
    assert spec.throughput.numerator == 50
    assert differences(last.runs) == ()


def test_a_server_without_lists_is_compared_by_its_counters_and_one_without_counters_by_its_times() -> None:
    mute = vllm()
    mute.routes["/metrics"] = missing
    *_, last = states_of({"old": vllm(lists=False), "mute": mute})
    old, _, silent, _ = sides(last.runs)
    assert (old.counts, old.source) == (Counts(20, 80, 20, (10, 10, 0, 0)), "counters")
    assert old.tau is not None
    # 50 tokens, 10 from prefills and 20 kept.
    assert (old.tau.numerator, old.tau.denominator) == (40, 20)
    assert (silent.source, silent.shared) == ("answers", False)
    assert last.runs[1].passes[0].window is None
    assert differences(last.runs) == ()


def test_a_server_that_dies_is_left_out_with_its_reason_and_the_others_go_on() -> None:
    toys = two()
    dying = toys["spec"]
    answered = dying.routes[CHAT]

    def chat(handler: Handler, body: Any) -> None:
        if len(dying.asked(CHAT)) <= 6:
            answered(handler, body)
            return
        handler.begin()
        handler.event(chunk("half", [5]))

    dying.routes[CHAT] = chat
    *_, last = states_of(toys)
    assert last.stage == "done"
    ((name, problem),) = last.problems
    assert (name, problem.key) == ("spec", "error.server_broke")
    spec, plain = last.runs
    assert [len(each.asked) for each in plain.passes] == [10, 10]
    # Two of the warm-up, four whole ones, and three that broke off.
    (each,) = spec.passes
    assert [one.problem is None for one in each.asked] == [True] * 4 + [False] * 3
    assert each.asked[-1].answer.text == "half"
    side = sides(last.runs)[0]
    assert (side.answers, side.failed) == (4, 3)
    assert side.throughput.numerator == 20
    found = {each.name: each for each in differences(last.runs)}
    assert found["prompts"].values == ("7", "10")
    assert found["prompts"].grave
    assert found["failed"].values == ("3", "0")
    assert parse(to_json(last.runs)) == last.runs


def test_a_server_that_is_away_leaves_the_others() -> None:
    with running(vllm()) as toy:
        away = toy.place
    with running(vllm(None)) as toy:
        *_, last = compare([Entrant("away", away), Entrant("plain", toy.place)], PLAN)
    assert [(name, problem.key) for name, problem in last.problems] == [("away", "error.server_away")]
    assert [run.method for run in last.runs] == ["plain"]
    assert [len(each.asked) for each in last.runs[0].passes] == [10, 10]


def test_a_stop_keeps_what_there_is() -> None:
    stopped: list[int] = []
    with ExitStack() as stack:
        entrants = [Entrant(name, stack.enter_context(running(toy)).place) for name, toy in two().items()]
        states = compare(entrants, PLAN, lambda: bool(stopped))
        seen: list[State] = []
        for state in states:
            seen.append(state)
            if state.done == 5:
                stopped.append(1)
    assert (seen[-1].stage, seen[-1].done) == ("stopped", 5)
    assert [side.answers for side in sides(seen[-1].runs)] == [3, 2]
    assert seen[-1].problems == ()
    *_, late = states_of({"spec": vllm(pause=0.3), "plain": vllm(None)}, replace(PLAN, warm_up=0, seconds=3.0))
    assert (late.stage, late.problems) == ("late", ())
    assert 0 < late.done < 40
    # The one that was cut keeps what had come, and is no whole answer.
    assert sum(side.failed for side in sides(late.runs)) <= 1


def ids_of(run: Saved) -> set[int]:
    """Every token that its answers speak of."""
    answers = [asked.answer for each in run.passes for asked in each.asked]
    return {id_ for answer in answers for id_ in (*(answer.ids or ()), *(answer.prompt or ()))}


def test_texts_come_with_the_answers_and_each_is_asked_for_once() -> None:
    toys = two()
    seen = [state for state in states_of(toys) if state.stage == "asking"]
    for state in seen:
        for run in state.runs:
            assert {id_: (f"<{id_}>", None) for id_ in ids_of(run)} == run.tokens
    for toy in toys.values():
        asked = [body["tokens"][0] for body in toy.asked("/detokenize")]
        assert sorted(asked) == [1, 2, 3, 10, 11, 12, 13, 14]


def test_a_stopped_a_late_and_a_broken_comparison_have_the_texts_of_what_came() -> None:
    stopped: list[int] = []
    with ExitStack() as stack:
        toys = two()
        spec = toys["spec"]
        answered = spec.routes[CHAT]

        def chat(handler: Handler, body: Any) -> None:
            answered(handler, body)
            # In the middle of a turn: its own texts are asked for after the stop.
            stopped.append(1)

        entrants = [Entrant(name, stack.enter_context(running(toy)).place) for name, toy in toys.items()]
        spec.routes[CHAT] = chat
        *_, last = compare(entrants, replace(PLAN, warm_up=0), lambda: bool(stopped))
    assert (last.stage, last.done) == ("stopped", 1)
    assert set(last.runs[0].tokens) == ids_of(last.runs[0]) != set()
    *_, late = states_of({"spec": vllm(pause=0.3), "plain": vllm(None)}, replace(PLAN, warm_up=0, seconds=3.0))
    assert late.stage == "late"
    assert all(set(run.tokens) == ids_of(run) for run in late.runs)
    broken = two()

    def dying(handler: Handler, _body: Any) -> None:
        handler.begin()
        handler.event(chunk("half", [5], prompt_token_ids=[1]))

    broken["spec"].routes[CHAT] = dying
    *_, last = states_of(broken, replace(PLAN, warm_up=0))
    assert set(last.runs[0].tokens) == {1, 5}


def test_texts_are_bounded_and_a_server_without_them_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MOST_TEXTS", 4)
    toys = two()
    toys["plain"].routes["/detokenize"] = missing
    *_, last = states_of(toys)
    spec, plain = last.runs
    # The answer's own come first.
    assert set(spec.tokens) == {10, 11, 12, 13}
    assert plain.tokens == {}
    assert len(toys["plain"].asked("/detokenize")) == 1
    assert (last.stage, last.problems) == ("done", ())


def test_others_on_a_server_are_noticed() -> None:
    toys = two()
    spec = toys["spec"]
    answered = spec.routes[CHAT]

    def chat(handler: Handler, body: Any) -> None:
        spec.counts["generation_tokens_total"] += 3
        spec.counts["time_to_first_token_seconds_count"] += 1
        answered(handler, body)

    spec.routes[CHAT] = chat
    *_, last = states_of(toys)
    assert [each.name for each in differences(last.runs)] == ["shared"]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"questions": ()}, "error.compare_bounds"),
        ({"questions": (("chat", "x" * 9000),)}, "error.compare_bounds"),
        ({"questions": QUESTIONS * 10}, "error.compare_bounds"),
        ({"max_tokens": 0}, "error.compare_bounds"),
        ({"max_tokens": 100_000}, "error.compare_bounds"),
        ({"seconds": float("nan")}, "error.compare_bounds"),
        ({"widths": ()}, "error.compare_widths"),
        ({"widths": (1, 1000)}, "error.compare_widths"),
        ({"widths": (1,) * 1000}, "error.compare_widths"),
        ({"widths": (16,)}, "error.compare_few"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anybody_is_asked(change: dict[str, Any], key: str) -> None:
    toys = two()
    with pytest.raises(ServerError) as told:
        states_of(toys, replace(PLAN, **change))
    for language in LANGUAGES:
        assert "{" not in words(language)(told.value.key, **told.value.fields)
    assert told.value.key == key
    assert all(toy.seen == [] for toy in toys.values())


def test_servers_have_names_of_their_own_and_are_two_to_four() -> None:
    with running(vllm()) as toy:
        cases = {
            "error.compare_servers": (["a"], ["a"] * 5),
            "error.compare_names": (["a", "a"], ["a", " "], ["a", "b\n"]),
        }
        for key, names in ((key, names) for key, several in cases.items() for names in several):
            with pytest.raises(ServerError) as told:
                list(compare([Entrant(name, toy.place) for name in names], PLAN))
            assert told.value.key == key


# ---------------------------------------------------------------- saved runs, and files


@pytest.fixture(scope="module")
def kept() -> tuple[Saved, ...]:
    return tuple(load(path_of(method)) for method in METHODS)


def test_saved_runs_are_read_by_the_same_code(kept: tuple[Saved, ...]) -> None:
    found = sides(kept)
    assert [(side.name, side.concurrency) for side in found] == [(m, c) for m in METHODS for c in (1, 4)]
    assert differences(kept) == ()
    by_name = {(side.name, side.concurrency): side for side in found}
    plain, drafted = by_name["baseline", 1], by_name["draft_model", 1]
    assert plain.tau is not None
    assert drafted.tau is not None
    assert plain.tau.value == 1.0 < (drafted.tau.value or 0)
    assert drafted.source == "answers"
    assert drafted.counts == kept[2].at(1).window.speculation  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "name", "grave"),
    [
        ({"target": "other"}, "target", True),
        ({"max_tokens": 65}, "max_tokens", True),
        ({"machine": {"processor": "another", "cores": 2}}, "machine", True),
        ({"versions": {"vllm": "0.33.0"}}, "vllm", False),
    ],
)
def test_what_does_not_compare_is_named(change: dict[str, Any], name: str, grave: bool, kept: Sequence[Saved]) -> None:
    told = differences([kept[0], replace(kept[1], **change)])
    assert [(each.name, each.grave) for each in told] == [(name, grave)]
    assert len(set(told[0].values)) == 2


def test_other_questions_and_other_loads_are_named(kept: Sequence[Saved]) -> None:
    single = replace(kept[1], passes=kept[1].passes[:1])
    assert [each.name for each in differences([kept[0], single])] == ["concurrency"]
    asked = tuple(replace(one, prompt="another") for one in single.passes[0].asked)
    other = replace(single, passes=(replace(single.passes[0], asked=asked),))
    assert "prompts" in [each.name for each in differences([kept[0], other])]
    for language in LANGUAGES:
        assert all(words(language)(f"differs.{each.name}") for each in differences([kept[0], other]))


def test_a_comparison_is_written_and_read_again(kept: tuple[Saved, ...]) -> None:
    assert parse(to_json(kept)) == kept
    assert parse(path_of("ngram").read_text(encoding="utf-8")) == (kept[1],)
    rows = list(csv.DictReader(to_csv(kept).splitlines()))
    assert [(row["server"], row["concurrency"]) for row in rows] == [(m, c) for m in METHODS for c in ("1", "4")]
    assert {row["position_4"] == "" for row in rows[:2]} == {True}
    assert 0 < float(rows[4]["position_4"]) < float(rows[4]["position_1"]) < 1
    assert to_csv(()) == ""


def test_a_file_may_be_written_anew_in_another_order(kept: tuple[Saved, ...]) -> None:
    body = json.loads(to_json(kept))
    assert parse(json.dumps(dict(reversed(body.items())), indent=2)) == kept


def huge(run: dict[str, Any]) -> dict[str, Any]:
    answer = run["passes"][0]["asked"][0]["answer"]
    answer["ids"] = [1] * 400_000
    return run


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda _: [], "runs"),
        (lambda runs: [runs[0], runs[0]], "runs"),
        (lambda runs: [runs[0] | {"method": str(number)} for number in range(5)], "runs"),
        (lambda runs: [runs[0] | {"method": "x" * 61}], "runs.0.method"),
        (lambda runs: [runs[0] | {"method": " "}], "runs.0.method"),
        (lambda runs: [runs[0] | {"passes": runs[0]["passes"] * 2}], "runs.0.passes"),
        (lambda runs: [runs[0] | {"speculative": {"num_speculative_tokens": 10**9}}], "runs.0.speculative"),
        (lambda runs: [runs[0] | {"speculative": {"num_speculative_tokens": {}}}], "runs.0.speculative"),
        (lambda runs: [huge(runs[0])], "runs"),
    ],
)
def test_what_no_comparison_comes_to_is_refused(change: Any, field: str, kept: Sequence[Saved]) -> None:
    body = json.loads(to_json(kept[:1]))
    body["runs"] = change(body["runs"])
    with pytest.raises(SavedError) as told:
        parse(json.dumps(body))
    assert told.value.field.startswith(field)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '"specviz.compared/1"',
        '{"schema": "specviz.trace/1"}',
        '{"schema": {"a": 1}}',
        '{"schema": "specviz.compared/1", "runs": [NaN]}',
        f'{{"schema": "{SCHEMA}"}}',
        "[]",
        '{"schema": "specviz.compared/1", "runs": 5}',
        '{"schema":"specviz.compared/1","runs":[{}]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(SavedError):
        parse(text)


def test_a_forged_file_is_read_or_refused_and_never_breaks(kept: Sequence[Saved]) -> None:
    whole = json.loads(to_json(kept[1:2]))
    answer = whole["runs"][0]["passes"][0]["asked"][0]["answer"]
    forged: list[tuple[str, Any]] = [("tokens", 10**9), ("arrivals", []), ("ids", []), ("ids", None)]
    forged += [("arrivals", [{"ms": 1.0, "tokens": 1}]), ("metrics", {"speculative_decoding": 5})]
    for name, value in forged:
        before = answer[name]
        answer[name] = value
        (run,) = parse(json.dumps(whole))
        assert len(sides((run,))) == 2
        answer[name] = before
    for name, value in (
        ("arrivals", [{"ms": -1.0, "tokens": 1}]),
        ("arrivals", [{"ms": 1.0, "tokens": 0}]),
        ("ids", [-1]),
    ):
        before = answer[name]
        answer[name] = value
        with pytest.raises(SavedError):
            parse(json.dumps(whole))
        answer[name] = before


def test_a_name_that_a_spreadsheet_would_run_is_only_text(kept: Sequence[Saved]) -> None:
    assert "'=cmd()" in to_csv([replace(kept[0], target="=cmd()")])


# ---------------------------------------------------------------- the command


def test_the_command_prints_a_table_and_keeps_what_was_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(vllm()) as spec, running(vllm(None)) as plain:
        told = ["serve-compare", f"spec={spec.address}", f"plain={plain.address}", "--limit", "1", "--max-tokens", "5"]
        assert main([*told, "--concurrency", "1", "--json", "--out", str(tmp_path / "run.json")]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(row["server"], row["side by side"], row["τ"]) for row in rows] == [("spec", 1, 2.0), ("plain", 1, 1.0)]
        runs = parse((tmp_path / "run.json").read_text(encoding="utf-8"))
        assert [run.method for run in runs] == ["spec", "plain"]
        assert main(["serve-read", str(tmp_path / "run.json"), "--json", "--out", str(tmp_path / "again.csv")]) == 0
        assert json.loads(capsys.readouterr().out) == rows
        assert (tmp_path / "again.csv").read_text(encoding="utf-8") == to_csv(runs)
        assert main([*told, "--out", str(tmp_path / "run.txt")]) == 2
        spec.seen.clear()
        assert main([*told, "--out", str(tmp_path / "no folder" / "run.json")]) == 2
        assert "run.json" in "".join(capsys.readouterr().err.split())
        assert not spec.seen, "where results go is tried before anybody is asked"
        # Half of a comparison is told, and is no success.
        assert main(["serve-compare", f"spec={spec.address}", "gone=http://127.0.0.1:9", "--limit", "1", "--json"]) == 1
        half = capsys.readouterr()
        assert {row["server"] for row in json.loads(half.out)} == {"spec"}
        assert "does not answer" in half.err.replace("\n", " ")
        assert main(["serve-compare", "http://127.0.0.1:9"]) == 2
        assert "NAME=URL" in capsys.readouterr().err
    assert main(["serve-compare", "a=http://127.0.0.1:9", "b=http://127.0.0.1:9", "--concurrency", "1"]) == 2
    assert "does not answer" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no comparison that SpecViz kept"),
        (b"\xff\xfe{}", "is no comparison that SpecViz kept"),
        (b'{"schema": "specviz.compared/1", "runs": []}', "1 to 4 of them"),
        (b'{"schema": "specviz.served/1", "versions": {"[/red]": 3}}', "is no comparison that SpecViz kept"),
        (b" " * (comparing.MAX_BYTES + 1), "is larger than 8 MB"),
    ],
    ids=["empty", "bytes", "none", "markup", "large"],
)
def test_the_command_says_why_it_does_not_read_a_file(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(content)
    assert main(["serve-read", str(path)]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert main(["serve-read", str(tmp_path / "nothing.json")]) == 2
    assert main(["serve-read", str(path), "--out", str(tmp_path / "x.txt")]) == 2


def test_names_in_a_file_are_no_markup_of_the_terminal(
    kept: tuple[Saved, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.json"
    path.write_text(to_json([replace(kept[0], method="[/red]", target="[/x]"), kept[1]]), encoding="utf-8")
    assert main(["serve-read", str(path)]) == 0
    told = capsys.readouterr()
    assert "[/red]" in told.out
    assert "[/x]" in told.err
