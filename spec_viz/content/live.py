"""Recorded runs made again on this machine and compared with what was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_viz.content.lessons import Lesson
from spec_viz.content.presets import Preset
from spec_viz.content.record import make, preset_request, recipe_request
from spec_viz.engine.trace import Round, Trace, TraceError
from spec_viz.models.load import Loaded

SAME_MACHINE = ("device", "device_name", "dtype", "threads", "versions")


def live_problems(lesson: Lesson, loaded: Loaded) -> list[str]:
    """Every recipe of the lesson run again on this machine, where that gives another trace."""
    found = []
    for name, recipe in lesson.structure.traces.items():
        if recipe.target != loaded.entry.name:
            found.append(f"{lesson.slug}: trace {name}: recorded on {recipe.target}, but {loaded.entry.name} is loaded")
            continue
        again = make(loaded, recipe_request(recipe), recipe.race)
        found += [f"{lesson.slug}: trace {name}: {fault}" for fault in differences(lesson.bundles[name], again)]
    return found


def live_preset_problems(preset: Preset, loaded: Loaded) -> list[str]:
    """The preset run again on this machine, where that gives another trace."""
    try:
        recorded = preset.recorded()
    except (OSError, TraceError):
        return []  # `Preset.problems` has said so
    again = make(loaded, preset_request(preset), race=True)
    return [f"{preset.name}: {fault}" for fault in differences(recorded, again)]


def differences(recorded: Sequence[Trace], again: Sequence[Trace]) -> list[str]:
    """Where a run made now departs from the recorded one, and on which machine that was.

    On another machine sums round otherwise: there probabilities may differ, as long as every token keeps its fate.
    """
    found = []
    for old, new in zip(recorded, again, strict=False):
        if old.same_as(new):
            continue
        here = [str(new.meta.get(key)) for key in SAME_MACHINE]
        there = [str(old.meta.get(key)) for key in SAME_MACHINE]
        machines = "on the same machine" if here == there else f"recorded on {', '.join(there)}; here {', '.join(here)}"
        number = next(
            (
                n
                for n, pair in enumerate(zip(old.rounds, new.rounds, strict=False))
                if _fates(pair[0]) != _fates(pair[1])
            ),
            None,
        )
        if number is None and len(old.rounds) != len(new.rounds):
            number = min(len(old.rounds), len(new.rounds))
        if number is not None:
            found.append(f"the {old.meta['drafter']} run departs from the recorded one in round {number} ({machines})")
        elif here == there:
            found.append(f"the {old.meta['drafter']} run keeps its tokens but not its probabilities; record it again")
    return found


def _fates(round_: Round) -> tuple[Any, ...]:
    emitted = None if round_.emitted is None else (round_.emitted.id, round_.emitted.kind)
    return tuple((node.id, node.parent, node.status) for node in round_.nodes), emitted, round_.kv
