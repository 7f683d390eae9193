"""Which drafters are ready: those that need no weights, and those whose head beats a bigram table.

A head's papers hold what it reached on prompts it was never trained on, run live (`train measure` writes it there). A
head that does not beat a table of what follows what has learned nothing worth its cost; it is shown, with its number,
and cannot be chosen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from spec_viz.drafters.registry import Family
from spec_viz.models import heads
from spec_viz.models.catalogue import CATALOGUE, DEFAULT, published_head
from spec_viz.models.weights import WeightsError, is_cached

FLOOR = "bigram"


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a drafter can be chosen; of a head also its live α on held-out prompts, and that of the floor.

    `runs_on` is what it has of others for this target, by its name in the catalogue, whether it is here yet or not.
    """

    ready: bool
    alpha: float | None = None
    floor: float | None = None
    runs_on: str | None = None


def standing(family: Family, target: str = DEFAULT) -> Standing:
    """How a drafter stands for a target: on a head of ours, else on what others published or its smaller partner."""
    entry = CATALOGUE.get(target)
    if family.head is None:
        return Standing(entry is None or family.name in entry.drafters)
    try:
        heads.check_head(family.head, target)
    except WeightsError:
        name = _of_others(family, target)
        return Standing(name is not None and is_cached(name), runs_on=name)
    alpha, floor = (live_alpha(name) for name in (family.head, FLOOR))
    if family.head == FLOOR:
        return Standing(True, alpha, floor)
    return Standing(alpha is not None and floor is not None and alpha > floor, alpha, floor)


def _of_others(family: Family, target: str) -> str | None:
    """The published head or the partner that a drafter has for a target no head of ours was trained for."""
    if target == DEFAULT:
        return None
    published = published_head(family.name, target)
    if published:
        return published.name
    entry = CATALOGUE.get(target)
    return entry.partner if entry and family.name == "draft_model" else None


def live_alpha(head: str) -> float | None:
    """The α that a head's papers claim, None where it was not measured."""
    alpha = read_provenance(head).get("live", {}).get("alpha")
    return None if alpha is None else float(alpha)


def read_provenance(head: str) -> dict[str, Any]:
    """A head's papers, empty where it has none."""
    place = heads.HEADS / head / heads.PROVENANCE
    papers: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    return papers
