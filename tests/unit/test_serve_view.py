"""What the Serve rooms are told of servers side by side: sentences, charts, files and replays, of runs and records."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from spec_viz.content.served import run_of, view_of
from spec_viz.engine.trace import loads
from spec_viz.serving import METHODS
from spec_viz.serving.compare import to_json
from spec_viz.ui.serve_view import served
from spec_viz.ui.wording import words

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
