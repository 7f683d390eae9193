"""What a reader sees of the runs of an experiment: when text came, how much of it at once, and how long the waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spec_viz.lab.sweep import Arrival, Sweep
from spec_viz.lab.sweep_rows import Stream, by_series, stream
from spec_viz.ui.charts import Chart, Figure
from spec_viz.ui.experiment_pen import MOST_LINES, PALE, Pen, fill, frame, trace

Json = dict[str, Any]
# Lines of text as it comes have no points that could tell them apart; plain decoding is dotted.
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot")
COLUMNS = ("drafter", "first", "token", "gap", "wait", "burst")


def charts(result: Sweep, beside: Sweep | None, pen: Pen) -> list[Chart]:
    """The text as it comes, and how many tokens come at once."""
    return [_arrival(result, beside, pen), _bursts(result, pen)]


def said(result: Sweep, pen: Pen) -> str:
    """The drafter that writes fastest, beside plain decoding."""
    plain = stream(result.points, plain=True)
    streams = {name: stream(points, plain=False) for (name, _), points in by_series(result.points).items()}
    name, best = min(streams.items(), key=lambda each: each[1].per_token_ms)
    key = "faster" if best.per_token_ms < plain.per_token_ms else "slower"
    return pen.t(
        f"experiments.verdict.streaming.{key}",
        drafter=pen.drafter(name),
        ms=pen.number(best.per_token_ms, 1),
        plain=pen.number(plain.per_token_ms, 1),
        burst=pen.number(best.burst, 1),
        wait=pen.number(best.waits[1], 0),
        plain_wait=pen.number(plain.waits[1], 0),
    )


def table(result: Sweep, pen: Pen) -> Json:
    """A row a drafter, plain decoding first; spreads are p50 / p95 / p99."""
    seen = [(pen.plain, stream(result.points, plain=True)), *_streams(result, pen)]
    return {
        "columns": [pen.t(f"experiments.column.{name}") for name in COLUMNS],
        "rows": [[name, *_cells(each, pen)] for name, each in seen],
    }


def _cells(each: Stream, pen: Pen) -> list[str]:
    gaps, waits = (" / ".join(pen.number(ms, 0) for ms in spread) for spread in (each.gaps, each.waits))
    burst = f"{pen.number(each.burst)} ({max(each.bursts)})"
    return [pen.number(each.first_ms, 0), pen.number(each.per_token_ms, 1), gaps, waits, burst]


def _streams(result: Sweep, pen: Pen) -> list[tuple[str, Stream]]:
    return [(pen.drafter(name), stream(points, plain=False)) for (name, _), points in by_series(result.points).items()]


def _arrival(result: Sweep, beside: Sweep | None, pen: Pen) -> Chart:
    data: list[Figure] = []
    ends = []
    for each, pale in ((result, False), (beside, True)):
        for place, (name, arrivals) in enumerate(_runs(each, pen) if each else ()):
            if place > MOST_LINES:
                break
            style = {
                "color": pen.colour(place - 1),
                "width": 2,
                "shape": "hv",
                "dash": DASHES[(place - 1) % len(DASHES)],
            }
            if place == 0:
                style |= {"color": pen.paint.muted, "dash": "dot"}
            xs, ys = [0.0], [1]
            for at, tokens in arrivals:
                xs.append(round(at / 1000, 4))
                ys.append(ys[-1] + tokens)
            shown = pen.t("experiments.beside.name", name=name) if pale else name
            opacity = PALE if pale else 1
            data.append(
                trace(xs, ys, shown, mode="lines", line=style, opacity=opacity, hovertemplate="%{x:.2f} s: %{y}")
            )
            ends.append(f"{shown}: {pen.number(xs[-1])} s")
    layout = frame(pen, pen.t("experiments.axis.since"), pen.t("experiments.axis.written"))
    layout["yaxis"]["rangemode"] = "tozero"
    summary = pen.t("chart.sweep_arrival.summary", ends="; ".join(ends))
    return Chart("sweep_arrival", {"data": data, "layout": layout}, summary)


def _runs(result: Sweep, pen: Pen) -> Iterator[tuple[str, tuple[Arrival, ...]]]:
    """One run a drafter, all of the same prompt, and the plain run beside the first."""
    first = result.points[0]
    yield pen.plain, first.plain_arrivals
    for (name, _), points in by_series(result.points).items():
        same = next((each for each in points if each.prompt == first.prompt), None)
        if same is not None:
            yield pen.drafter(name), same.arrivals


def _bursts(result: Sweep, pen: Pen) -> Chart:
    streams = _streams(result, pen)
    data = []
    for place, (name, each) in enumerate(streams[:MOST_LINES]):
        whole, sizes = sum(each.bursts.values()), range(1, max(each.bursts) + 1)
        look = fill(pen.colour(place), place, pen)
        bar = {"type": "bar", "name": name, "marker": look, "hovertemplate": "%{x}: %{y:.0%}"}
        # Sizes that never came have bars too, or the others would grow into their place.
        data.append(bar | {"x": list(sizes), "y": [round(each.bursts.get(size, 0) / whole, 4) for size in sizes]})
    layout = frame(pen, pen.t("experiments.axis.burst"), pen.t("experiments.axis.share"))
    layout["barmode"] = "group"
    layout["xaxis"]["dtick"] = 1
    layout["yaxis"]["tickformat"] = ".0%"
    listed = "; ".join(
        pen.t("chart.sweep_burst.item", drafter=name, mean=pen.number(each.burst), most=max(each.bursts))
        for name, each in streams
    )
    return Chart("sweep_burst", {"data": data, "layout": layout}, pen.t("chart.sweep_burst.summary", listed=listed))
