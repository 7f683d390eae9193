"""What a quantised target keeps: texts and law, α, speed, bytes, and what a vector loses at every width.

A second result stands beside the first, paler, form by form; bytes hang on no machine and are drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spec_viz.lab.quantisation import FULL, Rates, Result, Sample, Variant, What, rates, size
from spec_viz.lab.sweep import comparable
from spec_viz.ui.charts import PALETTES, Chart, Figure, Theme
from spec_viz.ui.experiment_pen import PALE, SYMBOLS, Pen, fill, frame, mark, short, trace
from spec_viz.ui.wording import Words

Json = dict[str, Any]
# What a file may ask the page to draw.
MOST_FORMS, MOST_DRAFTERS, MOST_NAMES = 16, 4, 8
MEGABYTE = 1e6
# Letters that a name beside a bar may have on a phone.
NARROW = 18

Value = Callable[[Sample], float | None]
Bars = Mapping[str, tuple[str, Value]]


def shown(result: Result, beside: Result | None, t: Words, theme: Theme) -> Json:
    """Everything the room draws of a result, and of one beside it, pale."""
    pen = Pen(t, PALETTES[theme])
    differ = [pen.condition(name) for name in comparable(result, beside)[:MOST_NAMES]] if beside else []
    drawn = _charts(result, beside if beside and beside.samples else None, pen) if result.samples else []
    if differ:
        for chart in drawn:
            mark(chart.figure, t("experiments.differ.mark", names=", ".join(differ)), pen)
    done, of = len(result.samples), size(result.plan)
    return {
        "verdict": _said(result, pen),
        "charts": [asdict(chart) for chart in drawn],
        "table": _table(result, pen) if result.samples else None,
        "conditions": _conditions(result, pen),
        "differ": differ,
        "partial": {"done": done, "of": of} if result.finish == "stopped" and done < of else None,
    }


def name_of(variant: Variant, pen: Pen) -> str:
    """What a form of the target is called."""
    parts: list[str] = [] if variant.weights == "full" and variant.bits else [variant.weights]
    parts += [f"kv{variant.bits}{'r' * variant.rotated}"] if variant.bits else []
    return " + ".join(pen.t(f"experiments.variant.{part}") for part in parts)


# ---------------------------------------------------------------- figures


def _charts(result: Result, beside: Result | None, pen: Pen) -> list[Chart]:
    t = pen.t
    drafters = list(dict.fromkeys(run.drafter for sample in result.samples for run in sample.runs))[:MOST_DRAFTERS]
    law: Bars = {
        t("experiments.quantisation.own"): (pen.paint.ok, _kept),
        t("experiments.quantisation.exact"): (pen.paint.own, _exact),
        t("experiments.quantisation.same"): (pen.paint.no, lambda sample: sample.agreed / sample.places),
    }
    alphas: Bars = {pen.drafter(each): (pen.colour(at), _alpha(each)) for at, each in enumerate(drafters)}
    speeds: Bars = {
        pen.plain: (pen.paint.muted, _plain_speed),
        **{pen.drafter(each): (pen.colour(at), _speed(each)) for at, each in enumerate(drafters)},
    }
    found = [
        _bars("quant_law", "", law, result, beside, pen, percent=True),
        _bars("quant_alpha", "α", alphas, result, beside, pen),
        _bars("quant_speed", t("experiments.quantisation.speed"), speeds, result, beside, pen),
        _memory(result, pen),
    ]
    line = {"color": pen.paint.no, "width": 1.5, "dash": "dot"}
    level = {"type": "line", "layer": "below", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}
    found[2].figure["layout"]["shapes"] = [level]
    lost = result.samples[0].lost
    return [*found, _error(result, beside, pen)] if lost else found


def _kept(sample: Sample) -> float | None:
    """The share of speculative texts that are the plain text of the same form."""
    return sum(run.left is None for run in sample.runs) / len(sample.runs) if sample.runs else None


def _exact(sample: Sample) -> float | None:
    """The same share with those texts counted that are kept in float64; None where that was not tried."""
    if not any(run.left and run.left.exact is not None for run in sample.runs):
        return None
    return sum(run.left is None or run.left.exact is True for run in sample.runs) / len(sample.runs)


def _alpha(drafter: str) -> Value:
    def value(sample: Sample) -> float | None:
        found = rates(sample, drafter)
        return found.alpha if found else None

    return value


def _speed(drafter: str) -> Value:
    """How fast a drafter writes, ÷ plain decoding of the full target: its speedup ÷ how much longer a pass takes."""

    def value(sample: Sample) -> float | None:
        found = rates(sample, drafter)
        return found.speedup / sample.slower if found else None

    return value


def _plain_speed(sample: Sample) -> float:
    return 1 / sample.slower


def _bars(
    key: str,
    axis: str,
    bars: Bars,
    result: Result,
    beside: Result | None,
    pen: Pen,
    percent: bool = False,
) -> Chart:
    """A group of bars a form of the target, one bar a name."""
    data: list[Figure] = []
    listed: list[str] = []

    def told(value: float) -> str:
        return f"{pen.number(100 * value, 0)}\u00a0%" if percent else pen.number(value)

    for each, pale in ((result, False), (beside, True)):
        samples = each.samples[:MOST_FORMS] if each else ()
        for place, (name, (colour, value)) in enumerate(bars.items()):
            known = [
                (name_of(sample.variant, pen), found) for sample in samples if (found := value(sample)) is not None
            ]
            if not known:
                continue
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": pen.t("experiments.beside.name", name=name) if pale else name,
                    "y": [_folded(form) for form, _ in known],
                    "x": [short(found) for _, found in known],
                    "marker": fill(colour, place, pen),
                    "opacity": PALE if pale else 1,
                    "text": [told(found) for _, found in known],
                    # Beside the bar: numbers upon stripes are not read.
                    "textposition": "outside",
                    "cliponaxis": False,
                    "hovertemplate": "%{y}: %{text}",
                }
            )
            if not pale:
                listed.append(f"{name}, " + ", ".join(f"{form}: {told(found)}" for form, found in known))
    layout = _lying(pen, axis, len(result.samples), len(data))
    layout["margin"] = {**layout["margin"], "r": 44}
    if percent:
        layout["xaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    return Chart(key, {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed="; ".join(listed)))


def _memory(result: Result, pen: Pen) -> Chart:
    """Megabytes of weights and of a cache of the longest text the model reads, one upon the other."""
    samples = result.samples[:MOST_FORMS]
    tokens = _tokens(result)
    names = [name_of(sample.variant, pen) for sample in samples]
    parts = {
        pen.t("experiments.quantisation.embedding"): (pen.paint.off, [_embedding(sample) for sample in samples]),
        pen.t("experiments.quantisation.weights"): (
            pen.paint.accent,
            [sample.weight_bytes - _embedding(sample) for sample in samples],
        ),
        pen.t("experiments.quantisation.cache", tokens=tokens): (
            pen.paint.own,
            [sample.kv_bytes * tokens for sample in samples],
        ),
    }
    data: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [_folded(form) for form in names],
            "x": [round(each / MEGABYTE, 1) for each in held],
            "marker": {"color": colour},
            "text": [pen.number(each / MEGABYTE, 0) for each in held],
            "textposition": "inside",
            "textangle": 0,
            "insidetextanchor": "middle",
            "hovertemplate": "%{y}: %{text} MB",
        }
        for name, (colour, held) in parts.items()
    ]
    layout = _lying(pen, "MB", len(samples), 1)
    layout["barmode"] = "stack"
    # The table has what does not fit into its piece of a bar.
    layout["uniformtext"] = {"minsize": 10, "mode": "hide"}
    listed = "; ".join(
        f"{form}: " + ", ".join(f"{name} {pen.number(held[at] / MEGABYTE, 0)} MB" for name, (_, held) in parts.items())
        for at, form in enumerate(names)
    )
    return Chart("quant_memory", {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed=listed))


def _embedding(sample: Sample) -> int:
    """Bytes of the table of embeddings; a full target's table is its output head too."""
    return min(sample.embedding_bytes, sample.weight_bytes)


def _tokens(result: Result) -> int:
    """As many tokens as the model reads at most."""
    told = result.conditions.get("context_limit")
    return told if type(told) is int and 0 < told < 10**8 else 1


def _error(result: Result, beside: Result | None, pen: Pen) -> Chart:
    """The relative error of keys, values and of vectors with a loud channel, by bits, turned before or not."""
    data: list[Figure] = []
    listed: list[str] = []
    kinds: Sequence[tuple[What, str]] = (
        ("keys", pen.paint.accent),
        ("values", pen.paint.own),
        ("loud", pen.paint.no),
    )
    for each, pale in ((result, False), (beside, True)):
        lost = each.samples[0].lost if each and each.samples else ()
        for place, (what, colour) in enumerate(kinds):
            for rotated in (False, True):
                found = {one.bits: one.error for one in lost if one.what == what and one.rotated == rotated}
                if not found:
                    continue
                name = pen.t(f"experiments.quantisation.lost.{what}")
                name = pen.t("experiments.quantisation.rotated", name=name) if rotated else name
                symbol = SYMBOLS[place] + ("-open" if rotated else "")
                data.append(
                    trace(
                        sorted(found),
                        [max(found[bits], 1e-6) for bits in sorted(found)],
                        pen.t("experiments.beside.name", name=name) if pale else name,
                        mode="lines+markers",
                        line={"color": colour, "width": 1.25 if pale else 2.25, "dash": "dash" if rotated else "solid"},
                        marker={"color": colour, "size": 9, "symbol": symbol},
                        opacity=PALE if pale else 1,
                        hovertemplate="%{x} bit: %{y:.2%}",
                    )
                )
                if not pale:
                    told = ", ".join(f"{bits} bit: {_percent(found[bits], pen)}" for bits in sorted(found))
                    listed.append(f"{name}, {told}")
    layout = frame(pen, pen.t("experiments.quantisation.bits"), pen.t("experiments.quantisation.error"))
    layout["height"] = 420
    layout["xaxis"]["tickvals"] = [2, 3, 4, 8]
    layout["yaxis"] |= {"type": "log", "tickvals": [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]}
    layout["yaxis"]["ticktext"] = [_percent(each, pen) for each in layout["yaxis"]["tickvals"]]
    return Chart(
        "quant_error", {"data": data, "layout": layout}, pen.t("chart.sweep.summary", listed="; ".join(listed))
    )


def _percent(share: float, pen: Pen) -> str:
    return f"{pen.number(100 * share, 0 if share >= 0.01 else 1)}\u00a0%"


def _lying(pen: Pen, axis: str, groups: int, bars: int) -> Figure:
    """A frame for bars that lie, so that the names beside them are read; high enough for all of them."""
    layout = frame(pen, axis, "")
    layout["height"] = 110 + min(groups, MOST_FORMS) * max(22 * bars, 34)
    layout["yaxis"] |= {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
    layout["yaxis"]["tickfont"] = {"color": pen.paint.ink, "size": 12}
    layout["xaxis"] |= {"rangemode": "tozero", "showgrid": True}
    return layout


def _folded(name: str) -> str:
    """A name in lines short enough to stand beside a bar."""
    lines = [""]
    for word in name.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= NARROW:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


# ---------------------------------------------------------------- words


def _said(result: Result, pen: Pen) -> str:
    """What was kept, what was not, and what that did to a drafter."""
    others = [sample for sample in result.samples if sample.variant != FULL]
    if not others:
        return pen.t("experiments.verdict.none")
    runs = [run for sample in result.samples for run in sample.runs]
    left = [run.left for run in runs if run.left]
    furthest = min(others, key=lambda sample: (sample.agreed / sample.places, -sample.kl[0]))
    form = name_of(furthest.variant, pen)
    told = pen.t(
        "experiments.verdict.quantisation",
        kept=len(runs) - len(left),
        texts=len(runs),
        form=form,
        other=pen.number(100 * (1 - furthest.agreed / furthest.places), 0),
        kl=pen.number(furthest.kl[0], 3),
    )
    tried = [each.exact for each in left if each.exact is not None]
    if tried:
        args = {"left": len(left), "exact": sum(tried), "tried": len(tried), "dtype": result.conditions.get("dtype")}
        told += " " + pen.t("experiments.verdict.quantisation.left", **args)
    return f"{told} {_moved(result, furthest, form, pen)}".strip()


def _moved(result: Result, furthest: Sample, form: str, pen: Pen) -> str:
    """The drafter whose α moved most between the full target and the form that lies furthest from it."""
    full = next((sample for sample in result.samples if sample.variant == FULL), None)
    moved: list[tuple[float, str, Rates, Rates]] = []
    for drafter in dict.fromkeys(run.drafter for run in furthest.runs):
        before, now = rates(full, drafter) if full else None, rates(furthest, drafter)
        if before and now and before.alpha is not None and now.alpha is not None:
            moved.append((abs(now.alpha - before.alpha), drafter, before, now))
    if not moved:
        return ""
    _, drafter, before, now = max(moved, key=lambda each: each[0])
    return pen.t(
        "experiments.verdict.quantisation.moved",
        drafter=pen.drafter(drafter),
        form=form,
        before=pen.number(before.alpha or 0),
        now=pen.number(now.alpha or 0),
        speedup_before=pen.number(before.speedup),
        speedup=pen.number(now.speedup),
    )


def _table(result: Result, pen: Pen) -> Json:
    """A row a form and drafter; times are p50 / p95 / p99."""
    t = pen.t
    gamma = result.plan.gamma
    columns = [t(f"experiments.quantisation.column.{name}") for name in ("form", "weights", "kv")]
    columns += [t("experiments.quantisation.column.pass", tokens=tokens) for tokens in (1, gamma + 1)]
    columns += [t(f"experiments.quantisation.column.{name}") for name in ("slower", "kl", "same", "drafter")]
    columns += ["α", "τ", t("chart.axis.speedup"), t("experiments.quantisation.column.own")]
    rows = []
    for sample in result.samples[:MOST_FORMS]:
        front = [
            name_of(sample.variant, pen),
            pen.number(sample.weight_bytes / MEGABYTE, 0),
            str(sample.kv_bytes),
            *(" / ".join(pen.number(ms, 0) for ms in times) for times in (sample.one, sample.many)),
            pen.number(sample.slower),
            f"{pen.number(sample.kl[0], 4)} ({pen.number(sample.kl[1], 4)})",
            f"{sample.agreed}/{sample.places}",
        ]
        drafters = list(dict.fromkeys(run.drafter for run in sample.runs))
        rows += [[*front, *_cells(sample, drafter, pen)] for drafter in drafters] or [[*front, *["–"] * 5]]
    return {"columns": columns, "rows": rows}


def _cells(sample: Sample, drafter: str, pen: Pen) -> list[str]:
    found = rates(sample, drafter)
    if found is None:
        return [pen.drafter(drafter), *["–"] * 4]
    alpha = "–" if found.alpha is None else pen.number(found.alpha)
    kept = f"{found.kept}/{found.texts}"
    return [pen.drafter(drafter), alpha, pen.number(found.tau), pen.number(found.speedup), kept]


def _conditions(result: Result, pen: Pen) -> str:
    """Where and how it was measured, in one line; what a file does not say is named as unknown."""
    told = result.conditions
    versions = told.get("versions")
    known = {**told, **(versions if isinstance(versions, Mapping) else {})}
    unknown = pen.t("shell.unknown")
    names = ("target", "device_name", "threads", "dtype", "created", "python", "torch", "transformers")
    plan = result.plan
    return pen.t(
        "experiments.quantisation.conditions",
        **{name: str(known.get(name, unknown))[:80] for name in names},
        prompts=len(plan.questions),
        tokens=plan.max_new_tokens,
        passes=plan.passes,
        gamma=plan.gamma,
    )
