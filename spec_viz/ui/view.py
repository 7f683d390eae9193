"""All that stands around the tiles of a finished run: numbers, memory, verdict and charts, as JSON for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import Prediction, Ratio, Summary, find_baseline, summarise, what_if
from spec_viz.ui.charts import MAX_GAMMA, Theme, charts
from spec_viz.ui.lanes import EVEN, lanes
from spec_viz.ui.numerals import decimal
from spec_viz.ui.wording import Words

Json = dict[str, Any]

# The largest whole number that the page's script can hold.
MOST = 2**53 - 1


def view(traces: Sequence[Trace], t: Words, theme: Theme) -> Json:
    """Numbers, charts, memory and verdict of a bundle's first speculative run, against its plain run where it has one.

    `lanes` compares all its runs where several drafters ran.
    """
    trace = next((trace for trace in traces if trace.meta.get("drafter") != "none"), traces[0])
    summary = summarise(trace, find_baseline(trace, traces))
    badge = "recorded" if trace.origin == "recorded" else "measured"
    said = [{"key": c.key, "figure": c.figure, "summary": c.summary} for c in charts(trace, summary, t, theme)]
    return {
        "numbers": _Numbers(summary, badge, t.language).rows(),
        "charts": said,
        "memory": _memory(trace, badge, t),
        "verdict": _verdict(trace, summary, t),
        "lanes": lanes(traces),
    }


@dataclass(frozen=True, slots=True)
class _Numbers:
    summary: Summary
    badge: str
    language: str

    def rows(self) -> list[Json]:
        summary, own = self.summary, _own_gamma(self.summary)
        best = max(_predictions(summary), key=lambda p: p.speedup or 0.0, default=None)
        rows = [
            self._counts("alpha", summary.alpha),
            self._counts("efficiency", summary.efficiency),
            self._counts("tau", summary.tau),
            self._counts("coverage", summary.coverage),
            self._row("c", summary.c, (_digits(summary.c.numerator, 1), 1), "ms", digits=_digits(summary.c.value, 3))
            if summary.c
            else self._row("c", None, 1, "ms", digits=3),
            self._row("v", summary.v, 1, "ms", before=f"n = {summary.v_tokens}: "),
            self._row("tokens_per_second", summary.tokens_per_second, (0, 2), "s", digits=1),
            self._row("speedup", summary.speedup, 1, "token/s"),
            self._spread(),
            {**self._number("prefill_ms", summary.prefill_ms, 0), "fraction": None},
        ]
        if own and own.break_even is not None:
            rows.append({**self._number("break_even", own.break_even, 2, "computed"), "fraction": f"γ = {own.gamma}"})
        if best and best.speedup is not None:
            gain = decimal(best.speedup, 2, self.language)
            rows.append({**self._number("best_gamma", best.gamma, 0, "computed"), "fraction": f"{gain}×"})
        return rows

    def _counts(self, key: str, ratio: Ratio | None) -> Json:
        return self._row(key, ratio, 0)

    def _row(
        self,
        key: str,
        ratio: Ratio | None,
        shown: int | tuple[int, int],
        unit: str = "",
        *,
        digits: int = 2,
        before: str = "",
    ) -> Json:
        if ratio is None:
            return {**self._number(key, None, digits), "fraction": None}
        above, below = shown if isinstance(shown, tuple) else (shown, shown)
        text = f"{decimal(ratio.numerator, above, self.language)} / {decimal(ratio.denominator, below, self.language)}"
        return {**self._number(key, ratio.value, digits), "fraction": f"{before}{text} {unit}".rstrip()}

    def _spread(self) -> Json:
        spread = self.summary.ms.get("total")
        if spread is None:
            return {**self._number("round_ms", None, 0), "fraction": None}
        tails = f"p95 {decimal(spread.p95, 0, self.language)} · p99 {decimal(spread.p99, 0, self.language)} ms"
        return {**self._number("round_ms", spread.p50, 0), "fraction": tails}

    def _number(self, key: str, value: float | None, digits: int, badge: str | None = None) -> Json:
        return {"key": key, "value": value, "digits": digits, "badge": badge or self.badge}


# ---------------------------------------------------------------- memory


def _memory(trace: Trace, badge: str, t: Words) -> list[Json]:
    """Bytes of weights, and of each cache at its longest: entries × bytes an entry."""
    weights, per_entry = _told(trace, "weight_bytes"), _told(trace, "kv_bytes_per_token")
    rows: list[Json] = [
        {"key": f"{who}_weights", "bytes": weights.get(who), "fraction": None, "badge": badge}
        for who in ("target", "drafter")
    ]
    for who in ("target", "drafter"):
        lengths = [lengths for round_ in trace.rounds if (lengths := getattr(round_.kv, who))]
        entry = per_entry.get(who)
        longest = max((peak for _, peak, _ in lengths), default=0 if entry == 0 else None)
        wasted = max((peak - after for _, peak, after in lengths), default=None)
        rows.append(_cache_row(f"{who}_kv", longest, entry, t))
        if who == "target":
            rows.append(_cache_row("rolled_back", wasted, entry, t))
            # A cache that graphs were captured over is as large from the start.
            if room := _told(trace, "kv_room").get(who):
                rows.append(_cache_row("room", room, entry, t))
    return rows


def _told(trace: Trace, name: str) -> dict[str, int]:
    """What the header says of target and drafter in bytes; a foreign file may say anything, so only counts count."""
    told = trace.meta.get(name)
    return {who: size for who, size in told.items() if _is_count(size)} if isinstance(told, dict) else {}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _cache_row(key: str, entries: int | None, size: int | None, t: Words) -> Json:
    if entries is None or size is None or not _is_count(entries * size):
        return {"key": key, "bytes": None, "fraction": None, "badge": "computed"}
    said = t("memory.entries", entries=entries, bytes=size) if entries else None
    return {"key": key, "bytes": entries * size, "fraction": said, "badge": "computed"}


# ---------------------------------------------------------------- verdict


def _verdict(trace: Trace, summary: Summary, t: Words) -> Json:
    """One sentence (faster, slower, about even, nothing to compare with) and its reasons, each a key with its words."""
    speedup = summary.speedup.value if summary.speedup else None
    if trace.meta.get("drafter") == "none":
        return _sentence(t, "verdict.plain") | {"why": []}
    if speedup is None:
        return _sentence(t, "verdict.no_baseline") | {"why": _why(summary, t)}
    key = "even" if abs(speedup - 1) < EVEN else "faster" if speedup > 1 else "slower"
    times = decimal(speedup if key != "slower" else 1 / speedup, 2, t.language)
    return _sentence(t, f"verdict.{key}", times=times) | {"why": _why(summary, t)}


def _why(summary: Summary, t: Words) -> list[Json]:
    def say(value: float, digits: int = 2) -> str:
        return decimal(value, digits, t.language)

    why: list[Json] = []
    if summary.alpha and summary.alpha.value is not None:
        why.append(
            _sentence(
                t,
                "verdict.why.alpha",
                alpha=say(summary.alpha.value),
                accepted=summary.accepted,
                judged=summary.judged,
            )
        )
    if summary.drafting_rounds < summary.rounds:
        why.append(_sentence(t, "verdict.why.coverage", drafting=summary.drafting_rounds, rounds=summary.rounds))
    if summary.tau.value is not None:
        why.append(_sentence(t, "verdict.why.tau", tau=say(summary.tau.value)))
    if summary.costs is None:
        return why
    total, step = summary.ms["total"].mean, summary.costs.step
    why.append(
        _sentence(
            t,
            "verdict.why.round",
            ratio=say(total / summary.costs.plain),
            round=say(total, 1),
            plain=say(summary.costs.plain, 1),
        )
    )
    if summary.c and summary.v:
        c = summary.c.numerator / step
        why.append(_sentence(t, "verdict.why.c", c=say(c, _digits(c, 3))))
        why.append(_sentence(t, "verdict.why.v", n=summary.v_tokens, v=say(summary.v.numerator / step)))
    why.append(_sentence(t, "verdict.why.overhead", overhead=say(summary.costs.other / step, 3)))
    own = _own_gamma(summary)
    if own and own.break_even is not None:
        why.append(_sentence(t, "verdict.why.break_even", gamma=own.gamma, alpha=say(own.break_even)))
    elif own:
        why.append(_sentence(t, "verdict.why.never", gamma=own.gamma))
    return why


def _digits(value: float | None, least: int) -> int:
    """How many digits to write so that a small cost does not read as none at all; two more at most."""
    return next((n for n in (least, least + 1) if value is None or round(value, n)), least + 2)


def _sentence(t: Words, key: str, **args: object) -> Json:
    return {"key": key, "args": args, "text": t(key, **args)}


def _predictions(summary: Summary) -> tuple[Prediction, ...]:
    return what_if(summary, range(1, MAX_GAMMA + 1)) if summary.costs else ()


def _own_gamma(summary: Summary) -> Prediction | None:
    return next(iter(what_if(summary, [summary.gamma])), None) if summary.costs else None
