"""A server looked at and asked one question: what is shown while it writes, and what is known in the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from spec_viz.engine.trace import dumps, loads
from spec_viz.lab.metrics import summarise
from spec_viz.serving.connect import Outcome, Partial, ask, look
from spec_viz.serving.counters import Counts
from spec_viz.serving.problems import ServerError
from tests.unit.answers import account
from tests.unit.toys import CHAT, STEPS, Handler, Toy, chunk, missing, running, vllm

COUNTS = Counts(2, 8, 2, (1, 1, 0, 0))


def asked(toy: Toy, prompt: str = "count", stop: Any = None) -> tuple[list[Partial], Outcome]:
    states = list(ask(toy.place, "m", prompt, 5, **({} if stop is None else {"stop": stop})))
    *partial, outcome = states
    assert all(isinstance(each, Partial) for each in partial)
    assert isinstance(outcome, Outcome)
    return [each for each in partial if isinstance(each, Partial)], outcome


def test_a_look_says_what_a_server_is() -> None:
    with running(vllm()) as toy:
        found = look(toy.place)
    assert (found.version, found.models, found.model, found.context) == ("0.32.0", ("m",), "m", 2048)
    assert (found.speculates, found.counters, found.ids, found.tells) == (True, True, True, "lists")
    with running(vllm(None)) as toy:
        plain = look(toy.place)
    assert (plain.speculates, plain.counters, plain.tells) == (False, True, "nothing")


def test_a_look_at_a_server_that_tells_little() -> None:
    with running(vllm(lists=False)) as toy:
        for path in ("/version", "/metrics"):
            toy.routes[path] = missing
        found = look(toy.place)
    assert (found.version, found.speculates, found.counters, found.tells) == (None, None, False, "nothing")
    with running(vllm(((4, 0), (4, 0)))) as toy:
        toy.routes["/metrics"] = missing
        assert look(toy.place).speculates
    # A drafter that found nothing is told in the same way with lists and without.
    with running(vllm(())) as toy:
        assert look(toy.place).tells is None


def test_a_model_that_is_not_served_is_said_so() -> None:
    with running(vllm()) as toy, pytest.raises(ServerError) as told:
        look(toy.place, "other")
    assert (told.value.key, told.value.fields["model"]) == ("error.server_model", "other")


def test_an_answer_is_shown_while_it_comes_and_becomes_a_trace() -> None:
    with running(vllm(pause=0.3)) as toy:
        partial, outcome = asked(toy)
    # Whoever shows it sees pieces before the last one is there.
    assert {"t0 ", "t0 t1 "} & {each.text for each in partial if each.stage == "writing"}
    assert partial[0].stage == "waiting"
    assert [each.tokens for each in partial] == sorted(each.tokens for each in partial)
    assert outcome.problem is None
    assert (outcome.counts, outcome.source) == (COUNTS, "answer")
    assert outcome.window is not None
    assert (outcome.window.speculation, outcome.window.generated, outcome.shared) == (COUNTS, 5, False)
    assert [each.tokens for each in outcome.bursts] == [1, 3, 1]
    assert outcome.first_ms is not None
    assert outcome.first_ms >= 300
    # Three pauses before the last piece is sent; what is written first may be read late on a busy machine.
    first, *_, last = outcome.bursts
    assert last.ms >= 900
    assert outcome.token_ms == pytest.approx((last.ms - first.ms) / 4)
    assert outcome.reading is not None
    trace = outcome.reading.trace
    assert trace is not None
    assert loads(dumps(trace)) == (trace,)
    assert trace.tokens[11] == ("<11>", None)
    summary = summarise(trace)
    assert (summary.accepted, summary.drafted, summary.rounds) == (2, 8, 2)
    assert (trace.origin, trace.finish, trace.meta["drafter"]) == ("server", "length", "server")
    json.dumps(asdict(outcome), allow_nan=False)


def test_times_are_the_servers_and_not_those_of_who_shows_them() -> None:
    with running(vllm(pause=0.1)) as toy:
        states = ask(toy.place, "m", "count", 5)
        first = next(states)
        # Someone who looks away.
        time.sleep(3)
        *_, outcome = states
    assert isinstance(first, Partial)
    assert isinstance(outcome, Outcome)
    assert outcome.bursts[-1].ms < 2500


def test_a_server_without_lists_is_read_by_its_counters() -> None:
    with running(vllm(lists=False)) as toy:
        _, outcome = asked(toy)
    assert outcome.reading is not None
    assert (outcome.reading.trace, outcome.reading.gap) == (None, "no_metrics")
    assert (outcome.counts, outcome.source, outcome.problem) == (COUNTS, "counters", None)
    assert outcome.answer is not None
    assert outcome.answer.text == "t0 t1 t2 "


def test_a_plain_server_has_a_trace_without_a_draft() -> None:
    with running(vllm(None)) as toy:
        _, outcome = asked(toy)
    assert outcome.reading is not None
    assert outcome.reading.trace is not None
    assert [len(each.nodes) for each in outcome.reading.trace.decoding] == [0] * 4
    assert (outcome.counts, outcome.reading.trace.meta["drafter"]) == (None, "none")


def test_others_on_the_same_server_are_noticed() -> None:
    with running(vllm(lists=False)) as toy:
        answered = toy.routes[CHAT]

        def chat(handler: Handler, body: Any) -> None:
            # Somebody else's answer.
            toy.counts["generation_tokens_total"] += 3
            toy.counts["time_to_first_token_seconds_count"] += 1
            answered(handler, body)

        toy.routes[CHAT] = chat
        _, outcome = asked(toy)
    assert outcome.shared
    assert (outcome.counts, outcome.source) == (None, None)
    assert outcome.window is not None
    assert outcome.window.answers == 2


def test_a_server_that_lies_is_told_and_its_text_is_kept() -> None:
    def lying(change: dict[str, Any]) -> Outcome:
        def chat(handler: Handler, _body: Any) -> None:
            handler.begin()
            handler.event(chunk("One ", [5], prompt_token_ids=[1]))
            handler.event(chunk("two", [6, 7, 8], "length"))
            usage = {"completion_tokens": change.pop("tokens", 4)}
            told = {"speculative_decoding": account([(4, 2)]) | change}
            handler.event({"choices": [], "usage": usage, "metrics": told})
            handler.event("[DONE]")

        with running(vllm()) as toy:
            toy.routes[CHAT] = chat
            _, outcome = asked(toy)
        assert outcome.answer is not None
        assert outcome.answer.text == "One two"
        return outcome

    assert lying({}).problem is None
    changes: Sequence[dict[str, Any]] = (
        {"num_draft_tokens": 9},
        {"acceptance_histogram": [9, 9, 9, 9, 9]},
        {"per_step_accepted": [7]},
        {"num_spec_tokens": 10**9},
        {"acceptance_histogram": [0] * 100_000},
        {"tokens": 99},
    )
    for change in changes:
        outcome = lying(dict(change))
        assert outcome.problem is not None, change
        assert outcome.problem.key == "error.server_contradicts", change
        assert outcome.reading is None


def test_counters_that_cannot_be_give_no_rate() -> None:
    with running(vllm(lists=False)) as toy:
        answered = toy.routes[CHAT]

        def chat(handler: Handler, body: Any) -> None:
            toy.counts["spec_decode_num_accepted_tokens_total"] += 100
            answered(handler, body)

        toy.routes[CHAT] = chat
        _, outcome = asked(toy)
    assert outcome.problem is not None
    assert outcome.problem.key == "error.server_counts"
    assert outcome.counts is None
    assert outcome.answer is not None


def test_a_server_that_starts_anew_meanwhile_loses_its_counters_and_not_its_answer() -> None:
    with running(vllm()) as toy:
        answered = toy.routes[CHAT]

        def chat(handler: Handler, body: Any) -> None:
            toy.counts["generation_tokens_total"] = 0
            answered(handler, body)

        toy.routes[CHAT] = chat
        _, outcome = asked(toy)
    assert outcome.problem is not None
    assert outcome.problem.key == "error.server_restarted"
    assert outcome.window is None
    assert outcome.reading is not None
    assert outcome.reading.trace is not None


def killed(handler: Handler, _body: Any) -> None:
    handler.begin()
    handler.event(chunk("One ", [5], prompt_token_ids=[1]))
    handler.event(chunk("two", [6]))


@pytest.mark.parametrize(("steps", "is_drawn"), [(None, True), (STEPS, False)])
def test_a_server_killed_in_the_middle_leaves_its_text_and_a_plain_one_its_rounds(steps: Any, is_drawn: bool) -> None:
    with running(vllm(steps)) as toy:
        toy.routes[CHAT] = killed
        _, outcome = asked(toy)
    assert outcome.problem is not None
    assert outcome.problem.key == "error.server_broke"
    assert outcome.answer is not None
    assert (outcome.answer.text, len(outcome.bursts)) == ("One two", 2)
    trace = outcome.reading.trace if outcome.reading else None
    assert (trace is not None) == is_drawn
    if trace is not None:
        assert (trace.output, trace.finish) == ((5, 6), "error")
        # What came has its texts.
        assert trace.tokens == {id_: (f"<{id_}>", None) for id_ in (1, 5, 6)}


def test_a_stop_ends_a_question_at_once_and_keeps_what_came() -> None:
    def chat(handler: Handler, _body: Any) -> None:
        handler.begin()
        handler.event(chunk("One ", [5], prompt_token_ids=[1]))
        handler.toy.hung_up.wait(20)

    with running(vllm()) as toy:
        toy.routes[CHAT] = chat
        began = time.monotonic()
        _, outcome = asked(toy, stop=lambda: time.monotonic() - began > 0.5)
        assert time.monotonic() - began < 5.0
        assert outcome.problem is not None
        assert outcome.problem.key == "error.server_stopped"
        assert outcome.answer is not None
        assert outcome.answer.text == "One "
        # To close the generator ends it too.
        states = ask(toy.place, "m", "count", 5)
        next(states)
        began = time.monotonic()
        states.close()
        assert time.monotonic() - began < 5.0
        assert "ask-server" not in {thread.name for thread in threading.enumerate()}
        toy.hung_up.set()


def test_nobody_there_is_an_outcome_with_a_problem() -> None:
    with running(vllm()) as toy:
        place = toy.place
    *_, outcome = ask(place, "m", "count", 5)
    assert isinstance(outcome, Outcome)
    assert outcome.problem is not None
    assert (outcome.problem.key, outcome.answer) == ("error.server_away", None)
