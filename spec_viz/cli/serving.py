"""`serve-local`, `serve-watch`, `serve-compare`, `serve-read`, `record-served`: real servers and what they did."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec_viz.cli.terminal import command, err, out, show, signals, writable
from spec_viz.serving import METHODS

if TYPE_CHECKING:
    from spec_viz.lab.metrics import Ratio
    from spec_viz.serving.compare import Side
    from spec_viz.serving.counters import Window
    from spec_viz.serving.saved import Saved


def add(commands: Any) -> None:
    """Offer the five."""
    local = command(commands, "serve-local", run_local, "a real vLLM on this machine's processor, to practise with")
    local.add_argument("action", choices=("install", "start", "remove"))
    local.add_argument("method", nargs="?", choices=METHODS, metavar="METHOD", help="of start: " + ", ".join(METHODS))
    local.add_argument("--port", type=int, default=8000, help="of 127.0.0.1")

    watch = command(commands, "serve-watch", run_watch, "what a running server's counters say, look after look")
    watch.add_argument("url", metavar="URL", help="such as http://127.0.0.1:8000")
    watch.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="from one look to the next")
    watch.add_argument("--times", type=int, default=120, help="looks, after which it ends")

    compared = command(commands, "serve-compare", run_compare, "running servers asked the same questions by turns")
    compared.add_argument("servers", nargs="+", metavar="NAME=URL", help="such as plain=http://127.0.0.1:8000")
    compared.add_argument("--limit", type=int, default=2, help="held-out prompts of each task")
    compared.add_argument("--max-tokens", type=int, default=64, help="of an answer")
    compared.add_argument("--concurrency", type=int, nargs="+", default=[1, 4], help="questions side by side: 1, 4, 16")
    compared.add_argument("--seconds", type=float, default=1800.0, help="after which it ends with what it has")
    compared.add_argument("--out", type=Path, metavar="FILE", help="where all that was said is kept: .json, or .csv")

    read = command(commands, "serve-read", run_read, "what a kept comparison or a saved run holds")
    read.add_argument("file", type=Path, metavar="FILE", help="as serve-compare --out, Compare or Saved runs wrote it")
    read.add_argument("--out", type=Path, metavar="FILE", help="the same numbers as .csv")

    record = command(commands, "record-served", run_record, "start servers, ask held-out prompts, keep what they said")
    record.add_argument("methods", nargs="*", metavar="METHOD", help="all of them otherwise: " + ", ".join(METHODS))
    record.add_argument("--out", type=Path, metavar="DIR", help="assets/served otherwise")
    record.add_argument(
        "--note", default="", help="what else ran on the machine, said in the file; one_core is said in both languages"
    )


def run_local(options: argparse.Namespace) -> int:
    """Build the environment, start a server in it until Ctrl-C, or take the environment away."""
    from spec_viz.serving import local

    if options.method and options.action != "start":
        raise ValueError(f"{options.action} takes no method: one environment serves them all. Only start names one.")
    method = options.method or "ngram"
    if options.action == "install":
        vllm = local.install(_hear)
        print(json.dumps({"vllm": str(vllm)}) if options.json else vllm)
        return 0
    if options.action == "remove":
        removed = local.remove()
        if options.json:
            print(json.dumps({"removed": removed}))
        else:
            out.print(f"removed {local.place()}" if removed else f"nothing in {local.place()}")
        return 0
    if not 1 <= options.port <= 65535:
        raise ValueError("--port takes 1 to 65535.")
    with signals() as stopped, tempfile.TemporaryDirectory() as scratch:
        _hear(f"vLLM {local.VERSION}, {method}, comes up: one or two minutes. Ctrl-C ends it.")
        with local.serving(method, port=options.port, scratch=Path(scratch), stop=lambda: bool(stopped)) as practice:
            told = {"address": practice.address, "method": practice.method, "log": str(practice.log)}
            print(json.dumps(told) if options.json else practice.address, flush=True)
            while not stopped and practice.is_up:
                time.sleep(0.2)
            if not stopped:
                err.print("The server ended by itself.", style="red")
                return 1
            # One that answers still is waited for.
            _hear("Stopping the server: up to half a minute where it is answering.")
    return 0


def run_watch(options: argparse.Namespace) -> int:
    """A line a look; the exit code 0 also where Ctrl-C ended it."""
    if not 0.1 <= options.every <= 3600 or not 1 <= options.times <= 100_000:
        raise ValueError("--every takes 0.1 to 3600 seconds, --times 1 to 100000 looks.")
    with signals() as stopped:
        # The import alone takes long enough to be interrupted.
        from spec_viz.serving.counters import between, scrape

        before = scrape(options.url)
        for number in range(options.times):
            ends = time.monotonic() + options.every
            while not stopped and (left := ends - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
            if stopped:
                break
            after = scrape(options.url)
            row = _row(between(before, after))
            before = after
            print(json.dumps(row) if options.json else _line(row, heading=number % 20 == 0), flush=True)
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """A row for every server and concurrency, also of what came before one failed or Ctrl-C (exit code 1)."""
    from spec_viz.serving.compare import Entrant, Plan, compare, to_csv, to_json
    from spec_viz.serving.gate import Place
    from spec_viz.training.prompts import TASKS, held_out_prompts
    from spec_viz.ui.wording import words

    if options.out and options.out.suffix not in (".json", ".csv"):
        raise ValueError("--out takes a file that ends in .json or .csv.")
    writable(options.out)
    pairs = [typed.partition("=") for typed in options.servers]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("Every server is NAME=URL, such as plain=http://127.0.0.1:8000.")
    entrants = [Entrant(name, Place.of(url)) for name, _, url in pairs]
    questions = tuple(held_out_prompts(TASKS, options.limit))
    plan = Plan(questions, options.max_tokens, tuple(options.concurrency), seconds=options.seconds)
    say = words("en")
    with signals() as stopped:
        for state in compare(entrants, plan, lambda: bool(stopped)):
            _hear(f"{state.stage} {state.name}: {state.done} of {state.total} questions")
    for name, problem in state.problems:
        err.print(f"{name}: {say(problem.key, **problem.fields)}", style="red", markup=False)
    if options.out:
        options.out.write_text((to_csv if options.out.suffix == ".csv" else to_json)(state.runs), encoding="utf-8")
    return _show_sides(options, state.runs, "compared") or int(bool(state.problems) or state.stage != "done")


def run_read(options: argparse.Namespace) -> int:
    """A row for every server and concurrency of a file, as the comparison printed them."""
    from spec_viz.serving.compare import MAX_BYTES, parse, to_csv
    from spec_viz.serving.saved import SavedError

    if options.out and options.out.suffix != ".csv":
        raise ValueError("--out takes a file that ends in .csv.")
    if options.file.stat().st_size > MAX_BYTES:
        raise ValueError(f"{options.file} is larger than {MAX_BYTES // 1_000_000} MB.")
    try:
        runs = parse(options.file.read_text(encoding="utf-8", errors="replace"))
    except SavedError as problem:
        raise ValueError(f"{options.file} is no comparison that SpecViz kept: {problem}") from None
    if options.out:
        options.out.write_text(to_csv(runs), encoding="utf-8")
    return _show_sides(options, runs, options.file.name)


def _show_sides(options: argparse.Namespace, runs: Sequence[Saved], title: str) -> int:
    """Every server under every load, and in what they differ; the exit code 2 where nothing was measured."""
    from spec_viz.serving.compare import differences, sides
    from spec_viz.ui.wording import words

    for each in differences(runs):
        err.print(f"{words('en')(f'differs.{each.name}')}: {' | '.join(each.values)}", style="yellow", markup=False)
    rows = [_side_row(side) for side in sides(runs)]
    return show(options, rows, title) if rows else 2


def _side_row(side: Side) -> dict[str, Any]:
    counts = side.counts
    return {
        "server": side.name,
        "side by side": side.concurrency,
        "answers": side.answers,
        "tokens/s": _value(side.throughput, 1),
        "τ": _value(side.tau, 2),
        "length": counts and _value(counts.length, 2),
        "by position": counts and " ".join(str(_value(ratio, 3)) for ratio in counts.positions),
        "TTFT p50 ms": side.first and round(side.first.p50, 1),
        "TTFT p95 ms": side.first and round(side.first.p95, 1),
        "TPOT p50 ms": side.token and round(side.token.p50, 1),
        "TPOT p95 ms": side.token and round(side.token.p95, 1),
    }


def _row(window: Window) -> dict[str, Any]:
    counts = window.speculation
    row: dict[str, Any] = {
        "seconds": round(window.seconds, 2),
        "tokens": window.generated,
        "tokens/s": _value(window.throughput, 1),
        "τ": _value(window.tau, 2),
        "drafts": None if counts is None else counts.drafts,
        "length": None if counts is None else _value(counts.length, 2),
        "rate": None if counts is None else _value(counts.rate, 3),
        "by position": None if counts is None else [_value(ratio, 3) for ratio in counts.positions],
    }
    return row


def _line(row: dict[str, Any], heading: bool) -> str:
    def text(value: Any) -> str:
        if isinstance(value, list):
            return " ".join("–" if each is None else f"{each:.3f}" for each in value)
        return "–" if value is None else str(value)

    line = "  ".join(f"{text(value):>{max(len(name), 8)}}" for name, value in row.items())
    names = "  ".join(f"{name:>{max(len(name), 8)}}" for name in row)
    return f"{names}\n{line}" if heading else line


def _value(ratio: Ratio | None, digits: int) -> float | None:
    return None if ratio is None or ratio.value is None else round(ratio.value, digits)


def run_record(options: argparse.Namespace) -> int:
    """A file a method, and a table of what they hold."""
    from spec_viz.cli.terminal import known
    from spec_viz.serving import saved
    from spec_viz.serving.compare import sides
    from spec_viz.serving.record import record
    from spec_viz.training.prompts import TASKS, held_out_prompts

    known("method", options.methods, METHODS)
    folder = options.out or saved.SERVED
    folder.mkdir(parents=True, exist_ok=True)
    questions = held_out_prompts(TASKS, 2)[:10]
    rows: list[dict[str, Any]] = []
    for method in options.methods or METHODS:
        run = record(method, questions, options.note, _hear)
        saved.write(run, folder / f"{method}.json")
        rows += [_side_row(side) for side in sides((run,))]
    return show(options, rows, "recorded")


def _hear(what: str) -> None:
    err.print(what)
