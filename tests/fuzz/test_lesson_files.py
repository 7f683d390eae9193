"""Files of lessons and presets that somebody else has written: read, or refused with the file's name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.content.check import problems
from spec_viz.content.expressions import evaluate
from spec_viz.content.files import LESSONS, PRESETS, FileError, parse_yaml
from spec_viz.content.lessons import LANGUAGES, LessonError, lesson_json, lesson_list, load_lesson
from spec_viz.content.markup import render
from spec_viz.content.presets import PresetError, load_presets
from spec_viz.content.sandbox import MOST_ITEMS, ClaimError
from tests.fuzz.cases import anything, case, cases, mutated, sendable, vandalised

TEMPLATE = LESSONS / "_template"
STRUCTURES = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(LESSONS.glob("*/lesson.yaml"))]
SHARED = {name: (LESSONS / name).read_text(encoding="utf-8") for name in ("glossary.yaml", "sources.yaml")}
WORDS = [path.read_text(encoding="utf-8") for path in sorted(LESSONS.glob("*/*.md")) if path.name in ("vi.md", "en.md")]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course of one lesson, that of the template."""
    root = tmp_path_factory.mktemp("course")
    shutil.copytree(TEMPLATE, root / "lesson")
    return root


def read(course: Path) -> None:
    """Everything that is done with the files of a lesson: listed, checked, and made ready for the page."""
    lesson_list(course)
    try:
        lesson = load_lesson(course / "lesson")
        problems(lesson)
        for language in LANGUAGES:
            sendable(lesson_json(lesson, language))
    except (LessonError, ClaimError) as problem:
        assert str(problem)


def put(course: Path, name: str, text: str) -> None:
    (course / name).write_bytes(text.encode("utf-8", "surrogatepass"))


def fuzz(surface: str, examples: st.SearchStrategy[Any], do: Callable[[Any], None], quick: int = 30) -> None:
    @cases(quick)
    @given(examples)
    def each(given_: Any) -> None:
        with case(surface):
            do(given_)

    each()


@contextmanager
def restored(path: Path) -> Iterator[None]:
    """A case that fails is the failure of its own test alone."""
    try:
        yield
    finally:
        shutil.copy(TEMPLATE / path.name, path)


def said(body: Any) -> str:
    return str(yaml.safe_dump(body, allow_unicode=True, sort_keys=False))


@st.composite
def structures(draw: st.DrawFn) -> str:
    own = yaml.safe_load((TEMPLATE / "lesson.yaml").read_text(encoding="utf-8"))
    body = draw(mutated([own, own, *STRUCTURES]) | anything)
    try:
        text = said(body)
    except yaml.YAMLError:
        text = "steps: []"
    return draw(vandalised(text, 2)) if draw(st.booleans()) else text


def test_structures(course: Path) -> None:
    def do(text: str) -> None:
        put(course, "lesson/lesson.yaml", text)
        read(course)

    with restored(course / "lesson" / "lesson.yaml"):
        fuzz("lesson files: lesson.yaml", structures(), do)


def test_words(course: Path) -> None:
    own = (TEMPLATE / "en.md").read_text(encoding="utf-8")

    def do(text: str) -> None:
        put(course, "lesson/en.md", text)
        read(course)

    with restored(course / "lesson" / "en.md"):
        fuzz("lesson files: words", st.sampled_from([own, own, *WORDS]).flatmap(vandalised), do)


@pytest.mark.parametrize("name", list(SHARED))
def test_glossary_and_sources(course: Path, name: str) -> None:
    body = yaml.safe_load(SHARED[name])
    few = {key: body[key] for key in list(body)[:8]}

    @st.composite
    def texts(draw: st.DrawFn) -> str:
        try:
            text = said(draw(mutated([few]) | anything))
        except yaml.YAMLError:
            text = ""
        return draw(vandalised(text, 2))

    def do(text: str) -> None:
        put(course, name, text)
        read(course)

    try:
        fuzz("lesson files: glossary and sources", texts(), do, 20)
    finally:
        (course / name).unlink()


def test_presets(tmp_path: Path) -> None:
    real = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(PRESETS.glob("*.yaml"))]

    @st.composite
    def texts(draw: st.DrawFn) -> str:
        try:
            text = said(draw(mutated(real) | anything))
        except yaml.YAMLError:
            text = ""
        return draw(vandalised(text, 2)) if draw(st.booleans()) else text

    def do(text: str) -> None:
        put(tmp_path, "weather.yaml", text)
        try:
            for preset in load_presets(tmp_path):
                preset.problems()
        except PresetError as problem:
            assert "weather.yaml" in str(problem)

    fuzz("lesson files: presets", texts(), do)


def test_yaml() -> None:
    def do(text: str) -> None:
        try:
            parse_yaml(text)
        except FileError as problem:
            assert str(problem)

    texts = st.sampled_from([*SHARED.values(), *(said(each) for each in STRUCTURES[:2])]).map(lambda text: text[:2000])
    fuzz("lesson files: YAML", texts.flatmap(vandalised), do)


def test_markup() -> None:
    scope = {"x": 0.5, "name": "<b>", "rows": [[1, 2], [3, 4]]}

    def do(text: str) -> None:
        try:
            rendered = render(text, scope, "vi", {}, with_options=True)
        except ClaimError:
            return
        sendable([rendered.html, rendered.options])
        for html in (rendered.html, *rendered.options):
            assert "<script" not in html.lower()
            assert "onerror=" not in html.lower().replace("&lt;", "") or "<img" not in html.lower()

    texts = st.sampled_from(WORDS).flatmap(
        lambda words: st.integers(0, len(words)).map(lambda at: words[at : at + 600])
    )
    fuzz("lesson files: markup", texts.flatmap(vandalised), do)


# ---------------------------------------------------------------- expressions

GREEDY = [
    "'a' * 10**9",
    "[0] * 10**9",
    "10**9 * 'a'",
    "(0,) * 10**9",
    "10 ** (10 ** 10)",
    "2 ** 100000",
    "9**(9**9)",
    "'%1000000000d' % 1",
    "'{:>1000000000}'.format(1)",
    "'a'.ljust(10**9)",
    "'a'.center(10**9)",
    "'a'.zfill(10**9)",
    "'a'.replace('', 'b')",
    "'a'|center(10**9)",
    "'a'|indent(10**9)",
    "range(10**9)|list",
    "range(10**9)|sum",
    "lipsum(10**6)",
    "cycler('a')",
    "namespace(a=1)",
    "joiner()",
    "dict(a=1)",
    "theory.expected_tokens(0.5, 10**9)",
    "theory.accepted_length_law(0.5, 10**9)",
    "0.5|fixed(10**9)",
    "0.5|percent(10**9)",
    "round(5, -10**9)",
    "1|round(10**9, 'ceil')",
    "(1).to_bytes(10**9, 'big')",
    "rows|map('center', 10**9)|list",
    "rows|tojson",
    "rows|pprint",
    "rows|xmlattr",
    "'http://a'|urlize",
    "'a'|wordwrap(1)",
    "rows|batch(10**9, 'x')|list",
    "rows|slice(10**9)|list",
    "self.__init__",
    "x.__class__",
    "''.__class__.__mro__",
    "rows.append(1)",
    "theory.__dict__",
    "overlap.__globals__",
    "x|attr('__class__')",
    "(rows|map(attribute='__class__')|list)[0] == 1",
    "(" * 5000 + "1" + ")" * 5000,
    "1" + "+1" * 30_000,
    "not " * 50_000 + "1",
    "x" + ".a" * 30_000,
    "-" * 60_000 + "1",
    "9" * 5000,
]
DOUBLING = [
    "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a == a }}",
    "{% set a = 'aa' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "{% set a = [1] %}" + "{% set a = a + a %}" * 60 + "{{ a|length }}",
    "{% set a = [1] %}" + "{% set a = zip(a, a)|list %}" * 60 + "{{ a|length }}",
    "{% for a in big %}{% for b in big %}{% for c in big %}x{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in big recursive %}{{ loop(big) }}{% endfor %}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for a in big %}" + "x" * 50_000 + "{% endfor %}",
    "{% for a in big %}{{ big|map('abs')|list|sum }}{% endfor %}",
    "{% filter upper %}a{% endfilter %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% block a %}{% endblock %}",
    "{% with a = 1 %}{% endwith %}",
    "{% set a %}b{% endset %}",
    "{{ {'a': 1} }}",
]
SCOPE = {"x": 0.5, "rows": [[1, 2], [3, 4]], "big": list(range(MOST_ITEMS - 1)), "text": "words"}


@pytest.mark.parametrize("expression", GREEDY, ids=[each[:40] for each in GREEDY])
def test_an_expression_that_asks_for_too_much_is_refused(expression: str) -> None:
    with case("expressions: greedy ones"), pytest.raises(ClaimError):
        evaluate(expression, SCOPE)


@pytest.mark.parametrize("source", DOUBLING, ids=[each[-40:] for each in DOUBLING])
def test_words_that_grow_without_end_are_refused(source: str) -> None:
    with case("expressions: greedy ones"), pytest.raises(ClaimError):
        render(source, SCOPE, "en", {})


ATOMS = st.sampled_from(
    [
        "x",
        "rows",
        "big",
        "text",
        "0",
        "1",
        "0.5",
        "'a'",
        "10**9",
        "-1",
        "none",
        "true",
        "theory",
        "theory.speedup",
        "[]",
        "rows[0]",
        "rows|length",
        "text|upper",
        "overlap",
        "range",
        "loop",
        "y",
        "''",
        "9999999999999999999",
    ]
)
FORMS = (
    "({0} {op} {1})",
    "{0}|{filter}",
    "{0}|{filter}({1})",
    "{0}[{1}]",
    "{0}.{name}",
    "{fn}({0})",
    "{fn}({0}, {1})",
    "[{0}, {1}]",
    "({0}, {1})",
    "{0} if {1} else {0}",
    "not {0}",
    "-{0}",
    "theory.{formula}({0}, {1})",
    "theory.{formula}({0}, {1}, {0})",
    "{0} is {test}",
    "{0} in {1}",
    "{0}[{1}:]",
    "{0} ~ {1}",
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    if not depth or not draw(st.integers(0, 3)):
        return draw(ATOMS)
    inner = expressions(depth=depth - 1)
    return draw(st.sampled_from(FORMS)).format(
        draw(inner),
        draw(inner),
        op=draw(st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "==", "<", ">=", "and", "or"])),
        filter=draw(
            st.sampled_from(
                [
                    "length",
                    "list",
                    "sum",
                    "map",
                    "selectattr",
                    "join",
                    "max",
                    "first",
                    "fixed",
                    "percent",
                    "int",
                    "sort",
                    "unique",
                    "round",
                    "center",
                    "string",
                    "attr",
                    "tojson",
                ]
            )
        ),
        name=draw(
            st.sampled_from(["real", "append", "items", "__class__", "_a", "upper", "format", "speedup", "index", "x"])
        ),
        fn=draw(
            st.sampled_from(
                ["abs", "len", "max", "min", "sum", "round", "zip", "overlap", "distance", "residual", "range", "x"]
            )
        ),
        formula=draw(
            st.sampled_from(
                [
                    "speedup",
                    "expected_tokens",
                    "accepted_length_law",
                    "best_gamma",
                    "break_even",
                    "round_cost",
                    "ridge_tokens",
                    "nothing",
                ]
            )
        ),
        test=draw(st.sampled_from(["none", "defined", "odd", "string", "callable", "nothing"])),
    )


def test_expressions() -> None:
    def do(expression: str) -> None:
        try:
            evaluate(expression, SCOPE)
        except ClaimError as problem:
            assert str(problem)

    fuzz("expressions", expressions(), do, 150)
