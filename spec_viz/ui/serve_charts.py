"""Servers side by side as figures with their sentences, one table, and the verdict with its reasons.

Who speculates is coloured, plain decoding is grey. Spreads over answers show every answer as a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spec_viz.lab.metrics import Ratio, Spread
from spec_viz.serving.client import Arrival
from spec_viz.ui.charts import Chart, Figure
from spec_viz.ui.experiment_pen import SYMBOLS, Pen, fill, frame, short, trace
from spec_viz.ui.lanes import EVEN
from spec_viz.ui.serve_runs import Shown

Json = dict[str, Any]
DASHES = ("solid", "dash", "dashdot", "longdash")
PERCENTILES = (("p50", "diamond"), ("p95", "triangle-up"), ("p99", "square"))
COLUMNS = ("server", "at", "ttft", "tpot", "throughput", "tau", "length", "rate", "same")


def charts(every: Sequence[Shown], at: int, pen: Pen) -> list[Chart]:
    """All figures that the servers have something for, the answer first: what a token takes, then why.

    Only throughput shows other loads than `at` side by side.
    """
    mine = [each for each in every if each.side.concurrency == at]
    found = (
        _spread("served_tpot", mine, pen, lambda each: (each.side.paces, each.side.token)),
        _tau(mine, pen),
        _positions(mine, pen),
        _spread("served_ttft", mine, pen, lambda each: (each.side.firsts, each.side.first)),
        _throughput(every, pen),
    )
    return [chart for chart in found if chart is not None]


def _label(name: str) -> str:
    """A server's name in a figure, where Plotly reads markup and entities."""
    return name.replace("&", "&amp;").replace("<", "&lt;")


def _colour(place: int, pen: Pen) -> str:
    return pen.paint.muted if place < 0 else pen.colour(place)


def _positions(mine: Sequence[Shown], pen: Pen) -> Chart | None:
    """Kept at each draft position ÷ steps with a draft: bars that never rise."""
    told = [(each, each.side.counts) for each in mine if each.side.counts is not None and each.side.counts.drafts]
    data, listed = [], []
    for each, counts in told:
        fractions = [f"{kept}/{counts.drafts}" for kept in counts.by_position]
        look = fill(_colour(each.place, pen), max(each.place, 0), pen)
        bar: Figure = {"type": "bar", "name": _label(each.name), "marker": look, "customdata": fractions}
        bar |= {"x": list(range(1, len(fractions) + 1)), "y": [short(ratio.value) for ratio in counts.positions]}
        data.append(bar | {"hovertemplate": "%{x}: %{y:.2f} (%{customdata})"})
        listed.append((each.name, ", ".join(_ratio(ratio, pen) for ratio in counts.positions)))
    if not data:
        return None
    layout = frame(pen, pen.t("chart.axis.position"), pen.t("chart.served_positions.axis"))
    layout["xaxis"]["dtick"] = 1
    top = max(value or 0 for bar in data for value in bar["y"])
    layout["yaxis"]["range"] = [0, max(0.5, min(1.0, 1.1 * top))]
    return Chart("served_positions", {"data": data, "layout": layout}, _said(listed, pen))


def _tau(mine: Sequence[Shown], pen: Pen) -> Chart | None:
    """τ as bars, and as marks the longer number that vLLM prints, which leaves silent rounds out."""
    known = [(each, each.side.tau) for each in mine if each.side.tau is not None and each.side.tau.value is not None]
    if all(each.is_plain for each, _ in known):
        return None
    data, listed, lengths = [], [], []
    for each, tau in known:
        fraction = f"{round(tau.numerator)}/{round(tau.denominator)}"
        name = _label(each.name)
        bar: Figure = {"type": "bar", "name": name, "x": [name], "y": [short(tau.value)], "width": 0.5}
        bar |= {"marker": fill(_colour(each.place, pen), max(each.place, 0), pen), "customdata": [fraction]}
        bar |= {"showlegend": False, "hovertemplate": f"{pen.t('lesson.runs.tau')}: %{{y:.2f}} (%{{customdata}})"}
        data.append(bar)
        listed.append((each.name, f"τ = {fraction} = {_ratio(tau, pen)}"))
        if each.side.counts is not None and each.side.counts.drafts:
            lengths.append((_label(each.name), short(each.side.counts.length.value)))
    ink = {"symbol": "line-ew-open", "size": 40, "color": pen.paint.ink, "line": {"width": 2, "color": pen.paint.ink}}
    marks = trace([name for name, _ in lengths], [y for _, y in lengths], pen.t("lesson.runs.length"), mode="markers")
    data.append(marks | {"marker": ink, "hovertemplate": "%{y:.2f}"})
    layout = frame(pen, "", pen.t("chart.served_tau.axis"))
    layout["barmode"] = "overlay"
    layout["xaxis"]["type"] = "category"
    layout["yaxis"]["rangemode"] = "tozero"
    return Chart("served_tau", {"data": data, "layout": layout}, _said(listed, pen))


def _spread(
    key: str, mine: Sequence[Shown], pen: Pen, values: Callable[[Shown], tuple[Sequence[float], Spread | None]]
) -> Chart | None:
    """A row a server: every answer a point, and three marks for the middle and the slow end."""
    known = [(each, points, spread) for each in mine for points, spread in [values(each)] if spread is not None]
    if not known:
        return None
    data: list[Figure] = []
    for each, points, _ in known:
        dots = {"color": _colour(each.place, pen), "size": 9, "opacity": 0.4, "line": {"width": 0}}
        dot = trace([short(ms) for ms in points], [_label(each.name)] * len(points), "", mode="markers", marker=dots)
        data.append(dot | {"showlegend": False, "hovertemplate": "%{y}: %{x:.0f} ms<extra></extra>"})
    for name, symbol in PERCENTILES:
        marker = {"symbol": f"{symbol}-open", "size": 13, "color": pen.paint.ink, "line": {"width": 2}}
        xs = [short(getattr(spread, name)) for _, _, spread in known]
        line = trace(
            xs, [_label(each.name) for each, _, _ in known], pen.t(f"serve.{name}"), mode="markers", marker=marker
        )
        data.append(line | {"hovertemplate": f"%{{y}}, {name}: %{{x:.0f}} ms<extra></extra>"})
    layout = frame(pen, pen.t(f"chart.{key}.axis"), "")
    layout["height"] = 120 + 52 * len(known)
    layout["xaxis"] |= {"rangemode": "tozero", "showgrid": True}
    layout["yaxis"] |= {"type": "category", "autorange": "reversed", "ticks": "", "showgrid": False}
    listed = [(each.name, _percentiles(spread, pen)) for each, _, spread in known]
    return Chart(key, {"data": data, "layout": layout}, f"{pen.t('serve.percentiles')} {_said(listed, pen)}")


def _throughput(every: Sequence[Shown], pen: Pen) -> Chart | None:
    """Tokens a second of all answers together, by how many are asked side by side."""
    data, listed = [], []
    for name in dict.fromkeys(each.name for each in every):
        mine = [each for each in every if each.name == name and each.side.answers]
        if not mine:
            continue
        place, colour = mine[0].place, _colour(mine[0].place, pen)
        style = {"color": colour, "width": 2.5, "dash": _dash(place)}
        marker = {"size": 9, "symbol": SYMBOLS[(place + 1) % len(SYMBOLS)], "color": colour}
        told = {str(each.side.concurrency): each.side.throughput.value for each in mine}
        line = trace(
            list(told), [short(value) for value in told.values()], _label(name), mode="lines+markers", line=style
        )
        data.append(line | {"marker": marker, "hovertemplate": "%{x}: %{y:.1f}"})
        listed.append((name, ", ".join(f"{level}: {pen.number(value or 0, 1)}" for level, value in told.items())))
    if not data:
        return None
    layout = frame(pen, pen.t("serve.axis.side_by_side"), pen.t("chart.served_throughput.axis"))
    # Each load has its place: between two of them nothing was measured.
    order = [str(level) for level in sorted({each.side.concurrency for each in every})]
    layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": order}
    layout["yaxis"]["rangemode"] = "tozero"
    return Chart("served_throughput", {"data": data, "layout": layout}, _said(listed, pen))


def _dash(place: int) -> str:
    return "dot" if place < 0 else DASHES[place % len(DASHES)]


def arrivals(came: Sequence[tuple[str, int, Sequence[Arrival]]], pen: Pen) -> Chart | None:
    """Answers to one question as they came, each (name, place, arrivals): a step an arrival, as high as its tokens."""
    data, listed = [], []
    for name, place, each in came:
        if not each:
            continue
        # The first step begins where the question was sent.
        xs, ys = [0.0], [0]
        for arrival in each:
            xs.append(round(arrival.ms / 1000, 4))
            ys.append(ys[-1] + arrival.tokens)
        style = {"color": _colour(place, pen), "width": 2, "shape": "hv", "dash": _dash(place)}
        data.append(trace(xs, ys, _label(name), mode="lines", line=style, hovertemplate="%{x:.2f} s: %{y}"))
        # A small server answers within a tenth of a second.
        seconds = pen.number(xs[-1], 1 if xs[-1] >= 1 else 2)
        facts = {"seconds": seconds, "tokens": ys[-1], "largest": max(a.tokens for a in each)}
        listed.append(pen.t("serve.arrived", name=name, arrivals=len(each), **facts))
    if not data:
        return None
    layout = frame(pen, pen.t("serve.axis.since"), pen.t("experiments.axis.written"))
    layout["height"] = 280
    layout["yaxis"]["rangemode"] = "tozero"
    return Chart("served_arrivals", {"data": data, "layout": layout}, " ".join(listed))


# ---------------------------------------------------------------- words


def said(every: Sequence[Shown], at: int, pen: Pen) -> tuple[str, list[str]]:
    """Whether speculation paid under this load, and why: what a round brought, and what it cost."""
    mine = [each for each in every if each.side.concurrency == at and each.pace.value]
    drafting = [each for each in mine if not each.is_plain]
    plain = next((each.pace.value for each in mine if each.is_plain), None)
    if not drafting:
        return pen.t("serve.said.nothing" if plain is None else "serve.said.plain"), []
    best = min(drafting, key=lambda each: each.pace.value or 0)
    ms = best.pace.value or 1
    load = pen.t("serve.load.one") if at == 1 else pen.t("serve.load", count=at)
    facts: Json = {"load": load, "name": best.name, "ms": pen.number(ms, 0)}
    if plain is None:
        return pen.t("serve.said.alone" if len(drafting) > 1 else "serve.said.one", **facts), []
    times = plain / ms
    facts |= {"plain": pen.number(plain, 0), "times": pen.number(times)}
    key = "even" if abs(times - 1) < EVEN else "faster" if times > 1 else "slower"
    reasons = [_why(each, plain, pen) for each in drafting]
    # Silent rounds cost what plain ones do, all others more.
    if any(each.round_ms is not None and each.round_ms / plain < 1 - EVEN for each in drafting):
        reasons.append(pen.t("serve.said.why.noise"))
    return pen.t(f"serve.said.{key}", **facts), reasons


def _why(each: Shown, plain: float, pen: Pen) -> str:
    if each.round_ms is None or each.side.tau is None or each.side.tau.value is None:
        return pen.t("serve.said.why.unknown", name=each.name)
    tau, cost = each.side.tau.value, each.round_ms / plain
    facts = {"tau": pen.number(tau), "cost": pen.number(cost), "times": pen.number(tau / cost)}
    return pen.t("serve.said.why", name=each.name, **facts)


def table(every: Sequence[Shown], pen: Pen) -> Json:
    """A row a server and load; times are p50 / p95 / p99."""
    rows = [[each.name, str(each.side.concurrency), *_cells(each, pen)] for each in every if each.side.answers]
    return {"columns": [pen.t(f"serve.column.{name}") for name in COLUMNS], "rows": rows}


def _cells(each: Shown, pen: Pen) -> list[str]:
    side = each.side
    counts = side.counts if side.counts is not None and side.counts.drafts else None
    return [
        _percentiles(side.first, pen),
        _percentiles(side.token, pen),
        _ratio(side.throughput, pen, 1),
        _ratio(side.tau, pen),
        "–" if counts is None else _ratio(counts.length, pen),
        "–" if counts is None else f"{counts.accepted}/{counts.drafted}",
        "–" if each.same is None else f"{each.same}/{side.answers}",
    ]


def _percentiles(spread: Spread | None, pen: Pen) -> str:
    return "–" if spread is None else " / ".join(pen.number(ms, 0) for ms in (spread.p50, spread.p95, spread.p99))


def _ratio(ratio: Ratio | None, pen: Pen, digits: int = 2) -> str:
    return "–" if ratio is None or ratio.value is None else pen.number(ratio.value, digits)


def _said(listed: Sequence[tuple[str, str]], pen: Pen) -> str:
    """Every server's numbers in words."""
    told = "; ".join(pen.t("serve.listed", name=name, values=values) for name, values in listed)
    return pen.t("chart.sweep.summary", listed=told)
