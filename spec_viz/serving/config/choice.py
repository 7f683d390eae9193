"""What a person chose, what is said of it, and how a fix changes it: the frozen shapes that rules and forms share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spec_viz.serving.config.pairs import MODELS, Model, Pair, find_pair
from spec_viz.serving.config.tables import CALLED, HARDWARE, KEYS, METHODS, MTP_ALIASES, Hardware, Key, Method

Severity = Literal["refuse", "warn", "note"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A method, its models, a machine, and options as they were typed; an empty option takes a default away."""

    method: str
    target: str = ""
    drafter: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    version: str = "0.32"
    hardware: str = "nvidia-24"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that answers a finding: fields of the choice, and options (None: back to nothing)."""

    name: str
    fields: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str | None] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something said of a choice: by which rule, how grave, its words' name, about what, and what would fix it."""

    rule: int
    severity: Severity
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    fix: Fix | None = None


def apply(choice: Choice, fix: Fix) -> Choice:
    """The choice after a fix."""
    options = dict(choice.options) | {name: value or "" for name, value in fix.options.items()}
    return replace(choice, **fix.fields, options=options)


@dataclass(frozen=True, slots=True)
class Case:
    """What rules look at: a choice with its method and models looked up, its options as values, defaults filled in."""

    choice: Choice
    method: Method | None
    values: Mapping[str, Any]
    target: Model | None
    draft: Model | None
    pair: Pair | None
    machine: Hardware

    @property
    def gamma(self) -> int:
        """K, or 0 where none is set."""
        return int(self.values.get("num_speculative_tokens") or 0)

    @property
    def name(self) -> str:
        """The method in the menu, or as it was typed where there is none."""
        return self.method.name if self.method else self.choice.method

    @property
    def speculates(self) -> bool:
        """Whether anything is drafted at all."""
        return self.method is None or self.method.vllm is not None

    @property
    def runner(self) -> int:
        """Which of vLLM's model runners takes it (`use_v2_model_runner` in vllm/config/vllm.py)."""
        forced = self.values.get("VLLM_USE_V2_MODEL_RUNNER")
        if forced is not None:
            return 2 if forced == "1" else 1
        return 1 if self.needs_first or self.machine.maker == "cpu" else 2

    @property
    def needs_first(self) -> bool:
        """Whether only runner V1 has it: V2 lacks some methods, parallel EAGLE heads and the vocabulary mapping."""
        return bool((self.method and self.method.runner == 1) or self.values.get("use_heterogeneous_vocab"))


def resolve(name: str) -> tuple[Method | None, int]:
    """The menu's method for a typed name, and the rule that rewrote it (0: none did). None: no such method here."""
    plain = name.strip().lower()
    if plain in METHODS:
        return METHODS[plain], 0
    if plain in MTP_ALIASES:
        return METHODS["mtp"], 1
    if plain in CALLED:
        return METHODS[CALLED[plain]], 2
    return None, 0


def read(choice: Choice) -> tuple[Case, tuple[Finding, ...]]:
    """The case of a choice, and what is said of values that cannot be read."""
    method, _ = resolve(choice.method)
    pair = find_pair(method.name, choice.target, choice.drafter) if method else None
    defaults = _defaults(method, pair, MODELS.get(choice.target))
    typed = {name: text for name, text in (defaults | dict(choice.options)).items() if text != ""}
    values: dict[str, Any] = {}
    findings: list[Finding] = []
    for name, text in typed.items():
        key = KEYS.get(name)
        if key is None:
            continue
        value = value_of(key, text)
        if value is None:
            known = ", ".join(key.choices) if key.choices else ""
            said = f"value_{key.kind}" if not key.choices else "value_choice"
            said += "_range" if key.high is not None else ""
            args = {"option": name, "value": text, "low": _edge(key.low), "high": _edge(key.high), "known": known}
            fix = Fix("remove", options={name: None}, args={"option": name})
            findings.append(Finding(0, "refuse", said, args, name, fix))
            continue
        if key.kind == "flag" and text in ("True", "False"):
            args = {"option": name, "value": text, "written": text.lower()}
            findings.append(Finding(19, "note", "python_flag", args, name))
        values[name] = value
    return (
        Case(
            choice,
            method,
            values,
            MODELS.get(choice.target),
            MODELS.get(choice.drafter),
            pair,
            HARDWARE[choice.hardware],
        ),
        tuple(findings),
    )


def _defaults(method: Method | None, pair: Pair | None, target: Model | None) -> dict[str, str]:
    """What the builder sets by itself: a fair test's neighbours, the method's start, what the pair's source sets."""
    around = {key.name: key.start for key in KEYS.values() if key.start}
    if method is None or method.vllm is None:
        around.pop("per_request_spec_decode_metrics")
    if target and target.context:
        around["max_model_len"] = str(min(int(around["max_model_len"]), target.context))
    own = dict(method.start) if method else {}
    if pair:
        own |= {"num_speculative_tokens": str(pair.gamma), **pair.more}
    return around | own


# No number here is larger; what is made of one must not fill the memory of who asks.
LARGEST = 2**31 - 1


def value_of(key: Key, text: str) -> Any:
    """The value of a typed option; None where it is none of this key's."""
    text = text.strip()
    if key.kind == "text":
        return text or None
    if key.kind == "choice":
        return text if text in key.choices else None
    if key.kind == "flag":
        return {"true": True, "false": False}.get(text.lower())
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if key.kind == "list":
        return value if isinstance(value, list) and value else None
    if key.kind == "object":
        return value if isinstance(value, dict) and value else None
    if isinstance(value, bool) or not isinstance(value, int if key.kind == "whole" else int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    low, high = key.low, LARGEST if key.high is None else key.high
    return value if (low is None or value >= low) and (high is None or value <= high) else None


def _edge(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
