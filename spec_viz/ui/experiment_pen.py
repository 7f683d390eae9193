"""What the experiments room writes and draws with: names, numbers and intervals as words, and the parts of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from spec_viz.lab.sweep_rows import LEVEL, Estimate
from spec_viz.ui.charts import Figure, Palette, layout_of
from spec_viz.ui.numerals import DECIMAL_MARK, decimal
from spec_viz.ui.wording import Words

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")
# What bars are striped with, so that they differ without colour too.
PATTERNS = ("", "/", ".", "x", "-")
# More lines than this cannot be told apart; the table has them all.
MOST_LINES = 5
# A mark is told in lines that a phone has room for, so far below the axis that its title stands between.
MARK_LETTERS, MARK_BELOW = 38, 58
# How strong a result is drawn that stands beside another.
PALE = 0.5


@dataclass(frozen=True, slots=True)
class Pen:
    """The words and colours that everything here is written with."""

    t: Words
    paint: Palette

    def number(self, value: float, digits: int = 2) -> str:
        return decimal(value, digits, self.t.language)

    @property
    def plain(self) -> str:
        return self.t("experiments.plain")

    def drafter(self, label: str) -> str:
        """A drafter's title, with what was set in brackets; of a stranger its own name."""
        name, bracket, rest = label.partition(" (")
        return self._known(f"drafter.{name}", name) + bracket + rest

    def task(self, name: str) -> str:
        return self._known(f"experiments.task.{name}", name)

    def policy(self, name: str) -> str:
        return self._known(f"experiments.policy.{name}", name)

    def condition(self, name: str) -> str:
        return self._known(f"experiments.condition.{name}", name[:40])

    def line(self, drafter: str, rule: str, kind: str) -> str:
        """A line's name; over temperatures it says how the drafts were drawn."""
        form = self._known(f"experiments.form.{rule}", rule)
        return f"{self.drafter(drafter)}, {form}" if kind == "temperature" else self.drafter(drafter)

    def estimate(self, each: Estimate | None) -> str:
        if each is None:
            return "–"
        if each.low is None or each.high is None:
            return self.number(each.value)
        return f"{self.number(each.value)} ({self.number(each.low)}–{self.number(each.high)})"

    def sure(self, each: Estimate) -> str:
        """What stands in brackets behind a number: its interval, or why there is none."""
        if each.low is None or each.high is None:
            return self.t("experiments.few", prompts=each.prompts)
        told = {"low": self.number(each.low), "high": self.number(each.high), "prompts": each.prompts, "level": LEVEL}
        return self.t("experiments.interval", **told)

    def colour(self, place: int) -> str:
        paint = self.paint
        return (paint.accent, paint.own, paint.ok, paint.ink, paint.off)[place % MOST_LINES]

    def _known(self, key: str, otherwise: str) -> str:
        return self.t(key) if key in self.t.table else otherwise

    def cell(self, value: Any) -> str:
        """A value of a table: a dash where there is none, a number with the language's decimal mark."""
        if value is None:
            return "–"
        return f"{value:g}".replace(".", DECIMAL_MARK[self.t.language]) if isinstance(value, float) else str(value)


def mark(figure: Figure, text: str, pen: Pen) -> None:
    """Say in the figure itself, below its axis, that what stands side by side was measured under other conditions."""
    lines = wrap(f"≠ {text}", MARK_LETTERS)
    note = {
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": 0,
        "yref": "paper",
        "yanchor": "top",
        "yshift": -MARK_BELOW,
    }
    note |= {"text": "<br>".join(lines), "align": "right", "showarrow": False, "bgcolor": pen.paint.surface}
    note |= {"bordercolor": pen.paint.no, "borderpad": 4, "font": {"size": 12, "color": pen.paint.ink}}
    layout, room = figure["layout"], MARK_BELOW + 16 * len(lines) + 14
    layout["annotations"] = [*layout.get("annotations", []), note]
    layout["margin"] = {**layout["margin"], "b": room}
    layout["height"] += room - MARK_BELOW


def even(layout: Figure, pen: Pen) -> None:
    """The level of plain decoding."""
    layout["yaxis"]["rangemode"] = "tozero"
    line = {"color": pen.paint.no, "width": 1.5, "dash": "dot"}
    layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": line}]


def trace(xs: Sequence[Any], ys: Sequence[Any], name: str, **more: Any) -> Figure:
    """One line or set of points."""
    return {"type": "scatter", "x": list(xs), "y": list(ys), "name": name, **more}


def fill(colour: str, place: int, pen: Pen) -> Figure:
    """The look of the bars of one series: its colour, and from the second series on stripes."""
    shape = PATTERNS[place % len(PATTERNS)]
    stripes = {"shape": shape, "fillmode": "overlay", "fgcolor": pen.paint.surface, "size": 7, "solidity": 0.25}
    return {"color": colour, "pattern": stripes}


def short(value: float | None) -> float | None:
    """As many digits as a figure shows."""
    return None if value is None else round(value, 4)


def mix(base: str, colour: str, share: float) -> str:
    """A colour so far on the way from another, both #rrggbb."""
    pairs = zip(*([int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (base, colour)), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def frame(pen: Pen, x: str, y: str) -> Figure:
    """As the charts of a run look; the font is plain, because a saved picture knows none of the page's variables."""
    figure = layout_of(pen.paint, pen.t.language, x, y)
    figure |= {"height": 340, "barmode": "group", "hovermode": "closest", "font": {"size": 13, "color": pen.paint.ink}}
    figure["xaxis"]["zeroline"] = False
    return figure
