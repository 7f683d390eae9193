"""The demonstration of planted faults: each drifts to the law that enumeration foretells, each repair keeps p."""

import math
from typing import Any

import pytest
from scipy.stats import chi2

from spec_viz.lab.drift import CONTEXT, FAULTS, MOST_COUNTED, MOST_ROUNDS, drift, exact_law
from spec_viz.lab.law import toy_tables
from spec_viz.ui.page import drifted

ALARM = 0.001
# Of twenty looks at true laws, four faults, one in a thousand may be this low: below it something is wrong.
LOW = 1e-5


def grown(fault: str, rounds: int, *, repaired: bool = False, part: int = 500) -> list[Any]:
    """The checkpoints of a count that grows as the page lets it grow."""
    points: list[Any] = []
    for seed in range(1, rounds // part + 1):
        before = points[-1].counts if points else None
        points += drift(fault, part, seed, repaired=repaired, before=before).checkpoints
    return points


@pytest.mark.parametrize("fault", FAULTS)
def test_a_repaired_method_keeps_the_target_law_exactly(fault: str) -> None:
    target = toy_tables()[0].softmax(-1)[CONTEXT].tolist()
    assert exact_law(FAULTS[fault].right) == pytest.approx(target, abs=1e-12)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_a_law_of_its_own(fault: str) -> None:
    told = drift(fault, 1, 1)
    assert sum(told.law) == pytest.approx(1)
    assert told.distance > 0.08
    assert told.distance == pytest.approx(sum(abs(a - b) for a, b in zip(told.law, told.target, strict=True)) / 2)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("repaired", [False, True])
def test_rounds_follow_the_enumerated_law(fault: str, repaired: bool) -> None:
    told = drift(fault, 2000, 11, repaired=repaired)
    counts = told.checkpoints[-1].counts
    expected = [2000 * chance for chance in told.law]
    assert all(count == 0 for count, mean in zip(counts, expected, strict=True) if mean < 1e-9)
    cells = [(count, mean) for count, mean in zip(counts, expected, strict=True) if mean >= 5]
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    assert chi2.sf(statistic, len(cells) - 1) > ALARM


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_and_its_repair_never_is(fault: str) -> None:
    assert drift(fault, 2000, 1).checkpoints[-1].p_value < 1e-9
    assert min(point.p_value for point in grown(fault, 4000, repaired=True)) > LOW


def test_an_honest_method_comes_near_as_chance_lets_it() -> None:
    points = grown("none", 4000)
    assert points[-1].rounds == 4000
    assert points[-1].distance < 3 * points[-1].by_chance < points[0].by_chance
    p = drift("none", 1, 1).target
    assert points[-1].by_chance == pytest.approx(sum(math.sqrt(2 * x * (1 - x) / (math.pi * 4000)) for x in p) / 2)


def test_counts_go_on_where_they_were() -> None:
    first = drift("argmax", 500, 1).checkpoints
    second = drift("argmax", 500, 2, before=first[-1].counts).checkpoints
    assert [point.rounds for point in (*first, *second)] == [125, 250, 375, 500, 625, 750, 875, 1000]
    assert all(sum(point.counts) == point.rounds for point in (*first, *second))
    assert all(late >= early for early, late in zip(first[-1].counts, second[-1].counts, strict=True))
    assert drift("argmax", 500, 1).checkpoints == first
    assert drift("argmax", 500, 2).checkpoints != first


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(KeyError):
        drift("another", 10, 1)
    with pytest.raises(ValueError, match="one count for each of the 6 tokens"):
        drift("argmax", 10, 1, before=[1, 2])


def test_the_page_is_answered() -> None:
    asked = {"fault": "drop", "repaired": True, "rounds": 40, "seed": 5, "before": [1, 2, 3, 4, 5, 6]}
    told = drifted(asked)
    assert (told["fault"], told["repaired"]) == ("drop", True)
    assert [point["rounds"] for point in told["checkpoints"]] == [31, 41, 51, 61]
    assert told["distance"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "odd",
    [
        {"fault": "another"},
        {"fault": ["argmax"]},
        {"rounds": 0},
        {"rounds": MOST_ROUNDS + 1},
        {"rounds": "10"},
        {"rounds": True},
        {"seed": -1},
        {"before": [1, 2]},
        {"before": "123456"},
        {"before": [0, 0, 0, 0, 0, MOST_COUNTED + 1]},
        {"before": [0, 0, 0, 0, 0, -1]},
    ],
)
def test_a_page_that_asks_for_anything_else_gets_a_sentence(odd: dict[str, Any]) -> None:
    asked = {"fault": "argmax", "repaired": False, "rounds": 10, "seed": 1, "before": []}
    assert drifted({**asked, **odd}) == {"error": {"key": "break.failed", "args": {}}}
    assert drifted(None) == {"error": {"key": "break.failed", "args": {}}}
