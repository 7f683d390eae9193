"""Answers written side by side are those that the app writes alone, and a run that was killed goes on unchanged."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from spec_viz.engine.rows import Rows
from spec_viz.lab.run import Request, end_tokens, start
from spec_viz.models.load import Loaded
from spec_viz.training.generate import Plan, Row, answer, generate, plan_jobs
from spec_viz.training.prompts import Prompt, make_prompts
from spec_viz.training.shards import read_corpus, read_shard, shard_numbers

PLAN = Plan(batch=4, max_new_tokens=40, rows_per_shard=10)
PROMPTS = [Prompt(prompt.task, prompt.text[:60]) for prompt in make_prompts(0, 10)]


def write(tiny: Loaded, plan: Plan, number: int = 0) -> list[Row]:
    rows = answer(tiny.model, plan_jobs(tiny, PROMPTS, number, plan), end_tokens(tiny), plan)
    assert rows is not None
    return rows


def alone(tiny: Loaded, row: Row, plan: Plan) -> list[int]:
    """What the app writes for the row's prompt, temperature and seed, without a drafter."""
    request = Request(
        PROMPTS[row.job.prompt].text,
        drafter="none",
        temperature=0.0 if row.job.greedy else plan.temperature,
        seed=row.job.seed,
        max_new_tokens=plan.max_new_tokens,
    )
    trace = start(tiny, request).collect()
    assert trace.prompt == row.job.ids
    return list(trace.output)


@pytest.mark.parametrize("batch", [1, 3, 4, 16])
def test_every_row_is_the_text_that_the_app_writes_alone(tiny: Loaded, batch: int) -> None:
    plan = replace(PLAN, batch=batch)
    rows = write(tiny, plan)
    assert {row.job.greedy for row in rows} == {True, False}
    assert {row.finish for row in rows} >= {"eos", "length"}
    for row in rows:
        text = alone(tiny, row, plan)
        assert row.answer == text[: len(row.answer)]
        if row.finish != "loop":
            assert row.answer == text


def test_rows_come_back_in_the_order_of_their_jobs(tiny: Loaded) -> None:
    jobs = plan_jobs(tiny, PROMPTS, 2, PLAN)
    assert [row.job for row in write(tiny, PLAN, 2)] == jobs
    assert [job.prompt for job in jobs] == list(range(20, 30))


def test_every_prompt_is_answered_greedily_and_drawn(tiny: Loaded) -> None:
    jobs = [job for number in range(12) for job in plan_jobs(tiny, PROMPTS, number, PLAN)]
    assert {(job.prompt, job.greedy) for job in jobs} == {(n, g) for n in range(len(PROMPTS)) for g in (True, False)}
    assert len({job.seed for job in jobs}) == len(jobs) == 2 * len(PROMPTS)
    assert plan_jobs(tiny, PROMPTS, 12, PLAN) == []


def test_a_loop_ends_an_answer_early(tiny: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny.model.generation_config, "eos_token_id", None)
    plan = replace(PLAN, max_new_tokens=400)
    rows = write(tiny, plan)
    looped = [row for row in rows if row.finish == "loop"]
    assert looped
    for row in looped:
        assert len(row.answer) < 400
        assert row.answer == alone(tiny, row, plan)[: len(row.answer)]


def test_a_place_that_is_taken_over_knows_nothing_of_before(tiny: Loaded) -> None:
    rows = Rows(tiny.model, 2)
    first, second, third = [9, 10, 11, 12, 13, 14, 15], [20, 21], [30, 31, 32]
    for prompt in (first, second):
        rows.read(prompt)
    rows.feed([40, 41])
    rows.drop(0)
    rows.read(third)
    assert rows.lengths == [3, 3]
    logits = rows.feed([42, 43])
    for got, tokens in zip(logits, ([20, 21, 41, 42], [30, 31, 32, 43]), strict=True):
        want = Rows(tiny.model, 1).read(tokens)[0][0]
        assert (got - want).abs().max() < 1e-5


def stop_at(asked: int) -> Callable[[], bool]:
    times = iter(range(asked))
    return lambda: next(times, None) is None


@pytest.mark.parametrize("asked", [0, 1, 30, 90])
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tiny: Loaded, tmp_path: Path, asked: int) -> None:
    generate(tiny, PROMPTS, tmp_path / "whole", 500, PLAN)
    generate(tiny, PROMPTS, tmp_path / "parts", 500, PLAN, stop_at(asked))
    heard: list[tuple[int, bool]] = []
    have = generate(tiny, PROMPTS, tmp_path / "parts", 500, PLAN, hear=lambda *said: heard.append(said))
    assert have >= 500
    assert sum(tokens for tokens, _ in heard) == have
    assert _bytes(tmp_path / "whole") == _bytes(tmp_path / "parts")


SLOW = """
import time
from pathlib import Path
from spec_viz.training.generate import generate
from tests.training.conftest import make_tiny
from tests.training.test_generate import PLAN, PROMPTS
generate(make_tiny(), PROMPTS, Path("{folder}"), 900, PLAN, hear=lambda *said: time.sleep(0.02))
"""


def test_a_killed_process_leaves_whole_shards_only(tiny: Loaded, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", SLOW.format(folder=killed)])
    deadline = time.monotonic() + 120
    while not (killed.is_dir() and shard_numbers(killed)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    there = len(shard_numbers(killed))
    generate(tiny, PROMPTS, killed, 900, PLAN)
    generate(tiny, PROMPTS, tmp_path / "whole", 900, PLAN)
    assert there < len(shard_numbers(killed))
    assert _bytes(killed) == _bytes(tmp_path / "whole")


def _bytes(folder: Path) -> list[list[tuple[object, ...]]]:
    """Everything but the date, which a shard's header keeps."""
    return [
        [
            (s.ids.tobytes(), s.prompt_length, s.greedy, s.held_out, s.task, s.finish)
            for s in read_shard(folder, n, False)
        ]
        for n in shard_numbers(folder)
    ]


def test_the_corpus_keeps_prompts_and_marks(tiny: Loaded, tmp_path: Path) -> None:
    generate(tiny, PROMPTS, tmp_path, 300, PLAN)
    for place, sample in enumerate(read_corpus(tmp_path)):
        prompt = PROMPTS[place]
        assert (sample.prompt, sample.task, sample.held_out) == (place, prompt.task, prompt.held_out)
        assert sample.greedy == (place % 2 == 0)
        assert sample.ids[: sample.prompt_length].tolist() == list(
            plan_jobs(tiny, PROMPTS, place // 10, PLAN)[place % 10].ids
        )


def test_mistakes_are_one_sentence(tiny: Loaded, tmp_path: Path) -> None:
    generate(tiny, PROMPTS, tmp_path, 1, PLAN)
    with pytest.raises(ValueError, match="made with seed 0, not 1"):
        generate(tiny, PROMPTS, tmp_path, 1, replace(PLAN, seed=1))
    with pytest.raises(ValueError, match="made with prompts"):
        generate(tiny, PROMPTS[1:], tmp_path, 1, PLAN)
    with pytest.raises(ValueError, match="The prompts are used up after"):
        generate(tiny, PROMPTS[:2], tmp_path / "few", 10_000, PLAN)
    with pytest.raises(ValueError, match="a batch of one"):
        generate(tiny, PROMPTS, tmp_path, 1, replace(PLAN, batch=0))
    with pytest.raises(ValueError, match="leaves no room"):
        generate(tiny, PROMPTS, tmp_path / "long", 1, replace(PLAN, max_new_tokens=1020))
    with FileLock(tmp_path / ".lock"), pytest.raises(ValueError, match="Another run is writing"):
        generate(tiny, PROMPTS, tmp_path, 10_000, PLAN)


def test_ids_beyond_sixteen_bits_are_refused(tiny: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny.model.config, "vocab_size", 65_537)
    with pytest.raises(ValueError, match="sixteen bits"):
        generate(tiny, PROMPTS, tmp_path, 1, PLAN)
