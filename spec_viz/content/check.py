"""What is wrong with a lesson, as sentences for its author.

Words a language lacks, numbers typed by hand, links and figures that lead nowhere, claims its traces do not show,
traces that its recipes would not make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any

from spec_viz.content.experiments import ExperimentRecipe, departs
from spec_viz.content.expressions import constants, evaluate
from spec_viz.content.figures import (
    PARTS,
    Cache,
    Calibration,
    Command,
    Cost,
    Drag,
    Experiment,
    Figure,
    Growth,
    Here,
    Proof,
    Quiz,
    Race,
    Reported,
    Reroll,
    Served,
    Slots,
    Survey,
    Tiles,
    traces_of,
)
from spec_viz.content.files import LESSONS
from spec_viz.content.lessons import LANGUAGES, Lesson, LessonError, Question, Step, lesson_folders, load_lesson
from spec_viz.content.live import live_problems
from spec_viz.content.markup import LINKS, Link, Rendered, render, typed_numbers
from spec_viz.content.record import recipe_request
from spec_viz.content.sandbox import ClaimError
from spec_viz.content.served import Server, faults, keys_of, trace_of
from spec_viz.engine.trace import Node, Round, Trace
from spec_viz.lab.run import Request, RequestError, check
from spec_viz.models.load import Loaded

# Vietnamese writes a space between syllables, so ninety words of English take about this many.
MAX_WORDS = {"en": 90, "vi": 130}
FORMULA_TERMS = ("alpha", "gamma", "c", "v", "tau", "speedup")
SLOTS = ("target", "drafter")
# Stored probabilities have six digits, so a whole law adds up to one only about.
ROUNDING = 1e-4

_TILE = re.compile(r"^(\d+)\.(\d+|emitted)$")
_KEY = re.compile(r"(?:<p>)?<code>(.+?)</code>")


def check_lessons(root: Path = LESSONS, loaded: Loaded | None = None) -> list[str]:
    """Problems of every lesson, the template included; with a model every trace is also made again and compared."""
    found: list[str] = []
    for folder in lesson_folders(root, hidden=True):
        try:
            lesson = load_lesson(folder)
            found += problems(lesson)
            if loaded is not None:
                found += live_problems(lesson, loaded)
        except LessonError as problem:
            found.append(str(problem))
    return found


def problems(lesson: Lesson) -> list[str]:
    """What is wrong with a lesson as it lies on disk; LessonError when a recording of it cannot be read at all."""
    bundles, results = lesson.bundles, lesson.results
    parts = chain(
        _twice(lesson),
        *(_stale(lesson, name, bundles[name]) for name in lesson.structure.traces),
        *(_stale_result(lesson, name, results[name]) for name in lesson.structure.results),
        *(_figure_problems(lesson, step) for step in lesson.structure.steps),
        *(_claim_problems(lesson, step) for step in lesson.structure.steps),
        *(_words_problems(lesson, language) for language in LANGUAGES),
        _glossary_problems(lesson),
    )
    return [f"{lesson.slug}: {problem}" for problem in parts]


# ---------------------------------------------------------------- structure, traces, claims


def _twice(lesson: Lesson) -> Iterator[str]:
    structure = lesson.structure
    for what, items in (
        ("step", structure.steps),
        ("survey question", structure.survey),
        ("quiz question", structure.quiz),
    ):
        ids = [item.id for item in items]
        yield from (f"two {what}s are called {id_}" for id_ in sorted({id_ for id_ in ids if ids.count(id_) > 1}))


def _stale(lesson: Lesson, name: str, traces: Sequence[Trace]) -> Iterator[str]:
    recipe = lesson.structure.traces[name]
    where = f"trace {name}"
    try:
        request, _ = check(recipe_request(recipe))
    except RequestError as error:
        yield f"{where}: its recipe cannot be run: {error}"
        return
    wanted = 2 if recipe.race else 1
    if len(traces) != wanted:
        yield f"{where}: holds {len(traces)} runs where its recipe makes {wanted}; record it again"
    for trace, asked in zip(traces, (request, check(request.baseline())[0]), strict=False):
        for key in _other(trace, asked, recipe.target):
            yield f"{where}: the recorded run has another {key}; record it again"


def _other(trace: Trace, request: Request, target: str) -> list[str]:
    asked = asdict(request)
    asked = {
        "prompt_text": asked.pop("prompt"),
        "drafter_options": dict(asked.pop("options")),
        **asked,
        "target": target,
    }
    return [key for key, value in asked.items() if trace.meta.get(key) != value]


def _stale_result(lesson: Lesson, name: str, result: dict[str, Any]) -> Iterator[str]:
    recipe = lesson.structure.results[name]
    if isinstance(recipe, ExperimentRecipe):
        try:
            other = departs(recipe, result)
        except ValueError as error:
            yield f"result {name}: its recipe cannot be run: {error}"
            return
        yield from (f"result {name}: the recorded result has another {key}; record it again" for key in other)
        return
    told = result.get("conditions", {})
    has = {
        "kind": result.get("kind"),
        "max_n": len(result.get("v", ())),
        "drafters": {drafter: cost.get("options") for drafter, cost in result.get("drafters", {}).items()},
        **{key: told.get(key) for key in ("target", "context", "repeats")},
    }
    for key, value in asdict(recipe).items():
        if has[key] != value:
            yield f"result {name}: the recorded result has another {key}; record it again"


def _claim_problems(lesson: Lesson, step: Step) -> Iterator[str]:
    if step.claim is None:
        return
    try:
        if evaluate(step.claim, lesson.scope(step)) is not True:
            yield f"step {step.id}: what is recorded does not show its claim: {step.claim}"
    except ClaimError as error:
        yield f"step {step.id}: {error}"


# ---------------------------------------------------------------- figures


def _figure_problems(lesson: Lesson, step: Step) -> Iterator[str]:
    for problem in _faults(lesson, step.figure):
        yield f"step {step.id}: the figure {step.figure.kind} {problem}"


def _faults(lesson: Lesson, figure: Figure) -> Iterator[str]:
    if isinstance(figure, Server):
        yield from faults(figure)
        return
    missing = [name for name in traces_of(figure) if name not in lesson.bundles]
    if missing:
        yield from (f"names the trace {name}, which lesson.yaml does not declare" for name in missing)
        return
    bundle = lesson.bundles[traces_of(figure)[0]] if traces_of(figure) else ()
    match figure:
        case Cost(result=name) | Experiment(result=name) if name not in lesson.results:
            yield f"names the result {name}, which lesson.yaml does not declare"
        case Tiles(rounds=span) | Cache(rounds=span) if span is not None:
            if not span[0] <= span[1] < len(bundle[0].rounds):
                yield f"shows rounds {span[0]} to {span[1]} of {len(bundle[0].rounds)}"
        case Proof(round=number, node=index):
            node = _node(bundle[0], number, index)
            if node is None:
                yield f"names round {number}, node {index}, which its trace does not have"
            elif not _whole(node):
                yield "needs a whole law at its node: record with top_k at most 5 and a temperature above 0"
        case Reroll(round=number):
            round_ = _round(bundle[0], number)
            if round_ is None or not round_.nodes:
                yield f"names round {number}, which drafts nothing"
        case Slots(round=number) if not _tells(_round(bundle[0], number), "candidates"):
            yield f"names round {number}, whose drafts tell no candidates of their slots"
        case Growth(round=number) if not _tells(_round(bundle[0], number), "dropped"):
            yield f"names round {number}, which grew no dynamic tree"
        case Calibration() if not any(_tells(round_, "survival") for round_ in bundle[0].rounds):
            yield "needs a trace whose drafts tell how likely they are to survive"
        case Drag(p=p, q=q, labels=labels):
            if not len(p) == len(q) == len(labels):
                yield "has p, q and labels of different lengths"
            for name, law in (("p", p), ("q", q)):
                if abs(sum(law) - 1) > ROUNDING:
                    yield f"has a law {name} that adds up to {sum(law):.4g}"
        case Race() | Here() if len(bundle) < 2:
            yield "needs a baseline: set race: true in the trace's recipe"
        case Survey() if not lesson.structure.survey:
            yield "has no questions: list them as survey: in lesson.yaml"
        case Quiz() if not lesson.structure.quiz:
            yield "has no questions: list them as quiz: in lesson.yaml"


def _round(trace: Trace, number: int) -> Round | None:
    return trace.rounds[number] if number < len(trace.rounds) else None


def _node(trace: Trace, number: int, index: int) -> Node | None:
    round_ = _round(trace, number)
    return round_.nodes[index] if round_ and index < len(round_.nodes) else None


def _tells(round_: Round | None, name: str) -> bool:
    """Whether the first draft of a round gives this reason."""
    return round_ is not None and bool(round_.nodes) and name in (round_.nodes[0].why or {})


def _whole(node: Node) -> bool:
    """Whether the node's stored tops are all of p and all of q; a one-hot q stores none."""
    p = node.p_top is not None and abs(sum(share for _, share in node.p_top) - 1) < ROUNDING
    q = node.q == 1.0 if node.q_top is None else abs(sum(share for _, share in node.q_top) - 1) < ROUNDING
    return p and q


# ---------------------------------------------------------------- words


def _words_problems(lesson: Lesson, language: str) -> Iterator[str]:
    words = lesson.words.get(language)
    if words is None:
        yield f"there is no {language}.md"
        return
    where = f"{language}.md"
    for name, text in (("title", words.title), ("question", words.question)):
        if not text:
            yield f"{where}: has no {name}"
        yield from (f"{where}: {name}: the number {number} is typed by hand" for number in typed_numbers(text))
    ids = {step.id for step in lesson.structure.steps}
    yield from (f"{where}: the step {id_} is not in lesson.yaml" for id_ in words.titles if id_ not in ids)
    for step in lesson.structure.steps:
        if step.id not in words.titles:
            yield f"{where}: the step {step.id} is missing"
            continue
        yield from (f"{where}: step {step.id}: {problem}" for problem in _step_problems(lesson, language, step))
    for kind, question in _questions(lesson):
        yield from (f"{where}: {kind} {question.id}: {problem}" for problem in _asked(lesson, language, kind, question))


def _step_problems(lesson: Lesson, language: str, step: Step) -> Iterator[str]:
    words = lesson.words[language]
    yield from (f"the number {number} in its title is typed by hand" for number in typed_numbers(words.titles[step.id]))
    wanted = ["", *(("ask", "reveal") if step.ask else ()), *PARTS.get(step.figure.kind, ())]
    # The notes are the presenter's own, but written for one language they are owed to the other.
    if any("note" in other.sections.get(step.id, {}) for other in lesson.words.values()):
        wanted.append("note")
    sections = words.sections[step.id]
    yield from (_missing(heading) for heading in wanted if not sections.get(heading))
    for heading in sections:
        if heading not in wanted and heading not in _question_headings(lesson):
            yield f"nothing asks for the section {heading!r}"
        elif heading in wanted and sections[heading]:
            yield from _section_problems(lesson, language, step, heading)
    if isinstance(step.figure, Command | Reported) and not list(faults(step.figure)):
        yield from _key_problems(lesson, language, step, keys_of(step.figure))


def _key_problems(lesson: Lesson, language: str, step: Step, keys: Sequence[str]) -> Iterator[str]:
    """The section `keys` is a list whose items each begin with one of the figure's keys as code."""
    try:
        items = lesson.section(language, step, "keys", with_options=True).options
    except ClaimError:
        return  # said where the section is read
    for item in items:
        found = _KEY.match(item)
        if found is None:
            yield f"an item of 'keys' begins with no key as code: {item[:40]}"
        elif unescape(found[1]) not in keys:
            yield f"'keys' explains {unescape(found[1])}, which the figure does not show"


def _missing(heading: str) -> str:
    return f"the section {heading!r} is missing" if heading else "it has no words"


def _question_headings(lesson: Lesson) -> set[str]:
    return {f"{kind} {question.id}" for kind, question in _questions(lesson)}


def _questions(lesson: Lesson) -> Iterator[tuple[str, Question]]:
    yield from (("question", question) for question in (*lesson.structure.survey, *lesson.structure.quiz))
    yield from (("feedback", question) for question in lesson.structure.quiz)


def _section_problems(lesson: Lesson, language: str, step: Step, heading: str) -> Iterator[str]:
    source = lesson.words[language].sections[step.id][heading]
    choice = heading == "ask" and step.ask is not None and step.ask.kind == "choice"
    bundle = _drawn(lesson, step.figure)
    try:
        rendered = lesson.section(language, step, heading, with_options=choice)
        if choice:
            yield from _option_problems(rendered, lesson.answer(step))
    except ClaimError as error:
        yield str(error)
        return
    yield from _rendered_problems(lesson, source, rendered, bundle)
    if not heading and rendered.words > MAX_WORDS[language]:
        yield f"has {rendered.words} words, more than the {MAX_WORDS[language]} one idea takes"


def _drawn(lesson: Lesson, figure: Figure) -> Sequence[Trace] | None:
    """The traces whose tiles the words may point at."""
    if isinstance(figure, Served):
        trace = trace_of(figure)
        return None if trace is None else (trace,)
    return lesson.bundles.get(traces_of(figure)[0]) if traces_of(figure) else None


def _option_problems(rendered: Rendered, answer: float | None) -> Iterator[str]:
    if len(rendered.options) < 2:
        yield "a choice needs a list of two or more options"
    elif answer not in range(len(rendered.options)):
        yield f"the answer {answer} is none of its {len(rendered.options)} options"


def _asked(lesson: Lesson, language: str, kind: str, question: Question) -> Iterator[str]:
    source = lesson.words[language].question_text(kind, question.id)
    if not source:
        yield "is missing"
        return
    try:
        rendered = lesson.question(language, kind, question.id)
    except ClaimError as error:
        yield str(error)
        return
    yield from _rendered_problems(lesson, source, rendered, None)
    if kind == "question":
        yield from _option_problems(rendered, question.answer)


def _rendered_problems(
    lesson: Lesson, source: str, rendered: Rendered, bundle: Sequence[Trace] | None
) -> Iterator[str]:
    for number in (*rendered.numbers, *constants(source)):
        yield f"the number {number} is typed by hand: write an expression, or cite its source"
    for link in rendered.links:
        fault = _broken(lesson, link, bundle)
        if fault:
            yield f"the link {link.kind}:{link.to} {fault}"


def _broken(lesson: Lesson, link: Link, bundle: Sequence[Trace] | None) -> str | None:
    known: dict[str, Callable[[], bool]] = {
        "tile": lambda: bundle is not None and _has_tile(bundle[0], link.to),
        "term": lambda: link.to in lesson.glossary,
        "slot": lambda: link.to in SLOTS,
        "formula": lambda: link.to in FORMULA_TERMS,
        "source": lambda: link.to in lesson.sources,
        "screen": lambda: link.to == "only",
    }
    if link.kind not in known:
        return f"is of no known kind ({', '.join(LINKS)})"
    return None if known[link.kind]() else "leads nowhere"


def _has_tile(trace: Trace, to: str) -> bool:
    found = _TILE.match(to)
    if found is None:
        return False
    if found[2] == "emitted":
        round_ = _round(trace, int(found[1]))
        return round_ is not None and round_.emitted is not None
    return _node(trace, int(found[1]), int(found[2])) is not None


def _glossary_problems(lesson: Lesson) -> Iterator[str]:
    for key, entry in lesson.glossary.items():
        for language in LANGUAGES:
            if language not in entry:
                yield f"glossary.yaml: {key} has no {language}"
                continue
            try:
                rendered = render(entry[language].text, {}, language, lesson.sources)
            except ClaimError as error:
                yield f"glossary.yaml: {key}: {error}"
                continue
            for problem in _rendered_problems(lesson, entry[language].text, rendered, None):
                yield f"glossary.yaml: {key}, {language}: {problem}"
