"""The command line: what the page does, without a browser. Tables for people, JSON with `--json`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spec_viz.cli import content, decode, family, law, measure, models, serve_config, serving, train
from spec_viz.cli.terminal import err
from spec_viz.models.home import settle
from spec_viz.models.weights import WeightsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code.

    0: it did what it says. 1: a check failed, or it was stopped and told what it had. 2: it could not run. 130: it was
    stopped before it had anything.
    """
    options = _parser().parse_args(arguments)
    from spec_viz.ui.wording import words

    try:
        if moved := settle():
            err.print(f"The usual cache folder cannot be written, so {moved} is used.")
        return int(options.run(options))
    except WeightsError as problem:
        err.print(words("en")(problem.key, **problem.fields), style="red")
    except OSError as problem:
        err.print(f"{problem.filename or 'A file'}: {problem.strerror or problem}.", style="red")
    except ValueError as problem:
        key = getattr(problem, "key", None)
        sentence = words("en")(key, **problem.fields) if key else str(problem)  # type: ignore[attr-defined]
        err.print(sentence, style="red", markup=False)
    except KeyboardInterrupt:
        err.print("Stopped.")
        return 130
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spec_viz", description="Speculative decoding, shown and measured.")
    commands = parser.add_subparsers(dest="command", required=True)
    for group in (models, decode, law, measure, serve_config, serving, family, content, train):
        group.add(commands)
    return parser
