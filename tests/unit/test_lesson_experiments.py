"""Experiments in lessons: from a recipe to a record, to numbers that words may use, and to what the page is given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spec_viz.content.check import check_lessons
from spec_viz.content.experiments import ExperimentRecipe, declare, departs, lab_address, numbers
from spec_viz.content.figures import Experiment
from spec_viz.content.lessons import LANGUAGES, lesson_folders, load_lesson
from spec_viz.content.record import record_lesson
from spec_viz.lab import results
from spec_viz.ui import lesson_route
from spec_viz.ui.lesson_route import view_text
from tests.law.test_run import loaded

GAMMA = ExperimentRecipe(
    "gamma",
    {"drafters": [{"drafter": "draft_model"}, {"drafter": "eagle3"}], "axis": [1, 4], "max_new_tokens": 16},
    ("chat", "code"),
)
BITS = ExperimentRecipe(
    "quantisation",
    {"drafters": [{"drafter": "eagle3"}], "variants": [{"weights": "int8"}, {"bits": 4, "rotated": True}]},
    ("chat",),
)


def record(kind: str) -> dict[str, Any]:
    """A recorded result of a shown lesson of this kind."""
    for folder in lesson_folders():
        lesson = load_lesson(folder)
        for name, recipe in lesson.structure.results.items():
            if recipe.kind == kind:
                return lesson.results[name]
    raise AssertionError(f"no lesson records a {kind}")


def test_a_recipe_becomes_the_labs_plan_with_held_out_prompts() -> None:
    plan = declare(GAMMA)
    assert [question.category for question in plan.questions] == ["chat", "code"]
    assert (plan.kind, plan.axis, plan.max_new_tokens, plan.gamma) == ("gamma", (1, 4), 16, 4)
    assert [choice.drafter for choice in plan.drafters] == ["draft_model", "eagle3"]
    forms = declare(BITS).forms
    assert [(form.weights, form.bits, form.rotated) for form in forms[1:]] == [("int8", None, False), ("full", 4, True)]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"drafters": [{"drafter": "eagle3"}], "axsi": [1]}, "no axsi"),
        ({"drafters": [{"drafter": "eagle3"}], "questions": []}, "no questions"),
        ({"drafters": [{"drafter": "none"}], "axis": [1]}, "is none itself"),
        ({"drafters": [{"drafter": "eagle3"}]}, "needs values"),
    ],
)
def test_a_recipe_that_makes_no_plan_says_why(plan: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declare(replace(GAMMA, plan=plan))


def test_the_lab_opens_with_the_same_choices() -> None:
    assert lab_address(GAMMA) == "gamma*drafters-draft_model-eagle3*tokens-16*gamma-1-4*tasks-chat-code*limit-1"
    assert lab_address(BITS) == "quantisation*drafters-eagle3*variants-int8-kv4r*tasks-chat*limit-1"


LESSON = """
number: "5.9"
results:
  stream: {kind: streaming, tasks: [chat], plan: {drafters: [{drafter: prompt_lookup}], max_new_tokens: 6}}
steps:
  - {id: comes, figure: {kind: experiment, result: stream, charts: [sweep_arrival]}, claim: result.plan.gamma == 4}
"""
WORDS = "---\ntitle: t\nquestion: q\n---\n## comes | c\n{{ result.streams.prompt_lookup.first_ms }} ms\n"


def test_a_lesson_records_an_experiment_and_hears_when_its_recipe_changes(tmp_path: Path) -> None:
    folder = tmp_path / "5_9_toy"
    folder.mkdir()
    (folder / "lesson.yaml").write_text(LESSON)
    for language in LANGUAGES:
        (folder / f"{language}.md").write_text(WORDS)
    record_lesson(loaded(), load_lesson(folder), only=["another"])
    assert not load_lesson(folder).result_path("stream").exists()
    record_lesson(loaded(), load_lesson(folder))
    assert check_lessons(tmp_path) == []
    (folder / "lesson.yaml").write_text(LESSON.replace("max_new_tokens: 6", "max_new_tokens: 7"))
    assert check_lessons(tmp_path) == [
        "5_9_toy: result stream: the recorded result has another max_new_tokens; record it again"
    ]
    (folder / "lesson.yaml").write_text(LESSON.replace("max_new_tokens", "tokens"))
    assert "its recipe cannot be run" in check_lessons(tmp_path)[0]
    path = load_lesson(folder).result_path("stream")
    path.write_text(path.read_text().replace('"finish": "done"', '"finish": "stopped"'))
    (folder / "lesson.yaml").write_text(LESSON)
    assert "another finish" in check_lessons(tmp_path)[0]


def test_an_experiment_that_was_never_declared_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "5_9_toy"
    folder.mkdir()
    (folder / "lesson.yaml").write_text(LESSON.partition("results:")[0] + "steps:" + LESSON.partition("steps:")[2])
    for language in LANGUAGES:
        (folder / f"{language}.md").write_text(WORDS)
    assert any("names the result stream" in problem for problem in check_lessons(tmp_path))


def test_rates_over_gamma_are_totals_over_the_runs() -> None:
    body = record("gamma")
    found = numbers(results.read(body))["lines"]
    for drafter, by_gamma in found.items():
        for gamma, each in by_gamma.items():
            mine = [point for point in body["points"] if (point["drafter"], point["gamma"]) == (drafter, gamma)]
            assert each["tau"] == pytest.approx(sum(p["tokens"] for p in mine) / sum(p["rounds"] for p in mine))
            assert each["alpha"] == pytest.approx(sum(p["accepted"] for p in mine) / sum(p["judged"] for p in mine))


def test_a_crossing_lies_between_the_batches_around_it() -> None:
    found = numbers(results.read(record("concurrency")))
    assert any(at is not None for by_gamma in found["crossing"].values() for at in by_gamma.values())
    for drafter, by_gamma in found["crossing"].items():
        for gamma, at in by_gamma.items():
            speedups = found["speedup"][drafter][gamma]
            if at is not None:
                assert max(b for b in speedups if b <= at) in [b for b, s in speedups.items() if s > 1]
                assert speedups[min(b for b in speedups if b >= at)] <= 1


def test_the_cache_takes_a_larger_share_behind_a_longer_text() -> None:
    found = numbers(results.read(record("context")))
    lengths = sorted(found["share"])
    assert found["share"][lengths[-1]] > found["share"][lengths[0]]
    assert found["ways"]["self"].keys() == found["one"].keys()


def test_forms_are_called_as_the_lab_calls_them() -> None:
    body = record("quantisation")
    found = numbers(results.read(body))["forms"]
    assert next(iter(found)) == "full"
    assert len(found) == len(body["samples"])
    assert found["full"]["kl"] == (0.0, 0.0)


def test_what_a_record_departs_in_is_named() -> None:
    plan = json.loads(json.dumps({"kind": "gamma", "axis": [1.0, 4.0]}))
    body = {"experiment": plan, "conditions": {"target": "other"}, "finish": "done"}
    assert {"target", "drafters", "questions"} <= set(departs(GAMMA, body))
    assert "axis" not in departs(GAMMA, body)


def test_every_experiment_of_a_lesson_is_drawn_in_both_languages_and_themes() -> None:
    shown = 0
    for folder in lesson_folders():
        for step in load_lesson(folder).structure.steps:
            if not isinstance(step.figure, Experiment):
                continue
            for language in LANGUAGES:
                views = json.loads(view_text(folder.name, step.figure.result, language) or "{}")
                assert views.keys() == {"light", "dark"}
                for view in views.values():
                    drawn = {chart["key"]: chart["summary"] for chart in view["charts"]}
                    assert set(step.figure.charts) <= drawn.keys(), step.id
                    assert all(drawn.values())
                    assert view["conditions"]
                    assert view["partial"] is None
            shown += 1
    assert shown


def test_a_drawn_experiment_is_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    first = view_text("5_4_speed", "gamma", "en")
    # Reading a lesson takes longer than all else here: who opens it next does not wait for it.
    monkeypatch.setattr(lesson_route, "load_lesson", None)
    assert view_text("5_4_speed", "gamma", "en") == first


OTHERS = [("5_9", "a", "en"), ("5_4_speed", "cost", "en"), ("5_4_speed", "none", "en"), ("5_4_speed", "gamma", "fr")]


@pytest.mark.parametrize(("slug", "name", "language"), OTHERS)
def test_no_other_address_is_an_experiment(slug: str, name: str, language: str) -> None:
    assert view_text(slug, name, language) is None
