"""PARD's learner says at every anchor what its drafter will say there; its thinned copies keep their chains."""

from __future__ import annotations

import pytest
import torch

from spec_viz.drafters.head import Head
from spec_viz.drafters.pard import Slots, make
from spec_viz.models.heads import read_head
from spec_viz.training.draft_model import small_config
from spec_viz.training.lesson import prepare
from spec_viz.training.pard import KEEP, LEAST, PardLearner, _start
from spec_viz.training.recipe import llama, maps
from tests.training.rollouts import anchors, make_batch, said, tables, target, vocabulary

SLOTS = 4


def learner(slots: int = SLOTS) -> PardLearner:
    torch.manual_seed(1)
    return PardLearner(small_config(target().model.config), vocabulary(), *tables(), slots=slots).eval()


def head(made: PardLearner) -> Head:
    tensors = {name: tensor.detach() for name, tensor in made.tensors().items()}
    return Head("pard", {"llama": llama(made.body.config)}, tensors | maps(vocabulary()))


def test_the_learner_s_law_at_an_anchor_is_the_drafter_s_there(monkeypatch: pytest.MonkeyPatch) -> None:
    made, batch = learner(), make_batch()
    laws, _ = said(made, batch, monkeypatch)
    modules = make(head(made), target().model)
    spread = set()
    for row, place, position in anchors():
        slots = Slots(target().model, *modules)
        # A prompt, then the rest of what is known with the masks behind it, as a run would read them.
        known = batch.ids[row, : position + 2].tolist()
        if len(known) > 3:
            slots.feed(known[:2], keep=1)
        slots.count = SLOTS
        slots.feed(known[slots.length :], keep=1)
        assert slots.length == len(known)
        drafted = slots.logits.softmax(-1)[:, vocabulary().ids]
        for slot in range(SLOTS):
            torch.testing.assert_close(laws[slot][row, place], drafted[slot], rtol=1e-3, atol=1e-5)
            spread.add(int(drafted[slot].argmax()))
    assert len(spread) > 5


def test_copies_are_thinned_among_those_before_and_say_what_they_would_have_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, batch = learner(6), make_batch()
    whole, all_weights = said(made, batch, monkeypatch)
    made.train()
    laws, weights = said(made, batch, monkeypatch)
    lesson = prepare(batch, vocabulary(), 6)
    kept = made._choose(batch, lesson)
    count = lesson.rows.shape[1]
    assert [each.shape[1] for each in kept] == [max(1, round(max(KEEP**slot, LEAST) * count)) for slot in range(6)]
    assert sorted(kept[0][0].tolist()) == list(range(count))
    for slot in range(6):
        for row in range(len(lesson.rows)):
            chosen = set(kept[slot][row].tolist())
            assert slot == 0 or chosen <= set(kept[slot - 1][row].tolist())
            for place in range(count):
                if place in chosen:
                    torch.testing.assert_close(laws[slot][row, place], whole[slot][row, place], rtol=1e-4, atol=1e-6)
                    assert weights[slot][row, place] == all_weights[slot][row, place]
                else:
                    assert weights[slot][row, place] == 0
    # The same batch is thinned the same way again: a run that goes on does not depend on where it stopped.
    assert all(torch.equal(one, other) for one, other in zip(kept, made._choose(batch, lesson), strict=True))


def test_of_the_real_tokens_only_those_up_to_the_anchor_s_next_have_a_say() -> None:
    made, batch = learner(), make_batch()
    lesson = prepare(batch, vocabulary(), SLOTS)
    kept = made._choose(batch, lesson)
    # One row of the table for each position, so that the table's gradient is that of the positions.
    batch.ids[:] = torch.arange(batch.ids.shape[1])
    made._embedding = made._embedding[: batch.ids.shape[1]].clone().requires_grad_()
    states = made._read(batch, lesson, kept)
    for slot in range(SLOTS):
        column = 4
        position = int(lesson.rows[1, kept[slot][1, column]])
        (gradient,) = torch.autograd.grad(states[slot][1, column].sum(), made._embedding, retain_graph=True)
        touched = gradient.abs().sum(1) > 0
        assert touched.tolist() == [place <= position + 1 for place in range(len(touched))]


def test_it_starts_as_the_draft_model_it_is_made_from() -> None:
    start = dict(read_head("draft_model", "smollm2-135m").tensors)
    assert _start("toy") is None
    found = _start("smollm2-135m")
    assert found is not None
    assert found.keys() == start.keys()
    made = learner()
    first = made.tensors()
    torch.manual_seed(2)
    config, words = small_config(target().model.config), vocabulary()
    other = PardLearner(config, words, *tables(), slots=SLOTS, start={k: v for k, v in first.items() if k != "mask"})
    assert (made.started, other.started) == (False, True)
    for name, tensor in other.tensors().items():
        assert torch.allclose(tensor, first[name], atol=1e-6) == (name != "mask"), name
