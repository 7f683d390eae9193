"""What the page needs to know before it asks the server for anything: words, drafters, presets, the first picture."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from spec_viz import __version__
from spec_viz.content.lessons import lesson_list
from spec_viz.content.presets import Preset, load_presets
from spec_viz.drafters.registry import Family, Knob, families
from spec_viz.engine.length import LENGTHS
from spec_viz.engine.rules import RULES, Rule
from spec_viz.models import heads
from spec_viz.models.catalogue import CATALOGUE, DEFAULT
from spec_viz.models.readiness import read_provenance, standing
from spec_viz.serving.gate import gate
from spec_viz.ui.room import Limits
from spec_viz.ui.serve_view import kept
from spec_viz.ui.wording import LANGUAGES, words

FIRST = "weather"
MAX_GAMMA = 12


def boot(limits: Limits) -> dict[str, Any]:
    """Everything the page starts with, as JSON-able data."""
    presets = load_presets()
    first = next(preset for preset in presets if preset.name == FIRST)
    return {
        "words": {language: dict(words(language).table) for language in LANGUAGES},
        "static": "sv/",
        "version": __version__,
        "limits": {
            "max_new_tokens": limits.max_new_tokens,
            "prompt_chars": limits.prompt_chars,
            "gamma_max": MAX_GAMMA,
        },
        "targets": [
            {"name": entry.name, "title": entry.title, "parameters": entry.parameters, "writes": entry.writes}
            for entry in CATALOGUE.values()
            if entry.name == DEFAULT
        ],
        "drafters": [_drafter(family) for family in families().values()],
        "lengths": list(LENGTHS),
        "presets": [_preset(preset) for preset in presets],
        "lessons": lesson_list(),
        "served": {"runs": kept(), "mode": gate().mode, "servers": gate().servers},
        "first": {"preset": FIRST, "ndjson": first.trace_path.read_text(encoding="utf-8")},
    }


def script_tag(data: dict[str, Any]) -> str:
    """Boot data inside the page's head; `<` is escaped so that no word or token can close the tag."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="sv-boot">{body}</script>'


def _drafter(family: Family) -> dict[str, Any]:
    return {
        "name": family.name,
        "family": family.name,
        "ready": standing(family).ready,
        "drafts": family.drafts,
        "rules": [_rule(RULES[name]) for name in family.rules],
        "knobs": [_knob(knob) for knob in family.knobs],
        "anatomy": asdict(family.anatomy) | {"layers": _layers(family)},
        "provenance": _provenance(family),
    }


def _layers(family: Family) -> str | list[int] | None:
    """The knob that numbers the hidden states a drafter reads, or the numbers themselves where its head is here."""
    name = family.anatomy.layers
    if name is None or any(knob.name == name for knob in family.knobs):
        return name
    config = heads.HEADS / str(family.head) / heads.CONFIG
    return json.loads(config.read_text(encoding="utf-8"))[name] if config.is_file() else None


def _provenance(family: Family) -> dict[str, Any] | None:
    """What a trained head's papers say of its making, in one line's worth; None where there are none."""
    papers = read_provenance(family.head) if family.head else {}
    if not papers:
        return None
    live = papers.get("live", {})
    return {
        "parameters": papers.get("parameters"),
        "shards": papers.get("corpus", {}).get("shards"),
        "agree": papers.get("held_out", {}).get("all", {}).get("agree", []),
        "alpha": live.get("alpha"),
        "prompts": live.get("prompts"),
        "licence": papers.get("licence"),
        "calibration": papers.get("calibration", {}).get("tenths"),
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "lossless": rule.lossless,
        "trees": rule.trees,
        "drawn": list(rule.drawn),
        "strength": rule.strength,
    }


def _knob(knob: Knob) -> dict[str, Any]:
    return {
        "name": knob.name,
        "kind": knob.kind,
        "min": knob.low,
        "max": knob.high,
        "default": knob.default,
        "choices": list(knob.choices),
    }


def _preset(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "lesson": preset.lesson,
        "prompt": preset.prompt,
        "settings": preset.settings,
        "trace": f"lessons/presets/{preset.name}.ndjson",
    }
