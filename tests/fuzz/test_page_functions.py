"""What the page asks the server for beside the queue: any JSON gets an answer that can be sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.content.lessons import lesson_folders
from spec_viz.lab.drift import FAULTS
from spec_viz.serving.saved import path_of
from spec_viz.ui.experiments import experiment
from spec_viz.ui.lab import law
from spec_viz.ui.page import drifted
from spec_viz.ui.room import Room
from spec_viz.ui.serve import serve
from spec_viz.ui.serve_view import served
from tests.fuzz.cases import anything, case, cases, mutated, sendable, vandalised

DRIFTS = [
    {"fault": fault, "repaired": repaired, "rounds": 3, "seed": 7, "before": before}
    for fault in (*FAULTS, "none")
    for repaired, before in ((False, []), (True, [1, 2, 3, 4, 5, 6]))
]
LAWS = [
    {"drafter": drafter, "rule": rule, "temperature": temperature, "runs": 2, "seed": 5, "before": []}
    for drafter, rule in (("prompt_lookup", "token"), ("bigram", "match"), ("draft_model", "block"))
    for temperature in (0.5, 1.0)
]
CHOICES = [
    {"method": method, "target": "", "drafter": "", "version": "0.32", "hardware": "nvidia-24", "options": options}
    for method in ("ngram", "eagle3", "baseline", "mtp", "medusa")
    for options in (
        {},
        {"num_speculative_tokens": "4", "max_model_len": "4096", "tensor_parallel_size": "2"},
        {"rejection_sample_method": "synthetic", "prompt_lookup_max": "x", "gpu_memory_utilization": "2"},
    )
]


def answers(surface: str, do: Callable[[Any], Any], asked: Any) -> Any:
    with case(f"server function: {surface}"):
        answer = do(asked)
        sendable(answer)
        return answer


@cases()
@given(mutated(DRIFTS) | anything)
def test_drift(asked: Any) -> None:
    answers("drift", drifted, asked)


@cases(20)
@given(mutated(LAWS) | anything)
def test_law(asked: Any) -> None:
    answers("law", law, asked)


@cases()
@given(mutated(CHOICES) | anything)
def test_serve(asked: Any) -> None:
    answers("serve", serve, asked)


@cache
def results() -> tuple[dict[str, Any], ...]:
    """A recorded result of each kind, with few points."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for folder in lesson_folders(hidden=True):
        for path in folder.glob("traces/*.json"):
            body = json.loads(path.read_text(encoding="utf-8"))
            for name in ("points", "samples"):
                if isinstance(body.get(name), list):
                    body[name] = body[name][:6]
            found.setdefault((body["kind"], body.get("experiment", {}).get("kind")), body)
    return tuple(found.values())


@st.composite
def looked_at(draw: st.DrawFn) -> Any:
    body = {
        "result": draw(mutated(results())),
        "beside": draw(st.none() | mutated(results(), 1)),
        "language": draw(st.sampled_from(["vi", "en", "xx", 3])),
        "theme": draw(st.sampled_from(["light", "dark", []])),
    }
    return body | ({"as": "csv"} if draw(st.booleans()) else {})


@cases(30)
@given(looked_at() | anything)
def test_experiment(asked: Any) -> None:
    answers("experiment", experiment, asked)


@cache
def record() -> dict[str, Any]:
    """A saved run of a server with its first answers, as a page exports it."""
    found: dict[str, Any] = json.loads(path_of("eagle3").read_text(encoding="utf-8"))
    for each in found["passes"]:
        each["asked"] = each["asked"][:2]
    found["passes"] = found["passes"][:1]
    return found


@st.composite
def runs(draw: st.DrawFn) -> Any:
    body = draw(mutated([record(), {"schema": "specviz.compared/1", "runs": [record(), record()]}]))
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    asked: dict[str, Any] = {
        "record": draw(vandalised(text, 2)) if draw(st.booleans()) else text,
        "language": draw(st.sampled_from(["vi", "en"])),
        "theme": "light",
    }
    asked |= draw(
        st.sampled_from(
            [{}, {"at": 1}, {"at": []}, {"question": 0}, {"question": 10**30}, {"as": "csv"}, {"as": "json"}]
        )
    )
    return asked


@st.composite
def saved(draw: st.DrawFn) -> Any:
    came = [["x", True, [[1.0, 1], [2.5, 3]]], ["y", False, [[0, 1]]]]
    return draw(
        mutated(
            [
                {"runs": ["baseline", "eagle3"], "at": 1, "language": "vi", "theme": "dark"},
                {"runs": ["ngram"], "question": 1},
                {"came": came, "language": "en"},
            ]
        )
    )


@cases(30)
@given(runs() | saved() | anything)
def test_served(asked: Any) -> None:
    answers("served", served, asked)


@pytest.fixture(scope="module")
def room() -> Room:
    return Room()


def test_state_and_stop(room: Room) -> None:
    @cases()
    @given(anything)
    def asked_for(nonce: Any) -> None:
        # As the page's own functions hand it on.
        answers("state", lambda _: room.state(), nonce)
        answers("stop", lambda nonce: room.stop(nonce) if isinstance(nonce, str) else None, nonce)

    asked_for()
