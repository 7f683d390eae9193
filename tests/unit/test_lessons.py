"""Lessons from files: what the page is given, and that each kind of fault is found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from spec_viz.content.check import check_lessons, problems
from spec_viz.content.expressions import evaluate
from spec_viz.content.files import LESSONS
from spec_viz.content.lessons import LessonError, lesson_folders, lesson_json, lesson_list, lesson_text, load_lesson
from spec_viz.content.live import differences
from spec_viz.content.markup import render, typed_numbers
from spec_viz.content.sandbox import ClaimError
from spec_viz.engine.trace import TokenTable, Trace, dumps
from spec_viz.lab.run import Request, check
from spec_viz.ui import lesson_route
from tests.unit.traces import chain, run, trace

YAML = """
number: "5.1"
traces:
  toy: {prompt: a, drafter: scripted, options: {script: " b"}, temperature: 0.8, race: true}
results:
  cost: {kind: cost, max_n: 2, context: 8, repeats: 3}
survey: [{id: why, answer: 1}]
quiz: [{id: first, answer: 0}]
steps:
  - id: before
    figure: {kind: survey, phase: before}
  - id: round
    figure: {kind: tiles, trace: toy, rounds: [1, 1], start: hidden}
    claim: summary.rejected == 1 and same_text
    ask: {kind: choice, answer: summary.accepted}
  - id: price
    figure: {kind: cost, result: cost}
    claim: result.v[1].ratio < 2
  - id: reach
    figure: {kind: text}
  - id: likeness
    figure: {kind: analogy}
  - id: checks
    figure: {kind: quiz}
"""
WORDS = """---
title: Tên
question: Vì sao?
---
## before | Trước
Sáu câu hỏi.
### question why
Vì sao?
- {{ 'đúng' }}
- sai
## round | Một vòng
Giữ {{ summary.accepted }} token, [ở đây](tile:1.0), theo [bài gốc, bảng 2](source:paper), xem [phần dư](term:residual).
### ask
Giữ bao nhiêu?
- 0
- 1
- 2
### reveal
Đúng {{ summary.accepted }} token; τ = {{ summary.tau.value | fixed(1) }}.
### note
Dừng ở đây.
## price | Giá
Lượt hai token đắt gấp {{ result.v[1].ratio | fixed }} lần.
## reach | Xa hơn
[Kéo thử.](screen:only) Ở nơi khác là {{ traces.toy.rounds | length }} vòng.
## likeness | Ví dụ
Hai cột.
### carries
Giống.
### breaks
Khác.
## checks | Kiểm tra
Ba câu.
### question first
Hỏi?
1. có
2. không
### feedback first
Vì vậy.
"""
GLOSSARY = """
residual:
  vi: {term: phần dư, text: Phần p vượt q.}
  en: {term: residual, text: Where p passes q.}
"""
SOURCES = "paper: {title: Fast, authors: L, year: 2023, url: 'https://arxiv.org/abs/2211.17192'}\n"
COST = {
    "schema": "specviz.result/1",
    "kind": "cost",
    "conditions": {"target": "smollm2-135m", "context": 8, "repeats": 3},
    "v": [{"n": 1, "ratio": 1.0}, {"n": 2, "ratio": 1.26}],
    "drafters": {},
}


def meta(drafter: str, **fields: Any) -> dict[str, Any]:
    """What a run of the toy recipe writes in its header."""
    asked = Request("a", drafter="scripted", options={"script": " b"}, temperature=0.8)
    request, _ = check(asked if drafter == "scripted" else asked.baseline())
    told = asdict(request)
    told = {"prompt_text": told.pop("prompt"), "drafter_options": told.pop("options"), **told}
    return {**told, "target": "smollm2-135m", **fields}


def bundle(**fields: Any) -> tuple[Trace, Trace]:
    """Two accepted, one rejected, one discarded; and a baseline that wrote the same text."""
    texts: TokenTable = {token: (f" {token}", None) for token in (7, *range(100, 104))}
    made = replace(trace(chain(1, "aard"), **meta("scripted", **fields)), tokens=texts)
    same = replace(run("", "", "", **meta("none", **fields)), tokens=texts)
    rounds = [replace(round_, emitted=replace(round_.emitted, id=token)) for round_, token in  # type: ignore[type-var]
             zip(same.rounds, made.output, strict=True)]  # fmt: skip
    return made, replace(same, rounds=tuple(rounds))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole and faultless toy lesson, beside its glossary and sources."""
    place = tmp_path / "5_1_toy"
    (place / "traces").mkdir(parents=True)
    (place / "lesson.yaml").write_text(YAML)
    (place / "vi.md").write_text(WORDS)
    (place / "en.md").write_text(WORDS)
    (place / "traces" / "toy.ndjson").write_text(dumps(*bundle()))
    (place / "traces" / "cost.json").write_text(json.dumps(COST))
    (tmp_path / "glossary.yaml").write_text(GLOSSARY)
    (tmp_path / "sources.yaml").write_text(SOURCES)
    return place


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_faultless_lesson_has_no_problem(folder: Path) -> None:
    assert problems(load_lesson(folder)) == []
    assert check_lessons(folder.parent) == []


def test_the_page_gets_every_expression_computed(folder: Path) -> None:
    body = lesson_json(load_lesson(folder), "vi")
    steps = {step["id"]: step for step in body["steps"]}
    round_ = steps["round"]
    assert (body["slug"], body["number"], body["title"], body["question"]) == ("5_1_toy", "5.1", "Tên", "Vì sao?")
    assert "Giữ 2 token" in round_["html"]
    assert (
        '<span class="sv-ref" data-ref="tile" data-to="1.0" role="button" tabindex="0">ở đây</span>' in round_["html"]
    )
    assert '<span data-screen="only">Kéo thử.</span>' in steps["reach"]["html"]
    assert 'data-ref="source" data-to="paper" href="https://arxiv.org/abs/2211.17192"' in round_["html"]
    assert round_["ask"] == {
        "kind": "choice",
        "html": "<p>Giữ bao nhiêu?</p>\n",
        "options": ["0", "1", "2"],
        "answer": 2,
    }
    assert "τ = 3,0" in round_["reveal"]
    assert round_["figure"]["trace"] == "lessons/5_1_toy/traces/toy.ndjson"
    assert (round_["figure"]["request"]["prompt"], round_["figure"]["request"]["race"]) == ("a", True)
    assert (round_["figure"]["rounds"], round_["figure"]["start"]) == ((1, 1), "hidden")
    assert steps["price"]["figure"]["result"] == COST
    assert "gấp 1,26 lần" in steps["price"]["html"]
    assert "là 1 vòng" in steps["reach"]["html"]
    assert steps["likeness"]["figure"]["carries"] == "<p>Giống.</p>\n"
    assert body["survey"] == [{"id": "why", "html": "<p>Vì sao?</p>\n", "options": ["đúng", "sai"], "answer": 1}]
    assert body["quiz"][0]["feedback"] == "<p>Vì vậy.</p>\n"
    assert body["glossary"] == {"residual": {"term": "phần dư", "html": "<p>Phần p vượt q.</p>\n"}}
    assert list(body["sources"]) == ["paper"]
    assert (
        "τ = 3.0" in {step["id"]: step for step in lesson_json(load_lesson(folder), "en")["steps"]}["round"]["reveal"]
    )


@pytest.mark.parametrize("folder", lesson_folders(hidden=True), ids=lambda folder: folder.name)
def test_every_lesson_here_holds(folder: Path) -> None:
    assert problems(load_lesson(folder)) == []


def test_the_template_is_not_shown() -> None:
    assert "_template" in [folder.name for folder in lesson_folders(LESSONS, hidden=True)]
    assert not any(folder.name.startswith("_") for folder in lesson_folders(LESSONS))


Fault = Callable[[Path], None]


def _word(old: str, new: str) -> Fault:
    return lambda folder: change(folder / "en.md", old, new)


def _structure(old: str, new: str) -> Fault:
    return lambda folder: change(folder / "lesson.yaml", old, new)


def _traces(*made: Trace) -> Fault:
    def write(folder: Path) -> None:
        (folder / "traces" / "toy.ndjson").write_text(dumps(*made))

    return write


FAULTS: dict[str, tuple[Fault, str]] = {
    "a file of words is missing": (lambda folder: (folder / "en.md").unlink(), "there is no en.md"),
    "a step is not translated": (_word("## reach | Xa hơn", "## other | Xa hơn"), "en.md: the step reach is missing"),
    "a step too many": (_word("## reach | Xa hơn", "## other | Xa hơn"), "the step other is not in lesson.yaml"),
    "a title is missing": (_word("title: Tên", "title:"), "en.md: has no title"),
    "a body is missing": (_word("Hai cột.\n", ""), "step likeness: it has no words"),
    "a reveal is missing": (_word("### reveal", "### note2"), "the section 'reveal' is missing"),
    "a section nobody asks for": (_word("### reveal", "### reveel"), "nothing asks for the section 'reveel'"),
    "a note in one language only": (_word("### note\nDừng ở đây.\n", ""), "the section 'note' is missing"),
    "a column is missing": (_word("### breaks\nKhác.\n", ""), "the section 'breaks' is missing"),
    "a question is missing": (_word("### question first", "### question last"), "question first: is missing"),
    "feedback is missing": (_word("### feedback first", "### feedback last"), "feedback first: is missing"),
    "an option is missing": (_word("- 2\n", ""), "the answer 2 is none of its 2 options"),
    "no options": (_word("- 0\n- 1\n- 2\n", ""), "a choice needs a list"),
    "a glossary entry is not translated": (
        lambda folder: change(folder.parent / "glossary.yaml", "  en:", "  # en:"), "residual has no en"),
    "an unknown figure": (_structure("kind: text", "kind: hologram"), "steps.3.figure"),
    "a setting the figure does not know": (_structure("start: hidden", "begin: hidden"), "begin"),
    "a trace nobody declared": (_structure("trace: toy, rounds", "trace: joy, rounds"), "names the trace joy"),
    "a result nobody declared": (_structure("result: cost", "result: lost"), "names the result lost"),
    "a round that is not there": (_structure("rounds: [1, 1]", "rounds: [1, 9]"), "shows rounds 1 to 9 of 2"),
    "a law that is not whole": (
        _structure("{kind: text}", "{kind: law, trace: toy, round: 1, node: 0}"), "needs a whole law"),
    "a node that is not there": (
        _structure("{kind: text}", "{kind: law, trace: toy, round: 1, node: 7}"), "names round 1, node 7"),
    "a law that does not add up": (
        _structure("{kind: text}", "{kind: drag, p: [0.5, 0.4], q: [0.5, 0.5], labels: [a, b]}"), "adds up to 0.9"),
    "bars without a label": (
        _structure("{kind: text}", "{kind: drag, p: [0.5, 0.5], q: [0.5, 0.5], labels: [a]}"), "labels"),
    "bars with a label too many": (
        _structure("{kind: text}", "{kind: drag, p: [0, 1], q: [0, 1], labels: [a, b, c]}"), "different lengths"),
    "a round without drafts again": (
        _structure("{kind: text}", "{kind: reroll, trace: toy, round: 0}"), "round 0, which drafts nothing"),
    "slots of a drafter that has none": (
        _structure("{kind: text}", "{kind: slots, trace: toy, round: 1}"), "names round 1, whose drafts tell no"),
    "slots of a round that is not there": (
        _structure("{kind: text}", "{kind: slots, trace: toy, round: 9}"), "names round 9, whose drafts tell no"),
    "a tree that never grew": (
        _structure("{kind: text}", "{kind: grown, trace: toy, round: 1}"), "names round 1, which grew no dynamic tree"),
    "a confidence nobody told": (
        _structure("{kind: text}", "{kind: calibration, trace: toy}"), "tell how likely they are to survive"),
    "a step twice": (_structure("id: reach", "id: round"), "two steps are called round"),
    "a number typed by hand": (_word("Hai cột.", "Nhanh gấp 2,5 lần."), "the number 2,5 is typed by hand"),
    "a number typed in braces": (_word("Hai cột.", "Nhanh gấp {{ 2.5 }} lần."), "the number 2.5 is typed by hand"),
    "a number in a title": (_word("| Ví dụ", "| 37 ví dụ"), "the number 37 in its title"),
    "a number in an answer's reasons": (_word("Vì vậy.", "Vì 8 token."), "feedback first: the number 8"),
    "a tile that is not there": (_word("tile:1.0", "tile:1.4"), "the link tile:1.4 leads nowhere"),
    "a tile where there is no trace": (_word("Hai cột.", "[Ô](tile:1.0)"), "step likeness: the link tile:1.0"),
    "an unknown term": (_word("term:residual", "term:rest"), "the link term:rest leads nowhere"),
    "an unknown source": (_word("source:paper", "source:blog"), "the link source:blog leads nowhere"),
    "an unknown slot": (_word("Hai cột.", "[k](slot:disk)"), "the link slot:disk leads nowhere"),
    "words for part of a screen": (_word("Hai cột.", "[k](screen:left)"), "the link screen:left leads nowhere"),
    "an unknown term of the formula": (_word("Hai cột.", "[k](formula:pi)"), "the link formula:pi leads nowhere"),
    "a bare address": (_word("Hai cột.", "[k](https://example.org)"), "is of no known kind"),
    "an expression that cannot be computed": (_word("{{ summary.accepted }} token,", "{{ sum_mary }},"), "sum_mary"),
    "an expression that is no number": (_word("{{ summary.accepted }} token,", "{{ summary }},"), "prints a Summary"),
    "a false claim": (_structure("summary.rejected == 1", "summary.rejected == 2"), "does not show its claim"),
    "a claim that cannot be computed": (_structure("summary.rejected == 1", "summary.nope == 1"), "cannot evaluate"),
    "a false claim on a result": (_structure("ratio < 2", "ratio < 1"), "step price: what is recorded does not show"),
    "a recipe with another prompt": (_structure("prompt: a", "prompt: b"), "another prompt_text"),
    "a recipe with another option": (_structure('" b"', '" c"'), "another drafter_options"),
    "a recipe with a default that was otherwise": (_traces(*bundle(gamma=2)), "another gamma"),
    "another target": (_traces(*bundle(target="big")), "another target"),
    "no baseline": (_traces(bundle()[0]), "holds 1 runs where its recipe makes 2"),
    "an impossible recipe": (_structure("temperature: 0.8", "temperature: 9.0"), "its recipe cannot be run"),
    "no trace": (lambda folder: (folder / "traces" / "toy.ndjson").unlink(), "no readable recorded run"),
    "another measurement": (_structure("context: 8", "context: 9"), "the recorded result has another context"),
    "no result": (lambda folder: (folder / "traces" / "cost.json").unlink(), "no readable recorded result"),
    "too many words": (_word("Hai cột.", "từ " * 91), "has 91 words"),
    "no front matter": (_word("---\n", ""), "begins with front matter"),
    "a step without a title": (_word("## reach | Xa hơn", "## reach"), "en.md, line"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(folder: Path, name: str) -> None:
    spoil, said = FAULTS[name]
    spoil(folder)
    found = check_lessons(folder.parent)
    assert any(said in problem for problem in found), found


ALLOWED = [
    "bài 5.1 và bước 12", "năm 2023", "EAGLE-3 và SmolLM2-135M", "T = 0", "min(1, p/q)", "từ 0 đến 1", "γ+1",
    "Lesson 5.4",
]  # fmt: skip
TYPED = {"0.7": "0.7", "gấp 3×": "3", "30ms": "30", "1.26 lần": "1.26", "0 %": "0", "128 token": "128", "2,5": "2,5",
         "20230": "20230", "v(5)": "5"}  # fmt: skip


@pytest.mark.parametrize("text", ALLOWED)
def test_names_years_places_and_bounds_are_no_typed_numbers(text: str) -> None:
    assert typed_numbers(text) == []


@pytest.mark.parametrize(("text", "number"), TYPED.items())
def test_other_digits_are_typed_numbers(text: str, number: str) -> None:
    assert typed_numbers(text) == [number]


@pytest.mark.parametrize(
    "trick",
    [
        "traces.__class__.__mro__",
        "''.__class__",
        "theory.speedup.__globals__",
        "(summary|attr('__class__')).__base__",
        "traces['__class__']",
        "'{0.__class__}'.format(summary)",
        "meta.update(x=1)",
        "cycler.__init__.__globals__.os.popen('id').read()",
        "theory.math",
    ],
)
def test_an_expression_cannot_leave_the_sandbox(folder: Path, trick: str) -> None:
    lesson = load_lesson(folder)
    scope = lesson.scope(lesson.structure.steps[1])
    with pytest.raises(ClaimError):
        evaluate(trick, scope)
    with pytest.raises(ClaimError):
        render("{{ " + trick + " }}", scope, "en", {})


def test_html_in_words_and_in_values_stays_text() -> None:
    evil = "<img src=x onerror=alert(1)> **bold** `tick` [a](javascript:alert(1))"
    html = render("<b>x</b> {{ evil }} *{{ evil }}* `{{ evil }}`", {"evil": evil}, "en", {}).html
    assert "<b>" not in html
    assert "<img" not in html
    assert "<strong>" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt; **bold** `tick` [a](javascript:alert(1))") == 3
    assert "<em>" in html
    assert "<code>" in html


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "https://example.org", "file:///etc"])
def test_a_link_of_another_kind_is_no_link(address: str) -> None:
    html = render(f"[words]({address})", {}, "en", {}).html
    assert "href" not in html
    assert "words" in html


def test_a_value_may_complete_a_link(folder: Path) -> None:
    lesson = load_lesson(folder)
    scope = lesson.scope(lesson.structure.steps[1])
    (link,) = render("[x](tile:1.{{ rounds[0].path | length - 1 }})", scope, "en", {}).links
    assert (link.kind, link.to) == ("tile", "1.1")


@pytest.mark.parametrize(
    ("expression", "vi", "en"),
    [
        ("0.7126 | percent", "71 %", "71%"),
        ("x | percent(1)", "71,3 %", "71.3%"),
        ("x | fixed(3)", "0,713", "0.713"),
        ("x", "0,713", "0.713"),
        ("3 * 4", "12", "12"),
        ("overlap([0.5, 0.5], [0.9, 0.1]) | fixed(1)", "0,6", "0.6"),
        ("distance([0.5, 0.5], [0.9, 0.1]) | fixed(1)", "0,4", "0.4"),
        ("residual([0.5, 0.5], [0.9, 0.1])[1] | fixed(0)", "1", "1"),
        ("theory.expected_tokens(x, 0) | fixed(1)", "1,0", "1.0"),
    ],
)
def test_numbers_are_written_as_the_language_writes_them(expression: str, vi: str, en: str) -> None:
    for language, said in (("vi", vi), ("en", en)):
        html = render("{{ " + expression + " }}", {"x": 0.7126}, language, {}).html
        assert html == f"<p>{said}</p>\n".replace(" %", "\xa0%")


def test_a_live_run_that_departs_is_told_with_its_round_and_machines() -> None:
    old = run("aard", "aa", device_name="A")
    assert differences([old], [replace(old, run="other", origin="live")]) == []
    other = run("aard", "ar", device_name="B")
    (said,) = differences([old], [other])
    assert "round 2" in said
    assert "A" in said.split("here")[0]
    assert "B" in said.split("here")[1]
    assert "round 3" in differences([old], [run("aard", "aa", "aa", device_name="A")])[0]


def test_probabilities_may_differ_only_on_another_machine() -> None:
    old = run("ar", device_name="A")
    first, second = old.rounds
    moved = replace(old, rounds=(first, replace(second, nodes=(replace(second.nodes[0], p=0.5), second.nodes[1]))))
    assert "not its probabilities" in differences([old], [moved])[0]
    assert differences([old], [replace(moved, meta={**moved.meta, "device_name": "B"})]) == []


# ---------------------------------------------------------------- the list and the address


def test_the_list_leaves_out_hidden_and_broken_lessons(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (row,) = lesson_list(folder.parent)
    assert (row["slug"], row["number"], row["title"]) == ("5_1_toy", "5.1", {"vi": "Tên", "en": "Tên"})
    assert row["steps"][1] == {"id": "round", "title": {"vi": "Một vòng", "en": "Một vòng"}}
    change(folder / "en.md", "## round", "## rond")
    assert lesson_list(folder.parent) == []
    assert "5_1_toy is not shown" in caplog.text
    folder.rename(folder.parent / "_toy")
    assert lesson_list(folder.parent) == []


def test_the_address_gives_a_lesson_and_its_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_route, "lesson_text", partial(lesson_text, root=folder.parent))
    with TestClient(Starlette(routes=lesson_route.lesson_routes)) as page:
        assert page.get("/sv/lesson/5_1_toy.vi.json").json()["title"] == "Tên"
        change(folder / "vi.md", "title: Tên", "title: Mới")
        assert page.get("/sv/lesson/5_1_toy.vi.json").json()["title"] == "Mới"
        for missing in ("5_9.vi", "5_1_toy.fr", "..vi", "%2e%2e.vi", "_template.vi"):
            assert page.get(f"/sv/lesson/{missing}.json").status_code == 404
        (folder / "traces" / "toy.ndjson").unlink()
        broken = page.get("/sv/lesson/5_1_toy.vi.json")
        assert broken.status_code == 500
        # Whoever visits the page is not told where it lies.
        assert "traces" not in broken.text


def test_a_lesson_that_cannot_be_read_names_its_file(folder: Path) -> None:
    change(folder / "lesson.yaml", 'number: "5.1"', "number: 5.1")
    with pytest.raises(LessonError, match=r"5_1_toy/lesson\.yaml: number"):
        load_lesson(folder)


@pytest.mark.parametrize("language", ["vi", "en"])
@pytest.mark.parametrize("slug", [folder.name for folder in lesson_folders()])
def test_a_plan_leads_to_steps_that_are_there(slug: str, language: str) -> None:
    told = json.loads(lesson_text(slug, language) or "")
    numbers = {step["id"]: number for number, step in enumerate(told["steps"], 1)}
    plan = (LESSONS / slug / f"plan.{language}.md").read_text(encoding="utf-8")
    links = re.findall(r"\[([^\]]+)\]\(\?([^)]+)\)", plan)
    assert len(links) >= len(numbers) / 2
    for name, query in links:
        address = dict(parse_qsl(query, strict_parsing=True))
        step = address.pop("step")
        assert name == f"{numbers.get(step)} {step}"
        assert address.pop("present", "1") == "1"
        assert address == {"place": "lessons", "lang": language, "lesson": slug}
    # A clicker goes through the lesson's order, a teacher's watch through the plan's.
    rows = re.findall(r"^\| (\d+)–(\d+) \| (.+?) \|", plan, re.MULTILINE)
    order = [int(number) for _, _, steps in rows for number in re.findall(r"\[(\d+) ", steps)]
    assert order == sorted(order)
    begins, ends = zip(*((int(begin), int(end)) for begin, end, _ in rows), strict=True)
    assert (begins[0], begins[1:], ends[-1]) == (0, ends[:-1], 40)
