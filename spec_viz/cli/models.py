"""`models` and `drafters`: what there is to decode with."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from spec_viz.cli.terminal import command, fetch, show
from spec_viz.models.catalogue import CATALOGUE, DEFAULT, PUBLISHED

if TYPE_CHECKING:
    from spec_viz.drafters.registry import Knob
    from spec_viz.models.readiness import Standing


def add(commands: Any) -> None:
    """Offer `models` and `drafters`."""
    models = command(commands, "models", run_models, "what models exist, bring weights into the cache, print a folder")
    models.add_argument("action", nargs="?", choices=("list", "fetch", "path"), default="list")
    models.add_argument("name", nargs="?", default=DEFAULT, choices=(*CATALOGUE, *PUBLISHED), metavar="NAME")

    command(commands, "drafters", run_drafters, "every drafter: what it drafts, which rules fit, its options")


def run_models(options: argparse.Namespace) -> int:
    """List the catalogue, fetch a model into the cache, or print its folder."""
    from spec_viz.models import weights
    from spec_viz.models.catalogue import heads_table, table

    if options.action == "list":
        rows, published = table(), heads_table()
        if options.json:
            return show(options, [*rows, *published], "models")
        # What does not fit a terminal's width is in the JSON.
        shown = ("name", "parameters", "licence", "size", "writes", "partner", "cached", "device", "dtype", "packed")
        show(options, [{name: row[name] for name in shown} for row in rows], "models")
        return show(options, published, "heads that others published")
    if options.action == "fetch":
        fetch(options.name)
    folder = weights.folder(options.name)
    print(json.dumps({"name": options.name, "folder": str(folder)}) if options.json else folder)
    return 0


def run_drafters(options: argparse.Namespace) -> int:
    """A row a drafter."""
    from spec_viz.drafters.registry import families
    from spec_viz.models.readiness import standing

    rows = [
        {
            "name": family.name,
            "drafts": family.drafts,
            "rules": ", ".join(family.rules),
            "lossless": "yes",
            "ready": _ready(standing(family)),
            "options": ", ".join(f"{knob.name}={knob.default}{_takes(knob)}" for knob in family.knobs),
        }
        for family in families().values()
    ]
    return show(options, rows, "drafters")


def _takes(knob: Knob) -> str:
    allowed = {"int": f"{knob.low}–{knob.high}", "choice": "|".join(knob.choices), "text": ""}[knob.kind]
    return f" ({allowed})" if allowed else ""


def _ready(stands: Standing) -> str:
    """Yes or no; of a trained head also its α on held-out prompts beside that of the bigram table."""
    word = "yes" if stands.ready else "no"
    if stands.alpha is None:
        return word if stands.ready else "no: its head is missing, or was not measured"
    return f"{word}, α {stands.alpha:.2f}" + (f" (bigram {stands.floor:.2f})" if stands.floor is not None else "")
