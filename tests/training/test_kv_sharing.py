"""The learner that makes the target's cache again says at every anchor what its drafter says over the live one."""

from __future__ import annotations

import pytest
import torch

from spec_viz.drafters.head import Head
from spec_viz.drafters.kv_sharing import Asker, make
from spec_viz.engine.target import CachedModel
from spec_viz.training.features import fused_layers
from spec_viz.training.kv_sharing import KvSharingLearner, asking_config
from spec_viz.training.recipe import llama, maps
from tests.training.rollouts import LENGTHS, anchors, make_batch, said, tables, target, vocabulary

SLOTS = 3
LAYER = fused_layers(target().model.config.num_hidden_layers)[-1]


def learner() -> KvSharingLearner:
    torch.manual_seed(2)
    model = target().model
    scale = torch.rand(model.config.hidden_size) + 0.2
    config, layer = asking_config(model.config), model.model.layers[LAYER]
    return KvSharingLearner(config, vocabulary(), *tables(), layer, scale, slots=SLOTS).eval()


def test_the_cache_made_again_is_the_live_one() -> None:
    batch = make_batch()
    keys, values = learner().entries(batch.hidden[:, :, -1])
    for row, length in enumerate(LENGTHS):
        live = CachedModel(target().model)
        live.feed(batch.ids[row, :length].tolist(), keep=1)
        held = live.entries(LAYER)
        assert held[0].shape == (1, keys.shape[1], length, keys.shape[3])
        torch.testing.assert_close(keys[row : row + 1, :, :length], held[0], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(values[row : row + 1, :, :length], held[1], rtol=1e-3, atol=1e-4)


def test_the_learner_s_law_at_an_anchor_is_the_drafter_s_there(monkeypatch: pytest.MonkeyPatch) -> None:
    made, batch = learner(), make_batch()
    laws, weights = said(made, batch, monkeypatch)
    model = target().model
    head = Head(
        "kv_sharing",
        {"layer": LAYER, "llama": llama(asking_config(model.config))},
        {name: tensor.detach() for name, tensor in made.fold().items()} | maps(vocabulary()),
    )
    modules, spread = make(head, model), set()
    for row, place, position in anchors():
        live = CachedModel(model)
        live.feed(batch.ids[row, : position + 1].tolist(), keep=1)
        borrower = Asker(live, LAYER, *modules)
        borrower.hear(batch.last[row, position : position + 1])
        behind = batch.ids[row, position + 1 :].tolist()
        logits = [borrower.feed(behind[:1], keep=1)[0]]
        logits += [
            borrower.feed_tree([behind[step]], tuple(range(-1, step - 1)), 1)[0][0]
            for step in range(1, min(SLOTS, LENGTHS[row] - position - 2))
        ]
        for slot, row_logits in enumerate(logits):
            drafted = row_logits.softmax(-1)[vocabulary().ids]
            torch.testing.assert_close(laws[slot][row, place], drafted, rtol=2e-3, atol=1e-5)
            spread.add(int(drafted.argmax()))
        # Beyond the text's end nothing counts.
        assert not any(bool(weights[slot][row, place]) for slot in range(len(logits), SLOTS))
    assert len(spread) > 5


def test_the_target_s_own_layer_is_neither_trained_nor_stored() -> None:
    made = learner()
    own = {name for name, _ in made.named_parameters()}
    assert own == {f"head.{name}" for name, _ in made.head.named_parameters()}
    made(make_batch()).loss.backward()
    assert all(weight.grad is not None for weight in made.parameters())
    assert all(weight.grad is None for weight in target().model.parameters())
