"""Lessons: `lesson.yaml` is the structure, `vi.md` and `en.md` the words, `traces/` what was recorded for them.

Reading a lesson needs no model. `spec_viz.content.check` says what is wrong with one, `record` makes its traces.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from spec_viz.content import family
from spec_viz.content.experiments import ExperimentRecipe, lab_address, numbers
from spec_viz.content.expressions import Bundles, evaluate
from spec_viz.content.figures import PARTS, Compare, Cost, Experiment, Family, Figure, Name, Text, traces_of
from spec_viz.content.files import LESSONS, FileError, parse_yaml, read_text
from spec_viz.content.markup import Rendered, render
from spec_viz.content.sandbox import ClaimError
from spec_viz.content.served import ServedRuns, Server, figure_json, names_of
from spec_viz.engine.trace import Trace, TraceError, loads
from spec_viz.models.catalogue import DEFAULT
from spec_viz.serving.saved import SERVED, SavedError

Json = dict[str, Any]

LANGUAGES = ("vi", "en")
RESULT_SCHEMA = "specviz.result/1"

log = logging.getLogger(__name__)


class LessonError(ValueError):
    """A lesson that cannot be read, with the file's name."""


# ---------------------------------------------------------------- what lesson.yaml may say


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a trace is recorded: fields of a run request; `race` puts the baseline behind it."""

    prompt: str
    drafter: str = "prompt_lookup"
    options: dict[str, Any] = field(default_factory=dict)
    rule: str | None = None
    length: str = "fixed"
    gamma: int = 4
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    max_new_tokens: int = 64
    chat: bool = True
    race: bool = False
    target: str = DEFAULT

    def request(self) -> Json:
        """The fields of the run request alone."""
        return {name: value for name, value in asdict(self).items() if name not in ("race", "target")}


@dataclass(frozen=True, slots=True)
class CostRecipe:
    """How a cost result is measured: v(n) up to `max_n` behind `context` tokens, c of `drafters` {name: options}."""

    kind: Literal["cost"]
    target: str = DEFAULT
    max_n: Annotated[int, Field(ge=2, le=64)] = 16
    context: Annotated[int, Field(ge=1)] = 256
    repeats: Annotated[int, Field(ge=3)] = 15
    drafters: dict[str, dict[str, Any]] = field(default_factory=dict)


ResultRecipe = Annotated[CostRecipe | ExperimentRecipe, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Ask:
    """The guess before the figure moves; `answer` is the index of an option or an expression over the trace."""

    kind: Literal["choice", "number"]
    answer: int | str


@dataclass(frozen=True, slots=True)
class Question:
    """A survey or quiz question and the index of its right option."""

    id: Name
    answer: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Step:
    """One idea: a figure, what must be true of its trace, and a guess asked first."""

    id: Name
    figure: Figure = field(default_factory=Text)
    claim: str | None = None
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Structure:
    """A whole `lesson.yaml`."""

    number: str
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    traces: dict[Name, Recipe] = field(default_factory=dict)
    results: dict[Name, ResultRecipe] = field(default_factory=dict)
    survey: tuple[Question, ...] = ()
    quiz: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """A glossary entry in one language."""

    term: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A work that is cited; `conditions` says under which its numbers were measured."""

    title: str
    authors: str
    year: int
    url: Annotated[str, Field(pattern=r"^https?://")]
    conditions: str | None = None


for _class in (Recipe, CostRecipe, Ask, Question, Step, Structure, Term, Source):
    _class.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[union-attr]
_STRUCTURE = TypeAdapter(Structure)
_GLOSSARY = TypeAdapter(dict[Name, dict[Literal["vi", "en"], Term]])
_SOURCES = TypeAdapter(dict[Name, Source])


# ---------------------------------------------------------------- words


@dataclass(frozen=True, slots=True)
class Words:
    """A language's file: front matter, and per step its title and sections by heading ("" is the body)."""

    title: str
    question: str
    titles: dict[str, str]
    sections: dict[str, dict[str, str]]

    def question_text(self, kind: str, id_: str) -> str:
        """The section `### question ID` or `### feedback ID`, under whatever step it stands."""
        heading = f"{kind} {id_}"
        return next((part[heading] for part in self.sections.values() if heading in part), "")


# Of a line without the spaces at its end.
_STEP = re.compile(r"## +([a-z][a-z0-9_]*) *\| *(\S.*)")
_SECTION = re.compile(r"### +(\S.*)")


def read_words(path: Path) -> Words:
    """Read a language's Markdown file; LessonError names the file and the line."""
    try:
        text = read_text(path)
    except FileError as error:
        raise LessonError(f"{_name(path)}: {error}") from None
    matter, fence, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not fence:
        raise LessonError(f"{_name(path)}: begins with front matter between two lines of `---`")
    try:
        front = parse_yaml(matter)
    except FileError as error:
        raise LessonError(f"{_name(path)}: {error}") from None
    if not isinstance(front, dict):
        raise LessonError(f"{_name(path)}: the front matter is no mapping")
    titles: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {}
    step, heading, fenced = "", "", False
    for number, line in enumerate(body.split("\n"), matter.count("\n") + 4):
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("## "):
            found = _STEP.fullmatch(line.rstrip(" "))
            if not found or found[1] in titles:
                raise LessonError(f"{_name(path)}, line {number}: a step begins with `## id | title`, each id once")
            step, heading = found[1], ""
            titles[step], sections[step] = found[2], {"": ""}
        elif not fenced and (section := _SECTION.fullmatch(line.rstrip(" "))) and step:
            heading = section[1]
            if heading in sections[step]:
                raise LessonError(f"{_name(path)}, line {number}: a second `### {heading}` in step {step}")
            sections[step][heading] = ""
        elif step:
            sections[step][heading] += line + "\n"
        elif line.strip():
            raise LessonError(f"{_name(path)}, line {number}: words before the first step")
    said = {key: str(front.get(key) or "") for key in ("title", "question")}
    return Words(**said, titles=titles, sections={id_: _stripped(parts) for id_, parts in sections.items()})


def _stripped(parts: Mapping[str, str]) -> dict[str, str]:
    return {heading: text.strip() for heading, text in parts.items()}


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


# ---------------------------------------------------------------- a lesson


@dataclass(frozen=True)
class Lesson:
    """One lesson as it lies in its folder; `glossary` and `sources` are the course's, shared by all lessons."""

    folder: Path
    structure: Structure
    words: dict[str, Words]
    glossary: dict[str, dict[Literal["vi", "en"], Term]]
    sources: dict[str, Source]

    @property
    def slug(self) -> str:
        return self.folder.name

    def trace_path(self, name: str) -> Path:
        """Where a recorded bundle lies."""
        return self.folder / "traces" / f"{name}.ndjson"

    def result_path(self, name: str) -> Path:
        """Where a recorded result lies."""
        return self.folder / "traces" / f"{name}.json"

    @cached_property
    def bundles(self) -> dict[str, tuple[Trace, ...]]:
        """Every recorded bundle; LessonError names the trace that is missing or unreadable."""
        return {name: self._bundle(name) for name in self.structure.traces}

    def _bundle(self, name: str) -> tuple[Trace, ...]:
        try:
            return loads(self.trace_path(name).read_text(encoding="utf-8"))
        except (OSError, TraceError) as error:
            raise LessonError(f"{self.slug}: trace {name}: no readable recorded run ({error})") from None

    @cached_property
    def results(self) -> dict[str, Json]:
        """Every recorded result; LessonError names the one that is missing or unreadable."""
        return {name: self._result(name) for name in self.structure.results}

    def _result(self, name: str) -> Json:
        try:
            body = json.loads(self.result_path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LessonError(f"{self.slug}: result {name}: no readable recorded result ({error})") from None
        if not isinstance(body, dict) or body.get("schema") != RESULT_SCHEMA:
            raise LessonError(f"{self.slug}: result {name}: is no {RESULT_SCHEMA}")
        return body

    @cached_property
    def told(self) -> dict[str, Json]:
        """What expressions may speak of every result: a cost as it is, an experiment's numbers by short names."""
        return {name: self._told(name) for name in self.structure.results}

    def _told(self, name: str) -> Json:
        if isinstance(self.structure.results[name], CostRecipe):
            return self.results[name]
        # They bring torch with them, and most lessons need neither.
        from spec_viz.lab.results import read
        from spec_viz.lab.sweep import ResultError

        try:
            return numbers(read(self.results[name]))
        except ResultError as error:
            raise LessonError(f"{self.slug}: result {name}: no readable recorded result ({error})") from None

    @cached_property
    def _names(self) -> Bundles:
        return Bundles(self.bundles)

    @cached_property
    def _family(self) -> Json:
        return family.names()

    def scope(self, step: Step | None = None) -> Json:
        """What expressions of a step may speak of: its own trace and result by short names, all others by theirs."""
        scope: Json = {"traces": self._names, "results": self.told, "served": ServedRuns(), "family": self._family}
        if step is None:
            return scope
        scope["figure"] = asdict(step.figure)
        for name in traces_of(step.figure)[:1]:
            if name in self.bundles:
                scope.update(self._names[name])
        if isinstance(step.figure, Cost | Experiment) and step.figure.result in self.told:
            scope["result"] = self.told[step.figure.result]
        if isinstance(step.figure, Server):
            scope.update(names_of(step.figure))
        return scope

    def section(self, language: str, step: Step, heading: str = "", with_options: bool = False) -> Rendered:
        """A section of a step's words as HTML; an absent one is empty."""
        source = self.words[language].sections.get(step.id, {}).get(heading, "")
        return render(source, self.scope(step), language, self.sources, with_options)

    def question(self, language: str, kind: str, id_: str) -> Rendered:
        """A survey or quiz question, or its feedback, as HTML."""
        source = self.words[language].question_text(kind, id_)
        return render(source, self.scope(), language, self.sources, kind == "question")

    def answer(self, step: Step) -> float | None:
        """The right answer of a step's guess; ClaimError when its expression gives no number."""
        if step.ask is None:
            return None
        value = step.ask.answer
        if isinstance(value, str):
            value = evaluate(value, self.scope(step))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClaimError(f"the answer {step.ask.answer!r} is no number")
        return value


def load_lesson(folder: Path) -> Lesson:
    """Read a lesson's structure and words; LessonError names the file and the field. Traces are read when asked for."""
    path = folder / "lesson.yaml"
    structure: Structure = _read(_STRUCTURE, path)
    words = {}
    for language in LANGUAGES:
        if (said := folder / f"{language}.md").is_file():
            words[language] = read_words(said)
    shared = folder.parent
    glossary = _read(_GLOSSARY, shared / "glossary.yaml") if (shared / "glossary.yaml").is_file() else {}
    return Lesson(folder, structure, words, glossary, sources(shared))


def sources(root: Path = LESSONS) -> dict[str, Source]:
    """The works that the course cites, by their short names."""
    path = root / "sources.yaml"
    return _sources(path, path.stat().st_mtime_ns) if path.is_file() else {}


@lru_cache(maxsize=2)
def _sources(path: Path, changed: int) -> dict[str, Source]:  # noqa: ARG001 - `changed` is part of the key
    found: dict[str, Source] = _read(_SOURCES, path)
    return found


def _read(adapter: TypeAdapter[Any], path: Path) -> Any:
    try:
        return adapter.validate_python(parse_yaml(read_text(path)))
    except FileError as error:
        raise LessonError(f"{_name(path)}: {error}") from None
    except ValidationError as error:
        said = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'the file'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        )
        raise LessonError(f"{_name(path)}: {said}") from None


def lesson_folders(root: Path = LESSONS, hidden: bool = False) -> list[Path]:
    """Folders that hold a lesson, in the course's order; those that begin with `_` are not shown on the page."""
    folders = (path.parent for path in root.glob("*/lesson.yaml"))
    return sorted(folder for folder in folders if hidden or not folder.name.startswith("_"))


# ---------------------------------------------------------------- for the page


def lesson_list(root: Path = LESSONS) -> list[Json]:
    """Numbers, titles and steps of the lessons, for the page's start; a broken one is left out and logged."""
    rows = []
    for folder in lesson_folders(root):
        try:
            lesson = load_lesson(folder)
            said = {language: lesson.words[language] for language in LANGUAGES}
            steps = [
                {"id": step.id, "title": {language: words.titles[step.id] for language, words in said.items()}}
                for step in lesson.structure.steps
            ]
        except (LessonError, KeyError) as problem:
            log.warning("the lesson %s is not shown: %s", folder.name, problem)
            continue
        rows.append(
            {
                "slug": lesson.slug,
                "number": lesson.structure.number,
                "title": {language: words.title for language, words in said.items()},
                "question": {language: words.question for language, words in said.items()},
                "steps": steps,
            }
        )
    return rows


def lesson_json(lesson: Lesson, language: str) -> Json:
    """A lesson in one language for the page, every expression computed; LessonError or ClaimError when it cannot be."""
    if language not in lesson.words:
        raise LessonError(f"{lesson.slug}: there is no {language}.md")
    words = lesson.words[language]
    cited: dict[str, None] = {}

    def html(part: Rendered) -> str:
        cited.update((link.to, None) for link in part.links if link.kind == "source" and link.to in lesson.sources)
        return part.html

    def asked(part: Rendered) -> Json:
        return {"html": html(part), "options": list(part.options)}

    def step_json(step: Step) -> Json:
        body = html(lesson.section(language, step))
        ask = None
        if step.ask:
            said = asked(lesson.section(language, step, "ask", with_options=step.ask.kind == "choice"))
            ask = {"kind": step.ask.kind, **said, "answer": lesson.answer(step)}
        reveal = html(lesson.section(language, step, "reveal"))
        parts = {name: html(lesson.section(language, step, name)) for name in PARTS.get(step.figure.kind, ())}
        return {
            "id": step.id,
            "title": words.titles.get(step.id, ""),
            "html": body,
            "note": html(lesson.section(language, step, "note")),
            "figure": {**_figure_json(lesson, step.figure, language), **parts},
            "ask": ask,
            "reveal": reveal,
        }

    def question_json(question: Question) -> Json:
        return {
            "id": question.id,
            **asked(lesson.question(language, "question", question.id)),
            "answer": question.answer,
        }

    def quiz_json(question: Question) -> Json:
        return {**question_json(question), "feedback": html(lesson.question(language, "feedback", question.id))}

    body = {
        "slug": lesson.slug,
        "language": language,
        "number": lesson.structure.number,
        "title": words.title,
        "question": words.question,
        "steps": [step_json(step) for step in lesson.structure.steps],
        "survey": [question_json(question) for question in lesson.structure.survey],
        "quiz": [quiz_json(question) for question in lesson.structure.quiz],
        "glossary": {key: _term_json(lesson, key, language) for key in lesson.glossary},
    }
    return {**body, "sources": {key: asdict(lesson.sources[key]) for key in cited}}


def _figure_json(lesson: Lesson, figure: Figure, language: str) -> Json:
    body: Json = asdict(figure)
    if isinstance(figure, Server):
        try:
            return {**body, **figure_json(figure)}
        except (KeyError, SavedError) as problem:
            raise LessonError(f"{lesson.slug}: {problem.args[0]}") from None
    if isinstance(figure, Family):
        return {**body, **family.table(_sources_json(lesson), figure.methods)}
    recipes = [_recipe_json(lesson, name) for name in traces_of(figure)]
    paths = [f"lessons/{lesson.slug}/traces/{name}.ndjson" for name in traces_of(figure)]
    if isinstance(figure, Compare):
        return {**body, "traces": paths, "requests": recipes}
    if paths:
        return {**body, "trace": paths[0], "request": recipes[0]}
    if isinstance(figure, Cost):
        return {**body, "result": lesson.results.get(figure.result)}
    if isinstance(figure, Experiment):
        recipe = lesson.structure.results.get(figure.result)
        if not isinstance(recipe, ExperimentRecipe):
            raise LessonError(f"{lesson.slug}: no experiment {figure.result} is declared")
        return {**body, "view": f"lesson/{lesson.slug}/{figure.result}.{language}.json", "lab": lab_address(recipe)}
    return body


def _sources_json(lesson: Lesson) -> Json:
    return {name: asdict(source) for name, source in lesson.sources.items()}


def _recipe_json(lesson: Lesson, name: str) -> Json:
    recipe = lesson.structure.traces.get(name)
    if recipe is None:
        raise LessonError(f"{lesson.slug}: no trace {name} is declared")
    return {**recipe.request(), "race": recipe.race, "target": recipe.target}


def _term_json(lesson: Lesson, key: str, language: str) -> Json:
    term = lesson.glossary[key].get("vi" if language == "vi" else "en")
    if term is None:
        raise LessonError(f"glossary.yaml: {key} is not there in every language")
    return {"term": term.term, "html": render(term.text, {}, language, lesson.sources).html}


def lesson_text(slug: str, language: str, root: Path = LESSONS) -> str | None:
    """The JSON of a shown lesson as text, made once until one of its files changes; None for one that is not there."""
    folder = next((folder for folder in lesson_folders(root) if folder.name == slug), None)
    if folder is None or language not in LANGUAGES:
        return None
    files = [*folder.rglob("*"), *root.glob("*.yaml"), *SERVED.glob("*.json"), *family.files()]
    return _lesson_text(folder, language, max(path.stat().st_mtime_ns for path in files))


@lru_cache(maxsize=32)
def _lesson_text(folder: Path, language: str, changed: int) -> str:  # noqa: ARG001 - `changed` is part of the key
    return json.dumps(lesson_json(load_lesson(folder), language), ensure_ascii=False, separators=(",", ":"))
