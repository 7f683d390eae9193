"""Captured passes are the plain ones: whatever shape, whatever was rolled back, however long the text has grown."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

from spec_viz.engine import graphs
from spec_viz.engine.cache import new_cache
from spec_viz.engine.graphs import LEAST_ROOM, FixedLayer, Graphs, release, room_for
from spec_viz.engine.proposal import ROOT, Needs, Proposal, chain
from spec_viz.engine.target import CachedModel
from spec_viz.lab.run import _room
from tests.engine.rehearsal import Rehearsal
from tests.engine.test_sliding import SIZES, plain
from tests.engine.tiny import LAYERS, VOCABULARY, direct, model, prompts

TOKENS = prompts(1, 40)[0]
PROMPT = TOKENS[:10]
TREES = [chain(1), chain(3), (ROOT, ROOT, 0), (ROOT, 0, 0, 1, 1, 2), (ROOT, ROOT, ROOT, 1, 1)]


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    release()


def captured() -> CachedModel:
    return CachedModel(model(), capture=Rehearsal())


def twin() -> tuple[CachedModel, CachedModel]:
    ours, plain = captured(), CachedModel(model())
    for each in (ours, plain):
        each.prefill(PROMPT)
    return ours, plain


def rehearsal(target: CachedModel) -> Rehearsal:
    assert isinstance(target.capture, Rehearsal)
    return target.capture


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_shape_is_captured_when_it_comes_again_and_computes_what_a_plain_pass_computes() -> None:
    target = captured()
    target.prefill(PROMPT)
    for step in range(10, 16):
        close(target.feed(TOKENS[step : step + 1], 1), direct(TOKENS[: step + 1])[-1:])
    assert (rehearsal(target).captured, rehearsal(target).replayed) == (1, 5)
    assert target.length == 16


@pytest.mark.parametrize("parents", TREES, ids=str)
def test_a_tree_is_checked_as_its_paths_alone_and_again_after_a_roll_back(parents: tuple[int, ...]) -> None:
    target = captured()
    target.prefill(PROMPT)
    for turn in range(4):
        tokens = tuple((7 * node + turn) % VOCABULARY for node in range(len(parents)))
        proposal = Proposal(tokens, parents=parents)
        logits = target.verify(TOKENS[10 + turn], proposal)[0]
        committed = [*PROMPT, TOKENS[10 + turn]]
        close(logits[0], direct(committed)[-1])
        for node in range(len(parents)):
            close(logits[node + 1], direct([*committed, *(tokens[step] for step in proposal.path(node))])[-1])
        target.roll_back(10)
    assert rehearsal(target).replayed == 3


@pytest.mark.parametrize("path", [(), (0,), (1, 3), (0, 2)], ids=str)
def test_what_is_kept_of_a_tree_stands_where_it_belongs(path: tuple[int, ...]) -> None:
    parents, target = (ROOT, ROOT, 0, 1), captured()
    target.prefill(PROMPT)
    text = list(PROMPT)
    for turn in range(4):
        tokens = tuple((5 * node + turn + 1) % VOCABULARY for node in range(4))
        target.verify(TOKENS[10 + turn], Proposal(tokens, parents=parents))
        text += [TOKENS[10 + turn], *(tokens[node] for node in path)]
        target.roll_back(len(text) - len(path), path)
        assert target.length == len(text)
    close(target.feed([3], 1), direct([*text, 3])[-1:])


def test_a_text_grows_out_of_its_room_and_nothing_changes() -> None:
    long = model(positions=4 * LEAST_ROOM)
    ours, plain = CachedModel(long, capture=Rehearsal()), CachedModel(long)
    text = [(3 * place) % VOCABULARY for place in range(2 * LEAST_ROOM + 20)]
    for each in (ours, plain):
        each.prefill(text[: LEAST_ROOM - 7])
    for at in range(LEAST_ROOM - 7, len(text) - 3, 3):
        close(ours.feed(text[at : at + 3], 3), plain.feed(text[at : at + 3], 3))
    layers: Any = ours._cache.layers
    assert [layer.keys.shape[2] for layer in layers] == [4 * LEAST_ROOM] * LAYERS
    # A room, a graph: the first pass of each goes without.
    assert rehearsal(ours).captured == 3


def test_hidden_states_are_those_of_a_plain_pass() -> None:
    ours, plain = twin()
    needs = Needs(logits=True, layers=(0, 2, LAYERS))
    for turn in range(3):
        proposal = Proposal((turn, 4, 5), parents=(ROOT, ROOT, 0))
        got, expected = (each.verify(TOKENS[10], proposal, needs)[1] for each in (ours, plain))
        assert got.logits is not None
        assert expected.logits is not None
        close(got.logits, expected.logits)
        for layer in needs.layers:
            torch.testing.assert_close(got.hidden[layer], expected.hidden[layer], atol=1e-5, rtol=1e-5)
        for each in (ours, plain):
            each.roll_back(10)
    assert rehearsal(ours).replayed == 2


def test_tokens_may_lie_on_the_device() -> None:
    ours, plain = twin()
    for turn in range(3):
        tokens = [turn + 1, 9]
        close(ours.feed_tree(torch.tensor(tokens), chain(2), 2)[0], plain.feed_tree(tokens, chain(2), 2)[0])


def test_all_steps_down_a_chain_share_a_graph() -> None:
    target = captured()
    target.prefill(PROMPT)
    for depth in range(1, 9):
        logits = target.feed_tree(TOKENS[9 + depth : 10 + depth], chain(depth), 1)[0]
        close(logits, direct(TOKENS[: 10 + depth])[-1:])
    assert (rehearsal(target).captured, rehearsal(target).replayed) == (1, 7)


def test_a_prompt_is_not_captured_and_what_the_first_layers_saw_is_finished_as_ever() -> None:
    ours, plain = twin()
    for _ in range(3):
        for each in (ours, plain):
            each.feed_first([TOKENS[10], 5], chain(2), 2)
        close(ours.verify(TOKENS[10], Proposal((5, 6)))[0], plain.verify(TOKENS[10], Proposal((5, 6)))[0])
        for each in (ours, plain):
            each.roll_back(10)
    assert rehearsal(ours).captured == 0


@given(st.data())
@settings(max_examples=25)
def test_any_run_of_trees_and_roll_backs(data: st.DataObject) -> None:
    ours, plain = twin()
    length = len(PROMPT)
    for _ in range(data.draw(st.integers(2, 6))):
        count = data.draw(st.integers(1, 3))
        parents = tuple(data.draw(st.integers(ROOT, node - 1)) for node in range(count))
        tokens = tuple(data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=count, max_size=count)))
        proposal = Proposal(tokens, parents=parents)
        got, expected = (each.verify(TOKENS[length], proposal)[0] for each in (ours, plain))
        close(got, expected)
        path = proposal.path(data.draw(st.integers(ROOT, count - 1)))
        length += 1
        for each in (ours, plain):
            each.roll_back(length, path)
        length += len(path)


def test_a_result_is_not_overwritten_by_the_next_pass() -> None:
    target = captured()
    target.prefill(PROMPT)
    found = [target.feed([token], 1) for token in TOKENS[10:14]]
    close(torch.cat(found), direct(TOKENS[:14])[10:])


@pytest.mark.parametrize("shared", [0, 2])
def test_layers_with_a_window_see_as_far_as_in_a_plain_pass(shared: int) -> None:
    torch.manual_seed(5)
    gemma: Any = Gemma4ForCausalLM(Gemma4TextConfig(**SIZES, num_kv_shared_layers=shared))
    gemma.double().eval().requires_grad_(False)
    target, text = CachedModel(gemma, capture=Rehearsal()), TOKENS[:20]
    target.prefill(text)
    # Deeper than the window, with side branches.
    parents = (ROOT, ROOT, 0, 0, 2, 4, 5, 6, 7, 1, 8)
    for turn in range(3):
        tokens = tuple((5 * node + turn + 1) % 40 for node in range(len(parents)))
        proposal = Proposal(tokens, parents=parents)
        logits = target.verify(TOKENS[20 + turn], proposal)[0]
        text = [*text, TOKENS[20 + turn]]
        for node in range(len(parents)):
            close(logits[node + 1], plain(gemma, [*text, *(tokens[step] for step in proposal.path(node))])[-1])
        target.roll_back(len(text))
    assert rehearsal(target).replayed == 2


# ---------------------------------------------------------------- the stand-in has teeth


def broken_length(self: FixedLayer, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
    """Writes where Python knows the end of the text to be, as any layer without a graph does."""
    if self.part is None:
        return super(FixedLayer, self).update(key_states, value_states)
    end = self.length + key_states.shape[2]
    self.keys[:, :, self.length : end] = key_states
    self.values[:, :, self.length : end] = value_states
    return self.keys[:, :, : self.part[1]], self.values[:, :, : self.part[1]]


def broken_mask(unpack: Any) -> Any:
    """Takes the number of entries that all see from Python, where it stands in the buffer."""

    def unpacked(shape: Any, buffer: Tensor, states: Any) -> Any:
        fixed = buffer.clone()
        fixed[2 * shape.tokens + 1 :][:1].fill_(len(PROMPT) + 1)
        return unpack(shape, fixed, states)

    return unpacked


def test_a_length_that_python_knew_at_the_capture_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FixedLayer, "update", broken_length)
    with pytest.raises(AssertionError):
        test_a_shape_is_captured_when_it_comes_again_and_computes_what_a_plain_pass_computes()


def test_a_mask_that_python_knew_at_the_capture_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_unpack", broken_mask(graphs._unpack))
    with pytest.raises(AssertionError):
        test_a_shape_is_captured_when_it_comes_again_and_computes_what_a_plain_pass_computes()


def test_a_result_that_lives_in_the_graph_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "clone", lambda self: self)
    with pytest.raises(AssertionError):
        test_a_result_is_not_overwritten_by_the_next_pass()


@pytest.mark.parametrize(
    "look", [lambda states: states.sum().item(), lambda states: states.tolist(), lambda states: states[states > 0]]
)
def test_a_model_that_looks_at_its_numbers_runs_without_graphs(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = model().model
    inner = body.forward

    def looking(*args: Any, **kwargs: Any) -> Any:
        out = inner(*args, **kwargs)
        look(out.last_hidden_state)
        return out

    monkeypatch.setattr(body, "forward", looking)
    target = captured()
    target.prefill(PROMPT)
    for step in range(10, 16):
        close(target.feed(TOKENS[step : step + 1], 1), direct(TOKENS[: step + 1])[-1:])
    assert rehearsal(target).captured == 0


def test_a_full_device_is_said_and_not_taken_for_a_model_that_cannot_be_captured() -> None:
    class Full:
        def capture(self, run: Any) -> Any:
            raise torch.OutOfMemoryError("full")

    target = CachedModel(model(), capture=Full())
    target.prefill(PROMPT)
    target.feed([1], 1)
    with pytest.raises(torch.OutOfMemoryError):
        target.feed([2], 1)


# ---------------------------------------------------------------- who has which


def test_a_run_finds_the_graphs_of_the_one_before_and_none_of_its_text() -> None:
    first = captured()
    first.prefill(TOKENS)
    for _ in range(3):
        first.feed([1], 1)
    first.close()
    second = CachedModel(model(), capture=first.capture)
    second.prefill(PROMPT)
    assert second.length == len(PROMPT)
    close(second.feed(TOKENS[10:11], 1), direct(TOKENS[:11])[-1:])
    assert (rehearsal(first).captured, rehearsal(first).replayed) == (1, 3)


def test_two_runs_at_once_have_a_cache_each_and_one_is_kept() -> None:
    first, second = captured(), captured()
    first.prefill(PROMPT)
    second.prefill(TOKENS[:20])
    close(first.feed(TOKENS[10:11], 1), direct(TOKENS[:11])[-1:])
    close(second.feed(TOKENS[20:21], 1), direct(TOKENS[:21])[-1:])
    for each in (first, second):
        each.close()
        # Closing twice gives nothing back twice.
        each.close()
    assert len(graphs._KEPT[model()]) == 1


def test_a_run_that_is_forgotten_without_being_closed_gives_back_its_cache() -> None:
    first = captured()
    first.prefill(PROMPT)
    mine = first._cache
    del first
    second = captured()
    second.prefill(TOKENS[:20])
    assert second._cache is mine
    close(second.feed(TOKENS[20:21], 1), direct(TOKENS[:21])[-1:])


def test_what_is_kept_is_freed_when_it_is_asked_for() -> None:
    target = captured()
    target.prefill(PROMPT)
    kept = target._cache
    release()
    # Not that of a run under way.
    assert graphs._KEPT[model()]
    target.close()
    release()
    assert not graphs._KEPT[model()]
    again = captured()
    again.prefill(PROMPT)
    assert again._cache is not kept


def test_what_a_failure_holds_is_let_go() -> None:
    held: list[weakref.ref[Tensor]] = []

    def inner() -> None:
        entries = torch.zeros(3)
        held.append(weakref.ref(entries))
        raise torch.OutOfMemoryError("full")

    def outer() -> None:
        states = torch.zeros(3)
        held.append(weakref.ref(states))
        try:
            inner()
        except torch.OutOfMemoryError:
            raise ValueError("on the way out")  # noqa: B904 - as a failure in a `finally` is

    with pytest.raises(ValueError, match="on the way") as caught:
        outer()
    assert [each() is None for each in held] == [False, False]
    release(caught.value)
    assert [each() is None for each in held] == [True, True]


def test_how_much_is_set_aside_is_known_before_the_run() -> None:
    target = CachedModel(model(positions=1024), capture=Rehearsal())
    assert _room(target, 300) == {"kv_room": {"target": 512}}
    target.prefill(TOKENS)
    for _ in range(2):
        target.feed([1] * 100, 1)
    target.feed([1] * 60, 1)
    layers: Any = target._cache.layers
    assert [layer.keys.shape[2] for layer in layers] == [512] * LAYERS
    assert _room(target, 10**6) == {"kv_room": {"target": 1024}}
    assert _room(CachedModel(model()), 300) == {}


def test_no_graph_without_something_that_captures() -> None:
    assert CachedModel(model()).capture is None
    assert not CachedModel(model(), new_cache).asynchronous


@pytest.mark.parametrize(("entries", "room"), [(1, 256), (256, 256), (257, 512), (512, 512), (513, 1024)])
def test_room_is_a_power_of_two(entries: int, room: int) -> None:
    assert room_for(entries) == room


def test_graphs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 2)
    target = captured()
    target.prefill(PROMPT)
    for count in (1, 2, 3, 1):
        for _ in range(2):
            close(target.feed(TOKENS[10 : 10 + count], count), direct(TOKENS[: 10 + count])[10:])
            target.roll_back(10)
    held: Graphs | None = target._graphs
    assert held is not None
    assert [shape.tokens for shape in held._graphs] == [3, 1]
