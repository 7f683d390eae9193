"""What an experiment shows: figures (plain JSON for Plotly) with their sentences, one verdict, the table of numbers.

A second result stands beside the first, paler; where both were made under other conditions the figure says so itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from spec_viz.lab import concurrency
from spec_viz.lab.sweep import Sweep, comparable
from spec_viz.lab.sweep_rows import FEWEST_PROMPTS, Estimate, Forecast, Rates, Series, by_series, forecast, series
from spec_viz.ui import load_charts, stream_charts
from spec_viz.ui.charts import PALETTES, Chart, Figure, Theme
from spec_viz.ui.experiment_pen import MOST_LINES, PALE, SYMBOLS, Pen, even, frame, mark, mix, short, trace
from spec_viz.ui.lanes import EVEN
from spec_viz.ui.wording import Words

Json = dict[str, Any]
# What a file may ask the page to draw: tasks and drafters of a map, rows of a table, conditions in a sentence.
MOST_TASKS, MOST_COLUMNS, MOST_ROWS, MOST_NAMES = 40, 12, 400, 8

Value = Callable[[Rates], Estimate | None]
Result = Sweep | concurrency.Result


def shown(result: Result, beside: Result | None, t: Words, theme: Theme) -> Json:
    """Everything the room draws of a result, and of one beside it of the same kind, pale."""
    pen = Pen(t, PALETTES[theme])
    differ = [pen.condition(name) for name in comparable(result, beside)[:MOST_NAMES]] if beside else []
    if isinstance(result, concurrency.Result):
        done, of = len(result.samples), concurrency.size(result.plan) if result.plan else 0
        other = beside if isinstance(beside, concurrency.Result) and beside.samples else None
        charts = load_charts.charts(result, other, pen) if done else []
        table = load_charts.table(result, pen) if done else None
        verdict = load_charts.said(result, pen)
    else:
        done, of, view = len(result.points), result.experiment.size, _VIEWS[result.experiment.kind]
        alike = isinstance(beside, Sweep) and beside.points and beside.experiment.kind == result.experiment.kind
        against = beside if alike and isinstance(beside, Sweep) else None
        charts = view.charts(result, against, pen) if done else []
        table = view.table(result, pen) if done else None
        verdict = view.said(result, pen) if done else t("experiments.verdict.none")
    if differ:
        for chart in charts:
            mark(chart.figure, t("experiments.differ.mark", names=", ".join(differ)), pen)
    return {
        "verdict": verdict,
        "charts": [asdict(chart) for chart in charts],
        "table": table,
        "conditions": _conditions(result, pen),
        "differ": differ,
        "partial": {"done": done, "of": of} if result.finish == "stopped" and done < of else None,
    }


# ---------------------------------------------------------------- γ and temperature


def _gamma_charts(result: Sweep, beside: Sweep | None, pen: Pen) -> list[Chart]:
    t = pen.t
    told = {name: found for name, points in by_series(result.points).items() if (found := forecast(points))}
    data = _lines(result, beside, pen, lambda each: each.speedup)
    data += _forecasts(series(result), told, pen)
    layout = frame(pen, t("experiments.axis.gamma"), t("chart.axis.speedup"))
    layout["xaxis"]["dtick"] = 1
    even(layout, pen)
    said = t("chart.sweep.summary", listed=_listed(result, pen, lambda each: each.speedup, "γ"))
    reference = next(iter(told.values()), None)
    if reference:
        said += " " + t("chart.sweep_speedup.reference", gamma=reference.gamma)
    charts = [Chart("sweep_speedup", {"data": data, "layout": layout}, said)]
    rates: tuple[tuple[str, str, Value], ...] = (
        ("sweep_alpha", "α", lambda each: each.alpha),
        ("sweep_tau", "τ", lambda each: each.tau),
    )
    for key, axis, value in rates:
        listed = _listed(result, pen, value, "γ")
        if not listed:
            continue
        layout = frame(pen, t("experiments.axis.gamma"), axis)
        layout["xaxis"]["dtick"] = 1
        if axis == "α":
            layout["yaxis"]["range"] = [0, 1.05]
        figure = {"data": _lines(result, beside, pen, value), "layout": layout}
        charts.append(Chart(key, figure, t("chart.sweep.summary", listed=listed)))
    return charts


def _forecasts(lines: Sequence[Series], told: dict[tuple[str, str], Forecast], pen: Pen) -> list[Figure]:
    """The two predictions of every line in its colour, and one grey entry each in the legend."""
    data: list[Figure] = []
    for place, line in enumerate(lines[:MOST_LINES]):
        found = told.get((line.drafter, line.rule))
        if found is None:
            continue
        gammas = [each.gamma for each in found.predictions]
        by_formula = [short(each.speedup_by_formula) for each in found.predictions]
        by_position = [short(each.speedup) for each in found.predictions]
        for ys, dash in ((by_formula, "dot"), (by_position, "dash")):
            style = {"color": pen.colour(place), "width": 1.25, "dash": dash}
            data.append(trace(gammas, ys, "", mode="lines", line=style, showlegend=False, hoverinfo="skip"))
    if data:
        for key, dash in (("formula", "dot"), ("positions", "dash")):
            style = {"color": pen.paint.muted, "width": 1.25, "dash": dash}
            data.append(trace([None], [None], pen.t(f"experiments.predicted.{key}"), mode="lines", line=style))
    return data


def _temperature_charts(result: Sweep, beside: Sweep | None, pen: Pen) -> list[Chart]:
    charts = []
    for key, axis, value in (
        ("sweep_temperature", "α", lambda each: each.alpha),
        ("sweep_warm_speed", pen.t("chart.axis.speedup"), lambda each: each.speedup),
    ):
        listed = _listed(result, pen, value, "T")
        if not listed:
            continue
        layout = frame(pen, pen.t("experiments.axis.temperature"), axis)
        if axis == "α":
            layout["yaxis"]["range"] = [0, 1.05]
        else:
            even(layout, pen)
        figure = {"data": _lines(result, beside, pen, value), "layout": layout}
        charts.append(Chart(key, figure, pen.t("chart.sweep.summary", listed=listed)))
    return charts


def _lines(result: Sweep, beside: Sweep | None, pen: Pen, value: Value) -> list[Figure]:
    """A line with error bars for every drafter and rule; those of the other result are pale."""
    data = []
    for each, pale in ((result, False), (beside, True)):
        if each is None:
            continue
        kind = each.experiment.kind
        lines = [line for line in series(each) if any(value(rates) for rates in line.rates.values())][:MOST_LINES]
        drafters = list(dict.fromkeys(line.drafter for line in lines))
        step = _step([x for line in lines for x in line.rates])
        for place, line in enumerate(lines):
            # Side by side, so that error bars of neighbours can be told apart.
            shift = (place - (len(lines) - 1) / 2) * step * 0.06
            known = [(x, found) for x, rates in line.rates.items() if (found := value(rates))]
            colour = pen.colour(drafters.index(line.drafter) if kind == "temperature" else place)
            name = pen.line(line.drafter, line.rule, kind)
            told = [f"{name}, {_sign(kind)} = {pen.cell(x)}: {pen.estimate(found)}" for x, found in known]
            hollow = kind == "temperature" and line.rule == "match"
            symbol = SYMBOLS[place % len(SYMBOLS)] + ("-open" if hollow or pale else "")
            data.append(
                trace(
                    [round(x + shift, 4) for x, _ in known],
                    [short(found.value) for _, found in known],
                    pen.t("experiments.beside.name", name=name) if pale else name,
                    mode="lines+markers",
                    line={"color": colour, "width": 1.5 if pale else 2.5, "dash": "longdash" if hollow else "solid"},
                    marker={"color": colour, "size": 9, "symbol": symbol},
                    opacity=PALE if pale else 1,
                    # A rate of 0 is drawn whole, upon the axis.
                    cliponaxis=False,
                    error_y=_bars([found for _, found in known], colour),
                    text=told,
                    hovertemplate="%{text}<extra></extra>",
                )
            )
    return data


def _step(xs: Sequence[float]) -> float:
    """The smallest distance between two axis values."""
    known = sorted(set(xs))
    return min((b - a for a, b in pairwise(known)), default=1.0)


def _sign(kind: str) -> str:
    return "T" if kind == "temperature" else "γ"


def _bars(found: Sequence[Estimate], colour: str) -> Figure:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0 if each.high is None else short(max(each.high - each.value, 0)) for each in found],
        "arrayminus": [0 if each.low is None else short(max(each.value - each.low, 0)) for each in found],
        "thickness": 1.25,
        "width": 4,
        "color": colour,
        "visible": any(each.low is not None for each in found),
    }


def _listed(result: Sweep, pen: Pen, value: Value, sign: str) -> str:
    """The numbers of a chart in words, for who does not see it."""
    parts = []
    for line in series(result):
        known = [
            f"{sign} = {pen.cell(x)}: {pen.estimate(found)}" for x, each in line.rates.items() if (found := value(each))
        ]
        if known:
            parts.append(f"{pen.line(line.drafter, line.rule, result.experiment.kind)}, {', '.join(known)}")
    return "; ".join(parts)


def _gamma_said(result: Sweep, pen: Pen) -> str:
    lines = by_series(result.points)
    line, gamma, found = max(
        ((line, gamma, each) for line in series(result) for gamma, each in line.rates.items()),
        key=lambda each: each[2].speedup.value,
    )
    best = found.speedup
    args = {
        "drafter": pen.drafter(line.drafter),
        "gamma": gamma,
        "speedup": pen.number(best.value),
        "sure": pen.sure(best),
    }
    if best.value < 1:
        return pen.t("experiments.verdict.gamma.never", **args)
    if not _gains(found):
        return pen.t("experiments.verdict.gamma.noise", **args)
    if best.low is not None and best.low <= 1:
        return pen.t("experiments.verdict.gamma.unsure", **args)
    told = forecast(lines[line.drafter, line.rule])
    foretold = next((each for each in told.predictions if each.gamma == gamma), None) if told else None
    if told is None or foretold is None or foretold.speedup is None or foretold.speedup_by_formula is None:
        return pen.t("experiments.verdict.gamma.best", **args)
    predicted = {"formula": pen.number(foretold.speedup_by_formula), "positions": pen.number(foretold.speedup)}
    return pen.t("experiments.verdict.gamma.predicted", **args, **predicted, reference=told.gamma)


def _gains(rates: Rates) -> bool:
    """Whether a round brings more than one token: what keeps no draft can be faster by the clock's noise alone."""
    return rates.tau.value > 1


def _temperature_said(result: Sweep, pen: Pen) -> str:
    lines = {(line.drafter, line.rule): line for line in series(result)}
    pairs = [
        (lines[drafter, rule], lines[drafter, "match"])
        for drafter, rule in lines
        if rule != "match" and (drafter, "match") in lines
    ]
    for sampled, one_hot in pairs:
        at = max((x for x in sampled.rates if x in one_hot.rates), default=None)
        if at is None:
            continue
        a, b = sampled.rates[at].alpha, one_hot.rates[at].alpha
        if a is None or b is None:
            continue
        key = "sampled" if a.above(b) else "one_hot" if b.above(a) else "alike"
        args = {"drafter": pen.drafter(sampled.drafter), "t": pen.cell(at), "a": pen.estimate(a), "b": pen.estimate(b)}
        return pen.t(f"experiments.verdict.temperature.{key}", **args)
    for line in lines.values():
        known = [(x, each.alpha) for x, each in line.rates.items() if each.alpha]
        if known:
            (low, first), (high, last) = known[0], known[-1]
            args = {
                "drafter": pen.line(line.drafter, line.rule, "temperature"),
                "low": pen.cell(low),
                "high": pen.cell(high),
            }
            args |= {"first": pen.estimate(first), "last": pen.estimate(last)}
            return pen.t("experiments.verdict.temperature.one", **args)
    return pen.t("experiments.verdict.temperature.none")


# ---------------------------------------------------------------- tasks


def _task_charts(result: Sweep, beside: Sweep | None, pen: Pen) -> list[Chart]:
    charts = [_heat("sweep_task", result, pen)]
    return [*charts, _heat("sweep_task_beside", beside, pen)] if beside else charts


def _heat(key: str, result: Sweep, pen: Pen) -> Chart:
    """Speedup by task and drafter; a star marks the fastest of a task where it beats plain decoding."""
    lines, tasks = _map(result)
    winners = _winners(lines, tasks)
    speeds = [[line.rates[task].speedup if task in line.rates else None for line in lines] for task in tasks]
    names = [pen.drafter(line.drafter) for line in lines]
    paint = pen.paint

    def cell(line: Series, task: str) -> str:
        each = line.rates.get(task)
        star = "★ " if winners.get(task) is line else ""
        return f"{star}{pen.number(each.speedup.value)}" if each else ""

    def told(line: Series, task: str) -> str:
        each = line.rates.get(task)
        if each is None:
            return ""
        rates = f"α {pen.estimate(each.alpha)} · τ {pen.estimate(each.tau)}"
        return f"{pen.task(task)} · {pen.drafter(line.drafter)}: {pen.estimate(each.speedup)}<br>{rates}"

    data = [
        {
            "type": "heatmap",
            "x": names,
            "y": [pen.task(task) for task in tasks],
            # Twice as fast and half as fast are equally far from plain decoding.
            "z": [[None if each is None else short(math.log2(each.value)) for each in row] for row in speeds],
            "zmin": -1,
            "zmax": 1,
            "colorscale": [
                # No stronger, so that the number upon it is read in both themes.
                [0, mix(paint.surface, paint.no, 0.45)],
                [0.5, paint.surface],
                [1, mix(paint.surface, paint.accent, 0.45)],
            ],
            "showscale": False,
            "xgap": 2,
            "ygap": 2,
            "text": [[cell(line, task) for line in lines] for task in tasks],
            "texttemplate": "%{text}",
            "textfont": {"size": 14, "color": paint.ink},
            "customdata": [[told(line, task) for line in lines] for task in tasks],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    ]
    layout = frame(pen, "", "")
    layout["height"] = 60 + 52 * len(tasks)
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False, "ticks": ""}
    layout["xaxis"] |= {"side": "top", "type": "category", "ticks": ""}
    layout["showlegend"] = False
    listed = "; ".join(
        f"{pen.task(task)}: "
        + ", ".join(
            f"{pen.drafter(line.drafter)} {pen.estimate(line.rates[task].speedup)}"
            for line in lines
            if task in line.rates
        )
        for task in tasks
    )
    return Chart(key, {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed=listed))


def _map(result: Sweep) -> tuple[list[Series], list[str]]:
    """The drafters and tasks of a map."""
    return series(result)[:MOST_COLUMNS], list(dict.fromkeys(each.category for each in result.points))[:MOST_TASKS]


def _winners(lines: Sequence[Series], tasks: Sequence[str]) -> dict[str, Series | None]:
    """The fastest line of each task; None where none is faster than plain decoding by more than noise."""
    found: dict[str, Series | None] = {}
    for task in tasks:
        ran = [line for line in lines if task in line.rates and _gains(line.rates[task])]
        best = max(ran, key=lambda line: line.rates[task].speedup.value, default=None)
        found[task] = best if best and best.rates[task].speedup.value > 1 + EVEN else None
    return found


def _task_said(result: Sweep, pen: Pen) -> str:
    lines, tasks = _map(result)
    won: dict[str | None, list[str]] = {}
    for task, line in _winners(lines, tasks).items():
        won.setdefault(None if line is None else pen.drafter(line.drafter), []).append(pen.task(task))
    # What nobody wins is said last.
    listed = "; ".join(
        pen.t(f"experiments.verdict.task.{'item' if name else 'nobody'}", drafter=name, tasks=", ".join(won[name]))
        for name in sorted(won, key=lambda name: name is None)
    )
    fewest = min(each.speedup.prompts for line in lines for each in line.rates.values())
    if fewest < FEWEST_PROMPTS:
        return pen.t("experiments.verdict.task.few", listed=listed, prompts=fewest)
    return pen.t("experiments.verdict.task", listed=listed)


# ---------------------------------------------------------------- table, conditions, frame


def _table(result: Sweep, pen: Pen) -> Json:
    """The numbers of every line, in words and digits of the language."""
    t, kind = pen.t, result.experiment.kind
    lines = by_series(result.points)
    head = [t("experiments.column.drafter"), t("experiments.column.task") if kind == "task" else _sign(kind)]
    head += ["α", "τ", t("chart.axis.speedup"), t("experiments.column.prompts")]
    head += [t(f"experiments.predicted.{key}") for key in ("formula", "positions")] if kind == "gamma" else []
    rows = []
    for line in series(result):
        told = forecast(lines[line.drafter, line.rule]) if kind == "gamma" else None
        predicted = {each.gamma: each for each in told.predictions} if told else {}
        for x, each in line.rates.items():
            row = [pen.line(line.drafter, line.rule, kind), pen.task(x) if kind == "task" else pen.cell(x)]
            row += [
                pen.estimate(each.alpha),
                pen.estimate(each.tau),
                pen.estimate(each.speedup),
                str(each.speedup.prompts),
            ]
            if kind == "gamma":
                found = predicted.get(x)
                both = (found.speedup_by_formula, found.speedup) if found else (None, None)
                row += ["–" if value is None else pen.number(value) for value in both]
            rows.append(row)
    return {"columns": head, "rows": rows[:MOST_ROWS]}


def _conditions(result: Result, pen: Pen) -> str:
    """Where and how it was measured, in one line; what a file does not say is named as unknown."""
    told = result.conditions
    versions = told.get("versions")
    known = {**told, **(versions if isinstance(versions, dict) else {})}
    context = known.get("context")
    lengths = "–".join(map(str, dict.fromkeys(context))) if isinstance(context, list) else context
    names = ["target", "device_name", "threads", "dtype", "max_new_tokens", "repeats", "created"]
    names += ["python", "torch", "transformers"]
    unknown = pen.t("shell.unknown")
    args = {name: str(known.get(name, unknown))[:80] for name in names}
    if isinstance(result, concurrency.Result):
        return pen.t("experiments.conditions.load", **args, questions=str(known.get("questions", unknown)))
    asked = result.experiment
    axis = [] if asked.kind == "gamma" else [f"γ = {asked.gamma}"]
    axis += [] if asked.kind == "temperature" else [f"T = {pen.cell(asked.temperature)}"]
    more = {"axis": ", ".join(axis), "batch": known.get("batch"), "prompts": len(asked.questions), "lengths": lengths}
    return pen.t("experiments.conditions", **args, **more, seeds=", ".join(map(str, asked.seeds)))


@dataclass(frozen=True, slots=True)
class View:
    """How one kind of experiment is drawn, said and tabled."""

    charts: Callable[[Sweep, Sweep | None, Pen], list[Chart]]
    said: Callable[[Sweep, Pen], str]
    table: Callable[[Sweep, Pen], Json]


_VIEWS = {
    "gamma": View(_gamma_charts, _gamma_said, _table),
    "temperature": View(_temperature_charts, _temperature_said, _table),
    "task": View(_task_charts, _task_said, _table),
    "streaming": View(stream_charts.charts, stream_charts.said, stream_charts.table),
}
