"""`family`: the drafters that learn from the target, what each reads, was measured at, and is said to reach."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from spec_viz.cli.terminal import command, out, show


def add(commands: Any) -> None:
    """Offer it."""
    family = command(commands, "family", run_family, "drafters that learn from the target, measured here and published")
    family.add_argument("--csv", action="store_true", help="print CSV")


def run_family(options: argparse.Namespace) -> int:
    """The table; in a terminal the conditions stand once below it."""
    from spec_viz.content.family import conditions_lines, rows, table, to_csv
    from spec_viz.content.lessons import sources

    if options.csv:
        print(to_csv(), end="")
        return 0
    if options.json:
        cited = {name: asdict(source) for name, source in sources().items()}
        print(json.dumps(table(cited), ensure_ascii=False, indent=2))
        return 0
    found = rows()
    shown = ("method", "reads", "drafts", "parameters", "c", "slots", "alpha", "tau", "speedup", "published")
    show(options, [{name: row[name] for name in shown} for row in found], "family")
    for line in conditions_lines():
        out.print(f"[dim]{line}[/dim]")
    return 0
