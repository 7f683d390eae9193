"""v(n) measured for a visitor on the tiny model: what is sent, that it waits its turn, stops, and leaves nothing."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from spec_viz.ui.gauge import MOST_CONTEXT, MOST_TOKENS, REPEATS
from spec_viz.ui.room import Room
from tests.integration.rooms import Gate, ask, by, filled_caches, last, lines, notice

COST = {"max_n": 4, "context": 16}


def measure(room: Room, cost: Any = COST, visitor: str = "v") -> list[dict[str, Any]]:
    return last(room.serve({"nonce": "n", "cost": cost}, by(visitor)))


def told(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line["cost"] for line in found if "cost" in line]


def test_progress_comes_before_the_result_and_the_result_holds_its_conditions(room: Room) -> None:
    found = measure(room)
    assert found[:2] == [{"request": "n"}, {"wait": 0}]
    *progress, end = told(found)
    assert progress == [{"done": done, "of": REPEATS} for done in range(REPEATS)]
    result = end["result"]
    assert [row["n"] for row in result["v"]] == [1, 2, 3, 4]
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] and row["ms"] > 0 for row in result["v"])
    conditions = result["conditions"]
    assert (conditions["context"], conditions["repeats"], conditions["device_name"]) == (16, REPEATS, "test")
    assert result["drafters"] == {}
    assert len(room.line) == 0


@pytest.mark.parametrize(
    ("cost", "name", "high"),
    [
        (None, "max_n", MOST_TOKENS),
        ("16", "max_n", MOST_TOKENS),
        ({**COST, "max_n": 1}, "max_n", MOST_TOKENS),
        ({**COST, "max_n": True}, "max_n", MOST_TOKENS),
        ({**COST, "max_n": 4.0}, "max_n", MOST_TOKENS),
        ({**COST, "max_n": MOST_TOKENS + 1}, "max_n", MOST_TOKENS),
        ({"max_n": 4}, "context", MOST_CONTEXT),
        ({**COST, "context": 0}, "context", MOST_CONTEXT),
        ({**COST, "context": 10**9}, "context", MOST_CONTEXT),
    ],
)
def test_numbers_out_of_range_get_a_sentence(room: Room, gate: Gate, cost: Any, name: str, high: int) -> None:
    said = notice(measure(room, cost))
    assert (said["key"], said["args"]["name"], said["args"]["high"]) == ("error.bad_number", name, high)
    assert gate.passes == 0


def test_a_measurement_waits_for_the_run_before_it(room: Room, gate: Gate) -> None:
    gate.open.clear()
    run = room.serve(ask(drafter="none"), by("first"))
    next(run)
    waiting = room.serve({"nonce": "n", "cost": COST}, by("second"))
    assert lines(next(waiting))[-1] == {"wait": 1}
    gate.open.set()
    assert '"finish"' in list(run)[-1]
    before = gate.passes
    found = last(waiting)
    assert "result" in told(found)[-1]
    assert gate.passes > before


def test_a_run_waits_for_the_measurement_before_it(room: Room, gate: Gate) -> None:
    gate.pause = 0.01
    measuring = room.serve({"nonce": "n", "cost": COST}, by("first"))
    text = next(text for text in measuring if '"done"' in text)
    run = room.serve(ask(), by("second"))
    assert lines(next(run))[-1] == {"wait": 1}
    *_, text = measuring
    assert "result" in told(lines(text))[-1]
    assert lines(list(run)[-1])[-1]["finish"] == "length"


def test_stop_ends_a_measurement_within_a_repeat(room: Room, gate: Gate) -> None:
    gate.pause = 0.02
    texts = []
    for text in room.serve({"nonce": "mine", "cost": COST}, by("v")):
        texts.append(text)
        if text.count('"done"') == 2:
            room.line.stop("mine")
    cost = told(lines(texts[-1]))
    assert cost[-1] == {"finish": "stopped"}
    assert len(cost) - 1 < REPEATS
    assert len(room.line) == 0


def test_who_leaves_takes_the_measurement_along(room: Room, gate: Gate) -> None:
    gate.pause = 0.02
    measuring = room.serve({"nonce": "n", "cost": COST}, by("v"))
    assert any('"done":1' in text for text in measuring)
    measuring.close()
    passes = gate.passes
    assert len(room.line) == 0
    # Another visitor is served at once, by the same model, and nothing runs beside it.
    list(room.serve(ask(drafter="none", max_new_tokens=3), by("w")))
    assert gate.passes == passes + 3
    gc.collect()
    assert filled_caches() == 0


def test_a_fault_is_a_sentence_and_the_room_goes_on(room: Room, gate: Gate) -> None:
    gate.fault = lambda: RuntimeError("of the model")
    assert notice(measure(room))["key"] == "error.unknown"
    assert "result" in told(measure(room))[-1]
    gc.collect()
    assert filled_caches() == 0


def test_without_a_model_it_says_why() -> None:
    assert notice(measure(Room()))["key"] == "error.model_starting"
