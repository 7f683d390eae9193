"""Every lesson as a learner meets it: step by step by keyboard alone, in both languages, without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any, get_args, get_type_hints

import pytest
from playwright.sync_api import Page, Request, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from spec_viz.content import figures
from spec_viz.content.lessons import lesson_folders, lesson_text
from spec_viz.ui.gauge import REPEATS
from spec_viz.ui.wording import Words, words
from tests.browser.acts import EN, press
from tests.browser.conftest import Visit
from tests.browser.test_language import check_words
from tests.browser.test_look import AXE
from tests.integration.launch import served
from tests.integration.rooms import Gate, ready_room

pytestmark = pytest.mark.browser

LESSONS = [folder.name for folder in lesson_folders()]
SLUG = "5_1_principles"
MOST_MOVES = 30  # keys that one step's figure may take

# What must be seen of a figure when its step is done, by its kind, and how many of it at least. A kind that is not
# here fails the walk, and the test below it: who adds a figure says what shows that it was drawn.
DRAWN = {
    "text": (".sv-l-words .sv-l-prose > *", 1),
    "survey": (".sv-l-figure--survey .sv-l-caption", 1),
    "quiz": (".sv-l-option--right", 3),
    "cost": (".sv-l-svg rect", 8),
    "certainty": (".sv-l-certain-bar i", 10),
    "anatomy": (".sv-l-stage .sv-l-drawing", 1),
    "analogy": (".sv-l-side li", 4),
    "tiles": (".sv-rows .sv-tile:not(.sv-tile--hidden)", 2),
    "served": (".sv-rows .sv-tile:not(.sv-tile--hidden)", 2),
    "drag": (".sv-l-stage-box [role=slider]", 4),
    "law": (".sv-l-law-row", 4),
    "reroll": (".sv-l-across i", 5),
    "kv": (".sv-slot--rolled", 1),
    "compare": (".sv-l-keys li", 2),
    "formula": (".sv-l-plot .sv-l-column", 8),
    "race": (".sv-race-lane .sv-race-round", 4),
    "experiment": (".sv-chart-plot .main-svg", 1),
    "runs": (".sv-chart-plot .main-svg", 1),
    "here": (".sv-l-here .sv-lab-steps li", 3),
    "slots": (".sv-slots-row .sv-tile", 2),
    "grown": (".sv-grown-chip", 4),
    "calibration": (".sv-calibration-dot", 1),
    "family": (".sv-l-stage-box tbody tr", 3),
    "command": (".sv-l-code-line", 1),
    "reported": (".sv-l-code-line", 1),
    "end": (".sv-l-end li", 6),
}
# What there is to see of it before, while a guess is awaited or its moves have not been made: less, or other things.
BEFORE = {
    "survey": (".sv-l-stage-box fieldset", 3),
    "quiz": (".sv-l-stage-box fieldset", 3),
    "cost": (".sv-l-svg rect", 1),
    "certainty": (".sv-l-certain > li", 10),
    "tiles": (".sv-rows .sv-tile:not(.sv-tile--hidden)", 1),
    "served": (".sv-rows .sv-tile:not(.sv-tile--hidden)", 1),
    "reroll": (".sv-l-across", 6),
    "kv": (".sv-slot", 16),
    "compare": (".sv-l-token", 8),
    "formula": (".sv-l-formula", 1),
    "race": (".sv-l-stage-box .sv-l-about", 1),
    "experiment": (".sv-l-stage-box .sv-l-about", 1),
    "runs": (".sv-l-figure-title", 1),
    "calibration": (".sv-calibration-svg", 1),
    "grown": (".sv-grown-chip", 1),
}
# Every other kind asks for nothing while the steps are walked: the lesson, its traces, scripts and fonts come at once.
ASKED = {
    "experiment": re.compile("/vendor/plotly"),
    "runs": re.compile("/vendor/plotly"),
    "here": re.compile("/gradio_api/"),  # the run is laid on the formula by the Lab's own function
}
SEEN = """
([selector, least]) => [...document.querySelectorAll(`.sv-l-step ${selector}`)].filter((node) => {
  const box = node.getBoundingClientRect();
  return node.checkVisibility({ visibilityProperty: true }) && box.width > 1 && box.height > 1;
}).length >= least
"""
# Plotly draws behind a promise, the Lab's numbers come by a question: all else is there at once.
DRAWING = 10_000
FOCUS = "document.activeElement.className || document.activeElement.tagName"
FIELDS = "input, select, textarea, [role=slider]"
A4 = {"width": 703, "height": 1032}  # the printable part at 96 dots an inch, with margins of 12 mm
# Words on paper that their box cuts, or that stand outside the sheet; a space at the end of a line may hang over.
CUT = """
() => {
  const sheet = document.querySelector('.sv-l-handout');
  const { right } = sheet.getBoundingClientRect();
  const hides = (way) => way !== 'visible';
  return [...sheet.querySelectorAll('*')].filter((node) => {
    if (!node.checkVisibility() || node.closest('.sv-hush') || !node.textContent.trim()) return false;
    const { overflowX, overflowY } = getComputedStyle(node);
    const cut = (hides(overflowX) && node.scrollWidth > node.clientWidth + 1)
      || (hides(overflowY) && node.scrollHeight > node.clientHeight + 1);
    return cut || node.getBoundingClientRect().right > right + 4;
  }).map((node) => `${node.getAttribute('class')}: ${node.textContent.trim().slice(0, 60)}`);
}
"""
# Words for whoever sits at the page: paper can be neither pressed nor pulled, and plays nothing.
AT_SCREEN = {
    "en": r"\b(pull|press|click|drag|hover|tap|scroll|slide)(s|ed|ing)?\b|slider|button|arrow key|point at"
    r"|\b(play(s|ed|ing)?|watch|raise)\b|run it live|you see both|after your guess",
    "vi": r"\bkéo (?!tới|dài|theo|trung bình)|bấm|\bnhấn(?! mạnh)|phím|thanh trượt|nút (bên )?dưới|trỏ vào|rê chuột"
    r"|cuộn|thời gian thực|hãy (tăng|thử)\b|chạy thật ngay|xem cây|mà xem|bạn sẽ thấy|mới hiện ra",
}
# Words as they are written, without what keeps them on one line.
PLAIN = "text => text.replace(/\\u2060/g, '').replace(/\\s+/g, ' ')"
FIRST_LINE = """
html => {
  const page = new DOMParser().parseFromString(html, 'text/html');
  for (const aside of page.querySelectorAll('[data-screen]')) aside.remove();
  return page.querySelector('p').textContent.replace(/\\s+/g, ' ').trim();
}
"""
LIMITS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def lesson(language: str, slug: str = SLUG) -> dict[str, Any]:
    text = lesson_text(slug, language)
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


def address(base: str, step: str, language: str, theme: str = "light", slug: str = SLUG) -> str:
    return f"{base}/?place=lessons&lesson={slug}&step={step}&lang={language}&theme={theme}"


def violations(page: Page) -> list[str]:
    """What axe finds against WCAG 2 A and AA, of whatever weight: the step, the rule and the place."""
    found = page.evaluate(
        """(tags) => axe.run({ include: ['.sv-app'] }, { runOnly: tags, resultTypes: ['violations'] })
          .then(({ violations }) => violations.flatMap(({ id, nodes }) =>
            nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')} ${failureSummary}`)))""",
        LIMITS,
    )
    return [f"{page.locator('.sv-l-title').inner_text()}: {line}" for line in found]


def check_figure(page: Page, kind: str, *, done: bool) -> None:
    """What the kind of figure must show is seen, a chart is told in words too, and nothing has gone wrong."""
    assert kind in DRAWN, f"figures of kind {kind} must say in DRAWN what is seen of them"
    selector, least = DRAWN[kind] if done else BEFORE.get(kind, DRAWN[kind])
    try:
        page.wait_for_function(SEEN, arg=[selector, least], timeout=DRAWING)
    except PlaywrightTimeout:
        raise AssertionError(f"{kind}: {least} of {selector} are not seen") from None
    assert page.locator(".sv-l-step .sv-alert").count() == 0
    for chart in page.locator(".sv-l-step .sv-chart").all():
        assert len(chart.locator("figcaption").inner_text()) > 30, kind


def check_language(page: Page, step: dict[str, Any], language: str) -> None:
    assert page.locator(".sv-l-title").inner_text() == step["title"]
    assert page.evaluate("document.documentElement.lang") == language
    said = page.locator(".sv-l-player").inner_text()
    assert not re.search(r"\{\{|\}\}|\blesson\.\w", said), said
    check_words(page)


def focus_field(page: Page, kind: str) -> None:
    """Tab, as a person does, until a field of this kind that is not answered yet has the focus."""
    for _ in range(60):
        press(page, "Tab")
        if page.evaluate(
            """(kind) => document.activeElement.matches(`input[type=${kind}]:enabled`)
              && !document.activeElement.closest('fieldset')?.querySelector(':checked')""",
            kind,
        ):
            return
    raise AssertionError(f"no {kind} field is reached by Tab")


def choose(page: Page, index: int) -> None:
    """Choose an option of the group that has the focus."""
    press(page, "Space", *["ArrowDown"] * index)
    assert page.evaluate("document.activeElement.checked && Number(document.activeElement.value)") == index


def answer_guess(page: Page, ask: dict[str, Any], word: Words) -> None:
    """The right guess by keyboard; then the reveal stands there and has the focus."""
    assert page.locator(".sv-l-truth").count() == 0
    expect(page.locator(".sv-l-lock")).to_be_visible()
    press(page, "ArrowRight")  # says that a guess is wanted, and goes to its field
    expect(page.locator(".sv-l-ask [role=status]")).to_have_text(word("lesson.ask.first"))
    if ask["kind"] == "choice":
        choose(page, ask["answer"])
    else:
        page.keyboard.type(str(ask["answer"]))
    press(page, "Enter")
    guessed, truth = page.locator(".sv-l-guess dd").all_inner_texts()
    assert guessed == truth
    assert len(page.locator(".sv-l-truth .sv-l-prose").inner_text()) > 40
    assert page.evaluate(FOCUS) == "sv-l-truth"
    expect(page.locator(".sv-l-lock")).to_be_hidden()


def answer_survey(page: Page, questions: list[dict[str, Any]], phase: str, word: Words) -> None:
    """Before the lesson nothing is known; after it every answer is right, and the page says so."""
    for question in questions:
        focus_field(page, "radio")
        choose(page, len(question["options"]) if phase == "before" else question["answer"])
    press(page, "Tab", "Enter")
    of = len(questions)
    said = word("lesson.survey.thanks") if phase == "before" else word("lesson.survey.both", before=0, after=of, of=of)
    expect(page.locator(".sv-l-figure--survey .sv-l-caption")).to_have_text(said)
    assert page.evaluate(FOCUS) == "sv-l-caption"
    assert page.locator(".sv-l-outcome tbody tr").count() == (0 if phase == "before" else of)


def answer_quiz(page: Page, questions: list[dict[str, Any]], word: Words) -> None:
    """The first answer is wrong on purpose: also who errs is told why, without scorn."""
    for place, question in enumerate(questions):
        focus_field(page, "radio")
        wrong = place == 0
        choose(page, (question["answer"] + 1) % len(question["options"]) if wrong else question["answer"])
        press(page, "Enter")
        assert page.evaluate(FOCUS) == "sv-l-feedback"
        said = page.evaluate("document.activeElement.innerText")
        assert said.startswith(word("lesson.quiz.differ" if wrong else "lesson.quiz.agree"))
        assert len(said) > 60
    assert page.locator(".sv-l-option--right").count() == len(questions)


def go_on(page: Page, title: str) -> None:
    """→ through the figure's moves, until the next step has come and its title has the focus."""
    for _ in range(MOST_MOVES):
        press(page, "ArrowRight")
        if page.locator(".sv-l-title").inner_text() == title:
            assert page.evaluate(FOCUS) == "sv-l-title"
            return
    raise AssertionError(f"{MOST_MOVES} keys do not lead on to {title}")


@contextmanager
def asked_by(page: Page) -> Iterator[list[str]]:
    """The addresses that the page asks for meanwhile."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    yield asked
    page.remove_listener("request", note)


def test_every_kind_of_figure_says_what_is_seen_of_it() -> None:
    union, _ = get_args(figures.Figure)
    kinds = {get_args(get_type_hints(kind)["kind"])[0] for kind in get_args(union)}
    assert kinds - DRAWN.keys() == set()


# Both languages and both themes on every step, in two walks a lesson.
@pytest.mark.parametrize(("language", "theme"), [("vi", "light"), ("en", "dark")])
@pytest.mark.parametrize("slug", LESSONS)
def test_a_whole_lesson_by_keyboard(visit: Visit, recorded: str, slug: str, language: str, theme: str) -> None:
    word = words(language)
    told = lesson(language, slug)
    steps = told["steps"]
    page = visit(address(recorded, steps[0]["id"], language, theme, slug), reduced_motion="reduce")
    expect(page.locator(".sv-l-title")).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = []
    kinds: set[str] = set()
    with asked_by(page) as asked:
        for place, step in enumerate(steps):
            kind = step["figure"]["kind"]
            # Axe takes its time: it looks at the first step of every kind.
            looked = kind not in kinds
            kinds.add(kind)
            check_language(page, step, language)
            check_figure(page, kind, done=False)
            found += violations(page) if looked else []
            if step.get("ask"):
                answer_guess(page, step["ask"], word)
            elif kind == "survey":
                answer_survey(page, told["survey"], step["figure"]["phase"], word)
            elif kind == "quiz":
                answer_quiz(page, told["quiz"], word)
            elif page.locator(".sv-l-moves, .sv-board-bar").count():
                press(page, "End")
            check_figure(page, kind, done=True)
            check_language(page, step, language)
            found += violations(page) if looked else []
            if place + 1 == len(steps):
                break
            following = steps[place + 1]
            go_on(page, following["title"])
            # Back stands where this step was left: its figure at the end, its guess made.
            press(page, "ArrowLeft")
            assert page.locator(".sv-l-title").inner_text() == step["title"]
            assert page.locator(".sv-l-ask form").count() == 0
            press(page, "ArrowRight")
            assert page.locator(".sv-l-title").inner_text() == following["title"]
        press(page, "ArrowRight")
        expect(page.locator(".sv-l-cards")).to_be_visible()
    expected = [ASKED[kind] for kind in kinds & ASKED.keys()]
    assert [url for url in asked if not any(pattern.search(url) for pattern in expected)] == []
    assert found == []


# All ticked, or some; left by a key, by the browser, by the other language.
@pytest.mark.parametrize(("language", "whole"), [("vi", True), ("en", False)])
@pytest.mark.parametrize("way", ["next", "reload", "language"])
def test_what_was_ticked_counts_without_the_button(
    visit: Visit, recorded: str, way: str, language: str, whole: bool
) -> None:
    word = words(language)
    questions = lesson(language)["survey"]
    of = len(questions)
    before, after = (step["id"] for step in lesson(language)["steps"] if step["figure"]["kind"] == "survey")
    page = visit(address(recorded, before, language))
    fields = page.locator(".sv-l-question")
    expect(fields).to_have_count(of)

    def tick(answers: dict[int, int]) -> None:
        for place, index in answers.items():
            fields.nth(place).locator("input").nth(index).check()

    # One right, one not known, the others wrong or left open.
    given = {0: questions[0]["answer"], 1: len(questions[1]["options"])}
    if whole:
        given |= {place: (questions[place]["answer"] + 1) % 2 for place in range(2, of)}
    right = sum(index == questions[place]["answer"] for place, index in given.items())
    tick(given)
    if way == "next":
        page.get_by_role("button", name=word("lesson.next"), exact=True).click()
        page.get_by_role("button", name=word("lesson.back"), exact=True).click()
    elif way == "reload":
        page.reload()
    else:
        page.goto(address(recorded, before, "en" if language == "vi" else "vi"))
    expect(fields).to_have_count(of)
    assert [fields.nth(place).locator("input:checked").count() for place in range(of)] == [
        int(place in given) for place in range(of)
    ]
    page.goto(address(recorded, after, language))
    expect(fields).to_have_count(of)
    tick({place: question["answer"] for place, question in enumerate(questions)})
    page.get_by_role("button", name=word("lesson.survey.send")).click()
    name = "lesson.survey.both" if whole else "lesson.survey.part"
    said = word(name, answered=len(given), before=right, after=of, of=of)
    expect(page.locator(".sv-l-figure--survey .sv-l-caption")).to_have_text(said)
    cells = page.locator(".sv-l-outcome tbody tr td:nth-child(2)").all_inner_texts()
    assert [word("lesson.survey.unanswered") in cell for cell in cells] == [place not in given for place in range(of)]
    assert word("lesson.survey.unknown") in cells[1]


def test_answering_again_and_forgetting_clear_the_ticks(visit: Visit, recorded: str) -> None:
    page = visit(address(recorded, "before", "en"))
    ticked = page.locator(".sv-l-question input:checked")
    first = page.locator(".sv-l-question").first.locator("input").first
    first.check()
    page.get_by_role("button", name=EN("lesson.survey.send")).click()
    page.get_by_role("button", name=EN("lesson.survey.again")).click()
    expect(first).to_be_visible()
    expect(ticked).to_have_count(0)
    first.check()
    page.locator(".sv-l-where summary").click()
    page.get_by_role("button", name=EN("lesson.contents.forget")).click()
    page.reload()
    expect(first).to_be_visible()
    expect(ticked).to_have_count(0)


def test_a_second_press_goes_on_without_a_guess(visit: Visit, recorded: str) -> None:
    page = visit(address(recorded, "slow", "en"))
    expect(page.locator(".sv-l-title")).to_be_visible()
    press(page, "ArrowRight")
    assert page.evaluate("document.activeElement.matches('.sv-l-ask input')")
    # In a group of options → chooses; from anywhere else it goes on.
    page.locator(".sv-l-title").focus()
    press(page, "ArrowRight")
    assert page.evaluate(FOCUS) == "sv-l-truth"
    assert page.locator(".sv-l-guess dd").count() == 1
    check_figure(page, "cost", done=True)


@pytest.mark.parametrize("step", ["lossless", "keyed"])
def test_the_text_that_is_asked_about_comes_after_the_guess(visit: Visit, recorded: str, step: str) -> None:
    page = visit(address(recorded, step, "vi"))
    expect(page.locator(".sv-l-run .sv-l-tokens")).to_have_count(1)
    expect(page.locator(".sv-l-run .sv-l-summary")).to_have_text(words("vi")("lesson.compare.hidden"))
    press(page, "ArrowRight")
    page.locator(".sv-l-title").focus()
    press(page, "ArrowRight")
    expect(page.locator(".sv-l-run .sv-l-tokens")).to_have_count(2)
    expect(page.locator(".sv-l-run .sv-l-summary")).to_have_count(0)


# What clickers send; the second walk has the focus in a field of each step, as after a press of the mouse there.
@pytest.mark.parametrize(("key", "touched"), [("ArrowRight", False), ("PageDown", True)])
@pytest.mark.parametrize("slug", LESSONS)
def test_a_clicker_goes_through_a_projected_lesson(
    visit: Visit, recorded: str, slug: str, key: str, touched: bool
) -> None:
    steps = lesson("vi", slug)["steps"]
    page = visit(f"{address(recorded, steps[0]['id'], 'vi', slug=slug)}&present=1", reduced_motion="reduce")
    expect(page.locator(".sv-l-title")).to_be_visible()
    for step in steps:
        assert page.locator(".sv-l-title").inner_text() == step["title"]
        answered = False
        for _ in range(MOST_MOVES):
            before = page.locator(".sv-l-player").inner_text()
            if touched:
                page.evaluate(f"document.querySelector('.sv-l-step :is({FIELDS})')?.focus()")
            press(page, key)
            if page.locator(".sv-l-title").count() == 0 or page.locator(".sv-l-title").inner_text() != step["title"]:
                break
            assert page.locator(".sv-l-player").inner_text() != before, f"{step['id']}: a press does nothing"
            answered |= page.locator(".sv-l-truth").count() > 0
        assert answered == bool(step.get("ask")), step["id"]
    expect(page.locator(".sv-l-cards")).to_be_visible()


def test_fates_differ_in_more_than_colour(visit: Visit, recorded: str) -> None:
    page = visit(address(recorded, "residual", "en"), reduced_motion="reduce")
    expect(page.locator(".sv-l-title")).to_be_visible()
    press(page, "ArrowRight")
    choose(page, 0)
    press(page, "Enter")
    looks = {}
    for fate, name in (
        ("ok", "accepted"),
        ("no", "rejected"),
        ("off", "discarded"),
        ("correction", "correction"),
        ("bonus", "bonus"),
    ):
        tile = page.locator(f".sv-rows .sv-tile--{fate}").first
        shape = tile.evaluate(
            """(tile) => { const { borderTopStyle, borderTopWidth, borderTopLeftRadius } = getComputedStyle(tile);
              return [borderTopStyle, borderTopWidth, borderTopLeftRadius].join(' '); }"""
        )
        looks[name] = (tile.locator(".sv-tile-glyph").inner_text(), shape, tile.get_attribute("aria-label") or "")
    for one, other in combinations(looks, 2):
        glyphs, shapes, spoken = zip(looks[one], looks[other], strict=True)
        assert len(set(glyphs)) == 2, (one, other)
        assert len(set(shapes)) == 2, (one, other, shapes)
        assert len({re.sub("“[^”]*”", "", name) for name in spoken}) == 2, (one, other, spoken)
    # Words in a legend beside them say which is which.
    legend = page.locator(".sv-legend").inner_text()
    assert all(EN(f"legend.{name}") in legend for name in looks)


def asked_of_paper(page: Page, language: str) -> list[str]:
    """Lines of the handout that only a screen can follow. The task at the end is done at the page, and says where."""
    text = page.locator(".sv-l-handout").inner_text()
    for task in page.locator(".sv-l-handout .sv-l-end").all():
        text = text.replace(task.inner_text(), "")
    return [line for line in text.splitlines() if re.search(AT_SCREEN[language], line, re.IGNORECASE)]


@pytest.mark.parametrize("language", ["vi", "en"])
@pytest.mark.parametrize("slug", LESSONS)
def test_paper_shows_every_word(visit: Visit, recorded: str, slug: str, language: str) -> None:
    told = lesson(language, slug)
    page = visit(address(recorded, "before", language, "dark", slug), viewport=A4, reduced_motion="reduce")
    expect(page.locator(".sv-l-title")).to_be_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    titles = [f"{place}. {step['title']}" for place, step in enumerate(told["steps"], 1)]
    assert page.locator(".sv-l-handout-step > h2").all_inner_texts() == titles
    # It can be given out before the class: what tells an answer stands behind the last step, by the step's number.
    asked = [place for place, step in enumerate(told["steps"]) if step.get("ask") or step["figure"]["kind"] == "quiz"]
    guesses = [place for place in asked if told["steps"][place].get("ask")]
    assert page.locator(".sv-l-handout-guess").count() == len(guesses)
    assert page.locator(".sv-l-handout-answers > h2").inner_text() == words(language)("lesson.handout.answers")
    assert page.locator(".sv-l-handout-answer > h3").all_inner_texts() == [titles[place] for place in asked]
    early, late = (page.locator(f".sv-l-handout-{part}").all_inner_texts() for part in ("step", "answer"))
    for place, answer in zip(asked, late, strict=True):
        step = told["steps"][place]
        for reveal in [step["reveal"]] if step.get("ask") else [question["feedback"] for question in told["quiz"]]:
            line = page.evaluate(FIRST_LINE, reveal)
            assert line in page.evaluate(PLAIN, answer)
            assert line not in page.evaluate(PLAIN, early[place])
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    # A sheet can be neither scrolled nor pointed at.
    assert page.evaluate(CUT) == []
    assert asked_of_paper(page, language) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".sv-l-handout")).to_have_count(0)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("language", ["vi", "en"])
def test_the_wrong_rule_is_on_once_the_answer_is_told(visit: Visit, recorded: str, language: str) -> None:
    word = words(language)
    told, as_told = word("lesson.drag.say.wrong").partition("{")[0], word("lesson.drag.say.right").partition("{")[0]
    page = visit(address(recorded, "wrong", language))
    said, rule = page.locator(".sv-l-figure--drag .sv-l-caption"), page.locator(".sv-l-figure--drag [role=switch]")
    expect(said).to_contain_text(as_told)
    # As a clicker does: asked, passed by, told.
    for _ in range(2):
        page.get_by_role("button", name=word("lesson.next"), exact=True).click()
    expect(said).to_contain_text(told)
    expect(rule).to_be_checked()
    rule.uncheck()
    expect(said).to_contain_text(as_told)
    page.get_by_role("button", name=word("lesson.next"), exact=True).click()
    expect(rule).to_be_checked()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    title = next(step["title"] for step in lesson(language)["steps"] if step["id"] == "wrong")
    for part, caption in (("step", as_told), ("answer", told)):
        sheet = page.locator(f".sv-l-handout-{part}", has=page.get_by_role("heading", name=title))
        expect(sheet.locator(".sv-l-caption")).to_contain_text(caption)


def test_v_is_measured_live_beside_the_recording(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    room = ready_room(monkeypatch)
    with served(room) as base, Gate() as gate:
        page = visit(address(base, "slow", "en"))
        expect(page.locator(".sv-l-title")).to_be_visible()
        button = page.get_by_role("button", name=EN("lesson.cost.live.run"))
        assert button.count() == 0  # a guess first
        press(page, "ArrowRight")
        choose(page, 2)
        press(page, "Enter")
        expect(button).to_be_visible()
        said = page.locator(".sv-l-live-said")

        # Progress is told, and Stop stops.
        gate.pause = 0.02
        button.click()
        result = next(step for step in lesson("en")["steps"] if step["id"] == "slow")["figure"]["result"]
        most = result["v"][-1]["n"]
        expect(said).to_have_text(EN("lesson.cost.live.progress", n=most, done=1, of=REPEATS))
        page.get_by_role("button", name=EN("control.stop"), exact=True).click()
        expect(said).to_have_text(EN("lesson.live.stopped"))
        assert page.locator(".sv-l-column--live").count() == 0

        gate.pause = 0.0
        page.get_by_role("button", name=EN("lesson.cost.live.again")).click()
        expect(page.locator(".sv-l-beside tbody tr").first).to_be_visible()
        assert page.evaluate(SEEN, [".sv-l-stage-box .sv-l-column--live", most])
        # Both conditions stand there, and the sentence names what differs.
        conditions = page.locator(".sv-l-figure .sv-l-about").all_inner_texts()
        assert len(conditions) == 2
        assert EN("lesson.cost.repeats", repeats=REPEATS) in conditions[0]
        assert EN("shell.badge.measured") in conditions[0]
        assert EN("shell.badge.recorded") in conditions[1]
        names = {"is": "test", "was": result["conditions"]["device_name"]}
        change = EN("lesson.live.change", name=EN("lesson.live.name.device_name"), **names)
        expect(said).to_contain_text(change)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        assert violations(page) == []
        page.get_by_role("button", name=EN("lesson.cost.live.back")).click()
        assert page.locator(".sv-l-column--live, .sv-l-beside").count() == 0
        expect(said).to_have_text("")
