"""How a draft came about: slots and the joins they make, a correction and its confidence, a tree and its rerank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.engine.trace import Emitted, Kv, Ms, Node, Round, Status, TokenTable, Trace, dumps
from spec_viz.ui.wording import words
from tests.browser.acts import EN, drawn, open_trace
from tests.browser.conftest import Visit
from tests.browser.test_look import PHONE, overflow
from tests.browser.test_tree import AXE, serious

pytestmark = pytest.mark.browser

FATES: dict[str, Status] = {"+": "accepted", "-": "rejected", ".": "discarded"}
TEXTS = ["The", " sky", " is", " the", " blue", " a", " of", " because", " deep", " cold"]
SKY, IS, THE, BLUE, A, OF, BECAUSE, DEEP, COLD = range(1, 10)
ROOT = -1


def node(token: int, parent: int, depth: int, fate: str, p_raw: float, why: dict[str, Any]) -> Node:
    return Node(token, parent, depth, FATES[fate], p=p_raw, q=1.0, p_raw=p_raw, q_raw=0.5, why=why)


def made(drafter: str, rounds: Sequence[tuple[Node, ...]], **meta: Any) -> str:
    """A run of these rounds; behind each the target writes “ blue”, of which it is sure to 0.9."""
    kv, ms = Kv((1, 6, 3)), Ms(1.0, 20.0, 1.0, 0.5)
    told = {"target": "toy", "drafter": drafter, "rule": "match", "gamma": 4, "temperature": 0.0, "max_new_tokens": 48}
    began = Round(0, emitted=Emitted(SKY, "plain", p=1.0, p_raw=0.5), kv=kv, ms=ms, prefill=True)
    own = Emitted(BLUE, "correction", p=1.0, p_raw=0.9)
    drafted = tuple(Round(number, nodes, own, kv, ms) for number, nodes in enumerate(rounds, 1))
    table: TokenTable = {token: (text, None) for token, text in enumerate(TEXTS)}
    return dumps(Trace("made", "recorded", {**told, **meta}, (0,), table, (began, *drafted), "length"))


def slot(number: int, *guesses: tuple[int, float], **more: Any) -> dict[str, Any]:
    return {"slot": number, "candidates": [list(guess) for guess in guesses], **more}


# “ is” and “ the” are each likeliest; the target gives “ the” 0.002 behind “ is” and writes “ blue”.
PARALLEL = made(
    "pard",
    [
        (
            node(IS, ROOT, 1, "+", 0.8, slot(1, (IS, 0.6), (A, 0.2))),
            node(THE, 0, 2, "-", 0.002, slot(2, (THE, 0.4), (BLUE, 0.3))),
            node(THE, 1, 3, ".", 0.0, slot(3, (THE, 0.3), (OF, 0.2))),
            # Not its slot's first choice, so no join of first choices.
            node(OF, 2, 4, ".", 0.0, slot(4, (A, 0.3), (OF, 0.2))),
        )
    ],
)
CORRECTED = made(
    "dspark",
    [
        (
            node(IS, ROOT, 1, "+", 0.8, slot(1, (IS, 0.6), corrected=[[IS, 0.7]], confidence=0.9, survival=0.9)),
            node(
                BECAUSE, 0, 2, "-", 0.1,
                slot(2, (IS, 0.5), corrected=[[BECAUSE, 0.6], [IS, 0.1]], confidence=0.8, survival=0.72,
                     stopped_at=0.31, threshold=0.5),
            ),
        ),
        (node(A, ROOT, 1, "+", 0.8, slot(1, (A, 0.6), corrected=[[A, 0.7]], confidence=0.55, survival=0.55,
                                         stopped_at=0.2, threshold=0.5)),),
        (),
    ],
    drafter_options={"confidence": 50},
)  # fmt: skip
GROWN = made(
    "eagle",
    [
        (
            node(IS, ROOT, 1, "+", 0.8, {
                "path_q": 0.6, "rank": 1, "grown": 7,
                "dropped": [[OF, ROOT, 0.05], [COLD, 1, 0.03], [DEEP, 0, 0.1]],
            }),
            node(A, ROOT, 1, ".", 0.1, {"path_q": 0.3, "rank": 2, "grown": 7}),
            node(THE, 0, 2, "-", 0.1, {"path_q": 0.2, "rank": 1, "grown": 7}),
        )
    ],
)  # fmt: skip


def asked(page: Page, content: str) -> Locator:
    """The question about a trace that is opened, open."""
    drawn(page)
    open_trace(page, content)
    ask = page.locator("details.sv-ask[data-hide=drafted]")
    ask.locator("summary").click()
    return ask


def test_slots_stand_side_by_side_and_a_wrong_join_is_told(visit: Visit, recorded: str) -> None:
    ask = asked(visit(recorded), PARALLEL)
    slots = ask.locator(".sv-slots-one")
    expect(slots).to_have_count(4)
    expect(slots.nth(1).locator(".sv-slots-guess--chosen")).to_contain_text("the")
    expect(slots.nth(0).locator(".sv-slots-join")).to_have_count(0)
    expect(slots.nth(1).locator(".sv-slots-join--wrong")).to_contain_text(
        EN("slots.join", left="“is”", chance="0.0020")
    )
    expect(slots.nth(2).locator(".sv-slots-join--wrong")).to_contain_text(
        EN("slots.join", left="“the”", chance="< 0.0001")
    )
    expect(slots.nth(3).locator(".sv-slots-join")).to_have_count(0)
    said = ask.locator("ul.sv-slots-said li")
    expect(said).to_have_text(
        [EN("slots.wrong", left="“is”", right="“the”", chance="0.0020", instead="“blue”", p="0.90")]
    )
    expect(ask).to_contain_text(EN("drafting.joins", pairs=2, wrong=2, limit=1))
    expect(ask.locator(".sv-calibration")).to_have_count(0)


def test_a_correction_is_shown_before_and_after_with_the_length_it_chose(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    ask = asked(page, CORRECTED)
    # The last round drafted nothing; the picture begins with the last that has one.
    expect(ask.locator(".sv-slots-one")).to_have_count(1)
    page.locator('.sv-tile[data-at="1.1"]').click()
    second = ask.locator(".sv-slots-one").nth(1)
    before, after = second.locator(".sv-slots-guesses").all()
    expect(before.locator("li")).to_have_count(1)
    expect(before).to_contain_text("is")
    expect(after.locator(".sv-slots-guess--chosen")).to_contain_text("because")
    expect(second).to_contain_text(EN("slots.after.token", token="“is”"))
    expect(ask.locator("ul.sv-slots-said li")).to_have_text(
        [
            EN("slots.turned.rejected", n=2, **{"from": "“is”", "to": "“because”"}),
            EN("slots.length.ended", drafted=2, asked=4, next=3, below="0.31", threshold="0.50"),
        ]
    )
    # The inspector draws the slot and leaves the raw lists out.
    expect(page.locator(".sv-inspector-why")).to_contain_text(
        EN("picture.slot.sure", confidence="0.80", survival="0.72")
    )
    expect(page.locator(".sv-inspector-why")).not_to_contain_text("[[")
    page.locator('.sv-tile[data-at="3.own"]').click()
    expect(ask).to_contain_text(EN("slots.length.none", asked=4, threshold="0.50"))


def test_confidence_is_counted_against_what_happened(visit: Visit, recorded: str) -> None:
    ask = asked(visit(recorded), CORRECTED)
    # Survivals 0.55, 0.72 and 0.9 in fifths: the middle one was refused.
    cells = ask.locator(".sv-calibration-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    assert cells == [
        ["40–60 %", "55 %", "1 / 1 = 100 %"],
        ["60–80 %", "72 %", "0 / 1 = 0 %"],
        ["80–100 %", "90 %", "1 / 1 = 100 %"],
    ]
    expect(ask.locator(".sv-calibration-dot")).to_have_count(3)
    summary = EN("calibration.said", drafts=3, said=72, kept=2, share=67)
    expect(ask.get_by_role("img", name=summary)).to_be_visible()
    # The head's papers tell of held-out answers.
    expect(ask.locator(".sv-calibration-held")).to_have_count(1)


def test_a_tree_is_drawn_as_it_grew_with_what_the_rerank_dropped(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    ask = asked(page, GROWN)
    expect(ask.locator(".sv-grown-chip--kept")).to_have_count(3)
    expect(ask.locator(".sv-grown-chip--dropped")).to_have_count(3)
    expect(ask.locator(".sv-grown-chip--ok")).to_have_count(1)
    columns = ask.locator(".sv-grown-column").all()
    texts = [[text.split()[0] for text in column.locator(".sv-grown-token").all_inner_texts()] for column in columns]
    # Families in the order of their parents, siblings by the probability of their paths.
    assert texts == [["is", "a", "of"], ["the", "deep", "cold"]]
    rerank = EN("grown.said.rerank", grown=7, kept=3, least="0.20", best="0.10")
    expect(ask.locator(".sv-grown")).to_contain_text(f"{rerank} {EN('grown.said.more', n=1)}")
    page.locator('.sv-tile[data-at="1.0"]').click()
    why = page.locator(".sv-inspector-why")
    expect(why).to_contain_text(EN("picture.grown.note", grown=7, kept=3))
    expect(why).not_to_contain_text("[[")


def test_a_run_without_such_reasons_is_not_asked(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    expect(page.locator("details.sv-ask[data-hide=red]")).to_be_visible()
    expect(page.locator("details.sv-ask[data-hide=drafted]")).to_be_hidden()


@pytest.mark.parametrize(("language", "theme"), [("vi", "light"), ("en", "dark")])
def test_the_pictures_fit_a_phone_and_axe_finds_nothing_serious(
    visit: Visit, recorded: str, language: str, theme: str
) -> None:
    page = visit(f"{recorded}/?lang={language}&theme={theme}", viewport=PHONE, reduced_motion="reduce")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for content, shown in ((PARALLEL, ".sv-slots"), (CORRECTED, ".sv-calibration"), (GROWN, ".sv-grown")):
        drawn(page)
        open_trace(page, content)
        ask = page.locator("details.sv-ask[data-hide=drafted]")
        expect(ask).to_be_visible()
        if ask.get_attribute("open") is None:
            ask.locator("summary").click()
        expect(ask.locator(shown)).to_be_visible()
        expect(ask.locator("summary")).to_have_text(words(language)("question.drafted"))
        assert overflow(page) <= 0
        assert serious(page) == []
