"""What a concurrency record shows: speed and latency by batch size, and where speculation stops paying."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from spec_viz.lab.concurrency import PLAIN, Mode, Result, Sample, crossings, rows
from spec_viz.lab.metrics import percentiles
from spec_viz.ui.charts import Chart, Figure
from spec_viz.ui.experiment_pen import MOST_LINES, PALE, SYMBOLS, Pen, even, frame, short, trace
from spec_viz.ui.lanes import EVEN
from spec_viz.ui.numerals import DECIMAL_MARK

Json = dict[str, Any]
# Columns of `concurrency.rows` with their digits.
Value = Callable[[Sample], Sequence[float]]
NUMBERS = {"B": 0, "tokens/s": 1, "÷ plain": 2, "ms/token p50": 1, "p95": 1, "p99": 1, "τ": 2, "α": 2}


def charts(result: Result, beside: Result | None, pen: Pen) -> list[Chart]:
    """Tokens a second of all users together, what one of them waits, what drafting takes, and what coins would gain."""
    t, real, coins = pen.t, _modes(result), _coins(result)
    found = [
        _by_batch("load_speed", t("experiments.axis.all_tokens"), _both(result, beside, real), pen, _rate),
        _by_batch("load_latency", t("experiments.axis.user_ms"), _both(result, beside, real), pen, _waits),
    ]
    if any(mode.drafter != PLAIN and mode.alpha is None for mode in real):
        drafting = [mode for mode in real if mode.drafter != PLAIN]
        axis = t("experiments.axis.drafting")
        found.append(_by_batch("load_drafting", axis, _both(result, beside, drafting), pen, _drafting))
        found[-1].figure["layout"]["yaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
        if coins:
            axis = t("chart.axis.speedup")
            found.append(_by_batch("load_coins", axis, _both(result, beside, coins), pen, _ratio))
            even(found[-1].figure["layout"], pen)
    _mark_crossing(found[0].figure["layout"], result, pen)
    return found


def said(result: Result, pen: Pen) -> str:
    """Where the way that pays longest stops paying, and whether it is the drafting that makes a drafter lose."""
    mode = _best(result)
    if mode is None:
        return pen.t("experiments.verdict.none")
    row = _crossing(result, mode)
    largest = max(sample.batch for sample in result.samples if sample.mode == mode)
    args = {"mode": _name(mode, pen), "batch": row["no faster from B"] or largest}
    if row["no faster from B"] is None:
        told = pen.t("experiments.verdict.load.everywhere", **args)
    elif row["between"] is None:
        told = pen.t("experiments.verdict.load.nowhere", **args)
    else:
        told = pen.t("experiments.verdict.load.crosses", **args, between=pen.number(row["between"], 1))
    return f"{told} {_undone(result, pen)}".strip()


def _undone(result: Result, pen: Pen) -> str:
    """The way that loses most to its drafting: no faster than plain decoding, but faster if drafts were free."""
    lost: list[tuple[float, Mode, int, float]] = []
    for mode in _modes(result):
        if mode.drafter == PLAIN:
            continue
        mine = [sample for sample in result.samples if sample.mode == mode]
        batch = max((sample.batch for sample in mine), default=0)
        last = [sample for sample in mine if sample.batch == batch]
        share, ratio = _middle(last, _drafting), _middle(last, _ratio)
        if ratio <= 1 and ratio / (1 - share) > 1 + EVEN:
            lost.append((share, mode, batch, ratio))
    if not lost:
        return ""
    share, mode, batch, ratio = max(lost, key=lambda each: each[0])
    return pen.t(
        "experiments.verdict.load.drafting",
        mode=_name(mode, pen),
        batch=batch,
        share=pen.number(100 * share, 0),
        ratio=pen.number(ratio),
        free=pen.number(ratio / (1 - share)),
    )


def table(result: Result, pen: Pen) -> Json:
    """A row a way to decode and batch size, with the numbers that the command line prints."""
    found = rows({"samples": [asdict(sample) for sample in result.samples]})
    # `rows` goes through the same modes and batches in the same order, and leaves out what was not measured.
    batches = dict.fromkeys(sample.batch for sample in result.samples)
    measured = {(sample.mode, sample.batch) for sample in result.samples}
    modes = dict.fromkeys(sample.mode for sample in result.samples)
    names = [_name(mode, pen) for mode in modes for batch in batches if (mode, batch) in measured]
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


def _rate(sample: Sample) -> Sequence[float]:
    return [sample.rate]


def _waits(sample: Sample) -> Sequence[float]:
    return sample.users


def _ratio(sample: Sample) -> Sequence[float]:
    return [sample.ratio]


def _drafting(sample: Sample) -> Sequence[float]:
    return [sample.ms["propose"] / sample.ms["total"]]


# A mode of the result or of the one beside it (True): its samples by batch.
Line = tuple[Mode, bool, dict[int, list[Sample]]]


def _both(result: Result, beside: Result | None, modes: Sequence[Mode]) -> list[Line]:
    found: list[Line] = []
    for each, pale in ((result, False), (beside, True)):
        for mode in modes if each else ():
            mine = [sample for sample in each.samples if sample.mode == mode] if each else []
            by_batch = {batch: [s for s in mine if s.batch == batch] for batch in sorted({s.batch for s in mine})}
            if by_batch:
                found.append((mode, pale, by_batch))
    return found


def _by_batch(key: str, axis: str, lines: Sequence[Line], pen: Pen, value: Value) -> Chart:
    """A line a mode; over users a bar up to p95, and all three percentiles in words."""
    data, listed = [], []
    modes = list(dict.fromkeys(mode for mode, _, _ in lines if mode.drafter != PLAIN))
    whole, percent = value is _waits, value is _drafting
    for mode, pale, by_batch in lines:
        place = modes.index(mode) if mode in modes else -1
        style: Figure = {"color": pen.colour(place), "width": 1.5 if pale else 2.5}
        if mode.drafter == PLAIN:
            style |= {"color": pen.paint.muted, "dash": "dot"}
        spreads = {batch: percentiles([each for s in mine for each in value(s)]) for batch, mine in by_batch.items()}
        name = _name(mode, pen)
        name = pen.t("experiments.beside.name", name=name) if pale else name
        told = {batch: _told(spread, whole, percent, pen) for batch, spread in spreads.items()}
        line = trace(
            list(spreads),
            [short(spread[0]) for spread in spreads.values()],
            name,
            mode="lines+markers",
            line=style,
            marker={"size": 8, "symbol": SYMBOLS[(place + 1) % len(SYMBOLS)]},
            opacity=PALE if pale else 1,
            text=[f"{name}, B = {batch}: {each}" for batch, each in told.items()],
            hovertemplate="%{text}<extra></extra>",
        )
        if whole:
            reach = [short(spread[1] - spread[0]) for spread in spreads.values()]
            bars = {"type": "data", "symmetric": False, "array": reach, "arrayminus": [0] * len(reach)}
            line["error_y"] = bars | {"thickness": 1.25, "width": 4, "color": style["color"]}
        data.append(line)
        # All of them stand in the table; a sentence says where a line begins and ends.
        ends = dict.fromkeys((min(told), max(told)))
        listed.append(f"{name}, " + ", ".join(f"B = {batch}: {told[batch]}" for batch in ends))
    layout = frame(pen, pen.t("experiments.axis.batch"), axis)
    layout["xaxis"] |= {"type": "log", "tickvals": sorted({batch for _, _, by_batch in lines for batch in by_batch})}
    layout["yaxis"]["rangemode"] = "tozero"
    # A narrow place writes one name a line above the plot, which keeps its height.
    layout["height"] += 18 * max(len(data) - 3, 0)
    return Chart(key, {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed="; ".join(listed)))


def _told(spread: Sequence[float], whole: bool, percent: bool, pen: Pen) -> str:
    if percent:
        return f"{pen.number(100 * spread[0], 0)}\u00a0%"
    return " / ".join(pen.number(each, 1) for each in spread) if whole else pen.number(spread[0])


def _middle(samples: Sequence[Sample], value: Value) -> float:
    return statistics.median(each for sample in samples for each in value(sample))


def _modes(result: Result) -> list[Mode]:
    """Plain decoding, then the ways with a real drafter; coins, which write no text, only where nothing else is."""
    found = list(dict.fromkeys(sample.mode for sample in result.samples))
    others = [mode for mode in found if mode.drafter != PLAIN]
    real = [mode for mode in others if mode.alpha is None]
    return [mode for mode in found if mode.drafter == PLAIN] + (real or others)[:MOST_LINES]


def _coins(result: Result) -> list[Mode]:
    found = dict.fromkeys(sample.mode for sample in result.samples)
    return [mode for mode in found if mode.alpha is not None][:MOST_LINES]


def _best(result: Result) -> Mode | None:
    """The way that is faster than plain decoding up to the largest batch; of equals the fastest at its best."""

    def pays(mode: Mode) -> tuple[float, float]:
        row = _crossing(result, mode)
        until = row["between"] or (math.inf if row["no faster from B"] is None else 0.0)
        return until, max(sample.ratio for sample in result.samples if sample.mode == mode)

    return max((mode for mode in _modes(result) if mode.drafter != PLAIN), key=pays, default=None)


def _name(mode: Mode, pen: Pen) -> str:
    if mode.drafter == PLAIN:
        return pen.plain
    coin = mode.alpha is not None
    name = pen.t("experiments.coin", alpha=pen.cell(mode.alpha)) if coin else pen.drafter(mode.drafter)
    return f"{name}, γ = {mode.gamma}" if mode.policy == "fixed" else f"{name}, {pen.policy(mode.policy)}"


def _crossing(result: Result, mode: Mode) -> Json:
    found = crossings({"samples": [asdict(sample) for sample in result.samples]})
    told = (mode.family, mode.gamma, mode.policy)
    return next(row for row in found if (row["mode"], row["γ"], row["policy"]) == told)


def _mark_crossing(layout: Figure, result: Result, pen: Pen) -> None:
    mode = _best(result)
    at = _crossing(result, mode)["between"] if mode else None
    if at is None:
        return
    colour = pen.paint.no
    line = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1}
    layout["shapes"] = [line | {"line": {"color": colour, "width": 1.5, "dash": "dot"}}]
    # At the foot, where few lines run, and on the side that has room.
    left = at > math.sqrt(max(sample.batch for sample in result.samples))
    note = {"x": math.log10(at), "y": 0, "yref": "paper", "yanchor": "bottom"}
    note |= {"xanchor": "right", "xshift": -4} if left else {"xanchor": "left", "xshift": 4}
    note |= {"text": pen.t("experiments.crossing", batch=pen.number(at, 1)), "showarrow": False}
    layout["annotations"] = [note | {"font": {"size": 12, "color": colour}}]
