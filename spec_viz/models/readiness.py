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
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.weights import WeightsError

FLOOR = "bigram"


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a drafter can be chosen; of a head also its live α on held-out prompts, and that of the floor."""

    ready: bool
    alpha: float | None = None
    floor: float | None = None


def standing(family: Family, target: str = DEFAULT) -> Standing:
    """How a drafter stands for a target."""
    if family.head is None:
        return Standing(True)
    try:
        heads.check_head(family.head, target)
    except WeightsError:
        return Standing(False)
    alpha, floor = (live_alpha(name) for name in (family.head, FLOOR))
    if family.head == FLOOR:
        return Standing(True, alpha, floor)
    return Standing(alpha is not None and floor is not None and alpha > floor, alpha, floor)


def live_alpha(head: str) -> float | None:
    """The α that a head's papers claim, None where it was not measured."""
    alpha = read_provenance(head).get("live", {}).get("alpha")
    return None if alpha is None else float(alpha)


def read_provenance(head: str) -> dict[str, Any]:
    """A head's papers, empty where it has none."""
    place = heads.HEADS / head / heads.PROVENANCE
    papers: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    return papers
