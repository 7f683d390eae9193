"""Experiments on a tiny model and on a made-up clock: order, counts, intervals, predictions, files, the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Emitted, Ms, Node, Round, Trace
from spec_viz.lab import sweep, theory
from spec_viz.lab.bench import SCHEMA, Question
from spec_viz.lab.concurrency import Plan, Sample
from spec_viz.lab.run import RequestError, start
from spec_viz.lab.sweep import Cell, Choice, Experiment, Point, ResultError, Sweep, comparable, measure, read, validate
from spec_viz.lab.sweep_rows import Estimate, conditions_line, forecast, rates, rows, series, stream
from spec_viz.ui.experiments import MOST_POINTS, MOST_PROMPTS, conduct, declare, experiment
from spec_viz.ui.limits import Limits
from spec_viz.ui.wording import words
from tests.integration.rooms import Gate, by, last, notice, ready_room
from tests.law.test_run import PROMPT, loaded

QUESTIONS = (
    Question("vi", PROMPT, False),
    Question("en", "The sky is blue and the sky", False),
    Question("en", "A rose is a rose is a", False),
)
LOOKUP, EXIT = Choice("prompt_lookup"), Choice("early_exit", {"layers": 1})
GAMMA = Experiment("gamma", (LOOKUP, EXIT), QUESTIONS, (1, 2, 4), max_new_tokens=16)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recorded(asked: Experiment, **more: Any) -> Sweep:
    """The record of an experiment, through its file."""
    found = read(json.loads(json.dumps(measure(loaded(), replace(asked, **more)))))
    assert isinstance(found, Sweep)
    return found


@pytest.fixture(scope="module")
def gamma() -> Sweep:
    return recorded(GAMMA)


# ---------------------------------------------------------------- declaring


def test_a_plain_run_stands_between_two_and_every_other_repeat_goes_backwards() -> None:
    turns = list(replace(GAMMA, repeats=2, seeds=(3, 4)).turns())
    half = len(turns) // 2
    for turn in turns:
        assert turn.order.count(None) == 1
        assert turn.order[1] is None
        assert len(turn.order) == 3
    assert {turn.repeat for turn in turns[:half]} == {0}
    # The same cells of the same prompt and seed, from the last to the first.
    first = [cell for turn in turns[:3] for cell in turn.order]
    second = [cell for turn in turns[half : half + 3] for cell in turn.order]
    assert second == first[::-1]
    # A whole prompt before the next one, so that a stopped run can compare all its cells.
    assert [turn.question for turn in turns[:half]] == sorted(turn.question for turn in turns[:half])
    assert (
        sum(cell is not None for turn in turns for cell in turn.order) == replace(GAMMA, repeats=2, seeds=(3, 4)).size
    )


def test_over_temperatures_a_model_drafts_in_two_forms_beside_a_plain_run_of_that_temperature() -> None:
    asked = Experiment("temperature", (EXIT, LOOKUP), QUESTIONS[:1], (0.0, 1.0))
    rules = [(cell.choice.drafter, cell.rule, cell.temperature) for cell in asked.cells]
    assert rules == [
        (name, rule, temperature)
        for temperature in (0.0, 1.0)
        for name, rule in (("early_exit", "token"), ("early_exit", "match"), ("prompt_lookup", None))
    ]
    for turn in asked.turns():
        for cell in turn.order:
            assert asked.request(cell, turn).temperature == turn.temperature


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"drafters": ()}, ValueError),
        ({"questions": ()}, ValueError),
        ({"axis": ()}, ValueError),
        ({"axis": (1.5,)}, ValueError),
        ({"axis": (2, 2)}, ValueError),
        ({"axis": (float("nan"),)}, ValueError),
        ({"drafters": (LOOKUP, LOOKUP)}, ValueError),
        ({"drafters": (Choice("none"),)}, ValueError),
        ({"repeats": 0}, ValueError),
        ({"seeds": tuple(range(sweep.MOST_POINTS))}, ValueError),
        ({"drafters": (Choice("scripted", {"text": "x" * 80}),)}, ValueError),
        ({"axis": (99,)}, RequestError),
        ({"drafters": (Choice("oracle"),)}, RequestError),
        ({"drafters": (Choice("prompt_lookup", {"depth": 3}),)}, RequestError),
        ({"questions": (Question("x", " "),)}, RequestError),
        ({"temperature": 9.0}, RequestError),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        validate(replace(GAMMA, **wrong))


# ---------------------------------------------------------------- running


def test_every_cell_of_every_prompt_has_a_point_that_says_what_its_trace_says(gamma: Sweep) -> None:
    assert gamma.finish == "done"
    assert len(gamma.points) == GAMMA.size == 18
    found = {(each.drafter, each.gamma, each.prompt) for each in gamma.points}
    assert len(found) == 18
    for each in gamma.points:
        cell = next(cell for cell in GAMMA.cells if (cell.choice.label, cell.gamma) == (each.drafter, each.gamma))
        turn = next(turn for turn in GAMMA.turns() if cell in turn.order and turn.question == each.prompt)
        trace = start(loaded(), GAMMA.request(cell, turn)).collect()
        nodes = [node.status for round_ in trace.decoding for node in round_.nodes]
        assert (each.accepted, each.drafted) == (nodes.count("accepted"), len(nodes))
        assert each.judged == len(nodes) - nodes.count("discarded")
        assert (each.tokens, each.plain_tokens) == (15, 15)
        assert each.category == QUESTIONS[each.prompt].category


def test_a_ratio_is_that_of_the_neighbours() -> None:
    """On a clock that runs only in the target's passes: 10 ms each, and each run's ratio is passes ÷ passes."""
    seconds = [0.0]
    feed = CachedModel.feed

    def timed(self: CachedModel, *arguments: Any, **named: Any) -> Any:
        seconds[0] += 0.01
        return feed(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedModel, "now", lambda _: seconds[0])
        patch.setattr(CachedModel, "feed", timed)
        points = list(sweep.run(loaded(), replace(GAMMA, drafters=(LOOKUP,))))
    for each in points:
        assert each.plain_ms == pytest.approx(150)
        assert each.ms == pytest.approx(10 * each.rounds)
        assert each.ratio == pytest.approx(15 / each.rounds, abs=1e-4)


def test_a_stopped_experiment_keeps_whole_points() -> None:
    count = 0

    def stop() -> bool:
        nonlocal count
        count += 1
        return count > 150

    record = measure(loaded(), GAMMA, stop)
    assert record["finish"] == "stopped"
    assert 0 < len(record["points"]) < GAMMA.size
    whole = recorded(GAMMA)
    kept = read(json.loads(json.dumps(record)))
    assert isinstance(kept, Sweep)

    def counts(points: Sequence[Point]) -> list[tuple[Any, ...]]:
        return [(each.series, each.gamma, each.prompt, each.accepted, each.rounds) for each in points]

    assert counts(kept.points) == counts(whole.points)[: len(kept.points)]
    assert rows(kept)


def test_what_was_measured_before_a_failure_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, kept = iter(range(10**6)), list[dict[str, Any]]()

    def failing(*given: Any) -> Any:
        if next(starts) == 9:
            raise RequestError("error.out_of_memory")
        return start(*given)

    monkeypatch.setattr(sweep, "start", failing)
    with pytest.raises(RequestError, match="out_of_memory"):
        measure(loaded(), GAMMA, keep=kept.append)
    (record,) = kept
    assert record["finish"] == "stopped"
    assert 0 < len(record["points"]) < GAMMA.size
    assert rows(read(json.loads(json.dumps(record))))


def test_a_prompt_that_leaves_no_room_is_refused_before_anything_runs() -> None:
    limit = CachedModel(loaded().model).context_limit
    long = Question("long", " ".join(["a"] * limit), False)
    with pytest.raises(RequestError) as refusal:
        measure(loaded(), replace(GAMMA, questions=(*QUESTIONS, long)))
    assert refusal.value.key == "error.prompt_too_long"
    assert refusal.value.fields["limit"] == limit - GAMMA.max_new_tokens


def test_closing_an_experiment_ends_it() -> None:
    with Gate() as gate:
        running = sweep.run(loaded_room(), GAMMA)
        next(running)
        passes = gate.passes
        running.close()
        assert gate.passes == passes


def loaded_room() -> Any:
    from tests.integration.rooms import loaded as of_the_room

    return of_the_room()


# ---------------------------------------------------------------- what the points say together


def made(prompt: int, accepted: int, judged: int, ratio: float = 1.5, **more: Any) -> Point:
    """A chain of one position a round: 20 rounds, `judged` of which drafted."""
    usual: dict[str, Any] = {
        "drafter": "prompt_lookup",
        "rule": "match",
        "gamma": 1,
        "temperature": 0.0,
        "category": f"c{prompt}",
        "prompt": prompt,
        "seed": 0,
        "repeat": 0,
        "context": 9,
        "rounds": 20,
        "drafting": judged,
        "drafted": judged,
        "judged": judged,
        "accepted": accepted,
        "tokens": 20 + accepted,
        "plain_tokens": 20,
        "ms": 100.0,
        "plain_ms": 150.0,
        "first_ms": 5.0,
        "plain_first_ms": 4.0,
        "ratio": ratio,
        "tree": False,
        "positions": ((20, judged, judged, accepted),),
        "costs": (1.0, 0.1, 0.05, 0.02),
    }
    return Point(**{**usual, **more})


def test_rates_are_ratios_of_totals_and_speedups_medians_of_neighbours() -> None:
    points = [made(0, 8, 10, 2.0), made(0, 8, 10, 4.0, repeat=1), made(1, 1, 40, 1.0), made(2, 0, 0, 9.0)]
    told = rates(points)
    assert told.alpha is not None
    assert (told.alpha.value, told.alpha.counts, told.alpha.prompts) == (17 / 60, (17, 60), 3)
    assert told.tau.value == 97 / 80
    # Prompt by prompt 3, 1 and 9; the two repeats of one prompt are one voice.
    assert (told.speedup.value, told.speedup.prompts) == (3.0, 3)


def test_intervals_come_from_the_prompts_and_only_from_enough_of_them() -> None:
    assert rates([made(0, 5, 10), made(1, 9, 10)]).tau.low is None
    same = rates([made(prompt, 5, 10) for prompt in range(8)])
    assert (same.speedup.low, same.speedup.high) == (1.5, 1.5)
    rng = np.random.default_rng(1)
    points = [made(prompt, int(accepted), 50) for prompt, accepted in enumerate(rng.binomial(50, 0.6, size=40))]
    alpha = rates(points).alpha
    assert alpha is not None
    assert alpha.low is not None
    assert alpha.high is not None
    # Of 2000 tosses with chance 0.6 the standard error is 0.011: an interval is about 1.96 of them to either side.
    assert alpha.high - alpha.low == pytest.approx(2 * 1.96 * 0.011, rel=0.3)
    assert alpha.low < 0.6 < alpha.high
    assert rates(points) == rates(points)
    assert Estimate(0.9, 0.8, 1.0, 9).above(alpha)
    assert not Estimate(0.9, None, None, 1).above(alpha)


def test_a_tree_has_no_alpha_but_a_tau() -> None:
    told = rates([made(prompt, 5, 10, tree=True, positions=()) for prompt in range(3)])
    assert told.alpha is None
    assert told.tau.value == 1.25
    assert forecast([made(0, 5, 10, tree=True, positions=())]) is None


def test_smaller_gammas_are_predicted_from_the_largest() -> None:
    places = ((20, 20, 20, 16), (16, 16, 16, 8))
    big = made(0, 24, 36, gamma=2, drafted=40, drafting=20, positions=places, tokens=44)
    small = made(0, 16, 20, gamma=1)
    told = forecast([small, big])
    assert told is not None
    assert told.gamma == 2
    one, two = told.predictions
    assert one.tokens == pytest.approx(1.8)
    assert two.tokens == pytest.approx(theory.expected_tokens_by_position([0.8, 0.5]))
    # A round that drafts one token: step + draft + growth + other, in plain rounds.
    assert one.speedup == pytest.approx(1.8 / (1.0 + 0.1 + 0.05 + 0.02))
    alpha = 24 / 36
    assert two.speedup_by_formula == pytest.approx(theory.speedup(alpha, 2, 0.1, 1.0 + 2 * 0.05, 0.02))


def test_predictions_are_told_over_prompts_as_speedups_are_measured() -> None:
    """One prompt copies and is soon done, one doesn't; summed up, the slow one's rounds would outweigh the other's."""
    copies = made(0, 20, 20, ratio=1.8, positions=((20, 20, 20, 20),), costs=(1.0, 0.0, 0.1, 0.0))
    writes = made(1, 0, 60, ratio=0.9, rounds=60, positions=((60, 60, 60, 0),), costs=(1.0, 0.0, 0.1, 0.0))
    silent = made(2, 0, 0, ratio=0.8, positions=(), costs=(1.0, 0.0, 0.1, 0.25))
    told = forecast([copies, writes])
    assert told is not None
    assert told.predictions[0].speedup == pytest.approx((2 / 1.1 + 1 / 1.1) / 2)
    told = forecast([copies, writes, silent])
    assert told is not None
    assert told.predictions[0].speedup == pytest.approx(1 / 1.1)
    told = forecast([copies, silent])
    assert told is not None
    assert told.predictions[0].speedup == pytest.approx((2 / 1.1 + 1 / 1.25) / 2)


def test_every_line_of_a_result_is_told(gamma: Sweep) -> None:
    lines = series(gamma)
    assert [(line.drafter, line.rule) for line in lines] == [
        ("prompt_lookup", "match"),
        ("early_exit (layers=1)", "token"),
    ]
    assert all(list(line.rates) == [1, 2, 4] for line in lines)
    table = rows(gamma)
    assert [(row["drafter"], row["γ"]) for row in table] == [(x.drafter, g) for x in lines for g in (1, 2, 4)]
    assert all(row["by position"] > 0 for row in table)
    assert "3 prompts of 19 to 33 tokens" in conditions_line(gamma)


def test_what_a_reader_sees_comes_from_the_rounds() -> None:
    told = stream(
        [made(0, 1, 1, arrivals=((100.0, 3), (150.0, 1)), plain_arrivals=((80.0, 1), (180.0, 1)))], plain=False
    )
    # Three tokens at once are one wait and two gaps of nothing.
    assert told.per_token_ms == 150 / 4
    assert told.gaps[0] == np.percentile([100, 0, 0, 50], 50)
    assert told.waits[0] == 75
    assert told.bursts == {1: 1, 3: 1}
    assert told.burst == 2
    assert told.first_ms == 5
    plain = stream([made(0, 1, 1, plain_arrivals=((80.0, 1), (180.0, 1)))], plain=True)
    assert (plain.first_ms, plain.per_token_ms, plain.bursts) == (4, 90, {1: 2})


def test_arrivals_add_up_to_the_run() -> None:
    trace = Trace("r", "live", {}, (1,), {}, finish="length")
    ids = (Emitted(5, "bonus"), Emitted(6, "plain"))
    decoding = (
        Round(0, prefill=True, emitted=Emitted(4, "plain"), ms=Ms(verify=900.0)),
        Round(1, (Node(7, -1, 1, "accepted"),), ids[0], ms=Ms(1.0, 20.0, 2.0, 1.0)),
        Round(2, (), ids[1], ms=Ms(verify=10.0)),
    )
    assert sweep.arrivals(replace(trace, rounds=decoding)) == ((24.0, 2), (34.0, 1))


def test_streaming_points_hold_when_their_text_came() -> None:
    found = recorded(Experiment("streaming", (LOOKUP,), QUESTIONS[:1], max_new_tokens=16))
    (each,) = found.points
    for arrivals, tokens in ((each.arrivals, each.tokens), (each.plain_arrivals, each.plain_tokens)):
        assert sum(came for _, came in arrivals) == tokens
        assert all(before < after for (before, _), (after, _) in pairwise(arrivals))
    assert [row["drafter"] for row in rows(found)] == ["none", "prompt_lookup"]


# ---------------------------------------------------------------- files


def file() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(_FILE))
    return body


_FILE = {
    "schema": SCHEMA,
    "kind": "sweep",
    "experiment": asdict(replace(GAMMA, axis=(1,), drafters=(LOOKUP,))),
    "conditions": {"device_name": "a", "threads": 2, "versions": {"torch": "2"}, "created": "x", "prompts_digest": "p"},
    "points": [asdict(made(prompt, 5, 10)) for prompt in range(3)],
    "finish": "done",
}


def test_a_file_is_read_as_it_was_written_and_strangers_fields_are_left_alone() -> None:
    found = read({**file(), "remark": "mine", "points": [{**point, "colour": "red"} for point in file()["points"]]})
    assert isinstance(found, Sweep)
    assert found.points == tuple(made(prompt, 5, 10) for prompt in range(3))


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"schema": "specviz.result/2"}, "schema"),
        ({"kind": "bench"}, "kind"),
        ({"kind": ["sweep"]}, "kind"),
        ({"conditions": 3}, "conditions"),
        ({"finish": "perhaps"}, "finish"),
        ({"points": {}}, "points"),
        ({"experiment": {}}, "experiment"),
        ({"points": [{}]}, "points.0"),
        ({"points": [{**asdict(made(0, 5, 10)), "ratio": float("nan")}]}, "points.0.ratio"),
        ({"points": [{**asdict(made(0, 5, 10)), "ratio": -1}]}, "points.0.ratio"),
        ({"points": [{**asdict(made(0, 5, 10)), "rounds": 0}]}, "points.0.rounds"),
        ({"points": [{**asdict(made(0, 5, 10)), "accepted": 11}]}, "points.0"),
        ({"points": [{**asdict(made(0, 5, 10)), "prompt": 3}]}, "points.0.prompt"),
        ({"points": [asdict(made(0, 5, 10))] * (sweep.MOST_POINTS + 1)}, "points"),
    ],
)
def test_a_damaged_file_names_its_place(patch: dict[str, Any], field: str) -> None:
    with pytest.raises(ResultError) as refusal:
        read({**file(), **patch})
    assert refusal.value.field.startswith(field)


@pytest.mark.parametrize("odd", [None, 3, "x", [], {}, {"schema": SCHEMA, "kind": "concurrency", "samples": []}])
def test_what_is_no_result_is_refused(odd: Any) -> None:
    with pytest.raises(ResultError):
        read(odd)


def test_conditions_that_differ_are_named() -> None:
    ours = read(file())
    assert comparable(ours, read(file())) == ()
    told = {**file()["conditions"], "threads": 8, "versions": {"torch": "3"}, "created": "later", "dtype": "bfloat16"}
    assert comparable(ours, read({**file(), "conditions": told})) == ("threads", "torch", "dtype")
    streaming = read({**file(), "experiment": {**file()["experiment"], "kind": "task"}})
    assert comparable(ours, streaming)[0] == "kind"


def test_other_prompts_are_other_conditions(gamma: Sweep) -> None:
    other = recorded(
        replace(GAMMA, axis=(1,)), questions=(*QUESTIONS[:2], Question("en", "A dog is a dog is a", False))
    )
    assert "prompts_digest" in comparable(gamma, other)
    assert "prompts" not in comparable(gamma, other)


def test_a_line_a_run_in_the_csv(gamma: Sweep) -> None:
    table = list(csv.DictReader(io.StringIO(sweep.to_csv(gamma))))
    assert len(table) == len(gamma.points)
    for row, each in zip(table, gamma.points, strict=True):
        assert (row["drafter"], int(row["gamma"]), float(row["ratio"])) == (each.drafter, each.gamma, each.ratio)
        assert row["alpha"] == ("" if not each.judged else str(each.accepted / each.judged))


# ---------------------------------------------------------------- the page


def shown(result: Any, **more: Any) -> dict[str, Any]:
    return experiment({"result": result, "language": "en", "theme": "light", **more})


KINDS = [
    GAMMA,
    Experiment("temperature", (EXIT,), QUESTIONS, (0.0, 1.0), max_new_tokens=16),
    Experiment("task", (LOOKUP, Choice("token_recycling")), QUESTIONS, max_new_tokens=16),
    Experiment("streaming", (LOOKUP,), QUESTIONS, max_new_tokens=16),
]


@pytest.mark.parametrize("asked", KINDS, ids=lambda asked: asked.kind)
def test_every_kind_is_drawn_said_and_tabled_in_both_languages(asked: Experiment) -> None:
    record = json.loads(json.dumps(measure(loaded(), asked)))
    other = {**record, "conditions": {**record["conditions"], "threads": 64}}
    for language in ("vi", "en"):
        t = words(language)
        told = shown(record, beside=other, language=language, theme="dark")
        assert told["differ"] == [t("experiments.condition.threads")]
        assert told["partial"] is None
        for sentence in (told["verdict"], told["conditions"], *(chart["summary"] for chart in told["charts"])):
            assert len(sentence) > 10
            assert "{" not in sentence
        for chart in told["charts"]:
            assert t.table[f"chart.{chart['key']}"]
            layout = chart["figure"]["layout"]
            (mark,) = (note for note in layout["annotations"] if t("experiments.condition.threads") in note["text"])
            # Below the axis, in room of its own: it hides no number.
            assert (mark["y"], mark["yanchor"]) == (0, "top")
            assert -mark["yshift"] < layout["margin"]["b"] < layout["height"]
            json.dumps(chart, allow_nan=False)
        table = told["table"]
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


@pytest.mark.parametrize(
    ("ratios", "key"),
    [
        ([1.8, 1.9, 2.0, 2.1], "predicted"),
        ([0.7, 1.2, 1.3, 0.8], "unsure"),
        ([0.5, 0.6, 0.7, 0.8], "never"),
        ([1.8], "predicted"),
    ],
)
def test_the_verdict_over_gamma_goes_no_further_than_the_interval(ratios: list[float], key: str) -> None:
    points = [asdict(made(prompt, 5, 10, ratio)) for prompt, ratio in enumerate(ratios)]
    questions = [asdict(Question("x", str(prompt))) for prompt in range(len(ratios))]
    body = {**file(), "points": points, "experiment": {**file()["experiment"], "questions": questions}}
    verdict = shown(body)["verdict"]
    sentence = words("en").table[f"experiments.verdict.gamma.{key}"]
    assert verdict.startswith(sentence.split("{")[0])
    assert all(part in verdict for part in (f"{float(np.median(ratios)):.2f}", "Prompt lookup", "γ = 1"))


def test_a_gain_without_a_draft_that_was_kept_is_called_noise() -> None:
    points = [asdict(made(0, 0, 10, 1.63, tokens=20))]
    assert shown({**file(), "points": points})["verdict"].startswith("Prompt lookup at γ = 1 ran at 1.63 times")
    task = {**file()["experiment"], "kind": "task"}
    told = shown({**file(), "points": points, "experiment": task})
    assert told["verdict"].endswith("no drafter clearly for c0.")
    assert told["charts"][0]["figure"]["data"][0]["text"] == [["1.63"]]


@pytest.mark.parametrize(
    ("prompts", "start"), [(3, "Fastest: "), (1, "Fastest, as far as so few prompts per task (1)")]
)
def test_where_each_drafter_wins_is_said_and_starred(prompts: int, start: str) -> None:
    cells = [
        ("chat", LOOKUP, 1.5),
        ("chat", Choice("ngram"), 1.2),
        ("code", LOOKUP, 0.9),
        ("code", Choice("ngram"), 1.02),
    ]
    points = [
        made(place, 5, 10, ratio, category=task, drafter=choice.drafter)
        for place in range(prompts)
        for task, choice, ratio in cells
    ]
    body = {**file(), "points": list(map(asdict, points)), "experiment": {**file()["experiment"], "kind": "task"}}
    told = shown(body)
    assert told["verdict"].startswith(start)
    # 1.02 is no victory over noise.
    assert told["verdict"].endswith(": Prompt lookup for chat; no drafter clearly for code.")
    assert told["charts"][0]["figure"]["data"][0]["text"] == [["★ 1.50", "1.20"], ["0.90", "1.02"]]


def test_over_temperatures_a_tree_has_speeds_and_the_verdict_says_why_no_rate() -> None:
    tree = made(0, 5, 10, drafter="token_recycling", rule="match", tree=True, positions=())
    asked = {**file()["experiment"], "kind": "temperature", "axis": [0.0]}
    told = shown({**file(), "points": [asdict(tree)], "experiment": asked})
    assert told["verdict"] == words("en")("experiments.verdict.temperature.none")
    assert [chart["key"] for chart in told["charts"]] == ["sweep_warm_speed"]


def load_sample(batch: int, drafter: str, gamma_: int, ratio: float, **more: Any) -> Sample:
    ms = {"propose": 0.0, "verify": 90.0, "judge": 5.0, "rollback": 5.0, "total": 100.0}
    counts = {"passes": 10, "rounds": 10, "tokens": 10 * batch, "accepted": 5, "judged": 10 if gamma_ else 0}
    users = (10.0,) * batch
    given = {"alpha": None, "policy": "fixed", "repeat": 0, "ms": ms, "users": users, "differs": (), **counts, **more}
    return Sample(batch=batch, drafter=drafter, gamma=gamma_, ratio=ratio, **given)


def load_file(samples: Sequence[Sample]) -> dict[str, Any]:
    body = {"schema": SCHEMA, "kind": "concurrency", "conditions": {}, "samples": [asdict(each) for each in samples]}
    read_back: dict[str, Any] = json.loads(json.dumps(body))
    return read_back


PLAIN_LOAD = [load_sample(batch, "none", 0, 1.0) for batch in (1, 4, 16)]


def test_a_load_result_shows_its_crossing() -> None:
    crossing = [load_sample(batch, "prompt_lookup", 4, ratio) for batch, ratio in ((1, 1.6), (4, 1.5), (16, 0.5))]
    body = load_file([*PLAIN_LOAD, *crossing])
    told = shown(body)
    assert [chart["key"] for chart in told["charts"]] == ["load_speed", "load_latency", "load_drafting"]
    # From 1.5 at 4 to 0.5 at 16 a line in log2 B passes 1 halfway, at 8.
    assert "B = 16" in told["verdict"]
    assert "8.0" in told["verdict"]
    assert told["charts"][0]["figure"]["layout"]["shapes"][0]["x0"] == pytest.approx(8.0)
    assert "10.0 / 10.0 / 10.0" in told["charts"][1]["summary"]
    assert len(shown(body, **{"as": "csv"})["csv"].splitlines()) == 1 + 6
    other = {**body, "conditions": {"threads": 64}}
    beside = shown(body, beside=other)
    assert beside["differ"] == ["threads"]
    assert len(beside["charts"][0]["figure"]["data"]) == 2 * len(told["charts"][0]["figure"]["data"])
    body["samples"][0]["ms"]["total"] = 0
    assert shown(body)["error"]["key"] == "experiments.import.broken"


@pytest.mark.parametrize(("propose", "lost"), [(50.0, True), (10.0, False)])
def test_drafting_is_named_where_it_is_what_makes_a_drafter_lose(propose: float, lost: bool) -> None:
    """At 0.8 of plain decoding, free drafts would bring 0.8 ÷ 0.5 = 1.6, or 0.8 ÷ 0.9."""
    ms = {"propose": propose, "verify": 90.0 - propose, "judge": 5.0, "rollback": 5.0, "total": 100.0}
    drafts = [load_sample(batch, "eagle3", 2, ratio, ms=ms) for batch, ratio in ((1, 1.6), (4, 1.5), (16, 0.8))]
    coins = [load_sample(batch, "synthetic", 2, 1.5, alpha=0.8) for batch in (1, 4, 16)]
    for language in ("vi", "en"):
        told = shown(load_file([*PLAIN_LOAD, *drafts, *coins]), language=language)
        sentence = words(language)(
            "experiments.verdict.load.drafting",
            mode=f"{words(language)('drafter.eagle3')}, γ = 2",
            batch=16,
            share=50,
            free="1,60" if language == "vi" else "1.60",
            ratio="0,80" if language == "vi" else "0.80",
        )
        assert (sentence in told["verdict"]) == lost
        assert [chart["key"] for chart in told["charts"]][2:] == ["load_drafting", "load_coins"]


def test_a_stopped_load_says_from_how_many_batches_it_is() -> None:
    plan = Plan((LOOKUP,), QUESTIONS, (1, 4), (4,), (), 16)
    body = {**load_file(PLAIN_LOAD[:1]), "plan": json.loads(json.dumps(asdict(plan))), "finish": "stopped"}
    assert shown(body)["partial"] == {"done": 1, "of": 4}
    assert shown({**body, "samples": []})["charts"] == []
    assert shown({**body, "finish": "done"})["partial"] is None


@pytest.mark.parametrize("odd", [None, 3, [], {"result": 3}, {"result": {}}, {"result": file(), "beside": []}])
def test_a_hostile_page_gets_a_sentence(odd: Any) -> None:
    error = experiment(odd)["error"]
    assert "{" not in words("vi")(error["key"], **error["args"])


ASKED: dict[str, Any] = {
    "kind": "gamma",
    "drafters": ["prompt_lookup"],
    "axis": [1, 2],
    "questions": {"set": "own", "prompts": [["one", PROMPT]]},
    "max_new_tokens": 8,
}


@pytest.mark.parametrize(
    ("patch", "key"),
    [
        ({"kind": "cost"}, "error.sweep_shape"),
        ({"drafters": "prompt_lookup"}, "error.sweep_shape"),
        ({"drafters": [[]]}, "error.sweep_shape"),
        ({"drafters": []}, "error.sweep_shape"),
        ({"axis": []}, "error.sweep_shape"),
        ({"axis": [1.5]}, "error.sweep_shape"),
        ({"axis": [10**400]}, "error.sweep_shape"),
        ({"axis": [True]}, "error.sweep_shape"),
        ({"axis": [99]}, "error.bad_number"),
        ({"gamma": [4]}, "error.sweep_shape"),
        ({"seed": {}}, "error.sweep_shape"),
        ({"temperature": 9}, "error.bad_number"),
        ({"max_new_tokens": 10_000}, "error.bad_number"),
        ({"repeats": 99}, "error.bad_number"),
        ({"drafters": ["oracle"]}, "error.unknown_drafter"),
        ({"questions": None}, "error.sweep_prompts"),
        ({"questions": {"set": "own", "prompts": [["one", " "]]}}, "error.sweep_prompts"),
        ({"questions": {"set": "own", "prompts": [["one", "x"]] * (MOST_PROMPTS + 1)}}, "error.sweep_prompts"),
        ({"questions": {"set": "own", "prompts": [["one", "x" * 9_000]]}}, "error.prompt_too_many_letters"),
        ({"questions": {"set": "held_out", "tasks": ["chat", "code"], "limit": 12}, "repeats": 5}, "error.sweep_many"),
    ],
)
def test_what_a_page_may_not_ask_for_gets_its_key(patch: dict[str, Any], key: str) -> None:
    with pytest.raises(RequestError) as refusal:
        declare({**ASKED, **patch}, Limits())
    assert refusal.value.key == key
    words("vi")(key, **refusal.value.fields)


LOAD: dict[str, Any] = {
    "kind": "concurrency",
    "drafters": ["prompt_lookup"],
    "batches": [1, 2],
    "gammas": [2],
    "alphas": [0.5],
    "questions": {"set": "own", "prompts": [["one", "rất đẹp rất"]]},
    "max_new_tokens": 8,
}


@pytest.mark.parametrize(
    ("patch", "key"),
    [
        ({"batches": []}, "error.sweep_shape"),
        ({"batches": [0]}, "error.sweep_shape"),
        ({"batches": [65]}, "error.sweep_shape"),
        ({"batches": 4}, "error.sweep_shape"),
        ({"batches": [1.5]}, "error.sweep_shape"),
        ({"gammas": [99]}, "error.sweep_shape"),
        ({"alphas": [float("nan")]}, "error.sweep_shape"),
        ({"alphas": [2]}, "error.sweep_shape"),
        ({"alphas": "x"}, "error.sweep_shape"),
        ({"drafters": [], "alphas": []}, "error.sweep_shape"),
        ({"drafters": ["none"]}, "error.sweep_shape"),
        ({"max_new_tokens": 4}, "error.load_tokens"),
        ({"max_new_tokens": 10_000}, "error.bad_number"),
        ({"questions": None}, "error.sweep_prompts"),
        ({"batches": list(range(1, 9)), "gammas": [1, 2, 3, 4, 5], "policies": True, "repeats": 5}, "error.sweep_many"),
    ],
)
def test_a_load_that_a_page_may_not_ask_for_gets_its_key(patch: dict[str, Any], key: str) -> None:
    with pytest.raises(RequestError) as refusal:
        declare({**LOAD, **patch}, Limits())
    assert refusal.value.key == key
    words("vi")(key, **refusal.value.fields)


def test_the_room_sends_a_load_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    room = ready_room(monkeypatch)
    told = [line["sweep"] for line in last(room.serve({"nonce": "n", "sweep": LOAD}, by("v"))) if "sweep" in line]
    begin, *points, end = told
    assert begin["of"] == len(points) == 2 * 3
    assert end["finish"] == "done"
    assert [each["name"] for each in end["schedules"]] == ["prompt_lookup", "synthetic α = 0.5 (lossy)"]
    record = {**begin["begin"], **end, "samples": [each["point"] for each in points]}
    seen = shown(record)
    assert "error" not in seen
    assert seen["partial"] is None
    tree = {**LOAD, "drafters": ["token_recycling"], "gammas": [3], "max_new_tokens": 32}
    assert notice(last(room.serve({"nonce": "n", "sweep": tree}, by("v"))))["key"] == "error.load_tree"


@pytest.mark.parametrize(
    ("patch", "key"),
    [
        ({"kind": "context", "lengths": []}, "error.sweep_shape"),
        ({"kind": "context", "lengths": [0]}, "error.sweep_shape"),
        ({"kind": "context", "lengths": [100_000]}, "error.bad_number"),
        ({"kind": "context", "lengths": [256], "gamma": 0}, "error.bad_number"),
        ({"kind": "context", "lengths": [256], "drafters": []}, "error.sweep_shape"),
        ({"kind": "quantisation", "variants": []}, "error.sweep_shape"),
        ({"kind": "quantisation", "variants": ["int1"]}, "error.sweep_shape"),
        ({"kind": "quantisation", "variants": [["int8"]]}, "error.sweep_shape"),
        ({"kind": "quantisation", "variants": ["int8"], "questions": 3}, "error.sweep_prompts"),
    ],
)
def test_what_a_page_may_not_ask_of_the_machine_gets_its_key(patch: dict[str, Any], key: str) -> None:
    with pytest.raises(RequestError) as refusal:
        declare({**LOAD, **patch}, Limits())
    assert refusal.value.key == key


def test_a_page_names_the_forms_of_the_target_and_the_lengths() -> None:
    forms = declare({**LOAD, "kind": "quantisation", "variants": ["kv4r", "int8", "kv4r"]}, Limits())
    assert [(each.weights, each.bits, each.rotated) for each in forms.variants] == [
        ("full", 4, True),
        ("int8", None, False),
    ]
    behind = declare({**LOAD, "kind": "context", "lengths": [512, 256, 512]}, Limits())
    assert behind.lengths == (512, 256)
    assert len(behind.questions) > 1


def test_prompt_sets_are_found() -> None:
    held = declare({**ASKED, "questions": {"set": "held_out", "tasks": ["code", "chat"], "limit": 2}}, Limits())
    assert [each.category for each in held.questions] == ["chat", "chat", "code", "code"]
    presets = declare({**ASKED, "questions": {"set": "presets", "names": ["weather", "poem"]}}, Limits())
    assert {each.category for each in presets.questions} == {"weather", "poem"}
    assert held.size <= MOST_POINTS


def test_the_room_sends_a_record_point_by_point(monkeypatch: pytest.MonkeyPatch) -> None:
    room = ready_room(monkeypatch)
    asked = {**ASKED, "questions": {"set": "own", "prompts": [["one", "rất đẹp rất"]]}}
    told = [line["sweep"] for line in last(room.serve({"nonce": "n", "sweep": asked}, by("v"))) if "sweep" in line]
    begin, *points, end = told
    assert begin["of"] == len(points) == 2
    assert end == {"finish": "done"}
    record = {**begin["begin"], "points": [each["point"] for each in points], "finish": "done"}
    assert "error" not in shown(record)
    assert len(room.line) == 0
    assert notice(last(room.serve({"nonce": "n", "sweep": 3}, by("v"))))["key"] == "error.sweep_shape"


def test_stop_and_the_host_s_time_keep_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    room = ready_room(monkeypatch)
    asked = {**ASKED, "axis": [1, 2, 3, 4], "questions": {"set": "own", "prompts": [["one", "rất đẹp rất"]]}}
    texts = []
    with Gate() as gate:
        gate.pause = 0.05
        for text in room.serve({"nonce": "mine", "sweep": asked}, by("v")):
            texts.append(text)
            if '"point"' in text:
                room.line.stop("mine")
    *_, end = [json.loads(line)["sweep"] for line in texts[-1].splitlines() if '"sweep"' in line]
    assert end == {"finish": "stopped"}
    assert 0 < texts[-1].count('"point"') < 4
    late = ready_room(monkeypatch, Limits(seconds=0.0))
    found = last(late.serve({"nonce": "n", "sweep": asked}, by("v")))
    assert found[-2:] == [{"sweep": {"finish": "stopped"}}, found[-1]]
    assert notice(found)["key"] == "error.time_up"


def test_a_cell_s_label_says_what_was_set() -> None:
    assert Choice("eagle3", {"tree": 20}, "match").label == "eagle3 (tree=20, match)"
    assert [cell.choice.label for cell in GAMMA.cells[:2]] == ["prompt_lookup", "early_exit (layers=1)"]
    assert GAMMA.cells[0] == Cell(LOOKUP, None, 1, 0.0)
    assert next(conduct(loaded_room(), ASKED, Limits(), lambda: True))["of"] == 2
