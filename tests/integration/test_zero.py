"""A room on ZeroGPU: runs are in a process of their own, and everything that a visitor sees stays as it was."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spec_viz.engine.trace import Ms, Trace
from spec_viz.ui import zero
from spec_viz.ui.flag import PLACES, Flag
from spec_viz.ui.limits import Limits
from spec_viz.ui.line import Ticket
from spec_viz.ui.room import Room, bundle_of
from spec_viz.ui.wording import LANGUAGES, words
from tests.integration.lender import FORK, Lender, Refusal
from tests.integration.rooms import Gate, ask, by, finishes, last, lines, notice, ready_room, text_of

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="ZeroGPU forks"),
    # Python 3.12 warns of what ZeroGPU does. The tiny model has one thread.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

SWEEP = {
    "kind": "gamma",
    "drafters": ["prompt_lookup"],
    "axis": [1, 2],
    "questions": {"set": "own", "prompts": [["list", "one two three one two"]]},
    "max_new_tokens": 4,
}
KINDS = {
    "a run": ask(),
    "a race": ask(race=True, against=[{"drafter": "ngram"}]),
    "a tree, learned": ask(drafter="token_recycling"),
    "a lookup, learned": ask(drafter="suffix"),
    "the target's own layers": ask(drafter="early_exit", options={"layers": 1}, temperature=0.8, seed=3),
    "costs": ask(cost={"max_n": 2, "context": 4}),
    "an experiment": ask(sweep=SWEEP),
    "nonsense": ask(max_new_tokens="many", gamma=None, against=3),
}


@pytest.fixture
def lender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lender]:
    lender = Lender()
    monkeypatch.setattr(zero, "HERE", True)
    monkeypatch.setattr(zero, "spaces", lender, raising=False)
    yield lender
    if lender.worker:
        lender.worker.end()


@pytest.fixture
def apart(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A room whose runs are in another process."""
    return ready_room(monkeypatch)


@pytest.fixture
def gate(apart: Room) -> Iterator[Gate]:
    """What the model meets, also in the process that is forked with the first run."""
    with Gate() as gate:
        yield gate


def serve(room: Room, visitor: str = "v", **fields: Any) -> list[dict[str, Any]]:
    return last(room.serve(ask(**fields), by(visitor)))


def until_running(answer: Iterator[str]) -> str:
    return next(text for text in answer if '"round"' in text)


def timeless(trace: Trace) -> Trace:
    """The trace without what no two runs share."""
    rounds = tuple(replace(round_, ms=Ms()) for round_ in trace.rounds)
    return replace(trace, run="", rounds=rounds, meta={**trace.meta, "created": ""})


# ---------------------------------------------------------------- the same run


@pytest.mark.parametrize("asked", [KINDS["a run"], KINDS["a race"], KINDS["the target's own layers"]])
def test_a_run_in_another_process_is_the_run_that_it_is_here(
    apart: Room, lender: Lender, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    there = bundle_of(list(apart.serve(asked, by("v")))[-1])
    assert lender.worker is not None
    assert lender.worker.process.pid != os.getpid()
    monkeypatch.setattr(zero, "HERE", False)
    here = bundle_of(list(ready_room(monkeypatch).serve(asked, by("v")))[-1])
    assert [*map(timeless, there)] == [*map(timeless, here)]
    assert all(trace.rounds and trace.finish for trace in there)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_goes_in_and_comes_out_can_be_pickled(apart: Room, kind: str) -> None:
    asked, ticket, memory = pickle.loads(pickle.dumps((KINDS[kind], Ticket(by("v"), "n"), {})))
    pieces = [pickle.loads(pickle.dumps(piece)) for piece in apart._run(asked, ticket, memory)]
    assert pieces[-1].keys() == memory.keys()
    assert "".join(pieces[:-1]).count("\n") >= 1
    if kind.endswith("learned"):
        assert memory


def test_an_experiment_and_a_measurement_come_through_as_well(apart: Room) -> None:
    assert [line["sweep"]["finish"] for line in serve(apart, sweep=SWEEP) if "finish" in line.get("sweep", {})] == [
        "done"
    ]
    assert any("result" in line.get("cost", {}) for line in serve(apart, cost={"max_n": 2, "context": 4}))


# ---------------------------------------------------------------- what crosses over


def test_a_stop_is_seen_over_there_and_keeps_what_was_made(apart: Room, gate: Gate) -> None:
    gate.pause = 0.1
    answer = apart.serve(ask(drafter="none", max_new_tokens=200, nonce="mine"), by("v"))
    before = text_of(lines(until_running(answer)))
    apart.stop("mine")
    found = last(answer)
    assert finishes(found) == ["stopped"]
    assert text_of(found)[: len(before)] == before
    assert 0 < len(before) <= len(text_of(found)) < 200


def test_a_tab_that_is_closed_ends_the_run_and_the_next_has_the_same_process(
    apart: Room, lender: Lender, gate: Gate
) -> None:
    gate.pause = 0.05
    answer = apart.serve(ask(drafter="none", max_new_tokens=256), by("v"))
    until_running(answer)
    assert lender.worker is not None
    process = lender.worker.process.pid
    begun = time.monotonic()
    answer.close()
    # 256 passes would take 13 seconds.
    assert time.monotonic() - begun < 6
    assert len(apart.line) == 0
    assert finishes(serve(apart, max_new_tokens=2)) == ["length"]
    assert lender.worker.process.pid == process


@pytest.mark.parametrize("drafter", ["suffix", "token_recycling"])
def test_what_a_drafter_learns_over_there_is_its_visitor_s_the_next_time(
    apart: Room, lender: Lender, drafter: str
) -> None:
    def drafted(visitor: str) -> int:
        (trace,) = bundle_of(list(apart.serve(ask(drafter=drafter, max_new_tokens=30), by(visitor)))[-1])
        return sum(len(round_.nodes) for round_ in trace.rounds)

    first = drafted("mine")
    assert drafted("yours") == first
    # And not because it stayed in that process.
    assert lender.worker is not None
    lender.worker.end()
    assert drafted("mine") > first


def test_the_lent_time_ends_a_run_in_a_sentence_before_it_is_taken_away(
    apart: Room, lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zero, "seconds", lambda *_: 0.0)
    found = serve(apart)
    assert finishes(found) == ["stopped"]
    assert notice(found)["key"] == "error.time_up"
    assert lender.asked == [zero.GRACE]


def test_nothing_is_decoded_before_a_gpu_is_lent(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    with Gate() as gate:
        assert ready_room(monkeypatch).state()["ready"]
        assert (gate.passes, lender.asked) == (0, [])


def test_no_gpu_is_borrowed_to_say_that_there_is_no_model(lender: Lender) -> None:
    assert notice(serve(Room()))["key"] == "error.model_starting"
    assert lender.asked == []


# ---------------------------------------------------------------- no GPU


@pytest.mark.parametrize(
    ("refusal", "key"),
    [
        (Refusal("ZeroGPU quota exceeded"), "error.gpu_quota"),
        (Refusal("ZeroGPU queue timeout"), "error.gpu_away"),
        (Refusal("ZeroGPU illegal duration"), "error.gpu_away"),
        (RuntimeError("ZeroGPU API /schedule error: 500"), "error.gpu_away"),
    ],
)
def test_where_no_gpu_is_lent_that_is_said_and_the_room_goes_on(
    apart: Room, lender: Lender, refusal: Exception, key: str
) -> None:
    lender.refusal = refusal
    said = notice(serve(apart))
    assert said == {"key": key, "args": {}}
    for language in LANGUAGES:
        assert "{" not in words(language)(key)
    lender.refusal = None
    assert finishes(serve(apart)) == ["length"]


def test_a_gpu_that_is_taken_away_leaves_what_was_decoded(apart: Room, lender: Lender, gate: Gate) -> None:
    gate.pause = 0.1
    answer = apart.serve(ask(drafter="none", max_new_tokens=200), by("v"))
    before = text_of(lines(until_running(answer)))
    assert lender.worker is not None
    assert lender.worker.process.pid is not None
    os.kill(lender.worker.process.pid, signal.SIGKILL)
    text = list(answer)[-1]
    found = lines(text)
    assert notice(found)["key"] == "error.gpu_away"
    assert finishes(found) == ["error"]
    assert text_of(found)[: len(before)] == before
    (trace,) = bundle_of(text)
    assert trace.finish == "error"
    assert finishes(serve(apart, max_new_tokens=2)) == ["length"]


# ---------------------------------------------------------------- how long it is lent


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, 5 + 64 * (0.05 + 4 * 0.02)),
        ({"max_new_tokens": 16, "gamma": 1}, 5 + 16 * 0.07),
        ({"max_new_tokens": 16, "gamma": 1, "race": True}, 5 + 16 * (0.07 + 0.05)),
        ({"max_new_tokens": 16, "gamma": 2, "against": [{}, {}]}, 5 + 16 * 3 * 0.09),
        ({"max_new_tokens": 10**400, "gamma": 12}, zero.MOST),
        ({"max_new_tokens": -3, "gamma": float("nan"), "against": "all"}, 5 + 0.13),
        ({"max_new_tokens": "many", "gamma": None, "race": []}, 5 + 64 * 0.13),
        ({"sweep": None}, zero.MOST),
        ({"cost": {}}, zero.MOST),
    ],
)
def test_it_is_asked_for_as_long_as_the_length_and_the_drafts_may_take(asked: dict[str, Any], expected: float) -> None:
    assert zero.seconds(asked, 256) == pytest.approx(expected)


def test_the_lender_is_asked_for_whole_seconds_within_the_host_s_limit(apart: Room, lender: Lender) -> None:
    serve(apart, max_new_tokens=16, gamma=1)
    apart.limits = Limits(seconds=2.0)
    serve(apart, max_new_tokens=16, gamma=1)
    assert lender.asked == [7 + zero.GRACE, 2 + zero.GRACE]


def test_elsewhere_the_function_is_left_as_it_is() -> None:
    def task() -> Iterator[int]:
        yield 1

    assert not zero.HERE
    assert zero.lent(task, lambda: 1.0) is task  # type: ignore[arg-type]


# ---------------------------------------------------------------- the flag


def test_a_flag_is_seen_by_a_process_that_was_forked_before_it_was_made() -> None:
    questions, answers = FORK.SimpleQueue(), FORK.SimpleQueue()

    def look() -> None:
        while (flag := questions.get()) is not None:
            answers.put(flag.is_set())

    process = FORK.Process(target=look, daemon=True)
    process.start()
    mine, other = Flag(), Flag()
    mine.set()
    seen = []
    for flag in (mine, other):
        questions.put(flag)
        seen.append(answers.get())
    questions.put(None)
    process.join(20)
    assert seen == [True, False]


def test_a_new_flag_is_down_also_where_an_old_one_was_up() -> None:
    for _ in range(PLACES):
        Flag().set()
    assert not Flag().is_set()
