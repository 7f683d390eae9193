"""Charts of a run: pure functions from its numbers to a Plotly figure (plain JSON) and a sentence that says the same.

A chart is None where the trace does not hold what it would show. Figures carry their own small layout and no template,
so that one costs one or two kilobytes; colours are those of the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import Prediction, Summary, what_if
from spec_viz.ui.numerals import DECIMAL_MARK, decimal
from spec_viz.ui.wording import Words

Theme = Literal["light", "dark"]
Figure = dict[str, Any]

MAX_GAMMA = 12
LABELLED_BARS = 6


@dataclass(frozen=True, slots=True)
class Palette:
    """The page's colours that charts need; `assets/css/base.css` is their source."""

    ink: str
    muted: str
    line: str
    surface: str
    accent: str
    ok: str
    no: str
    off: str
    own: str


PALETTES: dict[Theme, Palette] = {
    "light": Palette(
        ink="#1f2226",
        muted="#5b606a",
        line="#ded9cf",
        surface="#ffffff",
        accent="#57449a",
        ok="#4b9555",
        no="#c4473b",
        off="#99958c",
        own="#3c7cbd",
    ),
    "dark": Palette(
        ink="#e9e7e2",
        muted="#a6abb5",
        line="#363b44",
        surface="#1c1f24",
        accent="#bfb0f5",
        ok="#529c5c",
        no="#d26c60",
        off="#70757e",
        own="#5d9ddd",
    ),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What every chart is drawn from: a run, its numbers, the words and the colours."""

    trace: Trace
    summary: Summary
    t: Words
    paint: Palette

    def number(self, value: float, digits: int = 2) -> str:
        return decimal(value, digits, self.t.language)

    @property
    def xs(self) -> list[int]:
        """The numbers of the decoding rounds."""
        return [round_.round for round_ in self.trace.decoding]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure and the sentence that says what it shows."""

    key: str
    figure: Figure
    summary: str


def charts(trace: Trace, summary: Summary, t: Words, theme: Theme) -> list[Chart]:
    """Every chart this run has something for, in the order of the page."""
    subject = Subject(trace, summary, t, PALETTES[theme])
    drawn = (draw(subject) for draw in (acceptance, speed, alpha, tokens, time, kv))
    return [chart for chart in drawn if chart is not None]


def acceptance(subject: Subject) -> Chart | None:
    """Acceptance per draft position: conditional bars, unconditional line."""
    summary, t, paint = subject.summary, subject.t, subject.paint
    positions = [position for position in summary.positions if position.judged]
    if not positions:
        return None
    xs = [position.depth for position in positions]
    counts = [f"{position.accepted}/{position.judged}" for position in positions]
    data = [
        _bars(
            xs,
            [position.conditional.value for position in positions],
            t("chart.acceptance.conditional"),
            paint.ok,
            customdata=counts,
            hovertemplate="%{y:.2f} (%{customdata})",
            # Few bars have room for their fraction.
            text=counts if len(positions) <= LABELLED_BARS else None,
            textposition="outside",
            cliponaxis=False,
        ),
        _line(
            xs,
            [summary.unconditional(position).value for position in positions],
            t("chart.acceptance.unconditional"),
            paint.own,
            mode="lines+markers",
            customdata=[f"{position.accepted}/{summary.drafting_rounds}" for position in positions],
            hovertemplate="%{y:.2f} (%{customdata})",
        ),
    ]
    layout = _layout(subject, t("chart.axis.position"), t("chart.axis.acceptance"))
    layout["yaxis"]["range"] = [0, 1.12]
    layout["xaxis"]["dtick"] = 1
    listed = ", ".join(
        t("chart.acceptance.item", position=position.depth, count=count)
        for position, count in zip(positions, counts, strict=True)
    )
    return Chart("acceptance", {"data": data, "layout": layout}, t("chart.acceptance.summary", listed=listed))


def speed(subject: Subject) -> Chart | None:
    """What another γ would have given: speedup with a baseline, tokens a round without one; this run is marked."""
    predictions = _predictions(subject.summary)
    if not predictions:
        return None
    if subject.summary.speedup is None or subject.summary.speedup.value is None:
        return _what_if(
            subject,
            predictions,
            lambda p: p.tokens,
            lambda p: p.tokens_by_formula,
            subject.summary.tau.value,
            "tokens",
        )
    return _what_if(
        subject,
        predictions,
        lambda p: p.speedup,
        lambda p: p.speedup_by_formula,
        subject.summary.speedup.value,
        "speedup",
    )


def alpha(subject: Subject) -> Chart | None:
    """The run's α when it stops at each γ, against the α that drafting so many tokens must reach to pay."""
    predictions = _predictions(subject.summary)
    if not predictions or subject.summary.costs is None:
        return None
    t, paint, gammas = subject.t, subject.paint, [p.gamma for p in predictions]
    data = [
        _line(gammas, [p.alpha for p in predictions], t("chart.alpha.run"), paint.ok, mode="lines+markers"),
        _line(gammas, [p.break_even for p in predictions], t("chart.alpha.break_even"), paint.no, dash="dash"),
    ]
    layout = _layout(subject, "γ", "α")
    layout["yaxis"]["range"] = [0, 1.05]
    layout["xaxis"]["dtick"] = 1
    paying = [p.gamma for p in predictions if p.alpha and p.break_even is not None and p.alpha > p.break_even]
    sentence = t("chart.alpha.summary", gammas=_spans(paying)) if paying else t("chart.alpha.summary.none")
    return Chart("alpha", {"data": data, "layout": layout}, sentence)


def tokens(subject: Subject) -> Chart | None:
    """Tokens each round added: accepted drafts, then the target's own; the mean is τ."""
    rounds, t, paint = subject.trace.decoding, subject.t, subject.paint
    tau = subject.summary.tau.value
    if tau is None:
        return None
    own = [int(round_.emitted is not None) for round_ in rounds]
    data = [
        _bars(subject.xs, [len(round_.path) for round_ in rounds], t("chart.tokens.accepted"), paint.ok),
        _bars(subject.xs, own, t("chart.tokens.own"), paint.own),
        _level(subject.xs, tau, t("chart.tokens.mean"), paint.ink),
    ]
    layout = _layout(subject, t("chart.axis.round"), t("chart.axis.tokens"))
    layout["yaxis"]["rangemode"] = "tozero"
    most = max(len(round_.committed) for round_ in rounds)
    sentence = t("chart.tokens.summary", rounds=len(rounds), mean=subject.number(tau), most=most)
    return Chart("tokens", {"data": data, "layout": layout}, sentence)


def time(subject: Subject) -> Chart | None:
    """Milliseconds of each round, split; the baseline's mean round is a line."""
    summary, t, paint = subject.summary, subject.t, subject.paint
    if not summary.ms:
        return None
    ms = [round_.ms for round_ in subject.trace.decoding]
    other = [(part.judge or 0.0) + (part.rollback or 0.0) for part in ms]
    data = [
        _bars(subject.xs, _milliseconds(part.propose for part in ms), t("chart.time.propose"), paint.accent),
        _bars(subject.xs, _milliseconds(part.verify for part in ms), t("chart.time.verify"), paint.own),
        _bars(subject.xs, _milliseconds(other), t("chart.time.other"), paint.off),
    ]
    if summary.costs:
        data.append(_level(subject.xs, round(summary.costs.plain, 2), t("chart.time.baseline"), paint.ink))
    layout = _layout(subject, t("chart.axis.round"), "ms")
    layout["yaxis"]["rangemode"] = "tozero"
    spent = {part: summary.ms[part].mean for part in ("total", "propose", "verify")}
    # A lookup takes hundredths of a millisecond, which must not read as nothing.
    means = {part: subject.number(mean, 1 if mean >= 0.05 else 3) for part, mean in spent.items()}
    sentence = t("chart.time.summary", **means)
    if summary.costs:
        sentence += " " + t("chart.time.summary.baseline", plain=subject.number(summary.costs.plain, 1))
    return Chart("time", {"data": data, "layout": layout}, sentence)


def kv(subject: Subject) -> Chart | None:
    """Entries in both KV caches after each round; below, how many were written and rolled back in it."""
    rounds, t, paint = subject.trace.decoding, subject.t, subject.paint
    target = [(round_.round, *round_.kv.target) for round_ in rounds if round_.kv.target]
    drafter = [(round_.round, *round_.kv.drafter) for round_ in rounds if round_.kv.drafter]
    if not target:
        return None
    data = _cache(target, t("chart.kv.target"), t("chart.kv.rolled_back"), paint.own, paint.no)
    if any(peak for _, _, peak, _ in drafter):
        data += _cache(
            drafter, t("chart.kv.drafter"), t("chart.kv.rolled_back.drafter"), paint.accent, paint.off, "dot"
        )
    layout = _layout(subject, t("chart.axis.round"), t("chart.axis.entries"))
    if any(peak > after for _, _, peak, after in (*target, *drafter)):
        # A few entries beside a whole cache would be a hair's breadth: they get a scale of their own below it.
        layout["yaxis2"] = {**layout["yaxis"], "domain": [0, 0.3], "title": {}, "rangemode": "tozero", "nticks": 4}
        layout["yaxis"]["domain"] = [0.4, 1]
        layout["xaxis"]["anchor"] = "y2"
        layout["barmode"] = "group"
    else:
        data = [trace for trace in data if trace["type"] != "bar"]
    rolled = sum(peak - after for _, _, peak, after in target)
    sentence = t("chart.kv.summary", first=target[0][1], last=target[-1][3], rolled=rolled)
    return Chart("kv", {"data": data, "layout": layout}, sentence)


# ---------------------------------------------------------------- parts


def _predictions(summary: Summary) -> tuple[Prediction, ...]:
    return what_if(summary, range(1, max(MAX_GAMMA, summary.gamma) + 1))


def _what_if(
    subject: Subject,
    predictions: Sequence[Prediction],
    by_position: Callable[[Prediction], float | None],
    by_formula: Callable[[Prediction], float | None],
    measured: float | None,
    what: str,
) -> Chart:
    t, paint, gamma = subject.t, subject.paint, subject.summary.gamma
    gammas = [p.gamma for p in predictions]
    data = [
        _line(gammas, [by_formula(p) for p in predictions], t("chart.what_if.formula"), paint.muted, dash="dash"),
        _line(gammas, [by_position(p) for p in predictions], t("chart.what_if.position"), paint.accent),
        _line(gammas, [1.0] * len(gammas), t(f"chart.what_if.even.{what}"), paint.no, dash="dot"),
        {
            **_line([gamma], [measured], t("chart.what_if.run"), paint.ink, mode="markers"),
            "marker": {"symbol": "star", "size": 14, "color": paint.ink},
        },
    ]
    layout = _layout(subject, "γ", t(f"chart.axis.{what}"))
    layout["xaxis"]["dtick"] = 1
    layout["yaxis"]["rangemode"] = "tozero"
    best = max(predictions, key=lambda p: by_position(p) or 0.0)
    sentence = t(
        f"chart.what_if.summary.{what}",
        gamma=gamma,
        measured=subject.number(measured or 0.0),
        best=best.gamma,
        value=subject.number(by_position(best) or 0.0),
    )
    return Chart("what_if", {"data": data, "layout": layout}, sentence)


def _cache(
    rows: Sequence[tuple[int, int, int, int]], name: str, rolled: str, colour: str, lost: str, dash: str = "solid"
) -> list[Figure]:
    xs = [number for number, _, _, _ in rows]
    after = [kept for _, _, _, kept in rows]
    heights = [peak - kept for _, _, peak, kept in rows]
    return [_line(xs, after, name, colour, shape="hvh", dash=dash), _bars(xs, heights, rolled, lost, yaxis="y2")]


def _milliseconds(values: Any) -> list[float]:
    return [round(value or 0.0, 2) for value in values]


def _bars(xs: Sequence[int], ys: Sequence[float | None], name: str, colour: str, **more: Any) -> Figure:
    given = {key: value for key, value in more.items() if value is not None}
    return {"type": "bar", "x": list(xs), "y": _short(ys), "name": name, "marker": {"color": colour}, **given}


def _line(
    xs: Sequence[int],
    ys: Sequence[float | None],
    name: str,
    colour: str,
    *,
    mode: str = "lines",
    dash: str = "solid",
    shape: str = "linear",
    **more: Any,
) -> Figure:
    return {
        "type": "scatter",
        "mode": mode,
        "x": list(xs),
        "y": _short(ys),
        "name": name,
        "line": {"color": colour, "dash": dash, "width": 2, "shape": shape},
        **more,
    }


def _level(xs: Sequence[int], y: float, name: str, colour: str) -> Figure:
    # One round is a point, and a line needs two: it runs half a bar past either end.
    return _line([xs[0], xs[-1]], [y, y], name, colour, dash="dot") | {"x": [xs[0] - 0.5, xs[-1] + 0.5]}


def _spans(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1–3, 5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in spans)


def _short(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]


def _layout(subject: Subject, x: str, y: str) -> Figure:
    return layout_of(subject.paint, subject.t.language, x, y)


def layout_of(paint: Palette, language: str, x: str, y: str) -> Figure:
    """The frame that all figures of the page have, with the names of its axes."""
    axis = {
        "gridcolor": paint.line,
        "linecolor": paint.line,
        "zerolinecolor": paint.line,
        "tickfont": {"color": paint.muted, "size": 12},
        "automargin": True,
        # Dragging on a phone must scroll the page, not zoom the chart.
        "fixedrange": True,
    }
    return {
        "template": {},
        "height": 320,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        # Plotly styles its own frame, so `inherit` would end there; the page's font is a variable at its root.
        "font": {"family": "var(--sv-sans)", "size": 13, "color": paint.ink},
        "separators": DECIMAL_MARK[language] + " ",
        "barmode": "stack",
        "bargap": 0.25,
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": paint.surface, "bordercolor": paint.line, "font": {"color": paint.ink}},
        # Above the plot, so that a narrow screen gives the bars its whole width.
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
            "font": {"size": 12},
        },
        "showlegend": True,
        "xaxis": {**axis, "title": {"text": x, "font": {"size": 12}}, "showgrid": False},
        # Nearer, letters with marks above them (ậ) would touch the numbers of the ticks.
        "yaxis": {**axis, "title": {"text": y, "font": {"size": 12}, "standoff": 10}, "zeroline": False},
    }
