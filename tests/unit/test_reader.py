"""What a server's answer tells, drawn as a trace: hand-made answers, honest, mute and contradictory ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from spec_viz.engine.trace import Trace, dumps, loads
from spec_viz.lab.metrics import summarise
from spec_viz.serving.client import Answer, Arrival
from spec_viz.serving.counters import Counts
from spec_viz.serving.problems import ServerError
from spec_viz.serving.reader import MOST_DRAFTED, MOST_TOKENS, Reading, Step, Stretch, latency, read, read_told
from tests.unit.answers import GAMMA, account, answer


def reading(arrivals: Sequence[int], steps: Sequence[tuple[int, int]] | None, **more: Any) -> Reading:
    return read(answer(arrivals, steps), {"gamma": GAMMA}, {}, run="r", **more)


def traced(arrivals: Sequence[int], steps: Sequence[tuple[int, int]]) -> Trace:
    found = reading(arrivals, steps)
    assert found.gap is None
    assert found.trace is not None
    return found.trace


def drawn(trace: Trace) -> list[tuple[int, int]]:
    """(drafted, kept) of every round after the prefill."""
    return [(len(round_.nodes), len(round_.path)) for round_ in trace.decoding]


def test_every_step_is_a_round_and_what_is_not_told_stays_none() -> None:
    trace = traced([1, 3, 1, 5], [(4, 2), (4, 0), (4, 4)])
    assert trace.origin == "server"
    assert drawn(trace) == [(4, 2), (4, 0), (4, 4)]
    assert trace.output == tuple(range(100, 110))
    first, second, third = trace.decoding
    assert [node.status for node in first.nodes] == ["accepted", "accepted", "rejected", "discarded"]
    assert [node.id for node in first.nodes] == [101, 102, None, None]
    assert [node.status for node in second.nodes] == ["rejected", "discarded", "discarded", "discarded"]
    kinds = [round_.emitted and round_.emitted.kind for round_ in trace.rounds]
    assert kinds == ["plain", "correction", "correction", "bonus"]
    for node in (*first.nodes, *second.nodes, *third.nodes):
        untold = (node.p, node.q, node.p_raw, node.q_raw, node.u, node.accept, node.beta, node.residual_top)
        assert untold == (None,) * 8
    assert all(round_.ms.total == 0 and round_.ms.verify is None for round_ in trace.rounds)


def test_such_a_trace_is_written_and_read_as_any_other_and_counts_as_its_lists_do() -> None:
    steps = [(4, 2), (3, 0), (4, 4), (1, 1)]
    found = reading([1, 3, 1, 5, 2], steps)
    assert found.trace is not None
    assert loads(dumps(found.trace)) == (found.trace,)
    summary = summarise(found.trace)
    assert found.told is not None
    assert found.told.counts == Counts(4, 12, 7, (3, 2, 1, 1))
    assert (summary.drafted, summary.accepted, summary.rounds) == (12, 7, 4)
    assert tuple(position.accepted for position in summary.positions) == found.told.counts.by_position


def test_silent_steps_are_found_by_the_bursts_around_them() -> None:
    # Kept drafts come in bursts: the single tokens are silent, as no listed step kept nothing.
    found = reading([1, 1, 1, 3, 1, 2], [(4, 2), (4, 1)])
    assert found.trace is not None
    assert drawn(found.trace) == [(0, 0), (0, 0), (4, 2), (0, 0), (4, 1)]
    assert found.unsettled == ()


def test_where_a_refused_draft_lies_among_silent_steps_is_said_to_be_open() -> None:
    found = reading([1, 1, 1, 1, 3, 1], [(2, 0), (4, 2), (4, 0)])
    assert found.trace is not None
    # One of the first three rounds refused two drafts; the last round is settled by what is left.
    assert found.unsettled == (Stretch(1, 3, (Step(2, 0),)),)
    assert drawn(found.trace) == [(0, 0), (0, 0), (0, 0), (4, 2), (4, 0)]
    assert found.trace.meta["unsettled"] == [{"first": 1, "last": 3, "drafted": [2]}]
    assert found.told is not None
    assert found.told.counts.drafted == 10


def test_arrivals_that_hold_several_rounds_are_taken_apart_where_only_one_way_fits() -> None:
    # The client looked up late: two rounds, of three tokens and of one, in one arrival.
    steps = [(4, 2), (4, 0), (4, 1)]
    late = reading([1, 4, 2], steps, may_be_silent=False)
    assert late.trace is not None
    assert drawn(late.trace) == steps
    # With a silent step in front, the last round would be cut: that fits too.
    assert reading([1, 4, 2], steps).gap == "coarse"
    assert drawn(traced([6], [(4, 4)])) == [(4, 4)]


def test_arrivals_too_coarse_to_say_how_many_tokens_a_round_has_leave_no_trace() -> None:
    found = reading([1, 4], [(4, 1)])
    assert (found.trace, found.gap) == (None, "coarse")
    assert found.told is not None
    assert found.told.counts.accepted == 1


def test_a_last_step_cut_by_the_end_keeps_its_count_and_names_only_what_was_sent() -> None:
    trace = traced([1, 5, 2], [(4, 4), (4, 3)])
    last = trace.rounds[-1]
    assert [node.status for node in last.nodes] == ["accepted", "accepted", "discarded", "discarded"]
    assert [node.id for node in last.nodes] == [106, 107, None, None]
    assert last.emitted is None
    assert trace.finish == "length"
    # A silent step and a step cut to one token would fit as well, if two rounds could come in one arrival.
    assert drawn(traced([1, 1, 2], [(4, 3)])) == [(0, 0), (4, 2)]
    # Cut right behind its last kept draft, too.
    last = traced([1, 5, 3], [(4, 4), (4, 3)]).rounds[-1]
    assert ([node.status for node in last.nodes][-1], last.emitted) == ("discarded", None)


def test_a_server_without_speculation_writes_a_token_a_round() -> None:
    found = reading([1, 1, 1], None, plain=True)
    assert found.trace is not None
    assert [len(round_.committed) for round_ in found.trace.rounds] == [1, 1, 1]
    assert drawn(found.trace) == [(0, 0), (0, 0)]
    # Unless it is known to, nothing is said of it.
    assert reading([1, 1, 1], None).gap == "no_metrics"


def test_a_request_that_drafted_nothing_has_no_lists_and_a_trace() -> None:
    assert drawn(traced([1, 1, 1], [])) == [(0, 0), (0, 0)]
    # A burst is no proof of a draft: the client may have looked up late.
    assert drawn(traced([1, 5], [])) == [(0, 0)] * 5


def test_sums_without_lists_give_counts_and_no_trace() -> None:
    told = answer([1, 3], [(4, 2)])
    assert told.metrics is not None
    body = dict(told.metrics["speculative_decoding"])
    del body["per_step_accepted"], body["per_step_drafted"]
    found = read(replace(told, metrics={"speculative_decoding": body}), {}, {}, run="r")
    assert (found.trace, found.gap) == (None, "no_lists")
    assert found.told is not None
    assert (found.told.steps, found.told.counts) == (None, Counts(1, 4, 2, (1, 1, 0, 0)))


@pytest.mark.parametrize("tokens", [1000, 4000, MOST_TOKENS])
@pytest.mark.parametrize("kind", ["half refused", "one arrival", "all lengths"])
def test_long_answers_take_seconds_at_most_however_many_ways_there_are(tokens: int, kind: str) -> None:
    steps = [(GAMMA, 0)] * (tokens // 2)
    arrivals = [tokens] if kind == "one arrival" else [1] * tokens
    gamma = GAMMA
    if kind == "all lengths":
        # As many different rounds as tokens allow, in one arrival, with some tokens to spare.
        gamma, steps, arrivals, left = 200, [], [tokens], tokens - 1
        while left > len(steps) + 1:
            left -= len(steps) + 1
            steps.append((200, len(steps)))
    told = {"speculative_decoding": account(steps, gamma)}
    began = time.monotonic()
    found = read(replace(answer(arrivals, None), metrics=told), {}, {}, run="r")
    assert time.monotonic() - began < 15
    if kind == "all lengths":
        assert found.gap == "coarse"
    else:
        # Any of the rounds may be a refused draft or a silent step.
        (stretch,) = found.unsettled
        assert (stretch.first, stretch.last, len(stretch.steps)) == (1, tokens - 1, tokens // 2)
        assert found.trace is not None
        assert len(found.trace.output) == tokens


def test_what_is_longer_than_is_drawn_is_told_without_a_trace() -> None:
    found = reading([1] * (MOST_TOKENS + 1), [(4, 0)])
    assert (found.trace, found.gap) == (None, "long")
    assert found.told is not None
    deep = [(1000, 0)] * (MOST_DRAFTED // 1000 + 1)
    told = {"speculative_decoding": account(deep, 1000)}
    assert read(replace(answer([1] * 100, None), metrics=told), {}, {}, run="r").gap == "long"


def test_an_answer_that_broke_off_is_a_run_that_ended_with_an_error() -> None:
    found = read(replace(answer([1, 1], None), finish=None), {}, {}, run="r", plain=True)
    assert found.trace is not None
    assert (found.trace.output, found.trace.finish) == ((100, 101), "error")


@pytest.mark.parametrize("sizes", [[1, 1], [1, 4], [3, 0], []])
def test_arrivals_that_bring_other_tokens_than_there_are_are_refused(sizes: list[int]) -> None:
    forged = tuple(Arrival(float(place), size) for place, size in enumerate(sizes))
    with pytest.raises(ServerError, match="arrivals"):
        read(replace(answer([1, 2], None), arrivals=forged), {}, {}, run="r", plain=True)


@pytest.mark.parametrize("lost", ["ids", "prompt"])
def test_without_ids_there_is_no_trace(lost: str) -> None:
    told = answer([1, 3], [(4, 2)])
    found = read(replace(told, ids=None) if lost == "ids" else replace(told, prompt=None), {}, {}, run="r")
    assert (found.trace, found.gap) == (None, "no_ids")


@pytest.mark.parametrize(
    ("arrivals", "steps"),
    [
        pytest.param([1, 1, 1], [(4, 2), (4, 2)], id="more kept than came"),
        pytest.param([1, 1, 1], [(4, 0), (4, 0), (4, 0)], id="more steps than tokens"),
        pytest.param([1, 2, 2], [(4, 2), (4, 0)], id="a round across two arrivals"),
    ],
)
def test_lists_that_contradict_the_tokens_are_refused(arrivals: list[int], steps: list[tuple[int, int]]) -> None:
    with pytest.raises(ServerError) as told:
        reading(arrivals, steps)
    assert told.value.key == "error.server_contradicts"


def test_a_drafter_that_always_drafts_is_not_believed_to_have_been_silent() -> None:
    with pytest.raises(ServerError, match="cannot bring the tokens"):
        reading([1, 1, 3], [(4, 2)], may_be_silent=False)


def test_ids_that_are_not_as_many_as_it_counted_are_refused() -> None:
    with pytest.raises(ServerError, match="7 tokens came and it counted 9"):
        read(replace(answer([1, 3, 3], [(4, 2), (4, 2)]), tokens=9), {}, {}, run="r")


def test_a_server_said_to_be_plain_that_drafted_is_refused() -> None:
    with pytest.raises(ServerError, match="without speculation"):
        reading([1, 3], [(4, 2)], plain=True)


@pytest.mark.parametrize(
    "change",
    [
        {"num_spec_steps": 3},
        {"num_draft_tokens": 9},
        {"num_accepted_draft_tokens": 3},
        {"acceptance_histogram": [1, 0, 1]},
        {"acceptance_histogram": [0, 1, 1, 0, 0]},
        {"acceptance_histogram": None},
        {"per_step_accepted": [2]},
        {"per_step_accepted": [2, 1]},
        {"per_step_accepted": None},
        {"per_step_accepted": [2, -1]},
        {"per_step_accepted": ["2", 0]},
        {"per_step_drafted": [1, 7]},
        {"per_step_drafted": [8, 0]},
        {"per_step_drafted": 8},
        {"num_spec_tokens": True},
        {"num_spec_tokens": None},
        {"num_spec_tokens": 10**9},
        {"acceptance_histogram": [0] * 300_000},
    ],
)
def test_an_account_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    whole = account([(4, 2), (4, 0)])
    assert read_told({"speculative_decoding": whole}) is not None
    with pytest.raises(ServerError) as told:
        read_told({"speculative_decoding": whole | change})
    assert told.value.key == "error.server_contradicts"


def test_an_account_that_is_no_object_is_refused() -> None:
    with pytest.raises(ServerError):
        read_told({"speculative_decoding": [1, 2]})
    assert read_told({"speculative_decoding": None}) is read_told({}) is read_told(None) is None


def test_latency_is_of_whole_answers() -> None:
    two = [answer([1, 3], None), answer([1, 1, 1, 1, 1], None)]
    found = latency(two, 2.0)
    assert found.first is not None
    assert (found.first.p50, found.first.p99) == (10.0, 10.0)
    assert found.token is not None
    # 10 ms for the three tokens after the first, and 10 ms for each of four.
    assert found.token.mean == pytest.approx((10 / 3 + 10) / 2)
    assert found.throughput.value == 4.5
    empty = latency([Answer("", (), (), 0, None)], 1.0)
    assert (empty.first, empty.token, empty.throughput.value) == (None, None, 0.0)
