"""What the Serve rooms are told of servers side by side: sentences, charts, files and replays, of runs and records."""

from __future__ import annotations

import copy
import csv
import io
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from spec_viz.content.served import run_of, view_of
from spec_viz.engine.trace import loads
from spec_viz.serving import METHODS
from spec_viz.serving.client import Answer, Arrival
from spec_viz.serving.compare import to_json
from spec_viz.serving.problems import Problem
from spec_viz.serving.saved import Asked, Saved
from spec_viz.ui.serve_view import served
from spec_viz.ui.wording import LANGUAGES, words
from tests.unit.test_saved import small

EN = words("en")


def ask(**asked: Any) -> dict[str, Any]:
    return served({"language": "en", "theme": "light", **asked})


def test_every_saved_run_is_drawn_in_both_languages_and_themes() -> None:
    for language in ("vi", "en"):
        for theme in ("light", "dark"):
            view = served({"runs": list(METHODS), "at": 4, "language": language, "theme": theme})
            assert [chart["key"] for chart in view["charts"]] == [
                "served_tpot",
                "served_tau",
                "served_positions",
                "served_ttft",
                "served_throughput",
            ]
            assert all(chart["summary"] for chart in view["charts"])
            assert (view["levels"], view["at"], view["differ"]) == ([1, 4], 4, [])
            json.dumps(view)


def test_the_reason_multiplies_out_to_the_speed_in_the_sentence() -> None:
    view = ask(runs=["baseline", "eagle3"], at=1)
    (reason,) = view["why"]
    times = reason.rpartition("= ")[2].rstrip(".")
    assert f"{times} times as fast" in view["verdict"]
    tau = view_of("eagle3", 1).tau
    assert tau is not None
    assert f"brings {tau.value:.2f} tokens" in reason


def test_without_a_plain_server_nothing_is_called_faster() -> None:
    view = ask(runs=["ngram", "eagle3"])
    assert view["verdict"] == EN("serve.said.alone", load=EN("serve.load.one"), name="n-gram", ms="72")
    assert view["why"] == []
    # One alone is no race.
    assert ask(runs=["ngram"])["verdict"] == EN("serve.said.one", load=EN("serve.load.one"), name="n-gram", ms="72")
    assert ask(runs=["baseline"])["verdict"] == EN("serve.said.plain")


def test_a_round_that_is_cheaper_than_a_plain_one_is_called_what_it_is() -> None:
    assert EN("serve.said.why.noise") in ask(runs=["baseline", "ngram"], at=1)["why"]
    assert EN("serve.said.why.noise") not in ask(runs=["baseline", "eagle3"], at=1)["why"]


def test_a_question_is_replayed_with_the_traces_of_all_who_answered() -> None:
    answer = ask(runs=["baseline", "eagle3"], at=1, question=2)
    plain, drafting = answer["answers"]
    (trace,) = loads(drafting["ndjson"])
    known = view_of("eagle3", 1).readings[2].trace
    assert known is not None
    assert (trace.rounds, trace.output) == (known.rounds, known.output)
    assert plain["drafts"] is None
    assert drafting["drafts"][2] == sum(len(round_.path) for round_ in trace.decoding)
    assert answer["chart"]["key"] == "served_arrivals"


def test_files_hold_the_runs_that_are_shown() -> None:
    rows = list(csv.DictReader(io.StringIO(ask(runs=["baseline", "ngram"], **{"as": "csv"})["text"])))
    assert {row["server"] for row in rows} == {"baseline", "ngram"}
    again = ask(record=ask(runs=["baseline", "ngram"], **{"as": "json"})["text"])
    assert again["verdict"] == ask(runs=["baseline", "ngram"])["verdict"]


def test_different_conditions_are_said_and_marked_in_every_chart() -> None:
    body = json.loads(to_json([run_of("baseline"), run_of("eagle3")]))
    body["runs"][1]["max_tokens"] = 32
    view = ask(record=json.dumps(body))
    (differ,) = view["differ"]
    assert (differ["values"], differ["grave"]) == (["64", "32"], True)
    assert all(
        "≠" in json.dumps(chart["figure"]["layout"]["annotations"], ensure_ascii=False) for chart in view["charts"]
    )


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        {},
        {"runs": "eagle3"},
        {"runs": [1, {}]},
        {"record": "{}"},
        {"record": 3},
        {"runs": ["ngram"], "question": 10**9},
    ],
)
def test_what_is_no_run_is_one_sentence(asked: Any) -> None:
    error = served(asked)["error"]
    assert EN(error["key"], **error["args"])


def test_arrivals_of_a_page_are_drawn_and_others_left_out() -> None:
    came = [["a", True, [[10, 1], [30.5, 4]]], ["b", False, [[5, 1], ["x", 2], [7, -1]]], 3]
    chart = ask(came=came)["chart"]
    assert [line["y"] for line in chart["figure"]["data"]] == [[0, 1, 5], [0, 1]]
    assert ask(came="x")["chart"] is None


# ---------------------------------------------------------------- what broke off, and what a note says


def with_asked(run: Saved, asked: Asked) -> Saved:
    return replace(run, passes=(replace(run.passes[0], asked=(asked,)),))


BROKE = Problem("error.server_broke", {"address": "http://x"})


@pytest.mark.parametrize(
    ("ids", "finish", "plain", "gap"),
    [
        # A speculating server tells what became of the drafts with the last piece only.
        ((5, 6), None, False, "broken"),
        ((5, 6), None, True, None),
        (None, None, False, "no_ids"),
        ((5, 6), "length", False, "no_metrics"),
    ],
)
def test_an_answer_that_broke_off_says_why_there_are_no_tiles(
    ids: tuple[int, ...] | None, finish: str | None, plain: bool, gap: str | None
) -> None:
    arrivals = (Arrival(10.0, 1), Arrival(20.0, 1))
    answer = Answer("One two", ids, arrivals, 2, None, (1, 2) if ids else None, finish)
    run = with_asked(small(), Asked("chat", "Say it.", 0.0, answer, None if finish else BROKE))
    record = to_json([replace(run, speculative=None) if plain else run])
    (told,) = ask(record=record, question=0)["answers"]
    assert (told["text"], told["arrivals"], told["gap"]) == ("One two", [[10.0, 1], [20.0, 1]], gap)
    assert bool(told["ndjson"]) == (gap is None)
    for language in LANGUAGES:
        assert gap is None or words(language)(f"serve.gap.{gap}")


def test_notes_of_shipped_runs_are_said_in_both_languages_and_given_ones_stay() -> None:
    said = {}
    for language in LANGUAGES:
        view = served({"runs": list(METHODS), "language": language})
        (said[language],) = {each["note"] for each in view["conditions"]}
    assert said == {language: words(language)("serve.note.one_core") for language in LANGUAGES}
    given = replace(small(), machine={"note": "<b>my</b> own words"})
    for language in LANGUAGES:
        (each,) = served({"record": to_json([given]), "language": language})["conditions"]
        assert each["note"] == words(language)("serve.note", note="<b>my</b> own words")
    (each,) = ask(record=to_json([replace(small(), machine={})]))["conditions"]
    assert each["note"] == ""


# ---------------------------------------------------------------- a visitor's file


def test_a_name_is_no_markup_in_a_chart() -> None:
    name = "<a href='https://example.org'>x</a> & y"
    view = ask(record=to_json([replace(small(), method=name), replace(small(), method="plain", speculative=None)]))
    for chart in view["charts"]:
        assert "<a" not in json.dumps(chart["figure"])
        # Plotly reads entities, and the page's own sentences are text.
        assert "&lt;a" in json.dumps(chart["figure"])
        assert name in chart["summary"]


def test_a_file_is_checked_without_being_drawn() -> None:
    assert ask(record=to_json([small()]), **{"as": "check"}) == {}
    assert "error" in ask(record="{}", **{"as": "check"})


@pytest.mark.parametrize(
    "problem",
    [
        Problem("constructor", {}),
        Problem("error.nobody_wrote_this", {}),
        Problem("serve.title", {}),
        Problem("error.server_broke", {"address": {"key": "constructor", "args": {}}}),
        Problem("error.server_broke", {"address": "x" * 301}),
    ],
)
def test_a_problem_of_a_file_is_one_that_the_page_has_words_for(problem: Problem) -> None:
    asked = replace(small().passes[0].asked[0], problem=problem)
    assert ask(record=to_json([with_asked(small(), asked)]))["error"]["key"] == "error.saved_bad"


# What stands where something else belongs; what is too large, too deep or not a number is written as JSON writes it.
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    10**400,
    2**63,
    1e308,
    -0.0,
    "",
    "x" * 5000,
    "\u0000",
    "<img src=x onerror=alert(1)>",
]
ODD += ["{address}", "__proto__", [], [[]], {}, {"key": "constructor", "args": None}, [None] * 50, 1e-320, "2026-11-30"]


def places(body: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside: list[tuple[Any, ...]] = [path] if path else []
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in items:
        inside += places(value, (*path, name))
    return inside


def changed(body: Any, pick: random.Random) -> str:
    """A file with one to three things in it that do not belong there."""
    made = copy.deepcopy(body)
    for _ in range(pick.randint(1, 3)):
        *path, name = pick.choice(places(made))
        at = made
        for step in path:
            at = at[step]
        match pick.randint(0, 3):
            case 0 if isinstance(at, dict):
                del at[name]
            case 1 if isinstance(at, dict):
                at[pick.choice(["__proto__", "extra", "key"])] = pick.choice(ODD)
            case 2 if isinstance(at, list):
                at += at[:3]
            case _:
                at[name] = pick.choice(ODD)
    text = json.dumps(made)
    return text[: pick.randrange(len(text))] if pick.random() < 0.05 else text


def test_a_forged_file_is_drawn_or_refused_in_one_sentence() -> None:
    """A thousand files that no comparison wrote; the page can read all that it is told of each of them."""
    pick = random.Random(20261130)
    body = json.loads(to_json([small(), replace(small(), method="plain", speculative=None)]))
    for each in body["runs"][1]["passes"]:
        each["asked"][0]["answer"]["metrics"] = None
        each["before"] = each["after"] = None
    drawn = 0
    for _ in range(1000):
        record = changed(body, pick)
        for more in ({}, {"question": 0}, {"as": "csv"}, {"as": "json"}):
            told = served({"record": record, "language": pick.choice(LANGUAGES), "theme": "light", **more})
            json.dumps(told, allow_nan=False)
            if "error" in told:
                assert told["error"]["key"] in ("error.saved_bad", "serve.saved.none")
                assert "{" not in EN(told["error"]["key"], **told["error"]["args"])
                continue
            drawn += not more
            for answer in told.get("answers", ()):
                assert not answer["ndjson"] or len(loads(answer["ndjson"])) == 1
    # Both ends are reached.
    assert 50 < drawn < 950
