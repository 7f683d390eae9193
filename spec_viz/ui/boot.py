"""What the page needs to know before it asks the server for anything: words, drafters, presets, the first picture."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
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
from spec_viz.ui.limits import Limits
from spec_viz.ui.serve_view import kept
from spec_viz.ui.wording import LANGUAGES, usual_language, words

FIRST = "weather"
MAX_GAMMA = 12


def boot(limits: Limits, target: str = DEFAULT) -> dict[str, Any]:
    """Everything the page starts with for a target of the catalogue, as JSON-able data."""
    presets = load_presets()
    drafters = [_drafter(family, target) for family in families().values()]
    ready = {drafter["name"] for drafter in drafters if drafter["ready"]}
    first = next(preset for preset in presets if preset.name == FIRST)
    return {
        "words": {language: dict(words(language).table) for language in LANGUAGES},
        "language": usual_language(),
        "static": "sv/",
        "version": __version__,
        "limits": {
            "max_new_tokens": limits.max_new_tokens,
            "prompt_chars": limits.prompt_chars,
            "gamma_max": MAX_GAMMA,
        },
        "targets": [_target(target)],
        # Examples, lessons and the Lab's records were made on this one, whichever target the page runs.
        "recorded": _target(DEFAULT),
        "drafters": drafters,
        "lengths": list(LENGTHS),
        "presets": [_preset(preset, target, ready) for preset in presets],
        "lessons": lesson_list(),
        "served": {"runs": kept(), "mode": gate().mode, "servers": gate().servers},
        "first": {"preset": FIRST, "ndjson": first.trace_path.read_text(encoding="utf-8")},
    }


def script_tag(data: dict[str, Any]) -> str:
    """Boot data inside the page's head; `<` is escaped so that no word or token can close the tag."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="sv-boot">{body}</script>'


def _target(name: str) -> dict[str, Any]:
    entry = CATALOGUE[name]
    return {"name": entry.name, "title": entry.title, "parameters": entry.parameters, "writes": entry.writes}


def _drafter(family: Family, target: str = DEFAULT) -> dict[str, Any]:
    stands = standing(family, target)
    ours = family.head is not None and target == DEFAULT
    missing = stands.runs_on if not stands.ready else None
    return {
        "name": family.name,
        "family": family.name,
        "ready": stands.ready,
        "fetch": f"python -m spec_viz models fetch {missing}" if missing else None,
        "drafts": family.drafts,
        "rules": [_rule(RULES[name]) for name in family.rules],
        "knobs": [_knob(knob, target) for knob in family.knobs],
        "anatomy": asdict(family.anatomy) | {"layers": _layers(family, ours)},
        "provenance": _provenance(family) if ours else None,
    }


def _layers(family: Family, ours: bool) -> str | list[int] | None:
    """The knob that numbers the hidden states a drafter reads, or the numbers themselves of a head of ours."""
    name = family.anatomy.layers
    if name is None or any(knob.name == name for knob in family.knobs):
        return name
    if not ours:
        return None
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


def _knob(knob: Knob, target: str) -> dict[str, Any]:
    # A draft model that nobody names is the target's partner; the page says its name.
    partner = CATALOGUE[target].partner if knob.name == "model" else None
    return {
        "name": knob.name,
        "kind": knob.kind,
        "min": knob.low,
        "max": knob.high,
        "default": partner or knob.default,
        "choices": list(knob.choices),
    }


def _preset(preset: Preset, target: str, ready: Collection[str]) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "lesson": preset.lesson,
        "prompt": preset.prompt,
        "settings": preset.settings if target == DEFAULT else _carried_over(preset.settings, ready),
        "trace": f"lessons/presets/{preset.name}.ndjson",
    }


def _carried_over(settings: Mapping[str, Any], ready: Collection[str]) -> dict[str, Any]:
    """A preset's settings for another target than its own: with the page's usual drafter where its own doesn't run."""
    if settings.get("drafter") in ready:
        options = {name: value for name, value in settings.get("options", {}).items() if name != "model"}
        return {**settings, "options": options}
    own = ("drafter", "options", "rule", "strength", "against")
    return {name: value for name, value in settings.items() if name not in own}
