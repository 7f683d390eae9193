"""Long contexts on a tiny model and a made-up clock: exact prefixes, the line through the times, files, the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.target import CachedModel
from spec_viz.lab import context
from spec_viz.lab.bench import Question
from spec_viz.lab.context import (
    Bench,
    Plan,
    Prefix,
    Result,
    Sample,
    measure,
    prefix,
    rates,
    read,
    reading,
    size,
    split,
    spread,
    to_csv,
    validate,
)
from spec_viz.lab.run import Request, RequestError, encode_prompt, start
from spec_viz.lab.sweep import Choice, ResultError
from spec_viz.training.prompts import Prompt
from spec_viz.ui.context_charts import shown
from spec_viz.ui.wording import words
from tests.law.test_run import PROMPT, loaded

# A pass takes so many milliseconds, so many more for every entry it reads, and for every token of its own but one.
PASS, ENTRY, TOKEN = 10.0, 0.05, 0.5
LENGTHS = (48, 64, 96)
WINDOW, SINKS = 12, 2
QUESTIONS = (
    Question("question", "The weather is fine today. The sky is blue, the sky is wide."),
    Question("question", "A rose is a rose is a rose; what will be will be."),
    Question("summary", "Say it again: " + PROMPT[:14], chat=True),
)
LOOKUP, THROUGH = Choice("prompt_lookup"), Choice("window", {"window": WINDOW, "sinks": SINKS})
PLAN = Plan(QUESTIONS, (LOOKUP, THROUGH), LENGTHS, gamma=3, max_new_tokens=13, passes=3, repeats=2)
EN, VI = words("en"), words("vi")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def body() -> Iterator[dict[str, Any]]:
    """A record, as its file holds it, on a clock that runs only in passes."""
    seconds = [0.0]
    pass_ = CachedModel._pass

    def timed(self: CachedModel, tokens: Any, *arguments: Any, **named: Any) -> Any:
        entries = int(self._cache.get_seq_length())
        seconds[0] += (PASS + ENTRY * entries + TOKEN * (len(tokens) - 1)) / 1000
        return pass_(self, tokens, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedModel, "_pass", timed)
        patch.setattr(CachedModel, "now", lambda _: seconds[0])
        yield json.loads(json.dumps(measure(loaded(), PLAN)))


@pytest.fixture(scope="module")
def result(body: dict[str, Any]) -> Result:
    return read(body)


# ---------------------------------------------------------------- the text in front


@given(st.integers(38, 115))
def test_a_prefix_is_exactly_as_long_as_was_asked_and_ends_in_the_last_question(length: int) -> None:
    text = prefix(loaded(), PLAN, length)
    assert len(encode_prompt(loaded(), Request(text))) == length
    before, _, last = text.rpartition(context.BETWEEN)
    assert last == QUESTIONS[-1].prompt
    assert context.BETWEEN.join(each.prompt for each in QUESTIONS[:-1]).endswith(before)


@pytest.mark.parametrize(
    ("length", "plan"),
    [(3, PLAN), (116, PLAN), (120, replace(PLAN, max_new_tokens=9)), (60, replace(PLAN, questions=QUESTIONS[-1:]))],
)
def test_a_prefix_that_cannot_be_made_is_refused_with_the_lengths_that_can(length: int, plan: Plan) -> None:
    with pytest.raises(RequestError) as refusal:
        prefix(loaded(), plan, length)
    assert refusal.value.key == "error.context_length"
    told = refusal.value.fields
    assert told["length"] == length
    for end in (told["low"], told["high"]):
        assert len(encode_prompt(loaded(), Request(prefix(loaded(), plan, end)))) == end
    assert not told["low"] <= length <= told["high"]


def test_the_texts_that_are_read_were_kept_from_training() -> None:
    found = reading()
    assert len(found) == 2 * context.PASSAGES
    assert all(Prompt(each.category, each.prompt).held_out for each in found)
    assert found[-1].category == "summary"


# ---------------------------------------------------------------- declaring


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"questions": ()}, ValueError),
        ({"drafters": ()}, ValueError),
        ({"lengths": ()}, ValueError),
        ({"passes": 0}, ValueError),
        ({"repeats": 0}, ValueError),
        ({"max_new_tokens": 1}, ValueError),
        ({"drafters": (LOOKUP, LOOKUP)}, ValueError),
        ({"lengths": tuple(range(40, 49))}, ValueError),
        ({"passes": context.MOST_TIMES + 1}, ValueError),
        ({"repeats": context.MOST_SAMPLES}, ValueError),
        ({"drafters": (Choice("none"),)}, ValueError),
        ({"drafters": (Choice("oracle"),)}, RequestError),
        ({"drafters": (Choice("window", {"window": 0}),)}, RequestError),
        ({"gamma": 99}, RequestError),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        validate(replace(PLAN, **wrong))


def test_a_plain_run_stands_between_two() -> None:
    four = replace(PLAN, drafters=(LOOKUP, THROUGH, Choice("suffix"), Choice("ngram"), Choice("anpd")))
    assert [len(order) for order in four.orders] == [3, 3, 2]
    assert all(order[1] is None for order in four.orders)
    assert [each for order in four.orders for each in order if each] == list(four.drafters)


# ---------------------------------------------------------------- running


@pytest.mark.parametrize(
    "choice",
    [
        None,
        LOOKUP,
        THROUGH,
        Choice("pld_plus", {"layer": 1}),
        Choice("token_recycling"),
        Choice("early_exit", {"layers": 1}),
    ],
    ids=str,
)
def test_a_run_behind_a_prefix_that_was_read_before_writes_what_a_run_from_the_start_writes(
    choice: Choice | None,
) -> None:
    text = prefix(loaded(), PLAN, 64)
    request = context._request(PLAN, choice, text)
    want = start(loaded(), request).collect()
    target = Prefix(loaded(), encode_prompt(loaded(), request))
    bench = Bench(loaded(), PLAN, target, text, lambda: False)
    for before in (LOOKUP, choice, THROUGH, choice):
        found = bench._decode(before, PLAN.max_new_tokens)
        assert found.output == want.output
        assert target.length == 64
    assert [round_.nodes for round_ in found.decoding] == [round_.nodes for round_ in want.decoding]


def test_a_prefix_answers_for_its_own_text_only() -> None:
    target = Prefix(loaded(), [5, 6, 7])
    with pytest.raises(ValueError, match="another prompt"):
        target.prefill([5, 6, 8])


def test_every_way_is_measured_behind_every_prefix(result: Result) -> None:
    assert result.finish == "done"
    assert len(result.samples) == size(PLAN) == 3 * (3 + 2 * 3)
    assert result.lengths == LENGTHS
    for length in LENGTHS:
        assert [len(result.at(length, part)[0].ms) for part in context.PASSES] == [3, 3, 3]
        for label in ("none", LOOKUP.label, THROUGH.label):
            mine = result.at(length, "decode", label)
            assert [each.repeat for each in mine] == [0, 1]
            assert all(each.tokens == 12 for each in mine)


def test_the_line_finds_what_the_clock_was_made_of(result: Result) -> None:
    found = split(result)
    assert found is not None
    assert found.rest == pytest.approx(PASS, abs=1e-3)
    assert found.per_token == pytest.approx(ENTRY, abs=1e-4)
    assert found.off < 1e-4
    assert found.kv(96) == pytest.approx(96 * ENTRY, abs=0.01)
    for length in LENGTHS:
        one, wide, own = (result.at(length, part)[0] for part in context.PASSES)
        assert one.ms == pytest.approx((PASS + ENTRY * length,) * 3, abs=1e-3)
        assert wide.ms == pytest.approx((PASS + ENTRY * length + TOKEN * 3,) * 3, abs=1e-3)
        # Over its whole cache the target's own draft costs a pass, but for the drafts it reads again.
        assert own.c == pytest.approx(1 + ENTRY * 1 / (PASS + ENTRY * length), abs=1e-3)


def test_a_draft_through_a_window_costs_what_the_window_holds(result: Result) -> None:
    costs = []
    for length in LENGTHS:
        mine = result.at(length, "decode", THROUGH.label)
        for each in mine:
            # Of three drafts the first reads the window, the next ones one or two drafts more.
            assert max(each.draft_ms) <= PASS + ENTRY * (WINDOW + SINKS + 2)
            assert min(each.draft_ms) >= PASS + ENTRY * (WINDOW + SINKS)
        cost = rates(mine)["c"]
        assert cost is not None
        costs.append(cost)
        lookup = rates(result.at(length, "decode", LOOKUP.label))["c"]
        assert lookup is None or lookup == 0.0
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < (PASS + ENTRY * (WINDOW + SINKS + 2)) / (PASS + ENTRY * 96)


def test_a_ratio_is_that_of_the_plain_run_beside_it(result: Result) -> None:
    for length in LENGTHS:
        plain = result.at(length, "decode")
        assert all(each.ratio == 1.0 for each in plain)
        for each, beside in zip(result.at(length, "decode", LOOKUP.label), plain, strict=True):
            assert each.ratio == pytest.approx(sum(beside.ms) / sum(each.ms), abs=1e-3)


def test_a_stop_keeps_what_was_measured() -> None:
    for allowed in (0, 1, 9, 40):
        asked = iter(range(10_000))
        samples = list(context.run(loaded(), PLAN, lambda asked=asked, allowed=allowed: next(asked) >= allowed))  # type: ignore[misc]
        assert len(samples) < size(PLAN)
        assert all(each.ms for each in samples)
    record = measure(loaded(), PLAN, lambda: True)
    assert (record["samples"], record["finish"]) == ([], "stopped")
    assert read(json.loads(json.dumps(record))).samples == ()


# ---------------------------------------------------------------- reading


def sampled(ms: dict[int, float]) -> tuple[Sample, ...]:
    return tuple(Sample(length, "one", "none", (each,)) for length, each in ms.items())


def test_a_line_needs_two_prefixes_and_never_makes_the_cache_a_gain(result: Result) -> None:
    assert split(replace(result, samples=sampled({256: 30.0}))) is None
    falling = split(replace(result, samples=sampled({256: 30.0, 512: 20.0})))
    assert falling is not None
    assert falling.per_token < 0
    assert falling.kv(512) == 0.0
    bent = split(replace(result, samples=sampled({100: 10.0, 200: 20.0, 300: 10.0})))
    assert bent is not None
    assert bent.per_token == pytest.approx(0, abs=1e-9)
    assert bent.off == pytest.approx((40 / 3 - 10) / 10)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("schema",), "other", "schema"),
        (("kind",), "cost", "kind"),
        (("samples", 0, "ms"), [], "samples.0.ms"),
        (("samples", 0, "ms"), [float("nan")], "samples.0.ms.0"),
        (("samples", 0, "ms"), [-1.0], "samples.0.ms.0"),
        (("samples", 0, "prefix"), 0, "samples.0.prefix"),
        (("samples", 0, "part"), "half", "samples.0.part"),
        (("samples", 4, "accepted"), 9999, "samples.4"),
        (("samples", 4, "tokens"), 0, "samples.4.tokens"),
        (("samples", 4, "ratio"), float("inf"), "samples.4.ratio"),
        (("plan", "lengths"), [0], "plan.lengths.0"),
        (("plan", "gamma"), 0, "plan.gamma"),
        (("conditions", "weight_bytes"), "many", "conditions.weight_bytes"),
        (("conditions", "kv_bytes_per_token"), 0, "conditions.kv_bytes_per_token"),
        (("finish",), "soon", "finish"),
    ],
)
def test_a_file_that_is_damaged_is_refused_at_its_place(
    body: dict[str, Any], path: tuple[Any, ...], value: Any, field: str
) -> None:
    broken = json.loads(json.dumps(body))
    place = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ResultError) as refusal:
        read(broken)
    assert refusal.value.field == field


def test_a_csv_has_a_line_a_sample_with_its_percentiles(result: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert len(rows) == len(result.samples)
    for row, each in zip(rows, result.samples, strict=True):
        assert (row["part"], int(row["prefix"]), int(row["times"])) == (each.part, each.prefix, len(each.ms))
        assert tuple(float(row[name]) for name in ("p50", "p95", "p99")) == spread(each.ms)


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("t", [EN, VI], ids=["en", "vi"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_that_is_shown_is_plain_json_with_its_sentence(result: Result, t: Any, theme: Any) -> None:
    told = json.loads(json.dumps(shown(result, result, t, theme), allow_nan=False))
    assert [chart["key"] for chart in told["charts"]] == ["context_pass", "context_cost", "context_speed"]
    assert told["differ"] == []
    assert told["partial"] is None
    for chart in told["charts"]:
        assert {f"chart.{chart['key']}", f"chart.{chart['key']}.help"} <= t.table.keys()
        assert chart["summary"]
        assert "{" not in chart["summary"]
    for text in (told["verdict"], told["conditions"], *told["table"]["columns"]):
        assert text
        assert "{" not in text
    widths = {len(row) for row in told["table"]["rows"]}
    assert widths == {len(told["table"]["columns"])}
    assert len(told["table"]["rows"]) == len(LENGTHS) * 6


def test_bars_add_up_to_the_passes_and_points_tell_their_percentiles(result: Result) -> None:
    figure = shown(result, None, EN, "light")["charts"][0]["figure"]
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    points = [trace for trace in figure["data"] if trace["type"] == "scatter"]
    assert figure["layout"]["barmode"] == "stack"
    for place, length in enumerate(LENGTHS):
        assert sum(bar["y"][place] for bar in bars) == pytest.approx(PASS + ENTRY * length, abs=0.01)
    assert len(points) == 2
    assert all(len(text.split(" / ")) == 3 for trace in points for text in trace["text"])


def test_a_lookup_is_drawn_by_its_speed_and_not_by_a_cost_it_has_none_of(result: Result) -> None:
    charts = {chart["key"]: chart["figure"]["data"] for chart in shown(result, None, EN, "light")["charts"]}
    names = {key: [trace["name"] for trace in data] for key, data in charts.items()}
    lookup, window = EN("drafter.prompt_lookup"), EN("drafter.window")
    assert [name.partition(" (")[0] for name in names["context_speed"]] == [lookup, window.partition(" (")[0]]
    assert names["context_cost"][0] == EN("experiments.context.self")
    assert len(names["context_cost"]) == 2
    assert charts["context_cost"][1]["line"]["color"] == charts["context_speed"][1]["line"]["color"]


def verdict(result: Result, ms: dict[int, float], ratios: dict[int, float], costs: tuple[float, ...]) -> str:
    decodes = tuple(
        Sample(length, "decode", "window", (1.0,), tokens=1, drafted=1, judged=1, c=c, ratio=ratio)
        for (length, ratio), c in zip(ratios.items(), costs, strict=True)
    )
    return str(shown(replace(result, samples=(*sampled(ms), *decodes)), None, EN, "light")["verdict"])


def test_the_verdict_says_what_the_cache_takes_and_whether_a_window_pays(result: Result) -> None:
    grows = {100: 11.0, 300: 13.0}
    told = verdict(result, grows, {100: 0.8, 300: 1.4}, (1.0, 0.7))
    weights, entry = loaded().weight_bytes, kv_bytes_per_token(loaded().model)
    bytes_share = 100 * 300 * entry / (300 * entry + weights)
    assert f"23\u00a0% of it ({bytes_share:.0f}\u00a0% of the bytes)" in told
    assert "c = 1.00 behind 100 tokens and 0.70 behind 300" in told
    assert "pays here, 1.40 times plain decoding behind 300 tokens" in told
    loses = verdict(result, grows, {100: 1.01, 300: 0.6}, (1.0, 0.7))
    assert "does not pay here, at best 1.01 times plain decoding (behind 100 tokens)" in loses
    assert "Behind 300 tokens nothing measured here beats plain decoding" in loses
    assert "noise" in verdict(result, {100: 11.0, 300: 10.0}, {300: 0.6}, (0.7,))
    bent = {100: 11.0, 200: 14.0, 300: 11.1}
    assert "noise" in verdict(result, bent, {300: 0.6}, (0.7,))


def test_another_result_beside_it_is_pale_and_says_where_it_differs(result: Result) -> None:
    other = replace(result, conditions={**result.conditions, "threads": 64, "passes": 99})
    told = shown(result, other, EN, "light")
    assert set(told["differ"]) == {EN("experiments.condition.threads"), EN("experiments.condition.passes")}
    for chart in told["charts"]:
        assert any("opened" in trace["name"] for trace in chart["figure"]["data"])
        assert "≠" in chart["figure"]["layout"]["annotations"][-1]["text"]


def test_a_result_that_was_stopped_shows_what_there_is(result: Result) -> None:
    for count in (0, 1, 3, 5, 12):
        told = shown(replace(result, samples=result.samples[:count], finish="stopped"), None, VI, "dark")
        assert told["partial"] == {"done": count, "of": size(PLAN)}
        assert told["verdict"]
        assert (told["table"] is None) == (count == 0)
