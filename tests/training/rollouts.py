"""A batch of the toy target's own, in float32, and what a learner says over it: held against what its drafter says."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spec_viz.models.load import Loaded
from spec_viz.training.batches import Batch
from spec_viz.training.features import fused_layers
from spec_viz.training.lesson import Lesson, mark
from spec_viz.training.smoke import TOKENS, toy_target
from spec_viz.training.vocabulary import DraftVocabulary

PROMPTS, LENGTHS = (3, 6, 1), (12, 15, 5)


@cache
def target() -> Loaded:
    return toy_target()


def vocabulary() -> DraftVocabulary:
    """Three quarters of the toy's tokens."""
    ids = torch.tensor([token for token in range(TOKENS) if token % 4 != 1])
    t2d = torch.zeros(TOKENS, dtype=torch.bool).index_fill(0, ids, True)
    return DraftVocabulary(ids, ids - torch.arange(len(ids)), t2d, 1.0)


def tables() -> tuple[Tensor, Tensor]:
    """The embedding (V, d) and the output rows (Vd, d)."""
    rows = target().model.get_input_embeddings().weight.detach()
    return rows, rows[vocabulary().ids]


@torch.no_grad()
def make_batch() -> Batch:
    """Sequences of different lengths with the target's own features; what stands behind an end is noise."""
    make = torch.Generator().manual_seed(8)
    ids = torch.randint(TOKENS, (len(LENGTHS), max(LENGTHS)), generator=make)
    layers = fused_layers(target().model.config.num_hidden_layers)
    out = target().model.model(ids, output_hidden_states=[*layers], use_cache=False)
    hidden = torch.stack([out.hidden_states[layer] for layer in layers], 2)
    for row, length in enumerate(LENGTHS):
        hidden[row, length:] = 3.0
        out.last_hidden_state[row, length:] = 3.0
    weight, greedy = torch.ones(len(LENGTHS)), torch.ones(len(LENGTHS), dtype=torch.bool)
    lengths, prompts = torch.tensor(LENGTHS), torch.tensor(PROMPTS)
    return Batch(ids, lengths, prompts, hidden, out.last_hidden_state, weight, greedy, ("chat",) * len(LENGTHS))


def anchors() -> list[tuple[int, int, int]]:
    """(row, place among the lesson's anchors, position) of every anchor."""
    return [
        (row, place, prompt - 1 + place)
        for row, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
        for place in range(length - prompt)
        if prompt - 1 + place <= length - 2
    ]


def said(learner: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Tensor], list[Tensor]]:
    """By slot, the learner's laws (B, a, Vd) at every anchor, and what each anchor counted."""
    heard: dict[int, tuple[Tensor, Tensor]] = {}

    def listen(lesson: Lesson, slot: int, states: Tensor, output: Tensor) -> Any:
        heard[slot] = (nn.functional.linear(states.float(), output).softmax(-1), lesson.weight[slot])
        return mark(lesson, slot, states, output)

    monkeypatch.setattr(f"{type(learner).__module__}.mark", listen)
    with torch.no_grad():
        learner(batch)
    return [heard[slot][0] for slot in sorted(heard)], [heard[slot][1] for slot in sorted(heard)]
