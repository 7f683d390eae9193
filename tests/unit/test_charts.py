import json
import re
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import plotly.graph_objects as go
import pytest
from hypothesis import given
from plotly.io import templates

from spec_viz.engine.trace import Node, Round, Trace
from spec_viz.lab.metrics import summarise
from spec_viz.ui import charts as module
from spec_viz.ui.charts import PALETTES, Chart, Theme, charts
from spec_viz.ui.wording import words
from tests.unit.traces import chains, plain, run, trace

RUN = run("aard", "aaaa", "rddd", "", ms=(4.0, 30.0, 1.0, 1.0))
PLAIN = plain(10, ms=(0.0, 20.0, 1.0, 0.0))
ALL = ["acceptance", "what_if", "alpha", "tokens", "time", "kv"]


def drawn(subject: Trace = RUN, baseline: Trace | None = PLAIN, language: str = "en") -> dict[str, Chart]:
    made = charts(subject, summarise(subject, baseline), words(language), "light")
    return {chart.key: chart for chart in made}


def named(chart: Chart, part: str) -> dict[str, Any]:
    (found,) = [data for data in chart.figure["data"] if data["name"] == words("en")(part)]
    return dict(found)


def test_a_full_run_has_every_chart_in_order() -> None:
    assert list(drawn()) == ALL


def test_acceptance_bars_are_conditional_and_the_line_is_not() -> None:
    chart = drawn()["acceptance"]
    assert named(chart, "chart.acceptance.conditional")["y"] == [0.6667, 1.0, 0.5, 1.0]
    assert named(chart, "chart.acceptance.unconditional")["y"] == [0.6667, 0.6667, 0.3333, 0.3333]
    assert "position 3: 1/2" in chart.summary


def test_the_prediction_goes_through_the_run_itself() -> None:
    chart = drawn()["what_if"]
    star, line = named(chart, "chart.what_if.run"), named(chart, "chart.what_if.position")
    gamma, measured = star["x"][0], star["y"][0]
    assert gamma == 4
    assert measured == pytest.approx((10 / 144) / (10 / 210), abs=1e-4)
    assert line["y"][gamma - 1] == measured


def test_alpha_is_set_against_the_alpha_that_pays() -> None:
    chart = drawn()["alpha"]
    assert named(chart, "chart.alpha.run")["y"][:4] == [0.6667, 0.8, 0.7143, 0.75]
    needed = named(chart, "chart.alpha.break_even")["y"]
    # Costs are a straight line in γ: the more drafts, the more of them must be right.
    assert needed == sorted(needed)
    assert chart.summary == "α is above break-even at γ = 1–12."
    dear = drawn(run("rddd", "rddd", ms=(300.0, 30.0, 1.0, 1.0)))["alpha"]
    assert named(dear, "chart.alpha.break_even")["y"] == [None] * 12
    assert dear.summary == words("en")("chart.alpha.summary.none")


def test_without_a_baseline_tokens_are_predicted_and_nothing_is_said_of_speed() -> None:
    made = drawn(baseline=None)
    assert "alpha" not in made
    assert named(made["what_if"], "chart.what_if.run")["y"] == [2.5]
    assert "speed cannot be told" in made["what_if"].summary
    assert words("en")("chart.time.baseline") not in [data["name"] for data in made["time"].figure["data"]]


def test_tokens_are_split_into_accepted_and_the_targets_own() -> None:
    chart = drawn()["tokens"]
    assert named(chart, "chart.tokens.accepted")["y"] == [2, 4, 0, 0]
    assert named(chart, "chart.tokens.own")["y"] == [1, 1, 1, 1]
    assert named(chart, "chart.tokens.mean")["y"] == [2.5, 2.5]


def test_the_baseline_step_is_a_line_over_the_rounds() -> None:
    level = named(drawn()["time"], "chart.time.baseline")
    assert level["y"] == [21.0, 21.0]
    assert level["x"] == [0.5, 4.5]


def test_the_cache_and_what_was_rolled_back_are_both_shown() -> None:
    chart = drawn()["kv"]
    assert named(chart, "chart.kv.target")["y"] == [13, 18, 19, 20]
    assert named(chart, "chart.kv.rolled_back")["y"] == [2, 0, 4, 0]
    assert "6 entries were rolled back" in chart.summary


def test_a_drafter_with_a_cache_of_its_own_is_shown_too() -> None:
    rounds = [replace(r, kv=replace(r.kv, drafter=(10, 14, 11))) if r.nodes else r for r in RUN.rounds]
    chart = drawn(replace(RUN, rounds=tuple(rounds)))["kv"]
    assert named(chart, "chart.kv.drafter")["y"] == [11, 11, 11]
    assert named(chart, "chart.kv.rolled_back.drafter")["y"] == [3, 3, 3]


def test_a_plain_run_has_only_what_it_can_show() -> None:
    assert list(drawn(PLAIN, None)) == ["tokens", "time", "kv"]
    assert list(drawn(plain(3), None)) == ["tokens", "kv"]
    assert drawn(trace(), None) == {}


def test_a_tree_shows_depths_and_makes_no_prediction() -> None:
    nodes = (Node(1, -1, 1, "rejected"), Node(2, -1, 1, "accepted"), Node(3, 1, 2, "rejected"))
    assert list(drawn(trace(Round(1, nodes)), None)) == ["acceptance", "tokens"]


@pytest.mark.parametrize(("theme", "language"), list(product(get_args(Theme), ("vi", "en"))))
def test_every_figure_is_valid_plotly_small_and_transparent(theme: Theme, language: str) -> None:
    for chart in charts(RUN, summarise(RUN, PLAIN), words(language), theme):
        text = json.dumps(chart.figure, allow_nan=False)
        figure = go.Figure(chart.figure)
        assert len(text) < 4000
        assert figure.layout.paper_bgcolor == "rgba(0,0,0,0)"
        assert figure.layout.font.color == PALETTES[theme].ink
        assert figure.layout.separators == {"vi": ", ", "en": ". "}[language]
        # The template "none", not Plotly's own six kilobytes.
        assert figure.layout.template == go.layout.Template(templates["none"])


def test_the_colours_are_those_of_the_page() -> None:
    css = (Path(module.__file__).parents[2] / "assets/css/base.css").read_text(encoding="utf-8")
    light, dark = (
        re.search(pattern, css, re.S) for pattern in (r":root \{(.*?)\}", r":root\[data-theme='dark'\] \{(.*?)\}")
    )
    for theme, block in (("light", light), ("dark", dark)):
        assert block is not None
        for field in fields(PALETTES["light"]):
            tile = "-line" if field.name in ("ok", "no", "off", "own") else ""
            value = re.search(rf"--sv-{field.name}{tile}: (#\w+)", block[1])
            assert value is not None
            assert getattr(PALETTES["dark" if theme == "dark" else "light"], field.name) == value[1]


@given(chains())
def test_any_trace_can_be_drawn(subject: Trace) -> None:
    for chart in charts(subject, summarise(subject, PLAIN), words("vi"), "dark"):
        json.dumps(chart.figure, allow_nan=False)
        assert "{" not in chart.summary
