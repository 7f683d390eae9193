"""The corpus as batches for a head: sequences of like length side by side, with what the target computed over them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from spec_viz.training.features import Corpus, by_length, pad, read_features
from spec_viz.training.shards import Sample, read_shard

# Shards that are open, and mixed, at a time: some hundred megabytes each.
OPEN = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """B sequences, padded behind to n ids.

    `ids` (B, n); `lengths` and `prompt_lengths` (B,); `hidden` (B, n, layers, d) and `last` (B, n, d), bfloat16;
    `weight` (B,), what a sequence counts; `greedy` (B,), whether the target wrote it at temperature 0; `tasks`.
    """

    ids: Tensor
    lengths: Tensor
    prompt_lengths: Tensor
    hidden: Tensor
    last: Tensor
    weight: Tensor
    greedy: Tensor
    tasks: tuple[str, ...]


def batches(corpus: Corpus, held_out: bool, budget: int, seed: int | None = None) -> Iterator[Batch]:
    """Every sequence once, `budget` padded ids in a batch; in an order of their own where a seed is given."""
    numbers = corpus.numbers
    shuffle = random.Random(seed)
    if seed is not None:
        shuffle.shuffle(numbers)
    for first in range(0, len(numbers), OPEN):
        rows = [row for number in numbers[first : first + OPEN] for row in _rows(corpus, number, held_out)]
        groups = list(by_length([len(sample.ids) for sample, _, _ in rows], budget))
        if seed is not None:
            shuffle.shuffle(groups)
        for group in groups:
            yield _batch([rows[place] for place in group])


def count_batches(corpus: Corpus, budget: int, seed: int) -> int:
    """How many batches `batches` makes of the training part, without reading any features."""
    numbers = corpus.numbers
    random.Random(seed).shuffle(numbers)
    count = 0
    for first in range(0, len(numbers), OPEN):
        samples = [sample for number in numbers[first : first + OPEN] for sample in read_shard(corpus.folder, number)]
        lengths = [len(sample.ids) for sample in samples if not sample.held_out]
        count += sum(1 for _ in by_length(lengths, budget))
    return count


def _rows(corpus: Corpus, number: int, held_out: bool) -> list[tuple[Sample, Tensor, Tensor]]:
    samples = read_shard(corpus.folder, number)
    features = read_features(corpus, number, samples)
    return [
        (sample, hidden, last)
        for sample, (hidden, last) in zip(samples, features, strict=True)
        if sample.held_out == held_out
    ]


def _batch(rows: list[tuple[Sample, Tensor, Tensor]]) -> Batch:
    samples = [sample for sample, _, _ in rows]
    return Batch(
        pad([sample.ids for sample in samples]),
        torch.tensor([len(sample.ids) for sample in samples]),
        torch.tensor([sample.prompt_length for sample in samples]),
        torch.nn.utils.rnn.pad_sequence([hidden for _, hidden, _ in rows], batch_first=True),
        torch.nn.utils.rnn.pad_sequence([last for _, _, last in rows], batch_first=True),
        torch.tensor([sample.weight for sample in samples]),
        torch.tensor([sample.greedy for sample in samples]),
        tuple(sample.task for sample in samples),
    )
