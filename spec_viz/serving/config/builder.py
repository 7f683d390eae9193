"""The way in: a choice becomes a checked server in every form, with each key explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spec_viz.serving.config.choice import Case, Choice, Finding, read
from spec_viz.serving.config.forms import SGLANG, TENSORRT, Form, forms, setup
from spec_viz.serving.config.memory import Memory, estimate
from spec_viz.serving.config.pairs import pairs_of, targets_of
from spec_viz.serving.config.rules import check
from spec_viz.serving.config.tables import CONFIG, KEYS, METHODS


@dataclass(frozen=True, slots=True)
class Explained:
    """A key that some form shows: what it was set to, what vLLM takes without it, and where that was read."""

    name: str
    value: Any
    usual: str
    source: str


@dataclass(frozen=True, slots=True)
class Built:
    """The answer to a choice. Refused, it has findings and no forms; `speculative` is None for plain decoding too."""

    choice: Choice
    method: str
    findings: tuple[Finding, ...]
    values: Mapping[str, Any]
    speculative: Mapping[str, Any] | None
    forms: tuple[Form, ...]
    explained: tuple[Explained, ...]
    memory: Memory | None

    @property
    def refused(self) -> bool:
        """Whether vLLM would refuse it, or do something else than it says."""
        return any(finding.severity == "refuse" for finding in self.findings)


def begin(method: str, target: str = "", version: str = "0.32", hardware: str = "nvidia-24") -> Choice:
    """A choice to begin with: the method with the first target and drafter known for it."""
    plain = METHODS.get(method)
    known = pairs_of(method)
    pair = next((each for each in known if each.target == target), known[0] if known and not target else None)
    if plain is None:
        return Choice(method, target, version=version, hardware=hardware)
    drafter = pair.drafter if pair else ""
    return Choice(method, target or (pair.target if pair else targets_of(method)[0]), drafter, {}, version, hardware)


def build(choice: Choice) -> Built:
    """Check a choice and write it down. Nothing is run and nothing is looked up outside."""
    case, unread = read(choice)
    found = check(case)
    order = ("refuse", "warn", "note")
    findings = tuple(sorted((*unread, *found), key=lambda finding: order.index(finding.severity)))
    refused = any(finding.severity == "refuse" for finding in findings)
    written = () if refused else forms(case)
    return Built(
        choice,
        case.name,
        findings,
        case.values,
        None if refused else setup(case).speculative,
        written,
        _explain(case, written),
        estimate(case),
    )


def _explain(case: Case, written: tuple[Form, ...]) -> tuple[Explained, ...]:
    """A row for each key that a form shows, in the order in which they are first met."""
    shown = dict.fromkeys(piece.key for form in written for piece in form.pieces if piece.key)
    return tuple(_explained(case, name) for name in shown)


def _explained(case: Case, name: str) -> Explained:
    method = case.method
    if name in KEYS:
        key = KEYS[name]
        return Explained(name, case.values.get(name, method.keys.get(name) if method else None), key.usual, key.source)
    value = {
        "target": case.choice.target,
        "drafter": case.choice.drafter,
        "method": method.vllm if method else None,
    }.get(name)
    source = {
        "method": method.source if method else "",
        "drafter": case.pair.source if case.pair else CONFIG,
        "speculative_config": CONFIG,
    }.get(name, "")
    if name.startswith("docker_"):
        source = "vLLM docs, deployment/docker and installation"
    elif name.startswith("sglang_"):
        source = SGLANG
    elif name.startswith("tensorrt_"):
        source = TENSORRT
    return Explained(name, value, "", source)
