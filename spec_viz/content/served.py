"""Saved runs of a real server as lessons use them: names for expressions, and what figures show of them.

Nothing here is stored: every number is worked out of what the server sent (`spec_viz.serving.saved`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from spec_viz.content.claims import names
from spec_viz.content.figures import Command, Reported, Runs, Served
from spec_viz.engine.trace import Trace, dumps
from spec_viz.lab.metrics import Ratio
from spec_viz.serving import METHODS
from spec_viz.serving.counters import NOTHING, Counts
from spec_viz.serving.reader import Reading, tau
from spec_viz.serving.saved import Asked, Pass, Saved, SavedError, load, path_of, readings

Json = dict[str, Any]
# A line of a figure: pieces, each its text and the key that the words may explain there.
Line = list[dict[str, str | None]]
# The figures that are drawn from saved runs.
Server = Command | Reported | Served | Runs

CONFIG = "--speculative-config"
PLAIN = "baseline"
_COUNTER = re.compile(r"(vllm:[a-z_]+)(.*)")


@dataclass(frozen=True)
class View:
    """One pass of a saved run; every answer with its reading."""

    saved: Saved
    each: Pass

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(readings(self.saved, self.each.asked))

    @cached_property
    def counts(self) -> Counts:
        """What the answers' own accounts add up to."""
        return sum((each.told.counts for each in self.readings if each.told is not None), NOTHING)

    @cached_property
    def tau(self) -> Ratio | None:
        """Tokens after the prefills ÷ rounds, silent ones included."""
        return tau(self.readings, self.each.window)

    @cached_property
    def names(self) -> Json:
        """What an expression may speak of."""
        latency = self.each.latency
        return {
            "seconds": self.each.seconds,
            "count": len(self.each.asked),
            "ttft": latency.first,
            "tpot": latency.token,
            "throughput": latency.throughput,
            "tau": self.tau,
            "told": self.counts,
            "window": self.each.window,
            "log": self.each.log,
            "same": self._same(),
            "answers": [self._answer(*pair) for pair in zip(self.each.asked, self.readings, strict=True)],
        }

    def _same(self) -> int | None:
        """How many answers are, token for token, those of the plain server; None where that was not saved."""
        try:
            plain = run_of(PLAIN).at(self.each.concurrency)
        except KeyError:
            return None
        theirs = {asked.prompt: asked.answer.ids for asked in plain.asked}
        return sum(asked.answer.ids == theirs.get(asked.prompt, ()) for asked in self.each.asked)

    def _answer(self, asked: Asked, reading: Reading) -> Json:
        arrivals = [arrival.tokens for arrival in asked.answer.arrivals]
        spoken = {
            "task": asked.task,
            "prompt": asked.prompt,
            "ids": asked.answer.ids,
            "tokens": asked.answer.tokens,
            "arrivals": arrivals,
            "span_ms": 1000 * asked.answer.after_first[1],
            "metrics": asked.answer.metrics or {},
            "told": None if reading.told is None else reading.told.counts,
            "judged": _judged(reading),
            "unsettled": sum(stretch.last - stretch.first + 1 for stretch in reading.unsettled),
        }
        return {**spoken, **({} if reading.trace is None else names([reading.trace]))}


def _judged(reading: Reading) -> int | None:
    """Drafts that were judged: the kept ones, and the one refused in every round that kept fewer than it drafted."""
    steps = None if reading.told is None else reading.told.steps
    return None if steps is None else sum(step.accepted + (step.accepted < step.drafted) for step in steps)


class ServedRuns(Mapping[str, Json]):
    """Every saved run by its method; read when first spoken of."""

    def __getitem__(self, method: str) -> Json:
        saved = run_of(method)
        told = {name: getattr(saved, name) for name in ("target", "versions", "machine", "max_tokens", "speculative")}
        at = {each.concurrency: view_of(method, each.concurrency).names for each in saved.passes}
        return {**told, "gamma": (saved.speculative or {}).get("num_speculative_tokens", 0), "at": at}

    def __iter__(self) -> Iterator[str]:
        return iter(method for method in METHODS if path_of(method).is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def run_of(method: str) -> Saved:
    """A saved run; KeyError where there is none, SavedError where it cannot be read."""
    path = path_of(method)
    if not path.is_file():
        raise KeyError(f"no server run of {method} is saved")
    return _load(method, path.stat().st_mtime_ns)


def view_of(method: str, concurrency: int) -> View:
    """A pass of a saved run; KeyError where there is none, SavedError where it cannot be read."""
    saved = run_of(method)
    saved.at(concurrency)
    return _view(method, concurrency, path_of(method).stat().st_mtime_ns)


# `changed` is part of the keys: a run that was recorded anew is read anew.
@lru_cache(maxsize=8)
def _load(method: str, changed: int) -> Saved:  # noqa: ARG001
    return load(path_of(method))


@lru_cache(maxsize=16)
def _view(method: str, concurrency: int, changed: int) -> View:
    saved = _load(method, changed)
    return View(saved, saved.at(concurrency))


def trace_of(figure: Served) -> Trace | None:
    """The trace that a figure draws; None where the server told too little for one, or nothing of it is saved."""
    try:
        view = view_of(figure.run, figure.concurrency)
        return view.readings[figure.answer].trace if figure.answer < len(view.readings) else None
    except (KeyError, SavedError):
        return None


def names_of(figure: Server) -> Json:
    """The short names of a step about one answer; of other steps none."""
    if isinstance(figure, Served) or (isinstance(figure, Reported) and figure.show == "answer"):
        try:
            view = view_of(figure.run, figure.concurrency)
        except (KeyError, SavedError):
            return {}
        if figure.answer < len(view.readings):
            return view.names["answers"][figure.answer]  # type: ignore[no-any-return]
    return {}


# ---------------------------------------------------------------- what is wrong with a figure


def faults(figure: Server) -> Iterator[str]:
    """What of a figure the saved runs do not have."""
    for method in figure.runs if isinstance(figure, Runs) else (figure.run,):
        try:
            saved = run_of(method)
            if not isinstance(figure, Command):
                saved.at(figure.concurrency)
        except (KeyError, SavedError) as problem:
            yield f"shows what is not saved: {problem.args[0]}"
            return
    if isinstance(figure, Served):
        trace = trace_of(figure)
        if trace is None:
            yield f"names answer {figure.answer}, of which there is no trace"
        elif figure.rounds is not None and not figure.rounds[0] <= figure.rounds[1] < len(trace.rounds):
            yield f"shows rounds {figure.rounds[0]} to {figure.rounds[1]} of {len(trace.rounds)}"
    elif isinstance(figure, Reported) and figure.show == "answer" and not names_of(figure):
        yield f"names answer {figure.answer}, which the run does not have"


def keys_of(figure: Command | Reported) -> list[str]:
    """The keys that a figure's words may explain."""
    return list(dict.fromkeys(piece["key"] for line in lines(figure) for piece in line if piece["key"] is not None))


# ---------------------------------------------------------------- what the page is given


def figure_json(figure: Server) -> Json:
    """What the page needs beside the figure's own settings."""
    if isinstance(figure, Command):
        return {"show": "command", "lines": lines(figure), "conditions": _conditions(run_of(figure.run))}
    if isinstance(figure, Reported):
        return {"lines": lines(figure), "conditions": _conditions(run_of(figure.run))}
    if isinstance(figure, Runs):
        return {**_side_by_side(figure), "conditions": _conditions(run_of(figure.runs[0]))}
    trace = trace_of(figure)
    return {"ndjson": "" if trace is None else dumps(trace), "conditions": _conditions(run_of(figure.run))}


def _conditions(saved: Saved) -> Json:
    """Where and when the server ran, for the page to say."""
    told = {"target": saved.target, "vllm": saved.versions.get("vllm"), "created": saved.created[:10]}
    return {**told, **saved.machine}


def lines(figure: Command | Reported) -> list[Line]:
    """What was typed or printed, a line at a time."""
    saved = run_of(figure.run)
    if isinstance(figure, Command):
        return list(_command(saved))
    each = saved.at(figure.concurrency)
    if figure.show == "answer":
        metrics = each.asked[figure.answer].answer.metrics or {}
        return list(_json_lines({"metrics": metrics}))
    if figure.show == "log":
        return [_pieces(text, r"[A-Z][A-Za-z-]*(?: [A-Za-z]+)*(?=:)") for text in each.log[:1]]
    return list(_counters(each))


def _command(saved: Saved) -> Iterator[Line]:
    """The command as one types it: a flag a line, its config opened up."""
    words = list(saved.command)
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    yield [_piece(" ".join(map(shlex.quote, words[:first])) + (" \\" if first < len(words) else ""))]
    flags: list[list[str]] = []
    for word in words[first:]:
        if word.startswith("--"):
            flags.append([word])
        else:
            flags[-1].append(word)
    for place, (flag, *values) in enumerate(flags):
        more = " \\" if place + 1 < len(flags) else ""
        if flag == CONFIG:
            yield [_piece("  "), _piece(flag, flag), _piece(" '{")]
            config = list((saved.speculative or {}).items())
            for i, (key, value) in enumerate(config):
                comma = "," if i + 1 < len(config) else ""
                yield [_piece("    "), _piece(f'"{key}"', key), _piece(f": {json.dumps(value)}{comma}")]
            yield [_piece(f"  }}'{more}")]
        else:
            said = "".join(f" {shlex.quote(value)}" for value in values)
            yield [_piece("  "), _piece(flag, flag), _piece(f"{said}{more}")]


def _json_lines(body: Mapping[str, Any], depth: int = 0) -> Iterator[Line]:
    pad = "  " * depth
    if depth == 0:
        yield [_piece("{")]
    items = list(body.items())
    for i, (key, value) in enumerate(items):
        comma = "," if i + 1 < len(items) else ""
        if isinstance(value, Mapping):
            yield [_piece(f"{pad}  "), _piece(f'"{key}"', key), _piece(": {")]
            yield from _json_lines(value, depth + 1)
            yield [_piece(f"{pad}  }}{comma}")]
        else:
            said = json.dumps(round(value, 3) if isinstance(value, float) else value)
            yield [_piece(f"{pad}  "), _piece(f'"{key}"', key), _piece(f": {said}{comma}")]
    if depth == 0:
        yield [_piece("}")]


def _counters(each: Pass) -> Iterator[Line]:
    """The counters of speculation, before and after the pass, as differences of what `/metrics` says."""
    if each.before is None or each.after is None:
        return
    before, after = each.before.speculation, each.after.speculation
    if before is None or after is None:
        return
    rows = [
        ("vllm:spec_decode_num_drafts_total", before.drafts, after.drafts),
        ("vllm:spec_decode_num_draft_tokens_total", before.drafted, after.drafted),
        ("vllm:spec_decode_num_accepted_tokens_total", before.accepted, after.accepted),
    ]
    deep = len(after.by_position)
    firsts = (*before.by_position, *(0 for _ in range(deep - len(before.by_position))))
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    rows += [(f'{name}{{position="{i}"}}', firsts[i], after.by_position[i]) for i in range(deep)]
    rows.append(("vllm:generation_tokens_total", each.before.generated, each.after.generated))
    for row, low, high in rows:
        found = _COUNTER.fullmatch(row)
        key, labels = (found[1], found[2]) if found else (row, "")
        yield [_piece(key, key), _piece(f"{labels}  {low} → {high}")]


def _piece(text: str, key: str | None = None) -> dict[str, str | None]:
    return {"text": text, "key": key}


def _pieces(text: str, pattern: str) -> Line:
    found: Line = []
    end = 0
    for match in re.finditer(pattern, text):
        found += [_piece(text[end : match.start()]), _piece(match[0], match[0])]
        end = match.end()
    return [*found, _piece(text[end:])]


# ---------------------------------------------------------------- runs side by side


def _side_by_side(figure: Runs) -> Json:
    views = {method: view_of(method, figure.concurrency) for method in figure.runs}
    if figure.show == "positions":
        deep = max(len(view.counts.by_position) for view in views.values())
        columns = [[ratio.value for ratio in view.counts.positions] for view in views.values()]
        rows = [
            {"key": None, "name": str(i + 1), "values": [col[i] if i < len(col) else None for col in columns]}
            for i in range(deep)
        ]
        return {"rows": rows, "series": [_name(method) for method in views], "digits": 2}
    series, digits = _MEASURES[figure.show]
    rows = [
        {"key": _name(method), "name": method, "values": _values(view, figure.show)} for method, view in views.items()
    ]
    return {"rows": rows, "series": [f"lesson.runs.{name}" for name in series], "digits": digits}


_MEASURES: dict[str, tuple[tuple[str, ...], int]] = {
    "ttft": (("p50", "p95"), 0),
    "tpot": (("p50", "p95"), 1),
    "throughput": (("tokens_per_second",), 1),
    "tau": (("tau", "length"), 2),
}


def _name(method: str) -> str:
    return f"lesson.runs.name.{method}"


def _values(view: View, show: str) -> list[float | None]:
    latency = view.each.latency
    if show == "throughput":
        return [latency.throughput.value]
    if show == "tau":
        return [view.tau.value if view.tau else None, view.counts.length.value]
    spread = latency.first if show == "ttft" else latency.token
    return [None, None] if spread is None else [spread.p50, spread.p95]
