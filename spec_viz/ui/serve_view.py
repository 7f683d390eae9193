"""The Serve rooms' question to the page's server: runs of real servers come in, what is drawn of them goes out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from spec_viz.content.served import run_of
from spec_viz.engine.trace import Trace, dumps
from spec_viz.serving import METHODS
from spec_viz.serving.client import Answer, Arrival
from spec_viz.serving.problems import Problem, ServerError
from spec_viz.serving.reader import Gap, Reading
from spec_viz.serving.saved import Asked, Saved, SavedError, path_of, reading
from spec_viz.ui.charts import PALETTES, Chart
from spec_viz.ui.experiment_pen import Pen, mark
from spec_viz.ui.serve_charts import arrivals, charts, said, table
from spec_viz.ui.serve_runs import Shown, levels, name_of, shown
from spec_viz.ui.wording import Words, words

Json = dict[str, Any]
# What one page may hold of a comparison.
MOST_BYTES = 8_000_000
MOST_ARRIVALS = 4096
# Of what fills a kept problem's sentence.
MOST_LETTERS = 300


def kept() -> list[str]:
    """The methods of which a server run is saved."""
    return [method for method in METHODS if path_of(method).is_file()]


def served(asked: Any) -> Json:
    """What servers side by side show, asked as {"runs": names of saved ones, or "record": an export of a comparison}.

    With "at" (how many side by side), "language" and "theme": {"verdict", "why", "charts", "table", "levels", "at",
    "differ", "conditions", "questions"}. With "question", a number: that question's answers, to be replayed. With
    "as", "csv" or "json": {"text"}; with "check": {}. With "came" alone, answers as [name, speculates, [[ms, tokens],
    …]]: {"chart"}.
    {"error": a sentence} where nothing can be drawn.
    """
    given: Mapping[str, Any] = asked if isinstance(asked, dict) else {}
    language, theme = given.get("language"), given.get("theme")
    t = words(language if isinstance(language, str) else "en")
    pen = Pen(t, PALETTES["dark" if theme == "dark" else "light"])
    if "came" in given:
        return _came(given["came"], pen)
    try:
        runs = _runs(given, t)
    except SavedError as problem:
        return {"error": {"key": "error.saved_bad", "args": {"field": problem.field}}}
    except KeyError:
        return {"error": {"key": "serve.saved.none", "args": {}}}
    if given.get("as") == "check":
        return {}
    if given.get("as") in ("csv", "json"):
        from spec_viz.serving.compare import to_csv, to_json

        return {"text": (to_csv if given["as"] == "csv" else to_json)(runs)}
    every = shown(runs, t)
    known = levels(runs)
    at = given.get("at") if given.get("at") in known else next(iter(known), 1)
    question = given.get("question")
    if type(question) is int:
        return _replay(runs, every, int(at or 1), question, pen)
    return _view(runs, every, int(at or 1), pen)


def _runs(given: Mapping[str, Any], t: Words) -> tuple[Saved, ...]:
    record = given.get("record")
    if isinstance(record, str):
        from spec_viz.serving.compare import parse

        if len(record) > MOST_BYTES:
            raise SavedError("file", f"larger than {MOST_BYTES // 1_000_000} MB")
        runs = parse(record)
        told = (asked.problem for run in runs for each in run.passes for asked in each.asked)
        if not all(_is_said(problem, t) for problem in told if problem is not None):
            raise SavedError("problem", "no sentence of SpecViz's")
        return runs
    named = given.get("runs")
    chosen = [name for name in METHODS if isinstance(named, list) and name in named]
    runs = tuple(run_of(name) for name in chosen)
    if not runs:
        raise KeyError("no run was named")
    return runs


def _is_said(problem: Problem, t: Words) -> bool:
    """Whether the page has a sentence for a problem that stands in a file, and plain words to fill it."""
    fields: Iterable[Any] = problem.fields.values()
    fits = all(
        type(value) in (int, float) or (isinstance(value, str) and len(value) <= MOST_LETTERS) for value in fields
    )
    return problem.key.partition(".")[0] == "error" and problem.key in t.table and fits


def _view(runs: Sequence[Saved], every: Sequence[Shown], at: int, pen: Pen) -> Json:
    from spec_viz.serving.compare import differences

    t = pen.t
    differ = differences(runs)
    drawn = charts(every, at, pen)
    grave = [t(f"differs.{each.name}") for each in differ if each.grave]
    if grave:
        for chart in drawn:
            mark(chart.figure, t("experiments.differ.mark", names=", ".join(grave)), pen)
    verdict, why = said(every, at, pen)
    return {
        "verdict": verdict,
        "why": why,
        "charts": [asdict(chart) for chart in drawn],
        "table": table(every, pen),
        "levels": levels(runs),
        "at": at,
        "differ": [
            {"said": t(f"differs.{each.name}"), "values": list(each.values), "grave": each.grave} for each in differ
        ],
        "conditions": [_conditions(run, pen) for run in runs],
        "questions": list(_questions(runs, at, pen)),
    }


# ---------------------------------------------------------------- conditions


def _conditions(run: Saved, pen: Pen) -> Json:
    """Where, when and with what a server ran, and how it was started; what it did not tell is named as unknown."""
    t, unknown = pen.t, pen.t("shell.unknown")
    cores = run.machine.get("cores")
    machine = [str(run.machine[name]) for name in ("processor", "host") if name in run.machine]
    machine += [t("lesson.served.cores", cores=cores)] if cores else []
    versions = [f"vLLM {run.versions.get('vllm', unknown)}"]
    versions += [run.versions[name].replace("==", " ") for name in ("torch",) if name in run.versions]
    versions += [f"Python {run.versions['python']}"] if "python" in run.versions else []
    said_ = t(
        "serve.conditions",
        target=run.target,
        versions=", ".join(versions),
        machine=", ".join(machine) or unknown,
        tokens=run.max_tokens,
        warm_up=run.warm_up,
        questions=max((len(each.asked) for each in run.passes), default=0),
        created=run.created[:10],
    )
    return {
        "name": name_of(run, t),
        "said": said_,
        "note": _note(run, t),
        "command": _command(run),
    }


def _note(run: Saved, t: Words) -> str:
    """What else is to know of a run: a sentence of the page's own where its note names one, else as it was given."""
    note = str(run.machine.get("note") or "")
    key = f"serve.note.{note}"
    return t(key) if key in t.table else t("serve.note", note=note) if note else ""


def _command(run: Saved) -> str:
    """The command as one types it, a flag a line; empty where only the server's owner knows it."""
    lines: list[list[str]] = [[]]
    for word in run.command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n  ".join(" ".join(line) for line in lines if line)


# ---------------------------------------------------------------- one question


def _prompts(runs: Sequence[Saved], at: int) -> list[Asked]:
    """A question each: as the first server that was asked it had it."""
    found: dict[str, Asked] = {}
    for run in runs:
        for each in run.passes:
            for asked in each.asked if each.concurrency == at else ():
                found.setdefault(asked.prompt, asked)
    return list(found.values())


def _answers(runs: Sequence[Saved], at: int, prompt: str) -> Iterator[tuple[Saved, Asked]]:
    for run in runs:
        for each in run.passes:
            for asked in each.asked:
                if each.concurrency == at and asked.prompt == prompt:
                    yield run, asked


def _questions(runs: Sequence[Saved], at: int, pen: Pen) -> Iterator[Json]:
    for asked in _prompts(runs, at):
        mine = {id(run): each for run, each in _answers(runs, at, asked.prompt)}
        yield {
            "task": pen.task(asked.task),
            "prompt": asked.prompt,
            "cells": [_seconds(each.answer, pen) if (each := mine.get(id(run))) else "–" for run in runs],
        }


def _seconds(answer: Answer, pen: Pen) -> str:
    return f"{pen.number(answer.arrivals[-1].ms / 1000, 1)} s" if answer.arrivals else "–"


def _replay(runs: Sequence[Saved], every: Sequence[Shown], at: int, question: int, pen: Pen) -> Json:
    """The answers to a question: traces as NDJSON for the board, what is known of each, and how they came."""
    asked = _prompts(runs, at)
    if not 0 <= question < len(asked):
        return {"error": {"key": "serve.saved.none", "args": {}}}
    prompt = asked[question].prompt
    places = {each.name: each.place for each in every}
    told, came = [], []
    for run, each in _answers(runs, at, prompt):
        name = name_of(run, pen.t)
        told.append({"name": name, **_reading_of(run, each)})
        came.append((name, places[name], each.answer.arrivals))
    chart = arrivals(came, pen)
    return {"prompt": prompt, "answers": told, "chart": asdict(chart) if chart else None}


def _reading_of(run: Saved, asked: Asked) -> Json:
    problem = None if asked.problem is None else {"key": asked.problem.key, "args": asked.problem.fields}
    try:
        told = reading(run, asked, 0)
    except ServerError as fault:
        return answer_of(asked.answer, None, problem or {"key": fault.key, "args": fault.fields})
    return answer_of(asked.answer, told, problem)


def answer_of(answer: Answer | None, told: Reading | None, problem: Json | None) -> Json:
    """All that the page shows of an answer: text, numbers, its trace or the reason why there is none."""
    answer = answer or Answer("", None, (), 0, None)
    count, seconds = answer.after_first
    counts = told.told.counts if told is not None and told.told is not None else None
    trace: Trace | None = told.trace if told is not None else None
    gap: Gap | Literal["broken"] | None = told.gap if told is not None else None
    # What became of the drafts is told with the last piece, and an answer with a last piece says why it ended.
    if trace is None and answer.ids is not None and answer.arrivals and answer.finish is None:
        gap = "broken"
    return {
        "text": answer.text,
        "ndjson": dumps(trace) if trace is not None else "",
        "gap": gap,
        "problem": problem,
        "tokens": answer.tokens,
        "first_ms": answer.arrivals[0].ms if answer.arrivals else None,
        "token_ms": 1000 * seconds / count if count else None,
        "arrivals": [[each.ms, each.tokens] for each in answer.arrivals],
        "drafts": None if counts is None else [counts.drafts, counts.drafted, counts.accepted],
    }


def _came(came: Any, pen: Pen) -> Json:
    """The chart of answers that a page holds; what is no answer is left out."""
    found: list[tuple[str, int, list[Arrival]]] = []
    for each in came[:4] if isinstance(came, list) else ():
        if not isinstance(each, list) or len(each) != 3 or not isinstance(each[2], list):
            continue
        pairs = [pair for pair in each[2][:MOST_ARRIVALS] if _is_arrival(pair)]
        place = sum(place >= 0 for _, place, _ in found) if each[1] else -1
        # It is said back, and a lone surrogate goes over no wire.
        name = str(each[0])[:200].encode("utf-8", "replace").decode()
        found.append((name, place, [Arrival(float(ms), tokens) for ms, tokens in pairs]))
    chart: Chart | None = arrivals(found, pen)
    return {"chart": asdict(chart) if chart else None}


def _is_arrival(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    ms, tokens = pair
    return type(ms) in (int, float) and 0 <= ms < 1e9 and type(tokens) is int and 0 <= tokens < 1e6
