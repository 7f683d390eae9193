"""What is timed, in which order, and what is not: every method on a tiny model, and peers that only count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spec_viz.lab.bench import Measured, Method, Question, Timing, measure, ratios
from tests.integration.rooms import loaded

QUESTIONS = [Question(category, f"{word} " * 12, chat=False) for category, word in (("chat", "sun"), ("code", "rain"))]
TOKENS = 12


def run(
    peers: dict[str, Method],
    questions: Sequence[Question] = QUESTIONS,
    repeats: int = 2,
    drafters: Sequence[str] = ("prompt_lookup",),
    stop: Callable[[], bool] = lambda: False,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    return measure(
        loaded(),
        questions,
        drafters,
        peers=peers,
        gamma=4,
        max_new_tokens=TOKENS,
        repeats=repeats,
        progress=lambda each: each,
        stop=stop,
        keep=keep,
    )


def peer(asked: list[tuple[str, str]], name: str, seconds: Callable[[int], float] = lambda _: 1.0) -> Method:
    def answer(question: Question) -> Measured:
        asked.append((name, question.category))
        calls = sum(each == name for each, _ in asked)
        return Measured(seconds(calls), TOKENS, tuple(range(TOKENS)))

    return answer


def test_what_a_method_sets_up_on_its_first_answer_is_not_timed() -> None:
    asked: list[tuple[str, str]] = []
    # As where a GPU captures its passes: the first answer takes a hundred times as long.
    record = run({"slow at first": peer(asked, "x", lambda call: 100.0 if call == 1 else 1.0)})
    assert [each["seconds"] for each in record["timings"] if each["method"] == "slow at first"] == [1.0] * 4
    assert [category for _, category in asked] == ["chat", "chat", "chat", "code", "code"]


def test_methods_are_timed_forwards_then_backwards_on_every_question() -> None:
    asked: list[tuple[str, str]] = []
    record = run({name: peer(asked, name) for name in "ab"})
    assert [name for name, _ in asked] == list("ab" + "abba" * len(QUESTIONS))
    order = [each["method"].rpartition(" ")[2] for each in record["timings"]]
    assert order == ["none", "prompt_lookup", "a", "b", "b", "a", "prompt_lookup", "none"] * len(QUESTIONS)
    assert record["finish"] == "done"


def test_ours_writes_one_text_with_and_without_a_drafter_and_a_ratio_is_that_of_the_clocks() -> None:
    record = run({"once": peer([], "once"), "half": peer([], "half", lambda _: 2.0)})
    timings = [Timing(**each) for each in record["timings"]]
    ours = {(each.prompt, each.output) for each in timings if each.method.startswith("ours")}
    assert len(ours) == len(QUESTIONS)
    assert all(len(text) == TOKENS for _, text in ours)
    assert ratios(timings, "once", "half") == [2.0, 2.0]


@pytest.mark.parametrize("after", [0, 3, 5, 9])
def test_a_bench_that_is_stopped_keeps_what_was_timed(after: int) -> None:
    asked: list[tuple[str, str]] = []
    kept: list[dict[str, Any]] = []
    record = run({"a": peer(asked, "a"), "b": peer(asked, "b")}, stop=lambda: len(asked) >= after, keep=kept.append)
    assert record["finish"] == "stopped"
    assert kept == [record]
    assert len(record["timings"]) <= 2 * max(after, 1)


def test_a_method_that_fails_loses_nothing_that_was_timed_before() -> None:
    kept: list[dict[str, Any]] = []
    asked: list[tuple[str, str]] = []
    last = peer(asked, "fails", lambda call: 1.0 if call <= 3 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run({"fails": last}, keep=kept.append)
    assert kept[0]["finish"] == "stopped"
    assert sum(each["method"] == "fails" for each in kept[0]["timings"]) == 2


def test_no_question_is_no_fault() -> None:
    assert run({}, questions=[])["timings"] == []
