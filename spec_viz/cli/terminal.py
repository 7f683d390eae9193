"""What every command shares: the console, tables or JSON, loading a model, ending on a signal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tqdm import tqdm

if TYPE_CHECKING:
    from spec_viz.models.load import Loaded

# A file or a pipe has no width of its own, and a table cut to 80 columns cannot be read there.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)


def command(commands: Any, name: str, run: Callable[[Any], int], help_: str) -> argparse.ArgumentParser:
    """A command with its `--json`; `run` gets the options and gives the exit code."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=help_)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def show(options: argparse.Namespace, rows: Sequence[dict[str, Any]], title: str) -> int:
    """Print rows as a table under a title, or as JSON; the exit code 0."""
    if options.json:
        print(json.dumps(list(rows), ensure_ascii=False, indent=2))
        return 0
    if not rows:
        out.print(f"{title}: none")
        return 0
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        # As a text: what a file or a server says may look like markup.
        table.add_row(*("" if value is None else Text(str(value)) for value in row.values()))
    out.print(table)
    return 0


def at_least(least: int) -> Callable[[str], int]:
    """What argparse makes a whole number with: one that is not below `least`."""

    def whole(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return whole


def writable(*paths: Path | None) -> None:
    """OSError or ValueError where results could not be written; asked before a run, so that it costs none."""
    asked = [path for path in paths if path]
    if len({path.resolve() for path in asked}) < len(asked):
        raise ValueError(f"{asked[0]} is named twice: give each result a file of its own.")
    for path in asked:
        there = path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if not there:
            # A run that fails or is stopped early leaves no empty file.
            path.unlink()


def report_problems(options: argparse.Namespace, problems: Sequence[str]) -> int:
    """Print what does not hold; the exit code."""
    if options.json:
        print(json.dumps({"problems": list(problems)}, ensure_ascii=False))
    else:
        for problem in problems:
            err.print(problem, style="red")
        out.print("everything holds" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


def known(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> None:
    """ValueError names what is not among the known."""
    unknown = sorted({*(names or ())} - {*known})
    if unknown:
        raise ValueError(f"No {kind} is called {', '.join(unknown)}; known: {', '.join(known)}.")


def load_model(name: str, dtype: str | None = None) -> Loaded:
    """The model of this name, fetched first where it is not in the cache."""
    import torch

    from spec_viz.models import weights
    from spec_viz.models.load import load

    if not weights.is_cached(name):
        fetch(name)
    return load(name, dtype=getattr(torch, dtype) if dtype else None)


def fetch(name: str) -> None:
    """Bring a model into the cache, with a bar."""
    from spec_viz.models import weights

    # A bar that cannot be overwritten, as in a log, is written seldom.
    seconds = 0.1 if sys.stderr.isatty() else 10
    look = "{desc} {percentage:3.0f}%|{bar}|"
    with tqdm(total=100, desc=name, file=sys.stderr, bar_format=look, mininterval=seconds) as bar:

        def progress(stage: str, fraction: float | None) -> None:
            bar.set_description(f"{name}: {stage}", refresh=False)
            bar.update(round(100 * (fraction or 0)) - bar.n)

        weights.fetch(name, progress)


@contextmanager
def signals() -> Iterator[list[int]]:
    """The signals to stop that have come; while this is open none of them ends the program by itself."""
    import signal

    stopped: list[int] = []
    before = {
        name: signal.signal(name, lambda number, _frame: stopped.append(number))
        for name in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def pause() -> float:
    """Seconds between two pictures of a bar. A log file is no terminal: there a line now and then is enough."""
    return 0.5 if sys.stderr.isatty() else 30.0
