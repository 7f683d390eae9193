"""The heads that go on from their own states: what is learned at an anchor is what the drafter says at that place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from spec_viz.drafters import eagle, eagle3, mtp
from spec_viz.drafters.head import Head
from spec_viz.drafters.rollout import Rollout
from spec_viz.training.eagle import DEPTH, NOISE, RANKS, EagleLearner
from spec_viz.training.eagle3 import Eagle3Learner
from spec_viz.training.lesson import prepare
from spec_viz.training.mtp import MtpLearner
from spec_viz.training.recipe import llama, maps
from spec_viz.training.rollout import RolloutLearner
from tests.training.rollouts import LENGTHS, anchors, make_batch, tables, target, vocabulary

SLOTS = 3
NAMES = ("eagle3", "eagle", "mtp")
MAKE: dict[str, Any] = {"eagle3": eagle3.make, "eagle": eagle.make, "mtp": mtp.make}


def learner(name: str) -> Any:
    """A random head; channels are measured in sizes of their own, so that a fold that forgot one would show."""
    torch.manual_seed(2)
    config = target().model.config
    d = config.hidden_size
    mean, spread = torch.randn(d), torch.rand(d) + 0.2
    common = config, vocabulary(), *tables()
    made: dict[str, RolloutLearner] = {
        "eagle3": Eagle3Learner(*common, spread + 0.5, torch.rand(3, d) + 0.2, slots=SLOTS),
        "eagle": EagleLearner(*common, mean, spread, slots=SLOTS),
        "mtp": MtpLearner(*common, spread + 0.5, spread, slots=SLOTS),
    }
    return made[name].eval()


def head_of(name: str, made: Any) -> Head:
    """What the recipe would keep of a learner."""
    tensors = made.head.fold() if name == "eagle" else made.fold() if name == "eagle3" else made.head.state_dict()
    tensors = {key: tensor.detach() for key, tensor in tensors.items()}
    return Head(name, {"layers": [0, 0, 0], "llama": llama(target().model.config)}, tensors | maps(vocabulary()))


def drafted(name: str, modules: Any, batch: Any, row: int, position: int, steps: int) -> list[Tensor]:
    """The laws (Vd,) of the drafter behind position + 1 tokens' states, over the text's own next tokens."""
    rollout = Rollout(target().model, *modules)
    states = batch.hidden.flatten(2) if name == "eagle3" else batch.last
    rollout.hear(states[row, : position + 1])
    behind = batch.ids[row, position + 2 :].tolist()
    logits = [rollout.feed(batch.ids[row, 1 : position + 2].tolist(), keep=1)[0]]
    logits += [rollout.feed_tree([behind[step - 1]], tuple(range(-1, step - 1)), 1)[0][0] for step in range(1, steps)]
    return [row_logits.softmax(-1)[vocabulary().ids] for row_logits in logits[:steps]]


@pytest.mark.usefixtures("in_full")
@pytest.mark.parametrize("name", NAMES)
def test_the_learner_s_law_at_an_anchor_is_the_drafter_s_there(name: str) -> None:
    made, batch = learner(name), make_batch()
    output = tables()[1]
    lesson = prepare(batch, vocabulary(), SLOTS)
    with torch.no_grad():
        marks = made(batch)
        laws = [(made.head.say(states) @ output.T).softmax(-1) for states in made.roll(batch, lesson.rows, SLOTS)]
    modules, spread, alpha = MAKE[name](head_of(name, made), target().model), set(), torch.zeros(SLOTS)
    for row, place, position in anchors():
        steps = min(SLOTS, LENGTHS[row] - position - 2)
        for slot, law in enumerate(drafted(name, modules, batch, row, position, steps)):
            torch.testing.assert_close(laws[slot][row, place], law, rtol=2e-3, atol=1e-5)
            spread.add(int(law.argmax()))
            real = int(batch.ids[row, position + 2 + slot])
            theirs = (batch.last[row, position + 1 + slot] @ output.T).softmax(-1)
            alpha[slot] += bool(vocabulary().t2d[real]) * torch.minimum(law, theirs).sum()
    assert len(spread) > 5
    # What is marked is the law of the token that the target's own state there says.
    torch.testing.assert_close(marks.alpha, alpha, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_is_taught(name: str) -> None:
    made = learner(name).train()
    made(make_batch()).loss.backward()
    assert all(weight.grad is not None and bool(weight.grad.any()) for weight in made.parameters())
    assert {key for key, _ in made.named_parameters()} == {f"head.{key}" for key in made.head.state_dict()}


def test_features_are_blurred_while_learning_and_never_else() -> None:
    made, batch = learner("eagle"), make_batch()
    assert torch.equal(made.features(batch), batch.last)
    off = (made.train().features(batch) - batch.last).abs()
    spread = made._spread
    assert bool((off <= NOISE * spread + 1e-5).all())
    assert float((off / spread).mean()) == pytest.approx(NOISE / 2, rel=0.05)


@pytest.mark.usefixtures("in_full")
def test_eagle_s_loss_is_cross_entropy_and_the_distance_from_the_true_state() -> None:
    made, batch = learner("eagle"), make_batch()
    lesson, output = prepare(batch, vocabulary(), SLOTS), tables()[1]
    total = torch.zeros(())
    with torch.no_grad():
        for slot, states in enumerate(made.roll(batch, lesson.rows, SLOTS)):
            for row, place, position in anchors():
                at = position + 1 + slot
                if at + 1 < LENGTHS[row] and bool(vocabulary().t2d[batch.ids[row, at + 1]]):
                    true, said = batch.last[row, at], states[row, place]
                    apart = ((true - said) / made._spread).abs()
                    smooth = torch.where(apart < 1, apart**2 / 2, apart - 0.5).mean()
                    law = (true @ output.T).softmax(-1)
                    total += 0.8**slot * (smooth - (law * (said @ output.T).log_softmax(-1)).sum())
        torch.testing.assert_close(made(batch).loss, total / lesson.weight[0].sum(), rtol=1e-4, atol=1e-4)


def test_a_step_of_mtp_counts_six_tenths_of_the_one_before() -> None:
    assert [round(0.6**step / (1 + 0.6 + 0.36), 2) for step in range(3)] == [0.51, 0.31, 0.18]
    assert MtpLearner.decay == 0.6


def test_guesses_are_counted_by_depth_and_rank() -> None:
    made, batch = learner("eagle"), make_batch()
    accuracies = made.calibrate([batch])
    assert [len(row) for row in accuracies] == [RANKS] * DEPTH
    modules, output = MAKE["eagle"](head_of("eagle", made), target().model), tables()[1]
    right, seen = torch.zeros(DEPTH, RANKS), torch.zeros(DEPTH)
    for row, _, position in anchors():
        steps = min(DEPTH, LENGTHS[row] - position - 2)
        for slot, law in enumerate(drafted("eagle", modules, batch, row, position, steps)):
            if bool(vocabulary().t2d[batch.ids[row, position + 2 + slot]]):
                best = int((batch.last[row, position + 1 + slot] @ output.T).argmax())
                right[slot] += law.topk(RANKS).indices == best
                seen[slot] += 1
    expected = right / seen[:, None]
    assert bool(right.any())
    torch.testing.assert_close(torch.tensor(accuracies), expected, atol=1e-4, rtol=0)
