"""What a head is taught stands where it should: anchors, slots, weights, the loss and its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import LlamaConfig

from spec_viz.training.batches import Batch
from spec_viz.training.draft_model import DraftModelLearner, small_config
from spec_viz.training.eagle3 import Eagle3Learner
from spec_viz.training.lesson import mark, prepare
from spec_viz.training.medusa import MedusaLearner
from spec_viz.training.vocabulary import DraftVocabulary

V, D, LAYERS = 12, 32, 3
CONFIG = LlamaConfig(
    vocab_size=V,
    hidden_size=D,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    num_hidden_layers=1,
)
PROMPTS, LENGTHS = (3, 5, 2), (9, 12, 4)


def vocabulary(ids: tuple[int, ...] = (0, 2, 3, 5, 7, 8, 9, 11)) -> DraftVocabulary:
    chosen = torch.tensor(ids)
    t2d = torch.zeros(V, dtype=torch.bool)
    t2d[chosen] = True
    return DraftVocabulary(chosen, chosen - torch.arange(len(ids)), t2d, 1.0)


def make_batch(dtype: torch.dtype = torch.float32) -> Batch:
    """Three sequences of different lengths; what stands behind an end is noise, which nothing may see."""
    make = torch.Generator().manual_seed(3)
    n = max(LENGTHS)
    return Batch(
        torch.randint(V, (3, n), generator=make),
        torch.tensor(LENGTHS),
        torch.tensor(PROMPTS),
        torch.randn(3, n, LAYERS, D, generator=make).to(dtype),
        torch.randn(3, n, D, generator=make).to(dtype),
        torch.tensor([1.0, 0.5, 1.0]),
        torch.tensor([True, False, True]),
        ("chat", "code", "list"),
    )


def test_a_slot_counts_where_its_real_token_is_in_the_text_and_in_the_draft_vocabulary() -> None:
    batch, words = make_batch(), vocabulary()
    lesson = prepare(batch, words, slots=3)
    for row, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        for slot in range(3):
            for place in range(lesson.rows.shape[1]):
                at = prompt - 1 + place + 2 + slot
                counts = at < length and bool(words.t2d[batch.ids[row, min(at, len(batch.ids[row]) - 1)]])
                assert float(lesson.weight[slot, row, place]) == (float(batch.weight[row]) if counts else 0.0)


def test_a_slot_reads_the_target_s_state_one_before_its_token() -> None:
    batch = make_batch()
    lesson = prepare(batch, vocabulary(), slots=2)
    for row, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        for place in range(length - prompt - 1):
            anchor = prompt - 1 + place
            assert int(lesson.rows[row, place]) == anchor
            for slot in range(2):
                if anchor + 1 + slot < length:
                    assert torch.equal(lesson.states[row, place + slot], batch.last[row, anchor + 1 + slot])


@pytest.mark.usefixtures("in_full")
def test_the_loss_and_its_gradient_are_those_of_the_plain_cross_entropy() -> None:
    batch, words = make_batch(), vocabulary()
    output = torch.randn(len(words.ids), D, generator=torch.Generator().manual_seed(1))
    lesson = prepare(batch, words, slots=2)
    states = torch.randn(*lesson.rows.shape, D, generator=torch.Generator().manual_seed(2), requires_grad=True)
    loss, (alpha, agree, weight) = mark(lesson, 1, states, output)
    (gradient,) = torch.autograd.grad(loss, states)

    p = linear(lesson.states[:, 1 : 1 + lesson.rows.shape[1]], output).softmax(-1)
    logs = linear(states, output).log_softmax(-1)
    plain = -(lesson.weight[1] * (p * logs).sum(-1)).sum()
    (expected,) = torch.autograd.grad(plain, states)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(alpha, (lesson.weight[1] * torch.minimum(p, logs.exp()).sum(-1)).sum().detach())
    same = (p.argmax(-1) == logs.argmax(-1)).float()
    torch.testing.assert_close(agree, (lesson.weight[1] * same).sum())
    torch.testing.assert_close(weight, lesson.weight[1].sum())


def learners() -> dict[str, nn.Module]:
    words = vocabulary()
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(4))
    torch.manual_seed(0)
    return {
        "eagle3": Eagle3Learner(CONFIG, words, table, table[words.ids], torch.ones(D), torch.ones(LAYERS, D), slots=3),
        "medusa": MedusaLearner(words, table[words.ids], slots=3),
        "draft_model": DraftModelLearner(small_config(CONFIG), words, table, table[words.ids]),
    }


@pytest.mark.parametrize("name", ["eagle3", "medusa", "draft_model"])
def test_no_learner_sees_the_padding_or_what_it_is_to_say(name: str) -> None:
    learner = learners()[name].eval()
    batch = make_batch()
    before = learner(batch)
    # Behind the ends nothing counts; and a sequence alone gets the same marks as among others.
    for row, length in enumerate(LENGTHS):
        batch.ids[row, length:] = 1
        batch.hidden[row, length:] = 9.0
        batch.last[row, length:] = 9.0
    after = learner(batch)
    torch.testing.assert_close(before.loss, after.loss)
    torch.testing.assert_close(before.alpha, after.alpha)
    alone = [learner(_row(batch, row)) for row in range(3)]
    torch.testing.assert_close(sum((each.alpha for each in alone), torch.zeros(())), after.alpha, rtol=1e-4, atol=1e-4)


def _row(batch: Batch, row: int) -> Batch:
    part, length = slice(row, row + 1), LENGTHS[row]
    names = ("lengths", "prompt_lengths", "weight", "greedy")
    few = {name: getattr(batch, name)[part] for name in names}
    long = {name: getattr(batch, name)[part, :length] for name in ("ids", "hidden", "last")}
    return Batch(**few, **long, tasks=batch.tasks[part])


@pytest.mark.usefixtures("in_full")
def test_eagle_s_marks_are_those_of_drafting_by_hand() -> None:
    """Each anchor alone: true pairs up to it, then its own states; full attention over both, nothing cached."""
    learner = learners()["eagle3"].eval()
    assert isinstance(learner, Eagle3Learner)
    batch, words = make_batch(), vocabulary()
    marks = learner(batch)
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(4))
    lesson = prepare(batch, words, learner.slots)
    head, layer = learner.head, learner.head.midlayer
    alpha = torch.zeros(learner.slots)
    for row, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        for anchor in range(prompt - 1, length - 2):
            pairs = head.fc(batch.hidden[row, : anchor + 1].flatten(1))
            tokens = batch.ids[row, 1 : anchor + 2].tolist()
            for slot in range(learner.slots):
                if anchor + 2 + slot >= length:
                    break
                out = _through(layer, head, table, pairs, tokens)
                place = anchor - prompt + 1
                weight = lesson.weight[slot, row, place]
                p = linear(batch.last[row, anchor + 1 + slot], table[words.ids]).softmax(-1)
                q = linear(head.norm(out), table[words.ids]).softmax(-1)
                alpha[slot] += weight * torch.minimum(p, q).sum()
                pairs = torch.cat([pairs, out[None]])
                tokens.append(int(batch.ids[row, anchor + 2 + slot]))
    torch.testing.assert_close(marks.alpha, alpha.detach(), rtol=1e-4, atol=1e-4)


def _through(layer: nn.Module, head: nn.Module, table: Tensor, states: Tensor, tokens: list[int]) -> Tensor:
    """The layer's output at the last pair, with causal attention over all of them."""
    with torch.no_grad():
        angles = head.angles(states[None], torch.arange(len(states))[None])  # type: ignore[operator]
        queries, keys, values = layer.project(table[tokens][None], states[None], angles)  # type: ignore[operator]
        found = layer.self_attn.attend(queries[:, :, -1:], keys, values, None)  # type: ignore[union-attr, operator]
        out: Tensor = layer.finish(states[None, -1:], found)[0, -1]  # type: ignore[operator]
    return out
