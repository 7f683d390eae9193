"""The Lab's answers: where a run stands on the formula, more runs of the law test, and what a hostile page may ask."""

from __future__ import annotations

import math
from typing import Any

import pytest

from spec_viz.content.presets import load_presets
from spec_viz.engine.trace import dumps
from spec_viz.lab import law_watch, theory
from spec_viz.lab.metrics import find_baseline, summarise
from spec_viz.ui.lab import law, place
from spec_viz.ui.wording import words
from tests.unit.traces import plain, run

PRESETS = {preset.name: preset for preset in load_presets()}


def asked(name: str) -> dict[str, Any]:
    return place([PRESETS[name].trace_path.read_text(encoding="utf-8"), "vi"])


MS = (1.0, 20.0, 0.5, 0.5)
CHAINS = ("summary", "early_exit", "refrain", "silent")


@pytest.mark.parametrize("name", CHAINS)
def test_the_knobs_give_the_round_its_measured_cost(name: str) -> None:
    traces = PRESETS[name].recorded()
    trace = next(trace for trace in traces if trace.meta["drafter"] != "none")
    summary = summarise(trace, find_baseline(trace, traces))
    told = asked(name)
    knobs, costs, gamma = told["knobs"], summary.costs, summary.gamma
    assert costs is not None
    pass_ = 1 + knobs["slope"] * gamma
    assert theory.round_cost(gamma, knobs["c"], pass_, knobs["overhead"]) == pytest.approx(
        theory.round_cost(gamma, *costs.terms(gamma))
    )
    by_knobs = theory.speedup(knobs["alpha"], gamma, knobs["c"], pass_, knobs["overhead"])
    steps = {step["key"]: step["speedup"] for step in told["steps"]}
    assert steps["costs"] == pytest.approx(by_knobs)
    assert summary.speedup is not None
    assert steps["measured"] == summary.speedup.value
    assert list(steps) == ["theorem", "costs", "positions", "coverage", "measured"]


@pytest.mark.parametrize("name", CHAINS)
def test_every_sentence_of_a_run_exists_and_is_filled(name: str) -> None:
    for language in ("vi", "en"):
        t = words(language)
        for said in asked(name)["why"]:
            assert "{" not in t(said["key"], **said["args"])


def test_rates_that_rise_make_one_alpha_promise_too_much() -> None:
    told = asked("wrong_layer")
    rates = [kept / judged for kept, judged in told["rates"]]
    assert rates == sorted(rates)
    steps = {step["key"]: step["speedup"] for step in told["steps"]}
    assert steps["positions"] < steps["costs"]
    assert told["why"][2]["key"] == "lab.here.positions.less"
    assert told["why"][2]["args"]["first"] == rates[0]


def test_rates_that_fall_make_one_alpha_promise_too_little() -> None:
    told = asked("exit_repeat")
    assert told["rates"][0][0] / told["rates"][0][1] > told["rates"][-1][0] / told["rates"][-1][1]
    assert told["why"][2]["key"] == "lab.here.positions.more"


@pytest.mark.parametrize(
    ("ndjson", "why"),
    [
        ("", "unreadable"),
        ("{", "unreadable"),
        (PRESETS["recycled"].trace_path.read_text(encoding="utf-8"), "tree"),
        (dumps(run("aar", gamma=3)), "alone"),
        (dumps(run("", gamma=3, ms=MS), plain(3, ms=MS)), "silent"),
        (dumps(plain(2)), "plain"),
    ],
    ids=["empty", "broken", "tree", "alone", "silent", "plain"],
)
def test_what_has_no_place_on_the_formula_says_why(ndjson: str, why: str) -> None:
    told = place([ndjson, "en"])
    assert told == {"none": {"key": f"lab.here.none.{why}", "args": {}}}
    assert words("en")(told["none"]["key"])


@pytest.mark.parametrize("nonsense", [None, 7, [], ["a"], [1, 2], {"a": 1}])
def test_nonsense_gets_a_sentence(nonsense: Any) -> None:
    assert "none" in place(nonsense)


# ---------------------------------------------------------------- the law, watched


def more(**changed: Any) -> dict[str, Any]:
    return law({"drafter": "early_exit", "rule": "token", "temperature": 1.0, "runs": 60, "seed": 0, **changed})


def test_runs_add_up_and_the_law_is_exact() -> None:
    first = more()
    second = more(seed=60, before=[list(place["counts"]) for place in first["places"]])
    assert [place["rounds"] for place in second["places"]] == [120] * len(law_watch.PLACES)
    for row in second["law"]:
        assert math.fsum(row) == pytest.approx(1)
    together = more(runs=120)
    assert together["places"] == second["places"]


def test_a_lossless_rule_stays_and_a_lossy_one_leaves() -> None:
    right, wrong = more(runs=200), more(runs=200, rule="typical")
    assert right["lossless"]
    assert not wrong["lossless"]
    assert min(place["p_value"] for place in right["places"]) > 0.001
    assert max(place["p_value"] for place in wrong["places"]) < 0.001
    assert wrong["places"][0]["distance"] > 4 * wrong["places"][0]["by_chance"]


def test_one_hot_drafters_write_the_same_texts() -> None:
    """Draws of `match` are keyed by position: the counts of two drafters are equal, token for token."""
    one, other = (more(drafter=name, rule="match") for name in ("prompt_lookup", "ngram"))
    assert one["places"] == other["places"]


def test_it_tells_what_can_be_tested() -> None:
    told = law({})
    assert set(told["methods"]) == set(law_watch.methods())
    assert "token" in told["methods"]["draft_model"]
    assert 1.0 in told["temperatures"]


@pytest.mark.parametrize(
    "changed",
    [
        {"drafter": "nobody"},
        {"drafter": ["early_exit"]},
        {"rule": "specinfer!"},
        {"rule": None},
        {"temperature": 0.123},
        {"temperature": True},
        {"runs": 100_000},
        {"runs": "60"},
        {"seed": -1},
        {"before": [[1, 2]]},
        {"before": [[-1] * 7] * 3},
        {"before": "many"},
    ],
)
def test_a_page_that_asks_for_something_else_gets_a_sentence(changed: dict[str, Any]) -> None:
    assert more(**changed) == {"error": {"key": "lab.law.failed", "args": {}}}


def test_words_are_the_same_in_both_languages() -> None:
    vi, en = (words(language).table for language in ("vi", "en"))

    def holes(text: str) -> set[str]:
        return {part.split("}")[0] for part in text.split("{")[1:]}

    mine = [key for key in en if "lab" in key.split(".")[0] or key.startswith(("chart.lab", "number.lab"))]
    assert mine
    for key in mine:
        assert holes(vi[key]) == holes(en[key]), key
