"""Make what is recorded for presets and lessons, on this machine, with its conditions in it."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import asdict, replace
from typing import Any

from spec_viz.content.experiments import ExperimentRecipe, declare
from spec_viz.content.lessons import CostRecipe, Lesson, Recipe
from spec_viz.content.presets import Preset
from spec_viz.engine.trace import Trace, dumps
from spec_viz.lab import cost
from spec_viz.lab.results import MACHINE, module_of
from spec_viz.lab.run import Request, start
from spec_viz.models.load import Loaded


def record(loaded: Loaded, preset: Preset) -> None:
    """Run the preset and its baseline and write both beside it."""
    request = preset_request(preset)
    # Twice, and the second is kept: the first warms caches, and a recorded time should not carry that.
    start(loaded, request).collect()
    preset.trace_path.write_text(dumps(*_named(make(loaded, request, race=True), preset.name)), encoding="utf-8")


def record_lesson(loaded: Loaded, lesson: Lesson, only: Container[str] | None = None) -> None:
    """Run the lesson's recipes, all or those named, and write what they make; ValueError for another target's."""
    lesson.trace_path("").parent.mkdir(exist_ok=True)
    for name, recipe in lesson.structure.traces.items():
        if only is not None and name not in only:
            continue
        _same_target(loaded, recipe)
        start(loaded, recipe_request(recipe)).collect()
        traces = _named(make(loaded, recipe_request(recipe), recipe.race), name)
        lesson.trace_path(name).write_text(dumps(*traces), encoding="utf-8")
    for name, asked in lesson.structure.results.items():
        if only is not None and name not in only:
            continue
        _same_target(loaded, asked)
        # A long list of times is no reading: an experiment's record stands on one line.
        indent = 1 if isinstance(asked, CostRecipe) else None
        body = json.dumps(make_result(loaded, asked), ensure_ascii=False, indent=indent)
        lesson.result_path(name).write_text(body + "\n", encoding="utf-8")


def make(loaded: Loaded, request: Request, race: bool) -> tuple[Trace, ...]:
    """The run, and behind it its baseline when `race` is set."""
    run = start(loaded, request).collect()
    return (run, start(loaded, request.baseline()).collect()) if race else (run,)


def make_result(loaded: Loaded, recipe: CostRecipe | ExperimentRecipe) -> dict[str, Any]:
    """Measure what the recipe asks for."""
    if isinstance(recipe, ExperimentRecipe):
        return measure_plan(loaded, recipe)
    return cost.measure(
        loaded,
        max_n=recipe.max_n,
        context=recipe.context,
        repeats=recipe.repeats,
        drafters=recipe.drafters,
    )


def measure_plan(loaded: Loaded, recipe: ExperimentRecipe) -> dict[str, Any]:
    """An experiment's record."""
    lab, plan = module_of(recipe.kind), declare(recipe)
    record: dict[str, Any] = lab.begin(loaded, plan)
    told = "points" if recipe.kind not in MACHINE else "samples"
    record[told] = [asdict(each) for each in lab.run(loaded, plan)]
    return {**record, "finish": "done"}


def preset_request(preset: Preset) -> Request:
    """The run a preset asks for."""
    return Request(preset.prompt, **preset.settings)


def recipe_request(recipe: Recipe) -> Request:
    """The run a lesson's recipe asks for."""
    return Request(**recipe.request())


def _named(traces: tuple[Trace, ...], name: str) -> list[Trace]:
    return [replace(trace, origin="recorded", run=f"{name}-{trace.meta['drafter']}") for trace in traces]


def _same_target(loaded: Loaded, recipe: Recipe | CostRecipe | ExperimentRecipe) -> None:
    if recipe.target != loaded.entry.name:
        raise ValueError(f"recorded for {recipe.target}, but {loaded.entry.name} is loaded")
