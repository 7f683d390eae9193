"""The Serve place's question to the server: a choice comes in, the checked configuration and what to draw go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spec_viz.serving.config.builder import Built, begin, build
from spec_viz.serving.config.choice import Choice, Finding, Fix, resolve
from spec_viz.serving.config.pairs import pairs_of, targets_of
from spec_viz.serving.config.tables import HARDWARE, KEYS, METHODS, VERSIONS, Key

Json = dict[str, Any]

# A name of a model, a method or an option, and what an option may be set to: characters.
NAME, VALUE, OPTIONS = 200, 400, 40
HOME = "ngram"


@dataclass(frozen=True, slots=True)
class Control:
    """An option with a place on the page: what it holds now, and what holds without it."""

    name: str
    place: str
    kind: str
    choices: tuple[str, ...]
    value: str
    usual: str


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence for the page: a key of its words, and what fills them."""

    key: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Repair:
    """A fix, as the page applies it: what its button says, fields and options that change."""

    said: Said
    fields: Mapping[str, str]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding, as the page shows it."""

    rule: int
    severity: str
    about: str
    said: Said
    fix: Repair | None


@dataclass(frozen=True, slots=True)
class Answer:
    """All that the page draws of a choice."""

    choice: Choice
    methods: tuple[str, ...]
    targets: tuple[str, ...]
    drafters: tuple[str, ...]
    hardware: tuple[str, ...]
    versions: tuple[str, ...]
    controls: tuple[Control, ...]
    remarks: tuple[Remark, ...]
    forms: tuple[Json, ...]
    keys: tuple[Json, ...]
    memory: Json | None


def serve(asked: Any) -> Json:
    """Everything the page draws, asked as {"method", "target", "drafter", "version", "hardware", "options": texts}."""
    return asdict(answer(choice_of(asked)))


def choice_of(asked: Any) -> Choice:
    """A choice from outside: what is no text or not known falls back, what is too long is cut."""
    given = asked if isinstance(asked, dict) else {}
    typed = given.get("options")
    pairs = list(typed.items())[:OPTIONS] if isinstance(typed, dict) else []
    options = {_text(name, NAME): _text(value, VALUE) for name, value in pairs if isinstance(value, str)}
    version, hardware = (_text(given.get(name), NAME) for name in ("version", "hardware"))
    version = version if version in VERSIONS else "0.32"
    hardware = hardware if hardware in HARDWARE else "nvidia-24"
    method = _text(given.get("method"), NAME) or HOME
    plain, _ = resolve(method)
    # What begins with a dash is a flag to vLLM, and no model.
    target, drafter = (_text(given.get(name), NAME).lstrip("- ") for name in ("target", "drafter"))
    started = begin(plain.name if plain else method, target, version, hardware)
    return Choice(method, started.target, drafter or started.drafter, options, started.version, started.hardware)


def _text(value: Any, most: int) -> str:
    """A line of text without control characters."""
    return "".join(letter for letter in value if letter.isprintable())[:most].strip() if isinstance(value, str) else ""


def answer(choice: Choice) -> Answer:
    """What a choice comes to, with what could be chosen instead."""
    built = build(choice)
    method = built.method
    drafters = tuple(dict.fromkeys(pair.drafter for pair in pairs_of(method) if pair.target == choice.target))
    return Answer(
        choice,
        tuple(METHODS),
        targets_of(method),
        drafters if method in METHODS and METHODS[method].drafter != "none" else (),
        tuple(HARDWARE),
        tuple(VERSIONS),
        tuple(_control(key, built) for key in KEYS.values() if key.offered and _fits(key, built)),
        tuple(remark(finding) for finding in built.findings),
        tuple(
            {"name": form.name, "pieces": [[piece.text, piece.key] for piece in form.pieces]} for form in built.forms
        ),
        tuple(asdict(row) | {"said": f"serve.key.{row.name}"} for row in built.explained),
        asdict(built.memory) if built.memory else None,
    )


def _fits(key: Key, built: Built) -> bool:
    """Whether a key is worth a control: it has a say with this method and version, or somebody has set it."""
    if key.name in built.choice.options:
        return True
    if key.since > built.choice.version or (key.place == "speculative" and built.method == "baseline"):
        return False
    alone = {
        "use_heterogeneous_vocab": ("draft_model",),
        "enable_adaptive_verification": ("dspark",),
        "per_request_spec_decode_metrics": tuple(name for name in METHODS if name != "baseline"),
    }
    only = alone.get(key.name, key.methods)
    synthetic = built.values.get("rejection_sample_method") == "synthetic"
    return (not only or built.method in only) and (synthetic or not key.name.startswith("synthetic_"))


def _control(key: Key, built: Built) -> Control:
    typed = built.choice.options.get(key.name)
    value = built.values.get(key.name)
    plain = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    choices = ("true", "false") if key.kind == "flag" else key.choices
    if built.choice.version == "0.32":
        choices = tuple(choice for choice in choices if choice != "fly")
    return Control(key.name, key.place, key.kind, choices, plain if typed is None else typed, key.usual)


def remark(finding: Finding) -> Remark:
    """A finding with the keys of its words."""
    said = Said(f"serve.say.{finding.name}", finding.args)
    return Remark(finding.rule, finding.severity, finding.about, said, repair(finding.fix) if finding.fix else None)


def repair(fix: Fix) -> Repair:
    """A fix with the key of its button's words; an option that goes back to nothing is sent as an empty text."""
    options = {name: value or "" for name, value in fix.options.items()}
    return Repair(Said(f"serve.fix.{fix.name}", fix.args), fix.fields, options)
