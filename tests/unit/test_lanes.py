"""Drafters side by side: order, speeds, and a why-line whose numbers are the run's own."""

import json
from dataclasses import replace
from typing import Any

import pytest

from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import summarise
from spec_viz.ui.lanes import compare_texts, lanes, why
from spec_viz.ui.view import view
from spec_viz.ui.wording import words
from tests.unit.traces import plain, run

PLAIN = plain(12, ms=(0.0, 20.0, 0.0, 0.0))
FAST = run("aaaa", "aard", "", ms=(1.0, 24.0, 0.0, 0.0))
DEAR = run("aaaa", "aaaa", ms=(200.0, 40.0, 0.0, 0.0), drafter="early_exit")
WIDE = run("aaaa", "aaar", ms=(1.0, 150.0, 0.0, 0.0), drafter="wide")
REFUSED = run("rddd", "rddd", "ardd", ms=(4.0, 30.0, 0.0, 0.0), drafter="guess")
AROUND = run("aaaa", "aard", ms=(1.0, 22.0, 60.0, 60.0), drafter="around")
SILENT = run("", "", "", ms=(0.5, 20.0, 0.0, 0.0), drafter="mute")


def said(trace: Trace, baseline: Trace | None = PLAIN) -> tuple[str, dict[str, Any]]:
    told = why(trace, summarise(trace, baseline))
    assert set(told) == {"key", "args"}
    words("vi")(told["key"], **told["args"])
    return told["key"].removeprefix("compare.why."), told["args"]


def told(*traces: Trace) -> dict[str, Any]:
    found = lanes(traces)
    assert found is not None
    return found


def test_one_drafter_is_no_comparison() -> None:
    assert lanes([FAST, PLAIN]) is None
    assert view([FAST, PLAIN], words("en"), "light")["lanes"] is None


def test_lanes_stand_in_the_order_of_their_speed() -> None:
    found = told(DEAR, FAST, REFUSED, PLAIN)
    assert found["against"] == "baseline"
    assert [row["trace"] for row in found["rows"]] == [1, 3, 2, 0]
    speeds = [row["speed"] for row in found["rows"]]
    assert speeds == sorted(speeds, reverse=True)
    assert json.loads(json.dumps(found)) == found


def test_a_speedup_is_the_one_of_the_numbers() -> None:
    row = told(DEAR, FAST, PLAIN)["rows"][0]
    summary = summarise(FAST, PLAIN)
    assert summary.speedup is not None
    assert summary.tokens_per_second is not None
    assert row["speedup"] == pytest.approx(summary.speedup.value)
    assert row["speed"] == pytest.approx(summary.tokens_per_second.value)
    assert {number["key"]: number["fraction"] for number in row["numbers"]} == {
        "alpha": "6 / 7",
        "tau": "9 / 3",
        "coverage": "2 / 3",
    }


def test_without_a_plain_run_the_slowest_lane_is_one() -> None:
    found = told(FAST, DEAR)
    assert found["against"] == "slowest"
    # 9 tokens in 75 ms beside 10 in 480 ms.
    assert [row["speedup"] for row in found["rows"]] == pytest.approx([9 / 75 / (10 / 480), 1])
    assert {row["why"]["key"] for row in found["rows"]} == {"compare.why.alone"}


def test_a_plain_run_of_another_machine_is_no_yardstick() -> None:
    elsewhere = replace(PLAIN, meta={**PLAIN.meta, "device": "cuda"})
    found = told(FAST, DEAR, elsewhere)
    assert (found["against"], found["alike"]) == ("slowest", False)
    assert all(row["text"] is None for row in found["rows"])


def test_times_that_are_unknown_are_not_compared() -> None:
    found = told(run("aa"), run("ar"), plain(3))
    assert found["against"] is None
    assert {row["speedup"] for row in found["rows"]} == {None}
    assert {row["why"]["key"] for row in found["rows"]} == {"compare.why.untimed"}


def test_a_lossy_rule_is_told_and_an_unknown_one_is_not_judged() -> None:
    lossy = replace(FAST, meta={**FAST.meta, "rule": "typical"})
    names: list[Any] = ["odd", [], None]
    odd = [replace(FAST, meta={**FAST.meta, "rule": name}) for name in names]
    found = {row["trace"]: row["lossless"] for row in told(FAST, lossy, *odd)["rows"]}
    assert found == {0: True, 1: False, 2: None, 3: None, 4: None}


def test_the_sentence_multiplies_out() -> None:
    key, args = said(FAST)
    assert key == "faster"
    assert (args["drafting"], args["rounds"]) == (2, 3)
    assert args["tau"] / args["cost"] == pytest.approx(args["times"])
    assert args["cost"] == pytest.approx(25 / 20)


@pytest.mark.parametrize(("trace", "eater"), [(DEAR, "drafts"), (WIDE, "pass"), (REFUSED, "refused"), (AROUND, "rest")])
def test_a_slower_lane_says_what_eats_it(trace: Trace, eater: str) -> None:
    key, args = said(trace)
    assert key == eater
    assert args["times"] < 1
    assert args["without"] > args["times"]


def test_what_is_eaten_is_measured() -> None:
    assert said(DEAR)[1]["part"] == pytest.approx(200 / 20)
    assert said(DEAR)[1]["without"] == pytest.approx(5 / (40 / 20))
    assert said(WIDE)[1]["part"] == pytest.approx(130 / 20)
    assert said(AROUND)[1]["part"] == pytest.approx(120 / 20)
    kept = said(REFUSED)[1]
    assert (kept["kept"], kept["drafted"]) == (1, 12)
    assert kept["without"] == pytest.approx(5 / (34 / 20))


def test_a_draw_a_mute_drafter_and_the_yardstick() -> None:
    assert said(SILENT)[0] == "silent"
    assert said(PLAIN) == ("plain", {"ms": 20.0})
    assert said(run("a", "a", ms=(0.0, 40.0, 0.0, 0.0)))[0] == "even"
    assert said(FAST, None) == ("alone", {"drafting": 2, "rounds": 3, "tau": 3.0, "ms": 25.0})


def text(trace: Trace, other: Trace) -> str:
    found = compare_texts(trace, other)
    assert found is not None
    words("vi")(found["key"], **found["args"])
    return str(found["key"]).removeprefix("compare.text.")


def test_texts_are_the_same_or_it_is_said_why_not() -> None:
    ids = plain(3)
    assert compare_texts(ids, ids) is None
    assert text(run("", "", ""), ids) == "same"
    assert text(run("", "", "", rule="typical"), ids) == "same_lossy"
    assert text(run("", ""), ids) == "ended"
    assert text(run("a", temperature=0), ids) == "greedy"
    assert text(run("a", temperature=0.8), ids) == "match"
    assert text(run("a", temperature=0.8, rule="token"), ids) == "law"
    assert text(run("a", temperature=0.8, rule="typical"), ids) == "lossy"
    assert text(run("a", temperature=0, rule="typical"), ids) == "lossy_greedy"


def test_the_place_where_texts_part_is_counted_from_one() -> None:
    found = compare_texts(run("a", temperature=0), plain(3))
    assert found is not None
    # The prefill's token is the first; the draft that was kept is the second.
    assert found["args"] == {"than": {"key": "compare.than.baseline", "args": {}}, "at": 2}
    other = compare_texts(run("a", temperature=0), run("", "", drafter="first"))
    assert other is not None
    assert other["args"]["than"]["key"] == "compare.than.first"
