"""The arithmetic of concurrency on times that are made up, and a whole record whose clock is made up too."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from spec_viz.engine.batch import Pass, decode_batch
from spec_viz.engine.rows import Rows
from spec_viz.engine.schedule import ByBatchSize
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Emitted, Ms, Node, Round
from spec_viz.lab import concurrency
from spec_viz.lab.bench import Question
from spec_viz.lab.concurrency import (
    Crossing,
    Plan,
    begin,
    count,
    crossing,
    crossings,
    make_table,
    measure,
    read,
    rows,
    run,
    size,
    to_csv,
    vllm_config,
)
from spec_viz.lab.run import RequestError
from spec_viz.lab.sweep import Choice, ResultError
from spec_viz.ui.wording import words
from tests.law.test_run import PROMPT, loaded

QUESTIONS = (Question("vi", PROMPT, False), Question("en", "The sky is blue and the sky", False))

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
    given = {"batches": BATCHES, "gammas": (1, 3), "alphas": (1.0, 0.0), "max_new_tokens": NEW, "repeats": 2}
    given |= {"drafters": (Choice("prompt_lookup"),), "questions": QUESTIONS, "policies": ("table", "goodput")}
    return measure(loaded(), Plan(**{**given, **more}))


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
    for wrong in ({"gammas": ()}, {"batches": (0, 1)}, {"batches": ()}, {"repeats": 0}, {"gammas": (0,)}):
        with pytest.raises(ValueError, match="at least"):
            record(**wrong)
    with pytest.raises(ValueError, match="between 0 and 1"):
        record(alphas=(1.5,))
    for twice in ({"gammas": (2, 2)}, {"alphas": (0.5, 0.5)}, {"batches": (1, 1)}):
        with pytest.raises(ValueError, match="stands twice"):
            record(**twice)
    with pytest.raises(RequestError, match="gamma"):
        record(gammas=(1, 99), drafters=())
    with pytest.raises(ValueError, match="1024 requests"):
        record(batches=(1, 2000))
    with pytest.raises(ValueError, match="more than the 5000"):
        record(repeats=1000)
    with pytest.raises(RequestError, match="load_tokens"):
        record(max_new_tokens=5)
    with pytest.raises(ValueError, match="too_long"):
        record(max_new_tokens=1000)
    with pytest.raises(ValueError, match="plain decoding"):
        record(drafters=(Choice("none"),))


@pytest.mark.parametrize(
    ("drafter", "options", "key"),
    [
        ("token_recycling", {}, "error.load_tree"),
        ("early_exit", {"layers": 1, "kv": "shared"}, "error.load_shared"),
    ],
)
def test_a_drafter_that_cannot_share_a_pass_is_named_before_anything_is_timed(
    drafter: str, options: dict[str, Any], key: str
) -> None:
    plan = Plan((Choice(drafter, options),), QUESTIONS, batches=(2,), gammas=(3,), max_new_tokens=NEW)
    with pytest.raises(RequestError) as refusal:
        next(run(loaded(), plan))
    assert refusal.value.key == key
    assert words("en")(f"drafter.{drafter}") in words("en")(key, **refusal.value.fields)


# ---------------------------------------------------------------- sample by sample

PLAN = Plan((Choice("prompt_lookup"),), QUESTIONS, (1, 2), (1, 3), (0.5,), NEW, policies=("table",))


def test_a_plan_says_how_many_samples_come_and_they_come_beside_a_plain_one() -> None:
    found = list(run(loaded(), PLAN))
    assert len(found) == size(PLAN) == 2 * (1 + 4 + 2)
    assert [sample.batch for sample in found[:5]] == [1] * 5
    assert found[0].mode == found[5].mode == concurrency.PLAIN_MODE
    assert {sample.policy for sample in found[10:]} == {"table"}
    backwards = list(run(loaded(), replace(PLAN, repeats=2, batches=(1,), policies=())))
    assert [sample.repeat for sample in backwards] == [0] * 5 + [1] * 5
    assert size(replace(PLAN, repeats=2, batches=(1,), policies=())) == 10


def test_a_stopped_run_keeps_whole_samples_and_its_file_is_read() -> None:
    found: list[concurrency.Sample] = []
    found.extend(iter(run(loaded(), PLAN, lambda: len(found) >= 3)))
    assert len(found) == 3
    body = {**begin(loaded(), PLAN), "samples": [asdict(sample) for sample in found]}
    result = read(json.loads(json.dumps(body)))
    assert result.finish == "stopped"
    assert result.plan == PLAN
    assert result.samples == tuple(found)
    table = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert [(int(row["batch"]), row["drafter"], int(row["gamma"])) for row in table] == [
        (1, "none", 0),
        (1, "prompt_lookup", 1),
        (1, "prompt_lookup", 3),
    ]
    assert all(float(row["p50"]) <= float(row["p99"]) for row in table)


@pytest.mark.parametrize("asked", [1, 40, 160, 400])
def test_a_whole_plan_that_is_stopped_still_tells_what_it_has(asked: int) -> None:
    times = iter(range(10**6))
    body = measure(loaded(), replace(PLAN, policies=("table", "goodput")), lambda: next(times) >= asked)
    assert body["finish"] == "stopped"
    assert len(body["samples"]) < size(replace(PLAN, policies=("table", "goodput")))
    assert sum(1 for _ in concurrency.rows(body)) == len(body["samples"])
    assert len(crossings(body)) <= len(body["samples"])
    assert read(json.loads(json.dumps(body))).finish == "stopped"


def test_what_was_measured_before_a_failure_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, kept = iter(range(10**6)), list[dict[str, Any]]()

    def failing(*given: Any) -> Any:
        if next(batches) == 6:
            raise RequestError("error.out_of_memory")
        return decode_batch(*given)

    monkeypatch.setattr(concurrency, "decode_batch", failing)
    with pytest.raises(RequestError, match="out_of_memory"):
        measure(loaded(), PLAN, keep=kept.append)
    (body,) = kept
    assert body["finish"] == "stopped"
    assert len(body["samples"]) == 4
    assert [each["name"] for each in body["schedules"]] == ["prompt_lookup", "synthetic α = 0.5 (lossy)"]


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"ratio": float("nan")}, "samples.0.ratio"),
        ({"tokens": 0}, "samples.0.tokens"),
        ({"users": []}, "samples.0.users"),
        ({"ms": {"total": 1.0}}, "samples.0.ms"),
        ({"ms": {"propose": 1.0, "verify": 1.0, "judge": 1.0, "rollback": 1.0, "total": 0.0}}, "samples.0.ms"),
        ({"policy": "none"}, "samples.0.policy"),
    ],
)
def test_a_damaged_file_names_its_place(result: dict[str, Any], patch: dict[str, Any], field: str) -> None:
    body = {**result, "samples": [{**result["samples"][0], **patch}]}
    with pytest.raises(ResultError) as refusal:
        read(body)
    assert refusal.value.field == field
    assert read(result).finish == "done"
