"""Requests from people, side by side: a trace each, and on the real model the very text that each writes alone.

The proof on the real model takes the presets' prompts in turn until there are sixteen.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import cycle, islice
from typing import Any

import pytest
import torch

from spec_viz.content.presets import load_presets
from spec_viz.engine.schedule import ByBatchSize
from spec_viz.engine.trace import Ms, Trace, dumps, loads
from spec_viz.lab.batch import start_batch
from spec_viz.lab.run import Request, start
from spec_viz.models.load import Loaded, load
from spec_viz.models.weights import is_cached
from tests.law.test_run import ask
from tests.law.test_run import loaded as tiny_float32

PROMPTS = 16
NEW_TOKENS = 32
# Two passes over different numbers of rows may differ by this much in a logit: float32 sums in another order.
ROUNDING = 1e-3


@cache
def tiny() -> Loaded:
    """In float64, so that a batch and a lone run agree in every digit that a trace has."""
    small = tiny_float32()
    return replace(small, model=deepcopy(small.model).double(), dtype=torch.float64)


REQUESTS = [
    ask(),
    ask(drafter="early_exit", options={"layers": 1}, temperature=0.8, seed=3, gamma=3),
    ask(drafter="none", max_new_tokens=9),
    ask(drafter="scripted", options={"script": "Thời tiết"}, prompt="Hôm nay", gamma=2),
    ask(drafter="pld_plus", options={"layer": 1}, gamma=5),
    ask(drafter="layer_skip", options={"skip": "1", "search": 2}, rule="block", temperature=1.0, seed=2),
]


def alone(trace: Trace) -> Trace:
    """What a lone run of the request would have: no batch, and no times."""
    rounds = tuple(replace(round_, ms=Ms()) for round_ in trace.rounds)
    return replace(trace, meta={**trace.meta, "batch": None}, rounds=rounds)


def test_a_trace_of_a_batch_is_that_of_the_request_alone_but_for_times() -> None:
    for size in (2, len(REQUESTS)):
        traces = start_batch(tiny(), REQUESTS, size).collect()
        for request, trace in zip(REQUESTS, traces, strict=True):
            assert alone(trace).same_as(start(tiny(), request).collect())


def test_the_header_says_which_batch_and_which_row() -> None:
    traces = start_batch(tiny(), REQUESTS, 3).collect()
    batches = [trace.meta["batch"] for trace in traces]
    assert [batch["row"] for batch in batches] == list(range(len(REQUESTS)))
    assert {batch["size"] for batch in batches} == {3}
    assert len({batch["id"] for batch in batches}) == 1
    assert len({trace.run for trace in traces}) == len(REQUESTS)


def test_the_traces_are_a_bundle_that_reads_back_with_every_pass_timed_once() -> None:
    run = start_batch(tiny(), REQUESTS, 3)
    passes = list(run.passes)
    assert all(sum(round_.ms.verify is not None for round_ in each.rounds.values()) == 1 for each in passes)
    traces = start_batch(tiny(), REQUESTS, 3).collect()
    assert [alone(trace) for trace in loads(dumps(*traces))] == [alone(trace) for trace in traces]


def test_a_schedule_and_a_stop_reach_the_batch() -> None:
    traces = start_batch(tiny(), REQUESTS, 6, schedule=ByBatchSize([[1, 6, 0]])).collect()
    assert not any(round_.nodes for trace in traces for round_ in trace.rounds)
    asked = iter(range(8))
    stopped = start_batch(tiny(), REQUESTS, 6, stop=lambda: next(asked, None) is None).collect()
    assert {trace.finish for trace in stopped} == {"stopped"}
    assert all(len(trace.output) >= 2 for trace in stopped)


def test_what_a_batch_cannot_hold_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="set kv to own"):
        start_batch(tiny(), [ask(drafter="early_exit", options={"layers": 1, "kv": "shared"})], 1)
    with pytest.raises(ValueError, match="at least one request"):
        start_batch(tiny(), [], 4)
    with pytest.raises(ValueError, match="at least one request"):
        start_batch(tiny(), REQUESTS, 0)


# ---------------------------------------------------------------- the real model


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load("smollm2-135m")


@torch.inference_mode()
def lead(loaded: Loaded, tokens: tuple[int, ...]) -> float:
    """By how much the best next logit leads the second."""
    best = loaded.model(torch.tensor([tokens], device=loaded.device)).logits[0, -1].float().topk(2).values
    return float(best[0] - best[1])


@pytest.mark.slow
@pytest.mark.skipif(not is_cached("smollm2-135m"), reason="the default model is not in the cache")
@pytest.mark.parametrize(
    ("drafter", "options"), [("none", {}), ("prompt_lookup", {}), ("early_exit", {"layers": 27})], ids=lambda v: str(v)
)
def test_sixteen_prompts_side_by_side_write_what_each_writes_alone(
    loaded: Loaded, drafter: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = list(
        islice(cycle((preset.prompt, bool(preset.settings.get("chat", True))) for preset in load_presets()), PROMPTS)
    )
    requests = [
        Request(prompt, drafter, options, gamma=1 + place % 5, max_new_tokens=NEW_TOKENS - place % 7, chat=chat)
        for place, (prompt, chat) in enumerate(prompts)
    ]
    ties = []
    for place, trace in enumerate(start_batch(loaded, requests, 12).collect()):
        other = start(loaded, requests[place]).collect()
        if trace.output != other.output:
            agreed = next(i for i, (a, b) in enumerate(zip(trace.output, other.output, strict=False)) if a != b)
            margin = lead(loaded, trace.prompt + other.output[:agreed])
            assert margin < ROUNDING, (
                f"prompt {place} differs at token {agreed}, where the best logit leads by {margin}"
            )
            ties.append((place, agreed, margin))
        else:
            assert trace.finish == other.finish
    assert len(ties) < PROMPTS // 4
    with capsys.disabled():
        sys.stdout.write(f"\n{drafter}: {PROMPTS} prompts, near-ties (prompt, token, lead): {ties}\n")
