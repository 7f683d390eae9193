"""Presets: a prompt, its settings, what it shows in two languages, and a claim its recorded run must satisfy.

A preset is `lessons/presets/NAME.yaml` beside `NAME.ndjson`, the recorded bundle (the run, then its baseline).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from spec_viz.content.claims import holds
from spec_viz.content.files import PRESETS, FileError, parse_yaml, read_text
from spec_viz.content.sandbox import ClaimError
from spec_viz.engine.trace import Trace, TraceError, loads

Words = dict[str, str]


class PresetError(ValueError):
    """A preset file that says something impossible, with the file's name."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Preset:
    """One preset; `settings` are fields of a run request, `order` its place in the library."""

    name: str
    order: int
    title: Words
    lesson: Words
    prompt: str
    settings: dict[str, Any]
    claim: str
    file: str = field(default="")

    @property
    def trace_path(self) -> Path:
        """Where its recorded run lies."""
        return PRESETS / f"{self.name}.ndjson"

    def recorded(self) -> tuple[Trace, ...]:
        """The recorded run and its baseline."""
        return loads(self.trace_path.read_text(encoding="utf-8"))

    def problems(self) -> list[str]:
        """What is wrong with this preset: a missing language, a trace that is not its own, a claim that fails."""
        found = [
            f"{self.name}: {what} has no {lang}"
            for what in ("title", "lesson")
            for lang in ("vi", "en")
            if not getattr(self, what).get(lang)
        ]
        try:
            traces = self.recorded()
        except (OSError, TraceError) as error:
            return [*found, f"{self.name}: no readable recorded run ({error})"]
        meta = traces[0].meta
        asked: Mapping[str, Any] = {"prompt_text": self.prompt, **self.settings}
        for key, value in asked.items():
            if key == "options":
                kept = meta["drafter_options"]
                stale = not isinstance(value, Mapping) or any(kept.get(name, ...) != value[name] for name in value)
            else:
                stale = meta.get(key) != value
            if stale:
                found.append(f"{self.name}: the recorded run has another {key}; record it again")
        try:
            if not holds(self.claim, traces):
                found.append(f"{self.name}: its recorded run does not show what it claims: {self.claim}")
        except ClaimError as error:
            found.append(f"{self.name}: {error}")
        return found


_PRESET = TypeAdapter(Preset)


def load_presets(folder: Path = PRESETS) -> Sequence[Preset]:
    """Every preset in its order; PresetError names the file and the field."""
    presets = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            body = parse_yaml(read_text(path))
            presets.append(_PRESET.validate_python({**body, "name": path.stem, "file": path.name}))
        except (FileError, TypeError, ValidationError) as error:
            raise PresetError(f"{path.name}: {error}") from None
    return sorted(presets, key=lambda preset: preset.order)
