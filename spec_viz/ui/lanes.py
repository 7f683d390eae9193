"""Several drafters on one prompt, side by side: what each lane says of its speed and its text, as JSON for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_viz.engine.rules import RULES, Rule
from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import Ratio, Summary, find_baseline, summarise

Json = dict[str, Any]

# Two runs of the same thing differ by about this much: closer than that is called equal.
EVEN = 0.05
# What must be the same before two texts, or two times, say anything about each other.
ALIKE = (
    "target",
    "device",
    "device_name",
    "dtype",
    "threads",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
)


def lanes(traces: Sequence[Trace]) -> Json | None:
    """One row a trace, fastest first, and what speeds are measured against; None unless two drafters are compared.

    Speeds stand against the plain run of the bundle, or against the slowest lane where there is none (`against`).
    """
    if sum(trace.meta.get("drafter") != "none" for trace in traces) < 2:
        return None
    plain = next((trace for trace in traces if trace.meta.get("drafter") == "none"), None)
    summaries = [summarise(trace, find_baseline(trace, [plain] if plain else [])) for trace in traces]
    speeds = [summary.tokens_per_second.value if summary.tokens_per_second else None for summary in summaries]
    timed = [speed for speed in speeds if speed]
    fair = plain is not None and bool(speeds[traces.index(plain)])
    fair = fair and all(trace is plain or find_baseline(trace, traces) is plain for trace in traces)
    alike = all(_conditions(trace) == _conditions(traces[0]) for trace in traces)
    unit = speeds[traces.index(plain)] if fair and plain else min(timed, default=None)
    rows: list[Json] = [
        {
            "trace": place,
            "lossless": rule.lossless if (rule := _rule(trace)) else None,
            "numbers": [
                _number("alpha", summary.alpha),
                _number("tau", summary.tau),
                _number("coverage", summary.coverage),
            ],
            "speed": speed,
            "speedup": speed / unit if speed and unit else None,
            "why": why(trace, summary),
            "text": compare_texts(trace, plain or traces[0]) if alike else None,
        }
        for place, (trace, summary, speed) in enumerate(zip(traces, summaries, speeds, strict=True))
    ]
    rows.sort(key=lambda row: -(row["speed"] or 0.0))
    return {"rows": rows, "against": "baseline" if fair else "slowest" if timed else None, "alike": alike}


def _conditions(trace: Trace) -> tuple[Any, ...]:
    return trace.prompt, *(trace.meta.get(name) for name in ALIKE)


def _rule(trace: Trace) -> Rule | None:
    """The rule of a run; None where a foreign file names none that is known here."""
    name = trace.meta.get("rule")
    return RULES.get(name) if isinstance(name, str) else None


def _number(key: str, ratio: Ratio | None) -> Json:
    if ratio is None or ratio.value is None:
        return {"key": key, "value": None, "fraction": None}
    return {"key": key, "value": ratio.value, "fraction": f"{ratio.numerator:.0f} / {ratio.denominator:.0f}"}


# ---------------------------------------------------------------- why so fast, or so slow


def why(trace: Trace, summary: Summary) -> Json:
    """One sentence, {key, args}, that makes a lane's speed out of its own numbers.

    A lane slower than plain decoding says what eats it: of refusals, drafting, the longer pass and the rest the one
    without which it would have been fastest. Without refusals means that every round keeps its deepest draft.
    """
    if "total" not in summary.ms:
        return _say("untimed")
    mean = summary.ms["total"].mean
    if trace.meta.get("drafter") == "none":
        return _say("plain", ms=round(mean, 1))
    said = {"drafting": summary.drafting_rounds, "rounds": summary.rounds, "tau": summary.tau.value or 0.0}
    if summary.costs is None or summary.speedup is None or summary.speedup.value is None:
        return _say("alone", ms=round(mean, 1), **said)
    speedup, plain = summary.speedup.value, summary.costs.plain
    said |= {"cost": mean / plain, "times": speedup}
    if not summary.drafting_rounds:
        return _say("silent", **said)
    if speedup >= 1 - EVEN:
        return _say("faster" if speedup > 1 + EVEN else "even", **said)
    eaten = {
        "drafts": summary.ms["propose"].mean,
        "pass": summary.ms["verify"].mean - summary.costs.step,
        "rest": summary.costs.other,
    }
    without = {eater: speedup * mean / (mean - spent) for eater, spent in eaten.items() if spent < mean}
    deepest = sum(max((node.depth for node in round_.nodes), default=0) for round_ in trace.decoding)
    without["refused"] = speedup * (summary.rounds + deepest) / max(summary.emitted, 1)
    eater = max(without, key=without.__getitem__)
    if eater == "refused":
        return _say(eater, kept=summary.accepted, drafted=summary.drafted, without=without[eater], **said)
    return _say(eater, part=eaten[eater] / plain, without=without[eater], **said)


def _say(key: str, **args: float) -> Json:
    return {"key": f"compare.why.{key}", "args": args}


# ---------------------------------------------------------------- the same text, or why not


def compare_texts(trace: Trace, other: Trace) -> Json | None:
    """One sentence, {key, args}: whether this lane wrote the other's text, and if not, why that can be."""
    if trace is other:
        return None
    mine, theirs = (_ids(each) for each in (trace, other))
    rule = _rule(trace)
    lossless = rule is None or rule.lossless
    same = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    than = {"key": f"compare.than.{'baseline' if other.meta.get('drafter') == 'none' else 'first'}", "args": {}}
    if mine == theirs:
        return {"key": f"compare.text.{'same' if lossless else 'same_lossy'}", "args": {"than": than}}
    if same == min(len(mine), len(theirs)):
        return {"key": "compare.text.ended", "args": {"than": than, "at": same}}
    greedy = trace.meta.get("temperature") == 0
    if not lossless:
        key = "lossy_greedy" if greedy else "lossy"
    else:
        key = "greedy" if greedy else "match" if rule and rule.name == "match" else "law"
    return {"key": f"compare.text.{key}", "args": {"than": than, "at": same + 1}}


def _ids(trace: Trace) -> list[int]:
    return [token for round_ in trace.rounds for token in round_.committed]
