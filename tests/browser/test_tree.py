"""A round that branches: where its tiles stand, how keys walk it, what is folded, and the mask as a matrix."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from spec_viz.engine.trace import Emitted, Kv, Ms, Node, Round, Status, Trace, dumps, loads
from spec_viz.ui.wording import LANGUAGES, words
from tests.browser.acts import EN, drawn, open_trace, press, tiles
from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PHONE = {"width": 390, "height": 844}
TOP = tuple((token, 0.2) for token in range(5))
ROOT = -1
FATES: dict[str, Status] = {"+": "accepted", "-": "rejected", ".": "discarded"}

# (text, parent, fate). The younger child of the root is kept, and so is the elder child below it.
SMALL = [
    (" red", ROOT, "-"),
    (" green", ROOT, "+"),
    (" apple", 0, "."),
    (" leaf", 1, "+"),
    (" tea", 1, "."),
    (" falls", 3, "-"),
    (" turns", 3, "-"),
    (" cup", 4, "."),
]


def large() -> list[tuple[str, int, str]]:
    """Sixty drafts: a kept path of three, each place with refused elders and branches that nobody looked at."""
    drafts: list[tuple[str, int, str]] = [(" no", ROOT, "-"), (" one", ROOT, "+"), (" late", ROOT, ".")]
    drafts += [(" not", 1, "-"), (" two", 1, "+"), (" three", 4, "+"), (" never", 5, "-")]
    while len(drafts) < 60:
        at = len(drafts)
        # Below branches that were refused or passed over, wide and deep by turns.
        parent = (0, 2, 3)[at % 3] if at < 20 else at - 13
        drafts.append((f" w{at}", parent, "."))
    return drafts


def tree_trace(drafts: Sequence[tuple[str, int, str]], why: Sequence[dict[str, Any]] = (), **meta: Any) -> str:
    """A trace of one round with these drafts, written by the engine's own dataclasses."""
    texts = ["The", " cat", " likes", *(text for text, _, _ in drafts), " own"]
    nodes: list[Node] = []
    for index, (_, parent, fate) in enumerate(drafts):
        depth = 1 if parent == ROOT else nodes[parent].depth + 1
        judged = fate != "."
        numbers = {"u": 0.3, "accept": 0.6 if fate == "+" else 0.1, "beta": 0.5, "p_top": TOP} if judged else {}
        told = why[index] if why else None
        nodes.append(Node(index + 3, parent, depth, FATES[fate], p=0.3, q=0.5, p_raw=0.3, why=told, **numbers))  # type: ignore[arg-type]
    kv, ms = Kv((3, 3 + len(nodes), 6)), Ms(1.0, 20.0, 1.0, 0.5)
    trace = Trace(
        "tree",
        "recorded",
        {"target": "toy", "drafter": "suffix", "rule": "specinfer", "gamma": 4, "temperature": 0.8, **meta},
        (0, 1),
        {token: (text, None) for token, text in enumerate(texts)},
        (
            Round(0, emitted=Emitted(2, "plain", p=0.4, p_raw=0.4), kv=kv, ms=ms, prefill=True),
            Round(1, tuple(nodes), Emitted(len(texts) - 1, "correction", p=0.4, p_raw=0.4, u=0.5, p_top=TOP), kv, ms),
        ),
        "length",
    )
    written = dumps(trace)
    assert loads(written) == (trace,)
    return written


def opened(page: Page, content: str, count: int) -> Locator:
    """The tree row of a trace that is opened, when it is drawn."""
    drawn(page)
    open_trace(page, content)
    row = page.locator(".sv-row--tree")
    expect(row.locator(".sv-tile:visible")).to_have_count(count)
    return row


def tile(row: Locator, node: int | str) -> Locator:
    return row.locator(f'.sv-tile[data-at="1.{node}"]')


def place(row: Locator, node: int | str) -> tuple[float, float]:
    box = tile(row, node).bounding_box()
    assert box is not None
    return box["x"], box["y"] + box["height"] / 2


def focused(page: Page) -> str:
    at = page.evaluate("document.activeElement.dataset.at ?? ''")
    assert isinstance(at, str)
    return at.removeprefix("1.")


# ---------------------------------------------------------------- where tiles stand


def test_the_kept_path_runs_along_the_top_and_siblings_hang_below_it(visit: Visit, recorded: str) -> None:
    row = opened(visit(recorded), tree_trace(SMALL), 9)
    path = [place(row, node) for node in (1, 3, "own")]
    assert max(y for _, y in path) - min(y for _, y in path) < 1
    assert path == sorted(path)
    # Columns are depths.
    for sibling, of in ((0, 1), (4, 3), (5, 6), (2, 4)):
        assert abs(place(row, sibling)[0] - place(row, of)[0]) < 12, sibling
    assert place(row, 1)[1] < place(row, 0)[1]
    assert place(row, 3)[1] < place(row, 4)[1]
    assert place(row, "own")[1] < place(row, 5)[1] < place(row, 6)[1]
    # No two tiles lie on each other.
    boxes = [tile(row, node).bounding_box() for node in [*range(8), "own"]]
    for first, a in enumerate(boxes):
        for b in boxes[first + 1 :]:
            assert a is not None
            assert b is not None
            apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert apart or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]


def test_a_reader_hears_the_path_first_then_the_other_branches(visit: Visit, recorded: str) -> None:
    row = opened(visit(recorded), tree_trace(SMALL), 9)
    order = row.locator(".sv-tile").evaluate_all("tiles => tiles.map(tile => tile.dataset.at)")
    assert order == [f"1.{node}" for node in (1, 3, "own", 0, 2, 5, 6, 4, 7)]
    args = {"round": 1, "depth": 2, "place": 1, "of": 2, "parent": "“green”", "token": "“leaf”"}
    expect(tile(row, 3)).to_have_attribute("aria-label", EN("tree.tile.accepted", **args))


def test_nothing_tells_the_path_before_it_is_judged(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    row = opened(page, tree_trace(SMALL), 9)
    press(page, "Home", "ArrowRight")
    page.locator(".sv-board-counter").click()
    press(page, "ArrowRight")
    expect(row.locator(".sv-tile--draft:visible")).to_have_count(8)
    expect(row.locator(".sv-tree-cell--lit .sv-tile")).to_have_count(0)
    # The elder is on the line until the younger is kept.
    assert place(row, 0)[1] < place(row, 1)[1]
    press(page, "ArrowRight", "ArrowRight")
    expect(row.locator(".sv-tree-cell--lit .sv-tile")).to_have_count(1)
    assert place(row, 1)[1] < place(row, 0)[1]


# ---------------------------------------------------------------- keys


def test_keys_walk_parents_children_and_siblings(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    row = opened(page, tree_trace(SMALL), 9)
    tile(row, 1).click()
    way = [
        ("Shift+ArrowRight", "3"),
        ("Shift+ArrowRight", "own"),
        ("ArrowDown", "5"),
        ("ArrowDown", "6"),
        ("Shift+ArrowRight", "6"),
        ("Shift+ArrowLeft", "3"),
        ("ArrowDown", "4"),
        ("Shift+ArrowRight", "7"),
        ("Shift+ArrowLeft", "4"),
        ("ArrowUp", "3"),
        ("Shift+ArrowLeft", "1"),
        ("ArrowDown", "0"),
    ]
    for key, node in way:
        press(page, key)
        assert focused(page) == node, key
        expect(page.locator(".sv-inspector-body")).to_contain_text(
            EN("inspector.place.own", round=1) if node == "own" else EN("tree.place", **where(int(node)))
        )
    # From the first column back is the round before.
    press(page, "Shift+ArrowLeft")
    assert focused(page) == "0.own"


def where(node: int) -> dict[str, object]:
    parent = SMALL[node][1]
    family = [index for index, (_, above, _) in enumerate(SMALL) if above == parent]
    depth, at = 1, parent
    while at != ROOT:
        depth, at = depth + 1, SMALL[at][1]
    above = " likes" if parent == ROOT else SMALL[parent][0]
    return {
        "round": 1,
        "depth": depth,
        "place": family.index(node) + 1,
        "of": len(family),
        "parent": f"“{above.strip()}”",
    }


# ---------------------------------------------------------------- sixty drafts


def test_sixty_drafts_show_what_was_judged_and_fold_the_rest(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    drafts = large()
    judged = sum(fate != "." for _, _, fate in drafts)
    row = opened(page, tree_trace(drafts), judged + 1)
    folds = row.locator(".sv-tree-fold:visible")
    counted = [int(text.removeprefix("+")) for text in folds.all_inner_texts()]
    assert sum(counted) == len(drafts) - judged
    kept, refused = tile(row, 1).bounding_box(), tile(row, 0).bounding_box()
    assert kept is not None
    assert refused is not None
    assert kept["height"] > refused["height"]
    tile(row, 1).focus()
    fold = folds.first
    hidden = int(fold.inner_text().removeprefix("+"))
    fold.focus()
    press(page, "Enter")
    expect(row.locator(".sv-tile:visible")).to_have_count(judged + 1 + hidden)
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(fold).to_be_focused()
    fold.click()
    expect(row.locator(".sv-tile:visible")).to_have_count(judged + 1)
    for each in folds.all():
        each.click()
    expect(row.locator(".sv-tile:visible")).to_have_count(len(drafts) + 1)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("drafts", "shown"), [(SMALL, 9), (large(), 7)], ids=["8", "60"])
def test_a_phone_scrolls_the_tree_and_not_the_page(
    visit: Visit, recorded: str, drafts: list[tuple[str, int, str]], shown: int, language: str
) -> None:
    page = visit(f"{recorded}/?lang={language}", viewport=PHONE, has_touch=True, is_mobile=True)
    row = opened(page, tree_trace(drafts), shown)
    for fold in row.locator(".sv-tree-fold:visible").all():
        fold.tap()
    row.locator(".sv-mask-toggle").tap()
    expect(row.locator(".sv-mask-grid")).to_be_visible()
    width = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
    assert width <= 0
    scroll = row.locator(".sv-tree-scroll").evaluate("box => [box.scrollWidth, box.clientWidth, box.tabIndex]")
    assert (scroll[0] > scroll[1] + 1) == (scroll[2] == 0)


# ---------------------------------------------------------------- mask


def test_the_mask_lets_every_row_see_its_ancestors_and_itself(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    row = opened(page, tree_trace(SMALL), 9)
    toggle = row.locator(".sv-mask-toggle")
    toggle.click()
    expect(toggle).to_have_attribute("aria-expanded", "true")
    cells = row.locator(".sv-mask-row").evaluate_all(
        "rows => rows.map(row => row.querySelectorAll('.sv-mask-cell, .sv-mask-self').length)"
    )
    assert cells == [1, 2, 2, 3, 3, 3, 4, 4, 4]
    row.locator(".sv-mask-words summary").click()
    said = row.locator(".sv-mask-words li").all_inner_texts()
    cache, own = EN("mask.cache"), EN("mask.itself")
    assert said[0] == EN("mask.sees", token="“likes”", keys=f"{cache}, {own}")
    assert said[7] == EN("mask.sees", token="“turns”", keys=f"{cache}, “likes”, “green”, “leaf”, {own}")
    toggle.click()
    expect(row.locator(".sv-mask")).to_be_hidden()


def test_a_tile_and_its_mask_row_point_at_each_other(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    row = opened(page, tree_trace(SMALL), 9)
    row.locator(".sv-mask-toggle").click()
    band, said = row.locator(".sv-mask-band"), row.locator(".sv-mask-said")
    expect(band).to_have_attribute("visibility", "hidden")
    tile(row, 3).hover()
    expect(band).to_have_attribute("data-node", "3")
    expect(row.locator(".sv-mask-column")).to_have_count(3)
    expect(said).to_contain_text("“leaf”")
    # The other way round: the row of node 6 is the eighth.
    page.mouse.move(0, 0)
    frame = row.locator(".sv-mask-frame")
    frame.focus()
    press(page, *["ArrowDown"] * 8)
    expect(band).to_have_attribute("data-node", "6")
    linked = row.locator(".sv-tree-cell--linked .sv-tile").evaluate_all("tiles => tiles.map(tile => tile.dataset.at)")
    assert linked == ["1.1", "1.3", "1.6"]
    page.mouse.move(0, 0)
    row.locator(".sv-mask-self").nth(5).hover()
    expect(row.locator(".sv-tree-cell--pointed .sv-tile")).to_have_attribute("data-at", "1.4")


def test_a_large_mask_still_answers(visit: Visit, recorded: str) -> None:
    page = visit(recorded)
    row = opened(page, tree_trace(large()), 7)
    row.locator(".sv-mask-toggle").click()
    row.locator(".sv-mask-self").nth(7).scroll_into_view_if_needed()
    row.locator(".sv-mask-self").nth(7).hover()
    expect(row.locator(".sv-mask-said")).to_contain_text("“never”")
    expect(row.locator(".sv-tree-cell--pointed .sv-tile")).to_have_attribute("data-at", "1.6")


# ---------------------------------------------------------------- for everybody


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("drafts", "shown"), [(SMALL, 9), (large(), 7)], ids=["8", "60"])
def test_axe_finds_nothing_serious_in_a_tree(
    visit: Visit, recorded: str, drafts: list[tuple[str, int, str]], shown: int, theme: str
) -> None:
    page = visit(f"{recorded}/?theme={theme}", reduced_motion="reduce")
    row = opened(page, tree_trace(drafts, rule="typical", strength=0.09), shown)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    row.locator(".sv-mask-toggle").click()
    tile(row, 0).click()
    assert serious(page) == []
    page.locator("details.sv-settings > summary").click()
    page.get_by_role("button", name=EN("rule.table")).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert serious(page) == []


def serious(page: Page) -> list[str]:
    found = page.evaluate(
        """() => axe.run({include: ['.sv-app'], exclude: ['.js-plotly-plot']}, {resultTypes: ['violations']})
          .then((result) => result.violations.filter(({impact}) => ['serious', 'critical'].includes(impact))
            .flatMap(({id, nodes}) => nodes.map((node) => `${id}: ${node.target.join(' ')} ${node.failureSummary}`)))"""
    )
    return [str(line) for line in found]


# ---------------------------------------------------------------- sentences and settings


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_tree_says_why_each_draft_ended_as_it_did(visit: Visit, recorded: str, language: str) -> None:
    say = words(language)
    row = opened(visit(f"{recorded}/?lang={language}"), tree_trace(SMALL), 9)
    panel = row.page.locator(".sv-inspector-rule")
    told: dict[int | str, str] = {
        4: say("inspector.rule.tree.sibling", draft="“tea”", kept="“leaf”"),
        7: say("inspector.rule.tree.branch", draft="“cup”"),
        2: say("inspector.rule.discarded", draft="“apple”"),
        "own": say("inspector.rule.correction.turn", n=2, y="“own”", draft="“falls”, “turns”"),
    }
    for node, sentence in told.items():
        tile(row, node).click()
        expect(panel).to_have_text(sentence)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_lossy_rule_is_never_named_without_that_word(visit: Visit, recorded: str, language: str) -> None:
    say = words(language)
    row = opened(visit(f"{recorded}/?lang={language}"), tree_trace(SMALL, rule="typical", strength=0.2), 9)
    page = row.page
    named = say("rule.lossy", title=say("rule.typical"))
    expect(page.locator(".sv-board-rule")).to_contain_text(named)
    tile(row, 1).click()
    expect(page.locator(".sv-inspector-rule")).to_contain_text(named)
    tile(row, 0).click()
    expect(page.locator(".sv-inspector-rule")).to_contain_text(named)
    page.locator("details.sv-settings > summary").click()
    rule = page.get_by_label(say("control.rule"), exact=True)
    expect(rule).to_have_value("typical")
    assert named in rule.locator("option:checked").inner_text()
    strength = page.get_by_label(say("rule.typical.strength"), exact=True)
    expect(strength).to_have_value("0.2")
    # A lossless rule has no number to set.
    rule.select_option("match")
    expect(strength).to_be_hidden()
    page.get_by_role("button", name=say("rule.table")).click()
    table = page.get_by_role("dialog").locator("tbody")
    expect(table.get_by_role("rowheader", name=named)).to_be_visible()


def test_the_rules_on_offer_follow_the_drafter_and_temperature_0_is_told(visit: Visit, recorded: str) -> None:
    page = drawn(visit(recorded))
    page.locator("details.sv-settings > summary").click()
    drafter, rule = (
        page.get_by_label(EN("control.drafter"), exact=True),
        page.get_by_label(EN("control.rule"), exact=True),
    )
    data = json.loads(page.locator("#sv-boot").inner_text())
    for each in data["drafters"]:
        if not each["ready"]:
            expect(drafter.locator(f'option[value="{each["name"]}"]')).to_be_disabled()
            continue
        drafter.select_option(each["name"])
        offered = rule.locator("option").evaluate_all("options => options.map(option => option.value)")
        assert offered == [known["name"] for known in each["rules"]]
    drafter.select_option("early_exit")
    rule.select_option("block")
    temperature = page.get_by_label(EN("control.temperature"), exact=True)
    temperature.fill("0")
    expect(page.get_by_text(EN("control.rule.greedy"))).to_be_visible()
    temperature.fill("0.8")
    expect(page.get_by_text(EN("rule.block.help"))).to_be_visible()
    # A drafter that the rule does not fit goes back to its own.
    drafter.select_option("suffix")
    expect(rule).to_have_value("match")


# ---------------------------------------------------------------- pictures of reasons


def test_suffix_counts_are_drawn_along_the_path(visit: Visit, recorded: str) -> None:
    counts = [(1, 4), (3, 4), (1, 1), (2, 3), (1, 3), (1, 2), (1, 2), (1, 1)]
    why = [
        {"key": [1, 2], "match": 2, "path_chance": 0.5, "followed": f, "occurred": o, "earlier_run": False}
        for f, o in counts
    ]
    row = opened(visit(recorded), tree_trace(SMALL, why), 9)
    tile(row, 5).click()
    steps = row.page.locator(".sv-picture-step")
    assert [text.strip() for text in steps.locator(".sv-picture-times").all_inner_texts()] == [
        "4×",
        "3/4",
        "2/3",
        "1/2",
    ]
    expect(row.page.locator(".sv-chip--here")).to_have_text("falls")


def test_every_place_that_pld_plus_weighed_is_marked_in_the_text(visit: Visit, recorded: str) -> None:
    chain = [(" likes", ROOT, "+"), (" tea", 0, "-")]
    why = {"key": [2], "found": 0, "copied": 1, "ranked_by": "hidden", "layer": 18, "likeness": 0.9, "occurrences": 2}
    whys = [{**why, "places": [[0, 0.9], [1, 0.4]]}] * 2
    page = drawn(visit(recorded))
    open_trace(page, tree_trace(chain, whys, drafter="pld_plus", rule="match"))
    expect(tiles(page)).to_have_count(4)
    page.locator(".sv-rows .sv-tile--no").click()
    expect(page.locator(".sv-picture-place")).to_have_count(2)
    expect(page.locator(".sv-picture-place--chosen")).to_have_text("1The")
    expect(page.locator(".sv-picture-score--chosen .sv-bar-value")).to_have_text("0.900")


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ({"key": [2], "rank": 3}, ".sv-picture-ranks"),
        ({"ngram": [2, 3, 4], "age": 2}, ".sv-picture-pool"),
        ({"key": "x", "rank": "y", "places": [["a", None]], "ngram": {}, "followed": 0, "occurred": 0}, None),
    ],
    ids=["rank", "pool", "nonsense"],
)
def test_reasons_of_other_drafters(visit: Visit, recorded: str, why: dict[str, Any], found: str | None) -> None:
    row = opened(visit(recorded), tree_trace(SMALL, [why] * 8), 9)
    tile(row, 0).click()
    expect(row.page.locator(".sv-inspector-why")).to_be_visible()
    if found:
        expect(row.page.locator(found)).to_be_visible()
    else:
        expect(row.page.locator(".sv-picture")).to_have_count(0)
