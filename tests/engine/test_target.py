"""The target in two halves: what its first layers have computed is not computed again, and nothing else changes."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.engine.proposal import ROOT, Needs, Proposal, chain
from spec_viz.engine.target import CachedModel
from tests.engine.tiny import LAYERS, direct, model, prompts

TOKENS = prompts(1, 40)[0]
PROMPT, LAST, DRAFTS = TOKENS[:10], TOKENS[10], tuple(TOKENS[11:16])
TREE = (ROOT, ROOT, 0, 1, 2)


def prefilled() -> CachedModel:
    target = CachedModel(model())
    target.prefill(PROMPT)
    return target


def lengths(target: CachedModel) -> list[int]:
    layers: Any = target._cache.layers
    return [layer.length for layer in layers]


def hang(parents: tuple[int, ...]) -> tuple[int, ...]:
    """The parents in a pass whose row 0 is the committed token."""
    return (ROOT, *(parent + 1 for parent in parents))


@pytest.mark.parametrize("layers", range(1, LAYERS))
def test_the_first_layers_read_off_are_a_model_of_so_many_layers(layers: int) -> None:
    target = prefilled()
    first = target.feed_first([LAST], chain(1), layers)
    more = target.feed_first(DRAFTS[:3], chain(4), layers)
    torch.testing.assert_close(torch.cat([first, more]), direct(TOKENS[:14], layers)[10:])
    # The entries lie in the target's own cache, where the other layers lag behind.
    assert lengths(target) == [14] * layers + [10] * (LAYERS - layers)
    assert target.length == 10


@pytest.mark.parametrize("layers", range(1, LAYERS))
@pytest.mark.parametrize("waiting", range(1, 7))
@pytest.mark.parametrize("parents", [chain(5), TREE], ids=["chain", "tree"])
def test_a_check_that_goes_on_from_the_exit_sees_what_a_whole_pass_sees(
    parents: tuple[int, ...], waiting: int, layers: int
) -> None:
    proposal = Proposal(DRAFTS, parents=parents)
    target, whole = prefilled(), prefilled()
    hanging = hang(parents)
    for row, token in enumerate((LAST, *DRAFTS)[:waiting]):
        target.feed_first([token], hanging[: row + 1], layers)
    torch.testing.assert_close(target.verify(LAST, proposal)[0], whole.verify(LAST, proposal)[0])
    assert lengths(target) == [16] * LAYERS
    # So do the entries it leaves behind: keep a path, and read on.
    path = proposal.path(2)
    kept = [*PROMPT, LAST, *(DRAFTS[node] for node in path)]
    target.roll_back(11, path)
    torch.testing.assert_close(target.verify(7, Proposal((3,)))[0], direct([*kept, 7, 3])[-2:])


@given(st.data())
def test_any_tree_cut_anywhere(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    parents = tuple(data.draw(st.integers(ROOT, node - 1)) for node in range(count))
    tokens = tuple(data.draw(st.lists(st.integers(0, 39), min_size=count, max_size=count)))
    waiting = data.draw(st.integers(1, count + 1))
    target = prefilled()
    target.feed_first((LAST, *tokens)[:waiting], hang(parents)[:waiting], 2)
    proposal = Proposal(tokens, parents=parents)
    logits = target.verify(LAST, proposal)[0]
    for node in range(count):
        text = [*PROMPT, LAST, *(tokens[step] for step in proposal.path(node))]
        torch.testing.assert_close(logits[node + 1], direct(text)[-1])


def test_the_first_layers_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = prefilled()
    rows: list[tuple[int, int]] = []
    for number, layer in enumerate(model().model.layers):
        run = layer.self_attn.forward

        def counted(*args: Any, _number: int = number, _run: Any = run, **kwargs: Any) -> Any:
            rows.append((_number, kwargs["hidden_states"].shape[1]))
            return _run(*args, **kwargs)

        monkeypatch.setattr(layer.self_attn, "forward", counted)
    target.feed_first([LAST, *DRAFTS[:4]], chain(5), 2)
    assert rows == [(0, 5), (1, 5)]
    rows.clear()
    target.verify(LAST, Proposal(DRAFTS))
    # Only the last draft, which was drawn and never fed, passes the first layers; all six rows pass the third.
    assert rows == [(0, 1), (1, 1), (2, 6)]


def test_drafts_that_are_dropped_leave_every_layer_where_it_was() -> None:
    target = prefilled()
    target.feed_first([LAST, *DRAFTS[:2]], chain(3), 1)
    target.roll_back(10)
    assert lengths(target) == [10] * LAYERS
    torch.testing.assert_close(target.verify(LAST, Proposal())[0], direct(TOKENS[:11])[10:])


@pytest.mark.parametrize(("last", "drafts"), [(LAST, ()), (LAST, (1, 2)), (LAST, (DRAFTS[0], 2)), (5, DRAFTS)], ids=str)
def test_a_check_of_something_else_forgets_what_waited(last: int, drafts: tuple[int, ...]) -> None:
    target = prefilled()
    target.feed_first([LAST, *DRAFTS[:2]], chain(3), 2)
    torch.testing.assert_close(
        target.verify(last, Proposal(drafts))[0], direct([*PROMPT, last, *drafts])[-len(drafts) - 1 :]
    )
    assert lengths(target) == [11 + len(drafts)] * LAYERS


def test_what_a_drafter_asks_to_see_is_there_all_the_same() -> None:
    target, whole = prefilled(), prefilled()
    needs = Needs(logits=True, layers=(1, LAYERS))
    target.feed_first([LAST, *DRAFTS], chain(6), 2)
    got, expected = (each.verify(LAST, Proposal(DRAFTS), needs)[1] for each in (target, whole))
    assert got.logits is not None
    assert expected.logits is not None
    torch.testing.assert_close(got.logits, expected.logits)
    for layer in needs.layers:
        torch.testing.assert_close(got.hidden[layer], expected.hidden[layer])


def test_logits_alone_can_be_shown_of_a_check_in_halves() -> None:
    target = prefilled()
    target.feed_first([LAST, *DRAFTS[:4]], chain(5), 2)
    logits, seen = target.verify(LAST, Proposal(DRAFTS), Needs(logits=True))
    assert seen.logits is not None
    assert torch.equal(seen.logits, logits)
    assert not seen.hidden
