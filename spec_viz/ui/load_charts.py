"""What a concurrency record shows: speed and latency by batch size, and where speculation stops paying."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from spec_viz.lab.concurrency import PLAIN, Mode, Sample, crossings, rows
from spec_viz.lab.sweep import Load
from spec_viz.ui.charts import Chart, Figure
from spec_viz.ui.experiment_pen import MOST_LINES, SYMBOLS, Pen, frame, short, trace
from spec_viz.ui.numerals import DECIMAL_MARK

Json = dict[str, Any]
# Columns of `concurrency.rows` with their digits.
NUMBERS = {"B": 0, "tokens/s": 1, "÷ plain": 2, "ms/token p50": 1, "p95": 1, "p99": 1, "τ": 2, "α": 2}


def charts(result: Load, pen: Pen) -> list[Chart]:
    """Tokens a second of all users together, and milliseconds a token of one, by the requests that share a pass."""
    t = pen.t
    return [
        _by_batch("load_speed", t("experiments.axis.all_tokens"), result, pen, lambda sample: [sample.rate]),
        _by_batch("load_latency", t("experiments.axis.user_ms"), result, pen, lambda sample: sample.users),
    ]


def said(result: Load, pen: Pen) -> str:
    """Where the first way that is drawn stops paying."""
    mode = _first(result)
    if mode is None:
        return pen.t("experiments.verdict.none")
    row = _crossing(result, mode)
    largest = max(sample.batch for sample in result.samples)
    args = {"mode": _name(mode, pen), "batch": row["no faster from B"] or largest}
    if row["no faster from B"] is None:
        return pen.t("experiments.verdict.load.everywhere", **args)
    if row["between"] is None:
        return pen.t("experiments.verdict.load.nowhere", **args)
    return pen.t("experiments.verdict.load.crosses", **args, between=pen.number(row["between"], 1))


def table(result: Load, pen: Pen) -> Json:
    """A row a way to decode and batch size, with the numbers that the command line prints."""
    found = rows({"samples": [asdict(sample) for sample in result.samples]})
    # `rows` goes through the same modes and batches in the same order.
    modes = list(dict.fromkeys(sample.mode for sample in result.samples))
    batches = len({sample.batch for sample in result.samples})
    names = [_name(mode, pen) for mode in modes for _ in range(batches)]
    return {
        "columns": [pen.t("experiments.column.mode"), *NUMBERS],
        "rows": [
            [name, *(_number(row[column], digits, pen) for column, digits in NUMBERS.items())]
            for name, row in zip(names, found, strict=True)
        ],
    }


def _number(value: Any, digits: int, pen: Pen) -> str:
    if value is None:
        return "–"
    return value.replace(".", DECIMAL_MARK[pen.t.language]) if isinstance(value, str) else pen.number(value, digits)


def _by_batch(key: str, axis: str, result: Load, pen: Pen, value: Callable[[Sample], Sequence[float]]) -> Chart:
    data, listed = [], []
    for place, mode in enumerate(_modes(result)):
        middles = _middles([sample for sample in result.samples if sample.mode == mode], value)
        style = {"color": pen.colour(place - 1), "width": 2.5}
        if mode.drafter == PLAIN:
            style |= {"color": pen.paint.muted, "dash": "dot"}
        marker = {"size": 8, "symbol": SYMBOLS[place % len(SYMBOLS)]}
        ys = [short(each) for each in middles.values()]
        line = trace(list(middles), ys, _name(mode, pen), mode="lines+markers", line=style, marker=marker)
        data.append(line | {"hovertemplate": "B = %{x}: %{y:.1f}"})
        numbers = ", ".join(f"B = {batch}: {pen.number(each, 1)}" for batch, each in middles.items())
        listed.append(f"{_name(mode, pen)}, {numbers}")
    layout = frame(pen, pen.t("experiments.axis.batch"), axis)
    layout["xaxis"] |= {"type": "log", "tickvals": sorted({sample.batch for sample in result.samples})}
    layout["yaxis"]["rangemode"] = "tozero"
    _mark_crossing(layout, result, pen)
    return Chart(key, {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed="; ".join(listed)))


def _middles(samples: Sequence[Sample], value: Callable[[Sample], Sequence[float]]) -> dict[int, float]:
    batches = sorted({sample.batch for sample in samples})
    return {
        batch: statistics.median(each for sample in samples if sample.batch == batch for each in value(sample))
        for batch in batches
    }


def _modes(result: Load) -> list[Mode]:
    """Plain decoding, then the ways with a real drafter; coins, which write no text, only where nothing else is."""
    found = list(dict.fromkeys(sample.mode for sample in result.samples))
    others = [mode for mode in found if mode.drafter != PLAIN]
    real = [mode for mode in others if mode.alpha is None]
    return [mode for mode in found if mode.drafter == PLAIN] + (real or others)[:MOST_LINES]


def _first(result: Load) -> Mode | None:
    return next((mode for mode in _modes(result) if mode.drafter != PLAIN), None)


def _name(mode: Mode, pen: Pen) -> str:
    if mode.drafter == PLAIN:
        return pen.plain
    coin = mode.alpha is not None
    name = pen.t("experiments.coin", alpha=pen.cell(mode.alpha)) if coin else pen.drafter(mode.drafter)
    return f"{name}, γ = {mode.gamma}" if mode.policy == "fixed" else f"{name}, {pen.policy(mode.policy)}"


def _crossing(result: Load, mode: Mode) -> Json:
    found = crossings({"samples": [asdict(sample) for sample in result.samples]})
    told = (mode.family, mode.gamma, mode.policy)
    return next(row for row in found if (row["mode"], row["γ"], row["policy"]) == told)


def _mark_crossing(layout: Figure, result: Load, pen: Pen) -> None:
    mode = _first(result)
    at = _crossing(result, mode)["between"] if mode else None
    if at is None:
        return
    colour = pen.paint.no
    line = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1}
    layout["shapes"] = [line | {"line": {"color": colour, "width": 1.5, "dash": "dot"}}]
    note = {"x": math.log10(at), "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left", "xshift": 4}
    note |= {"text": pen.t("experiments.crossing", batch=pen.number(at, 1)), "showarrow": False}
    layout["annotations"] = [note | {"font": {"size": 12, "color": colour}}]
