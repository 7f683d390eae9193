"""Everything that goes through the line: any JSON as a request, on the tiny model, ends in lines that can be sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.registry import families
from spec_viz.engine.length import LENGTHS
from spec_viz.engine.rules import RULES
from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room, bundle_of
from spec_viz.ui.wording import LANGUAGES, words
from tests.fuzz.cases import anything, case, cases, mutated
from tests.integration.rooms import ask, by, lines, ready_room

# Two passes a run are enough to come through every part of it.
BOUNDS = Limits(max_new_tokens=6, prompt_chars=300, seconds=20.0)
TOKENS = {"max_new_tokens": 3, "prompt": "one two three, one two three"}
RUNS = [
    # Trained heads fit the real target only, whose name the tiny one has.
    *(ask(drafter=name, **TOKENS) for name, family in families().items() if family.head is None),
    *(ask(rule=rule, temperature=0.7, **TOKENS) for rule in RULES),
    *(ask(length=length, **TOKENS) for length in LENGTHS),
    ask(race=True, against=[{"drafter": "none"}, {"drafter": "ngram", "options": {"size": 2}}], **TOKENS),
    ask(top_k=3, top_p=0.9, repetition_penalty=1.1, seed=7, chat=True, **TOKENS),
    ask(drafter="draft_model", options={"model": "../../etc"}, **TOKENS),
    ask(drafter="scripted", options={"script": "one two"}, **TOKENS),
]
PROMPTS = {"set": "own", "prompts": [["a", "one two one two"]]}
SWEEPS = [
    {"kind": "gamma", "drafters": ["prompt_lookup"], "questions": PROMPTS, "axis": [1, 2], "max_new_tokens": 3},
    {"kind": "temperature", "drafters": ["anpd"], "questions": PROMPTS, "axis": [0, 1], "max_new_tokens": 3},
    {"kind": "task", "drafters": ["prompt_lookup"], "questions": PROMPTS, "max_new_tokens": 3},
    {"kind": "streaming", "drafters": ["prompt_lookup"], "questions": PROMPTS, "max_new_tokens": 3},
    {
        "kind": "concurrency",
        "drafters": ["prompt_lookup"],
        "questions": PROMPTS,
        "batches": [1, 2],
        "gammas": [2],
        "alphas": [0.5],
        "max_new_tokens": 3,
    },
    {"kind": "context", "drafters": ["prompt_lookup"], "lengths": [32], "max_new_tokens": 3},
    {
        "kind": "quantisation",
        "drafters": ["prompt_lookup"],
        "variants": ["int8"],
        "questions": PROMPTS,
        "max_new_tokens": 3,
    },
]
WIRES = [
    {"look": {"address": "127.0.0.1:1", "model": ""}},
    {"ask": {"prompt": "x", "max_tokens": 3, "servers": [{"address": "127.0.0.1:1"}]}},
    {
        "compare": {
            "servers": [{"name": "a", "address": "127.0.0.1:1"}, {"name": "b", "address": "[::1]:1"}],
            "prompts": ["x"],
        }
    },
]


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        yield ready_room(patch, BOUNDS)
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def foreseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An error that nobody foresaw is logged by the room: there must be none."""
    caplog.set_level(logging.ERROR, "spec_viz")
    yield
    assert [record.getMessage() for record in caplog.records if record.name.startswith("spec_viz")] == []


def served(room: Room, surface: str, asked: Any) -> None:
    with case(surface):
        text = ""
        for grown in room.serve(asked, by("v")):
            text = grown
        found = lines(text)
        for notice in (line["notice"] for line in found if "notice" in line):
            assert notice["key"] != "error.unknown"
            for language in LANGUAGES:
                assert words(language)(notice["key"], **notice["args"])
        if any("schema" in line for line in found):
            bundle_of(text)
        assert len(room.line) == len(room.wires) == 0


def fuzz(room: Room, surface: str, examples: st.SearchStrategy[Any], quick: int) -> None:
    @cases(quick)
    @given(examples)
    def each(asked: Any) -> None:
        served(room, surface, asked if isinstance(asked, dict) else {"prompt": asked})

    each()


def test_runs(room: Room) -> None:
    fuzz(
        room,
        "room.serve: runs",
        mutated(RUNS) | st.dictionaries(st.sampled_from([*RUNS[0], "cost", "race", "against"]), anything),
        60,
    )


def test_experiments_and_costs(room: Room) -> None:
    costs = [{"cost": {"max_n": 3, "context": 8}, "nonce": "n"}]
    fuzz(room, "room.serve: experiments", mutated([*({"sweep": each, "nonce": "n"} for each in SWEEPS), *costs]), 20)


def test_servers(room: Room) -> None:
    # What is admitted leads to a port where nobody listens.
    fuzz(room, "room.serve: servers", mutated([{"wire": each, "nonce": "n"} for each in WIRES]), 20)
