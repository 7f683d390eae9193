"""Make the recorded run of a preset: the run and its baseline, on this machine, with its conditions in the header."""

from __future__ import annotations

from dataclasses import replace

from spec_viz.content.presets import Preset
from spec_viz.engine.trace import dumps
from spec_viz.lab.run import Request, start
from spec_viz.models.load import Loaded


def record(loaded: Loaded, preset: Preset) -> None:
    """Run the preset and its baseline and write both beside it."""
    request = Request(preset.prompt, **preset.settings)
    # Twice, and the second is kept: the first warms caches, and a recorded time should not carry that.
    start(loaded, request).collect()
    traces = (start(loaded, request).collect(), start(loaded, request.baseline()).collect())
    recorded = (replace(trace, origin="recorded", run=f"{preset.name}-{trace.meta['drafter']}") for trace in traces)
    preset.trace_path.write_text(dumps(*recorded), encoding="utf-8")
