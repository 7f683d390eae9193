"""What these cases have found, each by its own name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from spec_viz.content.expressions import evaluate
from spec_viz.content.files import LESSONS, MOST_BYTES, PRESETS, FileError, parse_yaml, read_text
from spec_viz.content.lessons import LessonError, lesson_json, load_lesson, read_words
from spec_viz.content.markup import render
from spec_viz.content.presets import PresetError, load_presets
from spec_viz.content.sandbox import ClaimError
from spec_viz.engine.trace import MAX_GAMMA, MAX_LINES, TraceError, loads
from spec_viz.models.load import load_any
from spec_viz.models.weights import WeightsError
from spec_viz.ui import wording
from spec_viz.ui.page import drifted, shown
from spec_viz.ui.room import MOST_TRACES, bundle_of
from spec_viz.ui.serve_view import served
from tests.browser.acts import small_trace
from tests.fuzz.cases import case, sendable


@pytest.mark.parametrize("language", [[], {}, None, 7, ["vi"]])
def test_a_language_that_is_no_name_is_english(language: object) -> None:
    answer = shown([small_trace(["a", "b"]), language, "light"])
    assert answer == shown([small_trace(["a", "b"]), "en", "light"])


def test_languages_that_do_not_exist_fill_no_memory() -> None:
    for number in range(50):
        wording.words(f"language {number}")
    assert wording._words.cache_info().currsize <= len(wording.LANGUAGES)


@pytest.mark.parametrize("name", ["x\0", "x" * 5000, "x/" * 3000, "\ud800"])
def test_a_model_s_name_that_is_no_file_name_is_refused_as_any_other(name: str) -> None:
    with pytest.raises(WeightsError):
        load_any(name)


def test_a_draft_deeper_than_charts_count_is_refused_at_its_place() -> None:
    lines = [json.loads(line) for line in small_trace(["a", "b"]).splitlines()]
    node = lines[2]["nodes"][0]
    lines[2]["nodes"] = [{**node, "parent": at - 1, "depth": at + 1} for at in range(MAX_GAMMA + 1)]
    with pytest.raises(TraceError, match=f"nodes.{MAX_GAMMA}.depth"):
        loads("\n".join(map(json.dumps, lines)))


def test_a_page_compares_so_many_runs_and_no_more() -> None:
    run = small_trace(["a", "b"])
    assert len(bundle_of(run * MOST_TRACES)) == MOST_TRACES
    with pytest.raises(TraceError, match="more than"):
        bundle_of(run * (MOST_TRACES + 1))
    # Elsewhere there may be more.
    assert len(loads(run * (MOST_TRACES + 1))) == MOST_TRACES + 1


def test_a_file_of_nothing_but_lines_is_refused_before_they_are_read() -> None:
    with pytest.raises(TraceError):
        loads(small_trace(["a"]) + "\n" * MAX_LINES)


def test_a_few_counts_have_a_p_value_that_is_a_number() -> None:
    for rounds in (1, 2, 3):
        answer = drifted({"fault": "argmax", "repaired": False, "rounds": rounds, "seed": 7, "before": []})
        sendable(answer)
        assert all(0 <= each["p_value"] <= 1 for each in answer["checkpoints"])


ENDLESS = {
    "a list that holds itself": "a: &a [*a]",
    "aliases that double": "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)),
    "depth": "[" * 50_000,
    "a date that is none": "a: 2001-99-99",
    "a number too long": "a: " + "9" * 5000,
    "an object": "!!python/object/apply:os.system [id]",
    "a key that is a list": "? [a]\n: b",
    "half a letter": 'a: "\\uD800.0"',
    "half a letter in a key": '"\\uDC00": 1',
    "half a letter deep down": 'a: [{b: ["x", "\\uDFFF"]}]',
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_yaml_that_is_no_content_of_ours_is_refused(text: str) -> None:
    with case("lesson files: YAML without end"), pytest.raises(FileError):
        parse_yaml(text)


def test_a_file_of_any_length_or_letters_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * (MOST_BYTES + 1))
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    for name in ("long", "odd", "none"):
        with pytest.raises(FileError):
            read_text(tmp_path / name)


def test_a_heading_of_spaces_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "en.md"
    path.write_text(
        "---\ntitle: x\n---\n## a | b" + " " * 400_000 + "c\n### d" + " " * 400_000 + "e\n", encoding="utf-8"
    )
    with case("lesson files: a long heading"):
        assert read_words(path).titles["a"].endswith("c")
    path.write_text("## a | b", encoding="utf-8")
    with pytest.raises(LessonError):
        read_words(path)


def test_half_a_letter_in_a_server_s_name_is_said_back_as_a_letter() -> None:
    with case("server function: served"):
        answer = served({"came": [["\ud800", True, [[1.0, 1], [2.5, 3]]]]})
        sendable(answer)
    assert "?" in json.dumps(answer["chart"])


def test_a_letter_in_two_halves_is_a_letter() -> None:
    assert parse_yaml('a: "\\U0001F600"') == {"a": "\U0001f600"}


@pytest.mark.parametrize("options", ["null", "3", "x", "[width]", "{width: null}"])
def test_a_preset_whose_options_are_no_options_is_a_problem_and_no_fault(tmp_path: Path, options: str) -> None:
    text = (PRESETS / "weather.yaml").read_text(encoding="utf-8")
    body = yaml.safe_load(text)
    body["settings"] = {**body["settings"], "options": yaml.safe_load(options)}
    (tmp_path / "weather.yaml").write_text(yaml.safe_dump(body, allow_unicode=True), encoding="utf-8")
    try:
        (preset,) = load_presets(tmp_path)
    except PresetError:
        return
    assert any("options" in problem for problem in preset.problems())


@pytest.mark.parametrize("left", ["vi", "en"])
def test_a_term_in_one_language_is_refused_with_its_name(tmp_path: Path, left: str) -> None:
    shutil.copytree(LESSONS / "_template", tmp_path / "lesson")
    glossary = {"residual": {left: {"term": "residual", "text": "What is left."}}}
    (tmp_path / "glossary.yaml").write_text(yaml.safe_dump(glossary), encoding="utf-8")
    other = "en" if left == "vi" else "vi"
    with pytest.raises(LessonError, match=r"glossary\.yaml.*residual"):
        lesson_json(load_lesson(tmp_path / "lesson"), other)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e999 - 1e999", "[1e999][0]"])
def test_a_number_beyond_all_numbers_is_refused(number: str) -> None:
    """Jinja writes it into its program as `inf`, a name that nobody has defined."""
    with pytest.raises(ClaimError):
        render(f"a {{{{ {number} + x }}}} b", {"x": 1}, "en", {})
    with pytest.raises(ClaimError):
        evaluate(f"{number} > x", {"x": 1})


@pytest.mark.parametrize("words", ["\ud800", "a {{ '\\ud800' }} b", "{{ x }}"])
def test_words_with_half_a_letter_are_refused(words: str) -> None:
    """From a file none comes; from an expression, or a trace that somebody made, one may."""
    with pytest.raises(ClaimError):
        render(words, {"x": "\udfff"}, "en", {})


@pytest.mark.parametrize("mark", ["\ue000abc\ue001", "\ue000ff\ue001", "\ue001"])
def test_the_letters_that_mark_values_are_not_an_author_s(mark: str) -> None:
    with pytest.raises(ClaimError):
        render(mark, {}, "en", {})
