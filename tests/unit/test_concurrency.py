"""The arithmetic of concurrency on times that are made up, and a whole record whose clock is made up too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from spec_viz.engine.batch import Pass
from spec_viz.engine.rows import Rows
from spec_viz.engine.schedule import ByBatchSize
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Emitted, Ms, Node, Round
from spec_viz.lab import concurrency
from spec_viz.lab.bench import Question
from spec_viz.lab.concurrency import Crossing, count, crossing, crossings, make_table, measure, rows, vllm_config
from tests.law.test_run import PROMPT, loaded

# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ({1: 2.0, 2: 1.5, 4: 1.2}, Crossing(None, None)),
        ({1: 0.9, 2: 1.5, 4: 1.2}, Crossing(1, None)),
        ({1: 1.0}, Crossing(1, None)),
        # From 1.5 at 4 to 0.5 at 16 a line in log2 B passes 1 halfway, at 8.
        ({16: 0.5, 1: 2.0, 4: 1.5}, Crossing(16, 8.0)),
        ({1: 1.3, 2: 1.1, 4: 1.0}, Crossing(4, 4.0)),
        # The first crossing counts, also where noise lifts the curve once more.
        ({1: 1.1, 2: 0.9, 4: 1.1, 8: 0.9}, Crossing(2, 2**0.5)),
    ],
)
def test_the_crossing_point_is_where_the_line_passes_one(speedups: dict[int, float], expected: Crossing) -> None:
    found = crossing(speedups)
    assert found.batch == expected.batch
    assert found.between == (expected.between and pytest.approx(expected.between))


@pytest.mark.parametrize(
    ("speeds", "table"),
    [
        ({1: {0: 1.0, 2: 1.5, 4: 1.8}}, [[1, 1, 4]]),
        (
            {1: {0: 1.0, 2: 1.5, 4: 1.8}, 8: {0: 1.0, 2: 1.2, 4: 1.1}, 64: {0: 1.0, 2: 0.8, 4: 0.6}},
            [[1, 7, 4], [8, 63, 2], [64, 64, 0]],
        ),
        # Neighbours that agree are one range; the smaller K of equals wins.
        ({1: {0: 1.0, 2: 1.0}, 2: {0: 1.0, 2: 0.9}, 4: {0: 1.0, 2: 1.1}}, [[1, 3, 0], [4, 4, 2]]),
        # vLLM wants the first range to start at 1.
        ({4: {0: 1.0, 3: 1.2}, 8: {0: 1.0, 3: 0.9}}, [[1, 7, 3], [8, 8, 0]]),
    ],
)
def test_the_table_holds_the_fastest_k_up_to_the_next_batch(
    speeds: Mapping[int, Mapping[int, float]], table: list[list[int]]
) -> None:
    assert make_table(speeds) == table
    schedule = ByBatchSize(table)
    for batch, by_k in speeds.items():
        assert by_k[schedule.most(batch) or 0] == max(by_k.values())


def test_what_vllm_is_told_is_the_largest_k_and_the_table() -> None:
    table = [[1, 7, 4], [8, 63, 2], [64, 64, 0]]
    assert vllm_config(table) == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": table,
    }
    assert vllm_config([[1, 64, 0]]) is None


def round_(kept: int, drafted: int, verify: float | None) -> Round:
    fates = ["accepted"] * kept + ["rejected"] * (kept < drafted) + ["discarded"] * (drafted - kept - 1)
    nodes = tuple(Node(7, place - 1, place + 1, fate) for place, fate in enumerate(fates))  # type: ignore[arg-type]
    return Round(1, nodes, Emitted(8, "plain"), ms=Ms(1.0, verify, 2.0, 0.5))


def test_counts_and_times_of_full_passes() -> None:
    full = [
        Pass({5: round_(2, 4, 20.0), 3: round_(0, 4, None)}, {}),
        Pass({5: round_(4, 4, 30.0), 3: round_(1, 2, None)}, {}),
    ]
    total = 50.0 + 4 * 3.5
    assert count(full, 2) == {
        "passes": 2,
        "rounds": 4,
        "tokens": 11,
        "accepted": 7,
        "judged": 3 + 1 + 4 + 2,
        "ms": {"propose": 4.0, "verify": 50.0, "judge": 8.0, "rollback": 2.0, "total": total},
        "users": (total / 3, total / 8),
    }
    with pytest.raises(ValueError, match="no pass was full"):
        count([], 2)


# ---------------------------------------------------------------- a whole record

STEP, GROWTH, NEW, BATCHES = 10.0, 0.5, 21, (1, 2, 4)


@pytest.fixture(scope="module")
def result() -> Iterator[dict[str, Any]]:
    """A record in which a pass takes 10 ms and half a millisecond for each of its tokens, and nothing else any time."""
    seconds = [0.0]
    verify = Rows.verify

    def timed(self: Rows, chains: Sequence[Sequence[int]], needs: Any) -> Any:
        seconds[0] += (STEP + GROWTH * len(chains) * max(map(len, chains))) / 1000
        return verify(self, chains, needs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "verify", timed)
        patch.setattr(CachedModel, "now", lambda _: seconds[0])
        yield json.loads(json.dumps(record()))


def record(**more: Any) -> dict[str, Any]:
    questions = [Question("vi", PROMPT, False), Question("en", "The sky is blue and the sky", False)]
    given = {"batches": BATCHES, "gammas": (1, 3), "alphas": (1.0, 0.0), "max_new_tokens": NEW, "repeats": 2}
    return measure(loaded(), questions, {"prompt_lookup": {}}, **{**given, **more})


def cost(batch: int, tokens: int) -> float:
    return STEP + GROWTH * batch * tokens


def test_a_record_says_what_the_clock_said(result: dict[str, Any]) -> None:
    table = {(row["mode"], row["γ"], row["policy"], row["B"]): row for row in rows(result)}
    for batch in BATCHES:
        plain = table["none", None, "fixed", batch]
        assert plain["tokens/s"] == pytest.approx(1000 * batch / cost(batch, 1), abs=0.06)
        assert (plain["τ"], plain["α"]) == (1.0, None)
        # A user waits for the whole pass: one token of hers, however many there are beside her.
        assert plain["ms/token p50"] == plain["p99"] == pytest.approx(cost(batch, 1), abs=0.06)
        for gamma in (1, 3):
            sure = table["synthetic α = 1 (lossy)", gamma, "fixed", batch]
            gain = (gamma + 1) * cost(batch, 1) / cost(batch, gamma + 1)
            assert sure["÷ plain"].startswith(f"{gain:.2f} ")
            assert (sure["τ"], sure["α"], sure["pass %"]) == (gamma + 1, 1.0, 100)
            never = table["synthetic α = 0 (lossy)", gamma, "fixed", batch]
            assert (never["τ"], never["α"]) == (1.0, 0.0)
            assert float(never["÷ plain"].split()[0]) < 1
        # The tables found what the clock was made for, and cost or gain just that.
        best = f"{4 * cost(batch, 1) / cost(batch, 4):.2f} "
        assert table["synthetic α = 1 (lossy)", 3, "table", batch]["÷ plain"].startswith(best)
        assert table["synthetic α = 0 (lossy)", 3, "table", batch]["÷ plain"].startswith("1.00 (1.00–1.00)")
        assert table["prompt_lookup", 3, "table", batch]["differs"] == 0
        # Goodput has to look first, and comes near.
        for alpha, most in ((1, 4 * cost(batch, 1) / cost(batch, 4)), (0, 1.0)):
            found = float(table[f"synthetic α = {alpha} (lossy)", 3, "goodput", batch]["÷ plain"].split()[0])
            assert 0.6 * most < found <= most + 0.005
    schedules = {each["name"]: each for each in result["schedules"]}
    assert schedules["synthetic α = 1 (lossy)"]["table"] == [[1, 4, 3]]
    assert schedules["synthetic α = 0 (lossy)"] == {
        "name": "synthetic α = 0 (lossy)",
        "table": [[1, 4, 0]],
        "vllm": None,
    }


def test_a_record_says_where_each_way_stops_paying(result: dict[str, Any]) -> None:
    found = {(row["mode"], row["γ"], row["policy"]): row for row in crossings(result)}
    assert found["synthetic α = 0 (lossy)", 1, "fixed"]["no faster from B"] == 1
    assert found["synthetic α = 1 (lossy)", 3, "fixed"]["no faster from B"] is None
    assert "log2 B" in result["crossing_method"]
    assert result["crossing_method"] in concurrency.conditions_line(result)


def test_ways_take_turns_and_users_are_counted_in_every_repeat(result: dict[str, Any]) -> None:
    samples = concurrency.samples_of(result)
    plain = [sample for sample in samples if sample.mode == concurrency.PLAIN_MODE]
    assert [(sample.batch, sample.repeat) for sample in plain] == [
        (batch, repeat) for batch in BATCHES for repeat in (0, 1)
    ]
    assert all(len(sample.users) == sample.batch for sample in samples)
    assert all(sample.tokens == sample.rounds for sample in plain)


def test_what_cannot_be_measured_is_refused() -> None:
    for wrong in ({"gammas": ()}, {"batches": (0, 1)}, {"repeats": 0}, {"max_new_tokens": 5}, {"gammas": (0,)}):
        with pytest.raises(ValueError, match="at least"):
            record(**wrong)
    with pytest.raises(ValueError, match="do not fit"):
        record(max_new_tokens=1000)
    with pytest.raises(ValueError, match="plain decoding"):
        measure(loaded(), [], {"none": {}}, batches=(1,), gammas=(1,), alphas=(), max_new_tokens=9, repeats=1)
