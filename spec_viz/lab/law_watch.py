"""The losslessness test as something to watch: the real loop on the tiny target, counted place by place as runs come.

The full test asks for the joint law of all tokens (`law_tiny`); here each place stands alone, so that its law is seven
bars. The first token is written by the prefill, where nothing is drafted, so it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from spec_viz.drafters.registry import families
from spec_viz.engine.rules import RULES
from spec_viz.lab.drift import Checkpoint, checkpoint
from spec_viz.lab.law import one_thread
from spec_viz.lab.law_tiny import (
    HORIZON,
    OPTIONS,
    VOCABULARY,
    WARP,
    can_draft,
    decode_tiny,
    target_law,
    tiny_options,
)

PLACES = tuple(range(1, HORIZON))
# Few, so that laws once computed can be kept.
TEMPERATURES = (0.5, 0.7, 1.0, 1.5)
# What one call may be asked for, and what it may count on top of.
MOST_RUNS = 200
MOST_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class Watched:
    """What was counted so far at each of `PLACES`, beside the target's exact law there; `law` is (places, V)."""

    lossless: bool
    law: tuple[tuple[float, ...], ...]
    places: tuple[Checkpoint, ...]


def methods() -> dict[str, tuple[str, ...]]:
    """Every drafter that drafts in this world, with the rules that fit it."""
    return {family.name: family.rules for family in families().values() if family.name != "none" and can_draft(family)}


def watch(
    drafter: str, rule: str, temperature: float, runs: int, seed: int, before: Sequence[Sequence[int]] | None = None
) -> Watched:
    """Decode the tiny prompt `runs` times and count on top of `before`, one row of counts (V,) for each place.

    The same seed gives the same runs: whoever goes on counting gives another. Raises ValueError for a drafter with a
    rule that is not in `methods`, a temperature not in `TEMPERATURES`, and counts of another shape.
    """
    if rule not in methods().get(drafter, ()) or temperature not in TEMPERATURES:
        raise ValueError(f"{drafter} with {rule} at temperature {temperature} is not tested here")
    counts = [list(row) for row in before] if before else [[0] * VOCABULARY for _ in PLACES]
    if len(counts) != len(PLACES) or any(len(row) != VOCABULARY for row in counts):
        raise ValueError(f"{len(PLACES)} rows of {VOCABULARY} counts")
    family = families()[drafter]
    checked = tiny_options(family, rule, OPTIONS.get(drafter, ({},))[0])
    warp = replace(WARP, temperature=temperature)
    with one_thread():
        law = _laws(temperature)
        for run in range(runs):
            tokens, _ = decode_tiny(family, rule, checked, seed + run, warp=warp)
            for row, place in zip(counts, PLACES, strict=True):
                row[tokens[place]] += 1
    return Watched(
        RULES[rule].lossless, law, tuple(checkpoint(row, exact) for row, exact in zip(counts, law, strict=True))
    )


@cache
def _laws(temperature: float) -> tuple[tuple[float, ...], ...]:
    """The target's exact law (places, V) of each place alone: the joint law, summed over the others."""
    rows = [[0.0] * VOCABULARY for _ in PLACES]
    for tokens, mass in target_law(temperature).items():
        for row, place in zip(rows, PLACES, strict=True):
            row[tokens[place]] += mass
    return tuple(map(tuple, rows))
