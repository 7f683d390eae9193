"""The drafters by name. A drafter's file says what it is and which knobs it has; adding one changes no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from spec_viz.engine.proposal import Drafter
from spec_viz.engine.text import Vocabulary
from spec_viz.engine.warp import Warp

MODULES = ("none", "prompt_lookup", "early_exit", "scripted")

Value = int | str | bool


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of a drafter: an integer in [low, high], one of `choices`, or free text."""

    name: str
    kind: Literal["int", "choice", "text"]
    default: Value
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Value:
        """The value if the knob allows it; ValueError names the knob and what it takes."""
        if self.kind == "int":
            if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
                raise ValueError(f"{self.name} takes a whole number from {self.low} to {self.high}")
        elif not isinstance(value, str) or (self.kind == "choice" and value not in self.choices):
            raise ValueError(f"{self.name} takes " + (f"one of {', '.join(self.choices)}" if self.choices else "text"))
        return value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a drafter may build on: the target's model, its vocabulary, the prompt's length, how q is warped."""

    model: Any
    vocabulary: Vocabulary
    encode: Callable[[str], list[int]]
    prompt_length: int
    ends: frozenset[int]
    warp: Warp


@dataclass(frozen=True, slots=True)
class Family:
    """A drafter as the catalogue shows it. `build` gets the setup and the checked options."""

    name: str
    drafts: Literal["none", "one_hot", "sampled"]
    build: Callable[[Setup, Mapping[str, Any]], Drafter]
    knobs: tuple[Knob, ...] = ()
    source: str = ""

    @property
    def rules(self) -> tuple[str, ...]:
        """The lossless rules that fit, the default first."""
        return ("token",) if self.drafts == "sampled" else ("match", "token")

    def options(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """Every knob's value: what was given, checked, and defaults for the rest; ValueError on an unknown name."""
        knobs = {knob.name: knob for knob in self.knobs}
        for name in given:
            if name not in knobs:
                raise ValueError(f"{self.name} has no option {name!r}; it has {', '.join(knobs) or 'none'}")
        return {name: knob.check(given.get(name, knob.default)) for name, knob in knobs.items()}


def families() -> dict[str, Family]:
    """Every drafter by name, in the order of `MODULES`."""
    found = [import_module(f"spec_viz.drafters.{module}").FAMILY for module in MODULES]
    return {family.name: family for family in found}
