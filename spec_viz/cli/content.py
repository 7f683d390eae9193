"""`record` and `lessons`: make what the page shows again, and check it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from spec_viz.cli.terminal import command, load_model, report_problems
from spec_viz.content.files import ASSETS
from spec_viz.models.catalogue import DEFAULT


def add(commands: Any) -> None:
    """Offer both."""
    record = command(commands, "record", run_record, "make the recorded runs of presets and lessons again")
    record.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="only these presets and lessons (a lesson's folder), or one recording of a lesson as LESSON/RECORDING",
    )

    paging = command(commands, "record-paging", run_record_paging, "make the recorded batches of the paged cache again")
    paging.add_argument("--out", type=Path, default=ASSETS / "paged", metavar="DIR")

    lessons = command(commands, "lessons", run_lessons, "check every preset and lesson")
    lessons.add_argument("action", choices=("check",))
    lessons.add_argument("--live", action="store_true", help="also run everything again and compare with what is kept")


def run_record(options: argparse.Namespace) -> int:
    """Run presets and lessons again and keep their traces; what they then do not show is reported, with exit code 1."""
    from spec_viz.content import check
    from spec_viz.content.lessons import lesson_folders, load_lesson
    from spec_viz.content.presets import load_presets
    from spec_viz.content.record import record, record_lesson

    presets = {preset.name: preset for preset in load_presets()}
    folders = {folder.name: folder for folder in lesson_folders(hidden=True)}
    # None is all of it.
    wanted: dict[str, list[str] | None] = {}
    for name in options.names or [*presets, *folders]:
        whole, _, part = name.partition("/")
        parts = wanted.setdefault(whole, [])
        wanted[whole] = [*parts, part] if part and parts is not None else None
    if unknown := [name for name in options.names if name not in presets and name.partition("/")[0] not in folders]:
        raise ValueError(f"no preset or lesson is called {', '.join(unknown)}")
    # Read before anything runs: a slip in a file should not cost the minutes of the recording.
    lessons = {name: load_lesson(folders[name]) for name in wanted if name in folders}
    for name, lesson in lessons.items():
        known = {*lesson.structure.traces, *lesson.structure.results}
        if unknown := [part for part in wanted[name] or () if part not in known]:
            raise ValueError(f"{name} records nothing called {', '.join(unknown)}")
    loaded = load_model(DEFAULT)
    problems: list[str] = []
    for name, parts in tqdm(wanted.items(), file=sys.stderr):
        if name in presets:
            record(loaded, presets[name])
            problems += presets[name].problems()
        else:
            record_lesson(loaded, lessons[name], parts)
            problems += check.problems(lessons[name])
    return report_problems(options, problems)


def run_record_paging(options: argparse.Namespace) -> int:
    """Decode the batches again, and print the files that they are in."""
    from spec_viz.lab.paging import record

    paths = [str(path) for path in record(load_model(DEFAULT), options.out)]
    print(json.dumps(paths) if options.json else "\n".join(paths))
    return 0


def run_lessons(options: argparse.Namespace) -> int:
    """Every preset's and lesson's words, traces and claims; with `--live` the traces are made again and compared."""
    from spec_viz.content.check import check_lessons
    from spec_viz.content.live import live_preset_problems
    from spec_viz.content.presets import load_presets

    presets = load_presets()
    problems = [problem for preset in presets for problem in preset.problems()]
    loaded = load_model(DEFAULT) if options.live else None
    problems += check_lessons(loaded=loaded)
    if loaded is not None:
        problems += [problem for preset in presets for problem in live_preset_problems(preset, loaded)]
    return report_problems(options, problems)
