"""What the page says of how a drafter works, held against the drafter itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from spec_viz.drafters.head import Head
from spec_viz.drafters.registry import Anatomy, Family, Opened, Setup, families
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.text import Vocabulary
from spec_viz.engine.warp import Warp
from spec_viz.models import heads
from spec_viz.ui import boot
from tests.engine import blocks, rollouts
from tests.engine.heads import head, start
from tests.engine.tiny import LAYERS, VOCABULARY, model

FAMILIES = families()
PROMPT = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7]
# What a drafter is told where its defaults are made for thirty layers, or for nothing.
OPTIONS: dict[str, dict[str, Any]] = {
    "pld_plus": {"layer": 2},
    "early_exit": {"layers": 2},
    "layer_skip": {"skip": "1"},
    "draft_model": {"model": "another"},
    "scripted": {"script": "a text"},
}
STEPS = {"none": "none", "lookup": "none", "sequential": "gamma", "parallel": "one", "hybrid": "one"}


class Letters:
    """A vocabulary that two models share."""

    special: Mapping[str, int] = {}

    def bytes_of(self, token: int) -> bytes:
        return bytes([token])


LETTERS = cast(Vocabulary, Letters())


def open_head(name: str) -> Head:
    if name in rollouts.FAMILIES:
        return rollouts.head(name, known=False)
    if name in ("dflash", "dspark"):
        return blocks.head(name, learned=False)
    if name != "bigram":
        return head(name, learned=False)
    followers = torch.arange(1, VOCABULARY + 1).remainder(VOCABULARY)[:, None].int()
    return Head(name, {"method": name}, {"next": followers, "chance": torch.ones(VOCABULARY, 1)})


def begun(family: Family, **options: Any) -> tuple[CachedModel, Any, list[int]]:
    """Target and drafter behind the prefill, and the text so far."""
    target = CachedModel(model())
    setup = Setup(
        target,
        LETTERS,
        lambda _: [1, 2, 3],
        len(PROMPT),
        frozenset(),
        Warp(),
        open_model=lambda _: Opened(model(2), LETTERS, lambda _: [], 100),
        open_head=open_head,
    )
    drafter = family.build(setup, family.options({**OPTIONS.get(family.name, {}), **options}))
    return target, drafter, start(target, drafter, PROMPT)


def shown(drafter: Any) -> set[str]:
    """What a built drafter asks to see, in the anatomy's words."""
    hidden = {"last_hidden"} if drafter.needs.layers == (LAYERS,) else {"hidden"} if drafter.needs.layers else set()
    return hidden | ({"logits"} if drafter.needs.logits else set())


def draft(family: Family, gamma: int) -> tuple[Proposal, int]:
    """A first draft, and how many modules were called for it."""
    _, drafter, context = begun(family)
    calls: list[str] = []
    handle = register_module_forward_pre_hook(lambda module, _: calls.append(type(module).__name__))
    try:
        proposal = drafter.propose(context, gamma, Draws(1, 1, len(context)))
    finally:
        handle.remove()
    return proposal, len(calls)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_drawn_as_read_is_what_the_drafter_asks_to_see(name: str) -> None:
    family = FAMILIES[name]
    _, drafter, _ = begun(family)
    assert set(family.anatomy.reads) - {"ids", "kv"} == shown(drafter)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_passes_drawn_are_those_that_drafting_takes(name: str) -> None:
    anatomy = FAMILIES[name].anatomy
    assert anatomy.steps == STEPS[anatomy.order]
    (first, one), (_, two), (third, three) = (draft(FAMILIES[name], gamma) for gamma in (1, 2, 3))
    if anatomy.steps == "none":
        assert one == two == three == 0
        return
    assert (len(first), len(third)) == (1, 3)
    if anatomy.order == "hybrid":
        # One pass, and a small product a token that makes it fit the one before.
        assert 0 < three - two == two - one < one / 4
    elif anatomy.steps == "one":
        assert one == two == three > 0
    else:
        assert three - two == two - one > 0 < one


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_are_its_own_or_the_target_s_or_none(name: str) -> None:
    anatomy = FAMILIES[name].anatomy
    has_weights = getattr(begun(FAMILIES[name])[1], "weight_bytes", 0) > 0
    runs = anatomy.steps != "none"
    assert anatomy.body == ("own" if has_weights else "target" if runs else "none")


def test_heads_of_one_state_draft_the_same_behind_any_ids() -> None:
    _, drafter, context = begun(FAMILIES["medusa"])
    drafts = [drafter.propose(text, 3, Draws(1, 1, len(text))).tokens for text in (context, [1] * len(context))]
    assert drafts[0] == drafts[1]
    assert "ids" not in FAMILIES["medusa"].anatomy.reads


def test_a_shared_cache_is_read_only_where_the_knob_says_so() -> None:
    family = FAMILIES["early_exit"]
    assert family.anatomy.further == (("kv", "kv"),)
    grown = {}
    for kv in ("own", "shared"):
        target, drafter, context = begun(family, kv=kv)
        before = target._cache.get_seq_length(0)
        drafter.propose(context, 2, Draws(1, 1, len(context)))
        grown[kv] = target._cache.get_seq_length(0) > before
    assert grown == {"own": False, "shared": True}


def test_a_search_for_layers_reads_the_last_state() -> None:
    family = FAMILIES["layer_skip"]
    assert family.anatomy.further == (("search", "last_hidden"),)
    target = CachedModel(model())
    setup = Setup(target, LETTERS, lambda _: [], 1, frozenset(), Warp())
    drafter = family.build(setup, family.options({"skip": "1", "search": 2}))
    assert shown(drafter) == {"last_hidden"}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_names_in_an_anatomy_are_knobs_or_come_with_a_head(name: str) -> None:
    family = FAMILIES[name]
    knobs = {knob.name for knob in family.knobs}
    assert {knob for knob, _ in family.anatomy.further} <= knobs
    assert ("hidden" in family.anatomy.reads) == (family.anatomy.layers is not None)
    if family.anatomy.layers and family.anatomy.layers not in knobs:
        assert family.head is not None
        assert tuple(open_head(family.head).config[family.anatomy.layers]) == begun(family)[1].needs.layers


def test_no_drafter_comes_without_an_anatomy() -> None:
    with pytest.raises(TypeError, match="anatomy"):
        Family("new", "one_hot", ("match",), FAMILIES["none"].build)  # type: ignore[call-arg]
    assert Family("new", "one_hot", ("match",), FAMILIES["none"].build, anatomy=Anatomy((), "none", "none", "none"))


def test_the_page_hears_of_a_head_s_layers_and_papers_where_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(heads, "HEADS", tmp_path)
    told = boot._drafter(FAMILIES["eagle3"])
    assert told["anatomy"] == {
        "reads": ("ids", "hidden"),
        "order": "sequential",
        "steps": "gamma",
        "body": "own",
        "layers": None,
        "further": (),
    }
    assert told["provenance"] is None

    folder = tmp_path / "eagle3"
    folder.mkdir()
    (folder / heads.CONFIG).write_text(json.dumps({"target": "tiny", "layers": [2, 15, 27]}), encoding="utf-8")
    papers = {"licence": "Apache-2.0", "corpus": {"shards": 3}, "parameters": 9, "held_out": {"all": {"agree": [0.5]}}}
    papers["calibration"] = {"tenths": [[0.1, 0.2, 30]], "error": 0.1}
    (folder / heads.PROVENANCE).write_text(json.dumps(papers), encoding="utf-8")
    told = boot._drafter(FAMILIES["eagle3"])
    assert told["anatomy"]["layers"] == [2, 15, 27]
    assert told["provenance"] == {
        "parameters": 9,
        "shards": 3,
        "agree": [0.5],
        "alpha": None,
        "prompts": None,
        "licence": "Apache-2.0",
        "calibration": [[0.1, 0.2, 30]],
    }
    assert boot._drafter(FAMILIES["pld_plus"])["anatomy"]["layers"] == "layer"
