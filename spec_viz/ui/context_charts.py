"""What a long-context record shows: how a pass grows with its prefix, what a draft costs beside it, and what pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from spec_viz.lab.context import PLAIN, Part, Result, Sample, Split, middle, rates, size, split, spread
from spec_viz.lab.sweep import comparable
from spec_viz.ui.charts import PALETTES, Chart, Figure, Theme
from spec_viz.ui.experiment_pen import MOST_LINES, PALE, SYMBOLS, Pen, even, frame, mark, mix, short, trace
from spec_viz.ui.lanes import EVEN
from spec_viz.ui.wording import Words

Json = dict[str, Any]
Number = Callable[[Sequence[Sample]], float | None]
# What a line is drawn of: a part, and the drafter where it is a decode.
Way = tuple[Part, str]

MEGABYTE = 1e6
MOST_ROWS, MOST_NAMES = 400, 8
# A draft step below this share of a pass is a lookup's; it would only lie on the axis.
LOOKUP = 0.01
MEASURED: tuple[Part, Part] = ("one", "wide")
SELF: Way = ("self", PLAIN)
PLAIN_RUN: Way = ("decode", PLAIN)


def shown(result: Result, beside: Result | None, t: Words, theme: Theme) -> Json:
    """Everything the room draws of a result, and of another one beside it, pale."""
    pen = Pen(t, PALETTES[theme])
    differ = [pen.condition(name) for name in comparable(result, beside)[:MOST_NAMES]] if beside else []
    done, of = len(result.samples), size(result.plan)
    charts = [_passes(result, beside, pen), _costs(result, beside, pen), _speedups(result, beside, pen)] if done else []
    drawn = [chart for chart in charts if chart is not None]
    if differ:
        for chart in drawn:
            mark(chart.figure, t("experiments.differ.mark", names=", ".join(differ)), pen)
    return {
        "verdict": _said(result, pen) if done else t("experiments.verdict.none"),
        "charts": [asdict(chart) for chart in drawn],
        "table": _table(result, pen) if done else None,
        "conditions": _conditions(result, pen),
        "differ": differ,
        "partial": {"done": done, "of": of} if result.finish == "stopped" and done < of else None,
    }


# ---------------------------------------------------------------- a pass by its prefix


def _passes(result: Result, beside: Result | None, pen: Pen) -> Chart | None:
    """Bars of the straight line, weights below and KV cache above; points are the measured passes."""
    lengths = [length for length in result.lengths if result.at(length, "one")]
    if not lengths:
        return None
    line, data = split(result), []
    if line is not None:
        parts = (
            ("rest", mix(pen.paint.surface, pen.paint.own, 0.55), [line.rest for _ in lengths]),
            ("kv", pen.paint.accent, [line.kv(length) for length in lengths]),
        )
        data += [
            {
                "type": "bar",
                "name": pen.t(f"experiments.context.{name}"),
                "x": [str(length) for length in lengths],
                "y": [short(value) for value in values],
                "marker": {"color": colour},
                "hovertemplate": "%{y:.1f} ms",
            }
            for name, colour, values in parts
        ]
    data += _points(result, pen, pale=False)
    if beside is not None:
        data += _points(beside, pen, pale=True)
    layout = frame(pen, pen.t("experiments.axis.prefix"), pen.t("experiments.axis.pass_ms"))
    layout["barmode"] = "stack"
    layout["xaxis"] |= {"type": "category", "categoryorder": "array"}
    behind = {*lengths, *(beside.lengths if beside else ())}
    layout["xaxis"]["categoryarray"] = [str(length) for length in sorted(behind)]
    layout["yaxis"]["rangemode"] = "tozero"
    listed = "; ".join(
        pen.t(
            "chart.context_pass.item",
            prefix=length,
            ms=pen.number(middle(result.at(length, "one")), 1),
            kv="–" if line is None else pen.number(line.kv(length), 1),
        )
        for length in lengths
    )
    said = pen.t("chart.context_pass.summary", listed=listed)
    if line is not None:
        said += " " + pen.t("chart.context_pass.line", off=pen.number(100 * line.off, 0))
    return Chart("context_pass", {"data": data, "layout": layout}, said)


def _points(result: Result, pen: Pen, pale: bool) -> list[Figure]:
    """Measured passes over one token and over γ + 1: p50, and up to p95 as a bar."""
    data = []
    for place, part in enumerate(MEASURED):
        known = [(length, spread(_times(found))) for length in result.lengths if (found := result.at(length, part))]
        if not known:
            continue
        name = pen.t(f"experiments.context.{part}", tokens=result.plan.gamma + 1)
        colour = (pen.paint.ink, pen.paint.ok)[place]
        data.append(
            trace(
                [str(length) for length, _ in known],
                [short(p50) for _, (p50, _, _) in known],
                pen.t("experiments.beside.name", name=name) if pale else name,
                mode="markers",
                marker={"color": colour, "size": 9, "symbol": SYMBOLS[place] + ("-open" if pale else "")},
                opacity=PALE if pale else 1,
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [short(p95 - p50) for _, (p50, p95, _) in known],
                    "arrayminus": [0 for _ in known],
                    "thickness": 1.25,
                    "width": 4,
                    "color": colour,
                },
                text=[f"{name}, {length}: {_spread(each, pen)} ms" for length, each in known],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    return data


# ---------------------------------------------------------------- lines over prefixes


def _costs(result: Result, beside: Result | None, pen: Pen) -> Chart | None:
    """By prefix the c of the target drafting for itself over its whole cache, and of drafters that run a network."""
    found = _lines("context_cost", pen.t("experiments.axis.c"), result, beside, pen, _cost)
    if found is not None:
        even(found.figure["layout"], pen)
    return found


def _speedups(result: Result, beside: Result | None, pen: Pen) -> Chart | None:
    found = _lines("context_speed", pen.t("chart.axis.speedup"), result, beside, pen, _speedup)
    if found is not None:
        even(found.figure["layout"], pen)
    return found


def _cost(samples: Sequence[Sample]) -> float | None:
    """The c of what drafts by passes of a network: a lookup takes next to no time."""
    c = samples[0].c if samples[0].part == "self" else rates(samples)["c"]
    return c if c is not None and c >= LOOKUP else None


def _speedup(samples: Sequence[Sample]) -> float | None:
    return rates(samples)["speedup"] if samples[0].part == "decode" else None


def _ways(result: Result) -> list[Way]:
    """The whole self-draft, then every drafter that decoded."""
    decoded = dict.fromkeys(each.drafter for each in result.samples if each.part == "decode" and each.drafter != PLAIN)
    return [SELF, *(("decode", drafter) for drafter in decoded)]


def _by_prefix(result: Result, way: Way, value: Number) -> dict[int, float]:
    found = {length: value(mine) for length in result.lengths if (mine := result.at(length, *way))}
    return {length: number for length, number in found.items() if number is not None}


def _lines(key: str, axis: str, result: Result, beside: Result | None, pen: Pen, value: Number) -> Chart | None:
    data, listed = [], []
    at: set[int] = set()
    ways = _ways(result)[: MOST_LINES + 1]
    for each, pale in ((result, False), (beside, True)):
        for place, way in enumerate(ways if each else ()):
            known = _by_prefix(each, way, value) if each else {}
            if not known:
                continue
            at |= known.keys()
            name = _name(way, pen)
            # A drafter keeps its colour from chart to chart.
            colour = pen.paint.muted if way == SELF else pen.colour(place - 1)
            told = pen.t("experiments.beside.name", name=name) if pale else name
            data.append(
                trace(
                    list(known),
                    [short(number) for number in known.values()],
                    told,
                    mode="lines+markers",
                    line={
                        "color": colour,
                        "width": 1.5 if pale else 2.5,
                        "dash": "longdash" if way == SELF else "solid",
                    },
                    marker={"color": colour, "size": 9, "symbol": SYMBOLS[place % len(SYMBOLS)] + "-open" * pale},
                    opacity=PALE if pale else 1,
                    text=[f"{told}, {length}: {pen.number(number)}" for length, number in known.items()],
                    hovertemplate="%{text}<extra></extra>",
                )
            )
            if not pale:
                numbers = ", ".join(f"{length}: {pen.number(number)}" for length, number in known.items())
                listed.append(f"{name}, {numbers}")
    if not listed:
        return None
    layout = frame(pen, pen.t("experiments.axis.prefix"), axis)
    places = sorted(at)
    # Each length is about twice the one before.
    layout["xaxis"] |= {"type": "log", "tickvals": places, "ticktext": [str(length) for length in places]}
    layout["xaxis"]["range"] = [math.log10(places[0]) - 0.08, math.log10(places[-1]) + 0.08]
    return Chart(key, {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed="; ".join(listed)))


def _name(way: Way, pen: Pen) -> str:
    if way == SELF:
        return pen.t("experiments.context.self")
    return pen.plain if way[1] == PLAIN else pen.drafter(way[1])


# ---------------------------------------------------------------- verdict


def _said(result: Result, pen: Pen) -> str:
    """How much of a pass the longest prefix takes, what a windowed draft saves of it, and what pays there."""
    parts = [_said_of_passes(result, pen), _said_of_window(result, pen), _said_of_speed(result, pen)]
    return " ".join(part for part in parts if part) or pen.t("experiments.verdict.none")


def _said_of_passes(result: Result, pen: Pen) -> str:
    line = split(result)
    if line is None:
        return ""
    known = [length for length in result.lengths if result.at(length, "one")]
    low, high = known[0], known[-1]
    args = {
        "low": low,
        "high": high,
        "first": pen.number(middle(result.at(low, "one")), 1),
        "last": pen.number(middle(result.at(high, "one")), 1),
    }
    if min(line.per_token, line.rest) <= 0 or line.kv(high) < line.off * (line.rest + line.kv(high)):
        return pen.t("experiments.verdict.context.noise", **args)
    share = 100 * line.kv(high) / (line.rest + line.kv(high))
    return pen.t(
        "experiments.verdict.context.grows", **args, share=pen.number(share, 0), bytes=_bytes_share(result, high, pen)
    )


def _bytes_share(result: Result, length: int, pen: Pen) -> str:
    """The KV cache's part of the bytes that a pass reads, in percent."""
    kv = length * result.conditions["kv_bytes_per_token"]
    return pen.number(100 * kv / (kv + result.conditions["weight_bytes"]), 0)


def _said_of_window(result: Result, pen: Pen) -> str:
    """Whether drafts through a window get cheaper beside the target as the prefix grows, and whether they pay."""
    way = next((way for way in _ways(result) if way[1].partition(" (")[0] == "window"), None)
    costs = _by_prefix(result, way, _cost) if way else {}
    speeds = _by_prefix(result, way, _speedup) if way else {}
    if way is None or not costs or not speeds:
        return ""
    at, best = max(speeds.items(), key=lambda each: each[1])
    args = {"low": min(costs), "high": max(costs), "at": at, "best": pen.number(best)}
    args |= {"first": pen.number(costs[min(costs)]), "last": pen.number(costs[max(costs)])}
    key = "pays" if best > 1 + EVEN else "loses"
    return pen.t(f"experiments.verdict.context.window.{key}", **args)


def _said_of_speed(result: Result, pen: Pen) -> str:
    """The fastest way behind the longest prefix that drafts were decoded behind."""
    decoded = [each.prefix for each in result.samples if each.part == "decode" and each.drafter != PLAIN]
    if not decoded:
        return ""
    longest = max(decoded)
    speeds = {way: _by_prefix(result, way, _speedup).get(longest) for way in _ways(result)}
    known = {way: speed for way, speed in speeds.items() if speed is not None}
    if not known:
        return ""
    way, best = max(known.items(), key=lambda each: each[1])
    key = "fastest" if best > 1 + EVEN else "none"
    args = {"prefix": longest, "drafter": _name(way, pen), "speedup": pen.number(best)}
    return pen.t(f"experiments.verdict.context.{key}", **args)


# ---------------------------------------------------------------- table, conditions


def _table(result: Result, pen: Pen) -> Json:
    """A row a way and prefix: its milliseconds, the KV bytes that a pass of it reads, rates."""
    t = pen.t
    head = [t(f"experiments.column.{name}") for name in ("prefix", "way", "spread", "kv_read")]
    line, rows = split(result), []
    for length in result.lengths:
        for way in (*((part, PLAIN) for part in MEASURED), SELF, PLAIN_RUN, *_ways(result)[1:]):
            mine = result.at(length, *way)
            if mine:
                rows.append([str(length), *_row(result, line, length, way, mine, pen)])
    return {"columns": [*head, "α", "τ", "c", t("chart.axis.speedup")], "rows": rows[:MOST_ROWS]}


def _row(result: Result, line: Split | None, length: int, way: Way, mine: Sequence[Sample], pen: Pen) -> list[str]:
    name = (
        _name(way, pen) if way[0] == "decode" else pen.t(f"experiments.context.{way[0]}", tokens=result.plan.gamma + 1)
    )
    kv = pen.number(length * result.conditions["kv_bytes_per_token"] / MEGABYTE, 0)
    if way[0] == "one" and line is not None:
        kv += f" ({pen.number(line.kv(length), 1)} ms)"
    found = rates(mine) if way[0] == "decode" else {"alpha": None, "tau": None, "c": mine[0].c, "speedup": None}
    numbers = [found[key] for key in ("alpha", "tau", "c", "speedup")]
    told = ["–" if number is None else pen.number(number) for number in numbers]
    return [name, _spread(spread(_times(mine)), pen), kv if way[0] != "decode" else "–", *told]


def _times(samples: Sequence[Sample]) -> list[float]:
    return [ms for each in samples for ms in each.ms]


def _spread(each: Sequence[float], pen: Pen) -> str:
    return " / ".join(pen.number(ms, 1) for ms in each)


def _conditions(result: Result, pen: Pen) -> str:
    """Where and how it was measured, in one line; what a file does not say is named as unknown."""
    told = result.conditions
    versions = told.get("versions")
    known = {**told, **(versions if isinstance(versions, dict) else {})}
    names = ["target", "device_name", "threads", "dtype", "gamma", "max_new_tokens", "passes", "repeats", "created"]
    names += ["python", "torch", "transformers"]
    args = {name: str(known.get(name, pen.t("shell.unknown")))[:80] for name in names}
    weights = pen.number(told["weight_bytes"] / MEGABYTE, 0)
    entry = pen.number(told["kv_bytes_per_token"] / 1000, 1)
    return pen.t("experiments.conditions.context", **args, weights=weights, entry=entry)
