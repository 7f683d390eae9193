"""The Lab's two questions to the server: where a finished run stands on the formula, and more runs of the law test."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from spec_viz.engine.trace import Trace, TraceError
from spec_viz.lab import theory
from spec_viz.lab.metrics import Summary, find_baseline, summarise, what_if
from spec_viz.ui.lanes import EVEN
from spec_viz.ui.room import bundle_of
from spec_viz.ui.view import view
from spec_viz.ui.wording import words

Json = dict[str, Any]

SHOWN = ("alpha", "tau", "coverage", "c", "v", "speedup")
# Closer than this, two speedups are called equal.
SAME = 0.02
# As many as the page's sliders have (assets/js/lab/settings.js).
GAMMAS = range(1, 16)


# ---------------------------------------------------------------- you are here


def place(asked: Any) -> Json:
    """Where a bundle's speculative run stands on the formula, asked as [ndjson, language].

    {"numbers": rows as `view` has them, "knobs": the formula's letters, "rates": a_i as [accepted, judged],
    "steps": from the theorem to what was measured, "why": sentences, "curve": predictions for other γ}, or
    {"none": a sentence} for a run that the formula says nothing of.
    """
    ndjson, language = asked if isinstance(asked, list) and len(asked) == 2 else ("", "en")
    try:
        traces = bundle_of(ndjson if isinstance(ndjson, str) else "")
    except TraceError:
        return _none("unreadable")
    trace = next((trace for trace in traces if trace.meta.get("drafter") != "none"), traces[0])
    summary = summarise(trace, find_baseline(trace, traces))
    if trace.meta.get("drafter") == "none":
        return _none("plain")
    if summary.is_tree:
        return _none("tree")
    if summary.costs is None or summary.speedup is None or not summary.speedup.value:
        return _none("alone")
    if not summary.judged:
        return _none("silent")
    shown = {row["key"]: row for row in view(traces, words(language), "light")["numbers"]}
    badge = "recorded" if trace.origin == "recorded" else "measured"
    knobs = _knobs(summary)
    overhead = {"key": "overhead", "value": knobs["overhead"], "digits": 3, "fraction": None, "badge": badge}
    steps = _steps(summary)
    return {
        "run": {key: trace.meta.get(key) for key in ("drafter", "device_name", "device", "dtype", "created")},
        "origin": badge,
        "numbers": [*(shown[key] for key in SHOWN), overhead],
        "knobs": knobs,
        "rates": [[place.accepted, place.judged] for place in summary.positions if place.judged],
        "steps": [{"key": key, "speedup": speedup} for key, speedup in steps.items()],
        "why": _why(trace, summary, steps),
        "curve": [
            {"gamma": each.gamma, "formula": each.speedup_by_formula, "positions": each.speedup}
            for each in what_if(summary, GAMMAS)
        ],
    }


def _none(key: str) -> Json:
    return {"none": {"key": f"lab.here.none.{key}", "args": {}}}


def _knobs(summary: Summary) -> Json:
    """The letters of S = E / (γ·c + v(γ+1) + overhead) in rounds of the baseline, with v(n) = 1 + slope·(n − 1).

    A plain round judges and rolls back too; `overhead` is what a round with drafts takes beyond that, and is negative
    where the clocks say so.
    """
    costs = summary.costs
    if costs is None or summary.alpha is None:
        raise ValueError("a run without a baseline has no costs")
    return {
        "alpha": summary.alpha.value,
        "gamma": summary.gamma,
        "c": costs.draft / costs.plain,
        "slope": costs.growth / costs.plain,
        "overhead": (costs.step + costs.other - costs.plain) / costs.plain,
    }


def _steps(summary: Summary) -> dict[str, float]:
    """From the theorem to what was measured: each step adds one thing that the one before leaves out."""
    costs, alpha, gamma = summary.costs, summary.alpha, summary.gamma
    if costs is None or alpha is None or alpha.value is None or summary.speedup is None:
        raise ValueError("a run without a baseline has no steps")
    terms = costs.terms(gamma)
    tokens = theory.expected_tokens_by_position([place.conditional.value or 0.0 for place in summary.positions])
    (own,) = what_if(summary, [gamma])
    return {
        "theorem": theory.speedup(alpha.value, gamma, terms[0]),
        "costs": theory.speedup(alpha.value, gamma, *terms),
        "positions": tokens / theory.round_cost(gamma, *terms),
        "coverage": own.speedup or 0.0,
        "measured": summary.speedup.value or 0.0,
    }


def _why(trace: Trace, summary: Summary, steps: dict[str, float]) -> list[Json]:
    """The paragraph: a headline with the step that changes most, then what each step adds."""
    gaps = {
        after: math.log(steps[after] / steps[before])
        for before, after in zip(list(steps)[:-1], list(steps)[1:], strict=True)
    }
    largest = max(gaps, key=lambda step: abs(gaps[step]))
    (_, v, overhead) = summary.costs.terms(summary.gamma) if summary.costs else (0.0, 1.0, 0.0)
    rates = [place.conditional.value for place in summary.positions if place.judged]
    facts: dict[str, Json] = {
        "costs": {"n": summary.gamma + 1, "cost": v + overhead},
        "positions": {"first": rates[0], "last": rates[-1], "depth": len(rates)},
        "coverage": {"drafting": summary.drafting_rounds, "rounds": summary.rounds, "gamma": summary.gamma},
        "measured": {"drafter": trace.meta.get("drafter")},
    }
    said = [
        _said(
            "headline" if abs(gaps[largest]) >= EVEN else "agrees",
            measured=steps["measured"],
            theorem=steps["theorem"],
            largest={"key": f"lab.step.{largest}.because", "args": {}},
        )
    ]
    for step, gap in gaps.items():
        how = "same" if abs(gap) < SAME else "less" if gap < 0 else "more"
        said.append(_said(f"{step}.{how}", **facts[step], speedup=steps[step]))
    best = max(what_if(summary, GAMMAS), key=lambda each: each.speedup or 0.0)
    return [*said, _said("best", gamma=best.gamma, speedup=best.speedup)]


def _said(key: str, **args: Any) -> Json:
    return {"key": f"lab.here.{key}", "args": args}


# ---------------------------------------------------------------- the law, watched


def law(asked: Any) -> Json:
    """More runs of the law test, asked as {"drafter", "rule", "temperature", "runs", "seed", "before": counts so far}.

    Asked without a drafter: {"methods": rules by drafter, "temperatures"}.
    """
    from spec_viz.lab.law_watch import MOST_COUNTED, MOST_RUNS, TEMPERATURES, methods, watch

    given = asked if isinstance(asked, dict) else {}
    drafter, rule, temperature = (given.get(name) for name in ("drafter", "rule", "temperature"))
    if drafter is None:
        return {"methods": methods(), "temperatures": TEMPERATURES}
    runs, seed, before = given.get("runs"), given.get("seed"), given.get("before") or []
    fits = isinstance(drafter, str) and isinstance(rule, str)
    fits = fits and isinstance(temperature, int | float) and not isinstance(temperature, bool)
    fits = fits and is_whole(runs, 1, MOST_RUNS) and is_whole(seed, 0, 2**53) and _are_counts(before, MOST_COUNTED)
    try:
        if not fits:
            raise ValueError("no such test")
        return asdict(watch(str(drafter), str(rule), float(temperature or 0), int(runs or 0), int(seed or 0), before))
    except ValueError:
        return {"error": {"key": "lab.law.failed", "args": {}}}


def _are_counts(rows: Any, most: int) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, list) and all(is_whole(count, 0, most) for count in row) for row in rows
    )


def is_whole(value: Any, low: int, high: int) -> bool:
    """Whether a page really sent a whole number between two others."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
