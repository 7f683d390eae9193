"""Blocks stand where they draft, in training as beside a target; the corrected loss and the confidences are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import LlamaConfig

from spec_viz.drafters.dflash import DFlash
from spec_viz.drafters.dspark import DSpark
from spec_viz.drafters.head import Head
from spec_viz.drafters.registry import Setup, families
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Outcome, Proposal, Seen
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.models.load import Loaded
from spec_viz.training.batches import Batch, batches
from spec_viz.training.dflash import APART, BlockLearner, DFlashLearner, Tables
from spec_viz.training.dspark import DSparkLearner, _Corrected, fit_temperatures, reliability
from spec_viz.training.features import Corpus, write_features
from spec_viz.training.heads import RECIPES
from spec_viz.training.lesson import prepare
from spec_viz.training.recipe import Workshop
from spec_viz.training.smoke import toy_corpus, toy_target
from tests.training.test_lesson import CONFIG, LAYERS, LENGTHS, PROMPTS, D, V, _row, make_batch, vocabulary

NAMES = ("dflash", "dspark")


def make(name: str) -> BlockLearner:
    words = vocabulary()
    table = torch.randn(V, D, generator=torch.Generator().manual_seed(4))
    config = LlamaConfig(**CONFIG.to_dict() | {"num_hidden_layers": 2})
    torch.manual_seed(0)
    tables = Tables(words, table, table[words.ids], torch.ones(D), torch.ones(LAYERS, D))
    if name == "dflash":
        return DFlashLearner(DFlash(config, LAYERS), tables, slots=3, block=4)
    learner = DSparkLearner(DSpark(config, LAYERS, len(words.ids), 4), tables, block=3)
    torch.nn.init.normal_(learner.head.markov_head.markov_w2.weight)
    return learner


# ---------------------------------------------------------------- anchors


@pytest.mark.parametrize("name", NAMES)
def test_no_block_sees_the_padding_or_what_it_is_to_say(name: str) -> None:
    learner, batch = make(name).eval(), make_batch()
    before = learner(batch)
    for row, length in enumerate(LENGTHS):
        batch.ids[row, length:] = 1
        batch.hidden[row, length:] = 9.0
        batch.last[row, length:] = 9.0
    after = learner(batch)
    torch.testing.assert_close(before.loss, after.loss)
    torch.testing.assert_close(before.alpha, after.alpha)
    alone = [learner(_row(batch, row)) for row in range(3)]
    torch.testing.assert_close(sum((each.alpha for each in alone), torch.zeros(())), after.alpha, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_one_anchor_in_three_is_taken_while_it_learns_and_always_the_same_ones(name: str) -> None:
    learner, batch = make(name).train(), make_batch()
    taken, theirs = learner.anchors(batch)
    again, _ = learner.anchors(batch)
    assert torch.equal(taken.rows, again.rows)
    whole = prepare(batch, vocabulary(), learner.slots)
    seen = set()
    for row in range(3):
        first = int(batch.prompt_lengths[row]) - 1
        counted = taken.weight[0, row] > 0
        for place, at in enumerate(taken.rows[row].tolist()):
            column = at - first
            if counted[place]:
                seen.add(column % APART)
                assert torch.equal(taken.weight[:, row, place], whole.weight[:, row, column])
                for slot in range(learner.slots):
                    if taken.weight[slot, row, place]:
                        assert torch.equal(theirs[slot, row, place], batch.last[row, at + 1 + slot])
        assert len(set(taken.rows[row][counted].tolist())) == int(counted.sum())
    # Over many batches every anchor comes as often as any other.
    counts = torch.zeros(APART)
    for salt in range(60):
        batch.ids[0, 0] = salt
        rows = learner.anchors(batch)[0].rows
        counts[(int(rows[1, 0]) - PROMPTS[1] + 1) % APART] += 1
    assert int(counts.min()) > 8


# ---------------------------------------------------------------- the learner's law is the drafter's


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loaded, Corpus]:
    folder = tmp_path_factory.mktemp("toy")
    loaded = toy_target()
    toy_corpus(loaded, folder / "corpus", 1)
    corpus = Corpus(folder / "corpus", folder / "features")
    write_features(loaded.model, corpus)
    return loaded, corpus


@torch.no_grad()
def spoiled(learner: Any) -> Any:
    """A learner whose corrections and norms are no longer those it began with."""
    make = torch.Generator().manual_seed(9)
    for name, weight in learner.head.named_parameters():
        if "norm" in name or "markov" in name or "confidence" in name or name == "mask":
            weight += 0.3 * torch.randn(weight.shape, generator=make)
    return learner.eval()


def plain(loaded: Loaded, batch: Batch) -> Batch:
    """The batch with features that were not rounded on their way."""
    out = loaded.model.model(batch.ids, output_hidden_states=[2, 3], use_cache=False)
    hidden = torch.stack([out.hidden_states[layer] for layer in (2, 3, 3)], 2)
    return Batch(
        batch.ids,
        batch.lengths,
        batch.prompt_lengths,
        hidden,
        out.last_hidden_state,
        batch.weight,
        batch.greedy,
        batch.tasks,
    )


def drafter_at(name: str, loaded: Loaded, head: Head, text: list[int]) -> Any:
    setup: Any = Setup(
        CachedModel(loaded.model),
        None,  # type: ignore[arg-type]
        lambda _: [],
        len(text) - 1,
        frozenset(),
        Warp(1.0),
        "token",
        open_head=lambda _: head,
    )
    family = families()[name]
    drafter: Any = family.build(setup, family.options({}))
    out = loaded.model.model(torch.tensor([text[:-1]]), output_hidden_states=[2, 3], use_cache=False)
    drafter.observe(Outcome((), text, Seen(None, {layer: out.hidden_states[layer][0] for layer in (2, 3)})))
    return drafter


@pytest.mark.parametrize("name", NAMES)
def test_what_the_learner_says_at_an_anchor_is_what_the_drafter_says_there(
    name: str, toy: tuple[Loaded, Corpus], tmp_path: Path
) -> None:
    loaded, corpus = toy
    shop = Workshop(loaded, corpus)
    learner = spoiled(RECIPES[name].learner(shop))
    kept, tensors = RECIPES[name].keep(shop, learner)
    head = Head(name, kept, {key: value.detach() for key, value in tensors.items()})
    batch = plain(loaded, next(iter(batches(corpus, True, 300))))
    lesson, _ = learner.anchors(batch)
    with torch.no_grad():
        states = learner.fill_in(batch, lesson.rows)
    for row, column in ((0, 0), (1, 5), (2, 17)):
        anchor = int(lesson.rows[row, column])
        text = batch.ids[row, : anchor + 2].tolist()
        real = batch.ids[row, anchor + 2 : anchor + 2 + learner.slots].tolist()
        drafter = drafter_at(name, loaded, head, text)
        proposal: Proposal = drafter.propose(text, learner.slots, Draws(0, 1, len(text)))
        model = drafter._model
        for slot in range(learner.slots):
            if name == "dflash":
                mine = linear(states[row, column, slot + 1], learner.tables.output).softmax(-1)
                assert proposal.q_raw is not None
                law = proposal.q_raw[slot]
            else:
                with torch.no_grad():
                    all_states, before = learner.corrected(batch, lesson.rows)
                    h, e = all_states[slot, row, column], before[slot, row, column]
                    mine = (linear(h, learner.tables.output) + learner.head.markov_head.markov_w2(e)).softmax(-1)
                    sure = (learner.head.confidence_head(h, e) / kept["temperatures"][slot]).sigmoid()
                # The real token before the slot, whatever was drafted there.
                token = text[-1] if slot == 0 else real[slot - 1]
                law = model._correct([slot], [token])[0].softmax(-1)
                assert model.confidences[-1] == pytest.approx(float(sure), abs=1e-4)
            torch.testing.assert_close(law[head.draft_ids], mine, rtol=1e-3, atol=1e-5)
            assert float(law.max()) > 2 / 64


# ---------------------------------------------------------------- the corrected loss


def test_the_corrected_loss_and_its_gradients_are_the_plain_ones() -> None:
    make = torch.Generator().manual_seed(6)
    states, theirs = torch.randn(2, 150, 8, generator=make)
    before, second = torch.randn(150, 3, generator=make), torch.randn(11, 3, generator=make)
    output, weight = torch.randn(11, 8, generator=make), torch.rand(150, generator=make)
    inputs = [each.requires_grad_() for each in (states, before, second)]

    def laws() -> tuple[Tensor, Tensor]:
        logs = (linear(states, output) + linear(before, second)).log_softmax(-1)
        return logs, linear(theirs, output).softmax(-1)

    loss, alpha, agree = _Corrected.apply(*inputs, theirs, output, weight)  # type: ignore[no-untyped-call]
    found = torch.autograd.grad(loss, inputs)
    logs, p = laws()
    wanted = (weight * (-0.1 * (p * logs).sum(-1) + 0.9 * (p - logs.exp()).abs().sum(-1))).sum()
    torch.testing.assert_close(loss, wanted)
    for mine, other in zip(found, torch.autograd.grad(wanted, inputs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alpha, 1 - 0.5 * (p - logs.exp()).abs().sum(-1).detach())
    assert torch.equal(agree, (p.argmax(-1) == logs.argmax(-1)).float())


# ---------------------------------------------------------------- confidences


def test_temperatures_undo_an_overconfidence_by_slot() -> None:
    make = torch.Generator().manual_seed(2)
    honest = torch.randn(4000, 3, generator=make)
    hot = torch.tensor([2.0, 1.0, 0.5])
    found = fit_temperatures(honest * hot, honest.sigmoid())
    assert found == pytest.approx(hot.tolist(), rel=0.06)
    table = reliability(honest * hot, honest.sigmoid(), found)
    assert table["error"] < 0.02 < table["error_before"]
    assert sum(row[2] for row in table["tenths"]) == honest.numel()
