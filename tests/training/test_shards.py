"""Loops are found and cut; shards come back as they were written."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.training.shards import (
    KEPT_ROUNDS,
    LONGEST_PERIOD,
    ROUNDS,
    SHORTEST_TAIL,
    Sample,
    count_tokens,
    distinct,
    loop,
    loop_end,
    read_corpus,
    read_shard,
    shard_path,
    summarise,
    weigh,
    write_manifest,
    write_shard,
)


def counting(number: int, start: int = 1000) -> list[int]:
    """Ids of which none comes twice."""
    return list(range(start, start + number))


def sample(answer: list[int], **changes: object) -> Sample:
    values = {
        "ids": np.array([1, 2, 3, *answer], np.uint16),
        "prompt_length": 3,
        "greedy": True,
        "held_out": False,
        "task": "chat",
        "finish": "eos",
        "prompt": 5,
    }
    return Sample(**{**values, **changes})  # type: ignore[arg-type]


@given(st.integers(1, LONGEST_PERIOD), st.integers(0, 40))
def test_a_loop_is_found_with_its_period_and_cut_behind_the_second_round(period: int, before: int) -> None:
    rounds = -(-max(SHORTEST_TAIL, ROUNDS * period) // period)
    ids = counting(before) + counting(period, 5000) * rounds
    assert loop(ids) == period
    assert loop_end(ids) == before + KEPT_ROUNDS * period
    assert loop_end(ids[: loop_end(ids)]) == loop_end(ids)


@given(st.integers(1, LONGEST_PERIOD))
def test_two_rounds_are_no_loop(period: int) -> None:
    ids = counting(SHORTEST_TAIL) + counting(period, 5000) * (ROUNDS - 1)
    assert loop(ids) == 0
    assert loop_end(ids) == len(ids)


def test_a_loop_that_the_text_left_again_is_none() -> None:
    ids = [7] * 80
    assert loop(ids) == 1
    assert loop([*ids, 8]) == 0


def test_a_list_that_counts_is_no_loop() -> None:
    ids = [id_ for line in range(40) for id_ in (line, 500, 501, 502)]
    assert loop(ids) == 0
    assert weigh(ids) == 1.0


@given(st.lists(st.integers(0, 3), max_size=300))
def test_what_is_kept_is_a_beginning(ids: list[int]) -> None:
    kept = loop_end(ids)
    assert 0 <= kept <= len(ids)
    assert (kept < len(ids)) <= (loop(ids) > 0)


def test_distinct_bigrams_by_hand() -> None:
    assert distinct([1, 2, 1, 2, 3]) == 3 / 4
    assert distinct([1]) == 1.0
    assert weigh([1, 1, 1, 1, 1]) == 0.5


def test_a_shard_comes_back_as_written(tmp_path: Path) -> None:
    written = [
        sample(counting(30)),
        sample([49151, 65535], greedy=False, held_out=True, task="code", finish="length", prompt=20999),
    ]
    write_shard(tmp_path, 0, written, {"batch": "2"})
    for one, other in zip(read_corpus(tmp_path), written, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.ids.dtype == np.uint16
        assert (one.prompt_length, one.greedy, one.held_out) == (other.prompt_length, other.greedy, other.held_out)
        assert (one.task, one.finish, one.prompt) == (other.task, other.finish, other.prompt)
    assert [one.prompt for one in read_corpus(tmp_path, held_out=True)] == [20999]
    assert [one.prompt for one in read_corpus(tmp_path, held_out=False)] == [5]
    assert count_tokens(tmp_path) == 32


def test_the_reader_cuts_a_loop_and_can_leave_it(tmp_path: Path) -> None:
    answer = counting(10) + [3, 4] * 40
    write_shard(tmp_path, 0, [sample(answer, finish="loop")], {})
    (cut,) = read_shard(tmp_path, 0)
    assert cut.answer.tolist() == answer[:14]
    assert cut.cut == 76
    (whole,) = read_shard(tmp_path, 0, cut=False)
    assert whole.answer.tolist() == answer


def test_statistics_by_hand(tmp_path: Path) -> None:
    rows = [sample([1, 2, 1, 2, 3]), sample(counting(3), finish="length"), sample([9] * 60, finish="loop", task="code")]
    write_shard(tmp_path, 0, rows, {})
    chat, code, everything = summarise(tmp_path)
    assert (chat["task"], chat["temperature"], chat["sequences"], chat["answer"]) == ("chat", "0", 2, 8)
    assert (chat["ended"], chat["looped"], chat["distinct"]) == (0.5, 0.0, 0.875)
    assert (code["looped"], code["answer"], code["cut"]) == (1.0, 2, 58)
    assert everything["sequences"] == 3
    assert everything["prompt"] == 9


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no corpus in"):
        list(read_corpus(tmp_path))
    write_shard(tmp_path, 1, [sample([1])], {})
    with pytest.raises(ValueError, match=r"shard-00000.safetensors is missing"):
        count_tokens(tmp_path)
    write_manifest(tmp_path, {"seed": 0})
    write_manifest(tmp_path, {"seed": 0})
    with pytest.raises(ValueError, match="made with seed 0, not 1"):
        write_manifest(tmp_path, {"seed": 1})


def test_half_a_file_is_not_seen(tmp_path: Path) -> None:
    write_shard(tmp_path, 0, [sample([1])], {})
    shard_path(tmp_path, 1).with_suffix(".tmp").write_bytes(b"half")
    assert len(list(read_corpus(tmp_path))) == 1
