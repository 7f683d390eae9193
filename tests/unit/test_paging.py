"""The cache in blocks: nothing is lost and nothing is shared, for any run; the recordings are what they say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.content.files import ASSETS
from spec_viz.engine.batch import Pass
from spec_viz.engine.trace import Kv, Round
from spec_viz.lab.paging import BLOCK, RUNS, Counted, Step, Written, common, count, place, read
from tests.unit.traces import chain, prefill

PAGED = ASSETS / "paged"


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Counted], int]:
    """A batch as the engine runs it: prefills as soon as a place is free, then passes over all rows."""
    requests = draw(st.integers(1, 7))
    places = draw(st.integers(1, 4))
    waiting, rows = list(range(requests)), dict[int, int]()
    passes: list[Counted] = []
    while waiting or rows:
        if waiting and len(rows) < places:
            request, prompt = waiting.pop(0), draw(st.integers(1, 70))
            rows[request] = prompt
            written = [Written(request, 0, prompt, prompt, 0, 0)]
        else:
            written = []
            for request, before in rows.items():
                drafted = draw(st.integers(0, 20))
                kept = draw(st.integers(0, drafted))
                written.append(Written(request, before, before + 1 + drafted, before + 1 + kept, drafted, kept))
                rows[request] = before + 1 + kept
        prompt_read = len(written) == 1 and written[0].before == 0
        gone = tuple(sorted(request for request in rows if draw(st.integers(0, 2)) == 0))
        for request in gone:
            del rows[request]
        passes.append(Counted(prompt_read, tuple(written), gone))
    return passes, requests


def blocks(step: Step) -> list[int]:
    return [block for each in step.held for block in each.blocks]


def holds(steps: Sequence[Step], requests: int, pool: int) -> None:
    """What is true of every step: blocks and requests are conserved, and a block has one owner."""
    before: Step | None = None
    for step in steps:
        mine = blocks(step)
        assert len(set(mine)) == len(mine) == step.used == pool - step.free
        assert set(mine) <= set(range(pool))
        running = [each.request for each in step.held]
        assert sorted([*running, *step.waiting, *step.finished]) == list(range(requests))
        taken = sum(each.taken for each in step.held)
        assert step.free == (pool if before is None else before.free) - taken + len(step.freed)
        for each in step.held:
            # Enough for the peak, and never a block more than that or an earlier peak asked for.
            assert each.after <= each.peak <= len(each.blocks) * BLOCK
            assert each.returned == (
                each.drafted - (each.after - each.before - 1) if each.peak > each.before > 0 else 0
            )
        before = step


@given(batches())
def test_blocks_are_conserved_and_have_one_owner(batch: tuple[list[Counted], int]) -> None:
    passes, requests = batch
    pool = 400
    steps = place(passes, requests, pool)
    holds(steps, requests, pool)
    assert steps[-1].free == pool
    assert sorted(steps[-1].finished) == list(range(requests))


@given(batches())
def test_every_pass_is_a_step_with_the_lengths_of_the_run(batch: tuple[list[Counted], int]) -> None:
    passes, requests = batch
    made = [step for step in place(passes, requests, 400) if step.kind != "leave"]
    assert [step.number for step in made] == list(range(len(passes)))
    for step, each in zip(made, passes, strict=True):
        assert step.about == tuple(written.request for written in each.written)
        held = {one.request: one for one in step.held}
        for written in each.written:
            one = held.pop(written.request)
            assert (one.before, one.peak, one.after) == (written.before, written.peak, written.after)
            if not each.prefill:
                assert one.returned == written.drafted - written.kept
        # Who was in no pass keeps what it had.
        assert all(one.before == one.peak == one.after and not one.taken for one in held.values())


@given(batches())
def test_a_table_only_grows_at_its_end_by_the_lowest_free_blocks(batch: tuple[list[Counted], int]) -> None:
    passes, requests = batch
    free = set(range(400))
    tables: dict[int, tuple[int, ...]] = {}
    for step in place(passes, requests, 400):
        for each in step.held:
            old = tables.get(each.request, ())
            new = each.blocks[len(each.blocks) - each.taken :]
            assert each.blocks == (*old, *new)
            assert list(new) == sorted(free)[: len(new)]
            free -= set(new)
            tables[each.request] = each.blocks
        for request in step.about if step.kind == "leave" else ():
            assert tables.pop(request) == step.freed
        free |= set(step.freed)


def test_a_block_that_only_refused_drafts_reached_stays_in_the_table() -> None:
    passes = [
        Counted(True, (Written(0, 0, 15, 15, 0, 0),), ()),
        Counted(False, (Written(0, 15, 20, 16, 4, 0),), ()),
        Counted(False, (Written(0, 16, 17, 17, 0, 0),), (0,)),
    ]
    join, refused, plain, leave = place(passes, 1, pool=2)
    assert [each.taken for step in (join, refused, plain) for each in step.held] == [1, 1, 0]
    assert refused.held[0].blocks == (0, 1)
    assert (refused.held[0].returned, refused.held[0].wasted, plain.held[0].wasted) == (4, 16, 15)
    assert (leave.freed, leave.free) == ((0, 1), 2)


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="pass 0 needs 2 blocks for request 0, and 1 are free"):
        place([Counted(True, (Written(0, 0, 17, 17, 0, 0),), (0,))], 1, pool=1)


def test_requests_of_a_stopped_batch_leave_whether_they_ran_or_waited() -> None:
    steps = place([Counted(True, (Written(0, 0, 5, 5, 0, 0),), ()), Counted(False, (), (0, 1))], 2, pool=1)
    assert [(step.kind, step.about, step.freed, step.waiting) for step in steps] == [
        ("join", (0,), (), (1,)),
        ("leave", (0,), (0,), (1,)),
        ("leave", (1,), (), ()),
    ]


def test_a_pass_is_counted_as_its_rounds_say() -> None:
    counted = count(Pass({2: chain(1, "aard", before=10), 0: chain(4, "", before=30)}, {0: "eos"}))
    assert counted == Counted(False, (Written(2, 10, 15, 13, 4, 2), Written(0, 30, 31, 31, 0, 0)), (0,))
    assert count(Pass({1: prefill()}, {})).prefill
    with pytest.raises(ValueError, match="round 3 of request 0"):
        count(Pass({0: Round(3, kv=Kv())}, {}))


def test_what_prompts_have_in_common() -> None:
    assert common([(1, 2, 3), (1, 2, 4, 5), (1, 2)]) == 2
    assert common([(1,), (2,)]) == 0


@pytest.mark.parametrize(("drafter", "gamma"), RUNS)
def test_the_recordings_hold_together(drafter: str, gamma: int) -> None:
    """`read` places the passes anew, so steps that are stored are those of the rule."""
    body = json.loads((PAGED / f"{drafter}.json").read_text(encoding="utf-8"))
    found = read(body)
    holds(found.steps, len(found.requests), found.pool)
    assert (found.conditions["drafter"], found.conditions["gamma"], found.block) == (drafter, gamma, BLOCK)
    assert {"target", "device", "dtype", "threads", "versions", "commit", "created"} <= found.conditions.keys()
    assert max(len(step.held) for step in found.steps) == found.conditions["batch"] < len(found.requests)
    for number, request in enumerate(found.requests):
        mine = [written for each in found.passes for written in each.written if written.request == number]
        # The newest token is written by the next pass, so the last one never is; an accepted end of text is.
        assert mine[0].after == request.tokens
        assert request.wrote - (mine[-1].after - request.tokens) in (0, 1)
        assert all(after.before == before.after for before, after in pairwise(mine))
        assert all(written.drafted <= gamma for written in mine)


def test_steps_that_the_passes_do_not_make_are_refused() -> None:
    body = json.loads((PAGED / "none.json").read_text(encoding="utf-8"))
    body["steps"][3]["free"] += 1
    with pytest.raises(ValueError, match="not what the passes make"):
        read(body)
    with pytest.raises(ValueError, match="of the kind paging"):
        read({**body, "kind": "sweep"})


def test_the_plain_run_and_its_twins_write_the_same_texts() -> None:
    """Greedy drafts judged by `match` change no text, so all runs wrote as many tokens."""
    wrote = {
        drafter: [each.wrote for each in read(json.loads((PAGED / f"{drafter}.json").read_text())).requests]
        for drafter, _ in RUNS
    }
    assert wrote["prompt_lookup"] == wrote["eagle3"] == wrote["none"]
