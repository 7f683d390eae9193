"""What the target computed over the corpus, once: every head learns from the same stream (algorithms §12).

They lie in a folder of their own, a file a shard: `hidden` (n, layers, d) and `last` (n, d), bfloat16, one row an
id of the shard's sequences in their order, loops cut. `hidden` are the inputs of the chosen layers, as transformers
numbers them; `last` is the state behind the final norm, from which the target's own output rows make its law. Logits
are never stored: they would be forty times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from spec_viz.training.generate import quiet
from spec_viz.training.shards import Sample, read_shard, shard_numbers, shard_path

# A pass reads about so many ids, prompts and padding included.
IDS_IN_A_PASS = 4096


def fused_layers(layers: int) -> tuple[int, int, int]:
    """The three layers whose inputs EAGLE-3 fuses: low, middle, high (algorithms §6.4)."""
    return 2, layers // 2, layers - 3


@dataclass(frozen=True, slots=True)
class Corpus:
    """A folder of shards, or its first `limit` ones, and the folder in which their features lie."""

    folder: Path
    features: Path
    limit: int | None = None

    @property
    def numbers(self) -> list[int]:
        """The shards that count; ValueError where there is none."""
        numbers = shard_numbers(self.folder)[: self.limit]
        if not numbers:
            raise ValueError(f"There is no corpus in {self.folder}; `train data --out {self.folder}` makes one.")
        return numbers

    def samples(self, held_out: bool) -> Iterator[Sample]:
        """The sequences that are held out, or those that are not."""
        for number in self.numbers:
            yield from (sample for sample in read_shard(self.folder, number) if sample.held_out == held_out)

    @property
    def tokens(self) -> int:
        """Ids that the target wrote, loops cut, held-out answers too."""
        return sum(len(sample.answer) for number in self.numbers for sample in read_shard(self.folder, number))

    def place(self, number: int) -> Path:
        """Where the features of a shard lie."""
        return self.features / f"shard-{number:05}.safetensors"

    def digest(self, number: int) -> str:
        """What tells a shard from another of the same number."""
        return sha256(shard_path(self.folder, number).read_bytes()).hexdigest()


def write_features(
    model: Any, corpus: Corpus, stop: Callable[[], bool] = lambda: False, hear: Callable[[int], None] = quiet
) -> None:
    """Compute the features of every shard that has none yet, until `stop`; `hear` is told of ids as they are done."""
    corpus.features.mkdir(parents=True, exist_ok=True)
    for number in corpus.numbers:
        samples = read_shard(corpus.folder, number)
        if corpus.place(number).exists():
            hear(sum(len(sample.ids) for sample in samples))
            continue
        made = _features(model, samples, stop, hear)
        if made is None:
            return
        hidden, last = made
        half = corpus.place(number).with_suffix(".tmp")
        save_file({"hidden": hidden, "last": last}, half, {"shard": corpus.digest(number)})
        half.replace(corpus.place(number))


def _features(
    model: Any, samples: Sequence[Sample], stop: Callable[[], bool], hear: Callable[[int], None]
) -> tuple[Tensor, Tensor] | None:
    """The features of a shard's sequences one behind the other; None when `stop` ended it."""
    config = model.config
    layers = fused_layers(config.num_hidden_layers)
    starts = [0, *np.cumsum([len(sample.ids) for sample in samples]).tolist()]
    hidden = torch.empty(starts[-1], len(layers), config.hidden_size, dtype=torch.bfloat16)
    last = torch.empty(starts[-1], config.hidden_size, dtype=torch.bfloat16)
    for rows in by_length([len(sample.ids) for sample in samples], IDS_IN_A_PASS):
        if stop():
            return None
        ids = pad([samples[row].ids for row in rows])
        with torch.inference_mode():
            # Padding stands behind, where a causal model's real rows cannot see it.
            out = model.model(ids.to(model.device), output_hidden_states=[*layers], use_cache=False)
        states = torch.stack([out.hidden_states[layer] for layer in layers], 2)
        for place, row in enumerate(rows):
            length = len(samples[row].ids)
            hidden[starts[row] : starts[row + 1]] = states[place, :length]
            last[starts[row] : starts[row + 1]] = out.last_hidden_state[place, :length]
        hear(sum(len(samples[row].ids) for row in rows))
    return hidden, last


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of sequences of like length together, each group's padded size at most `budget` ids (one at least)."""
    group: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        # In this order the newest is the longest, so it alone decides the padding.
        if group and (len(group) + 1) * lengths[place] > budget:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def pad(rows: Sequence[Any]) -> Tensor:
    """Sequences of ids as one matrix (B, n), zeros behind the shorter ones."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.from_numpy(np.asarray(row, np.int64))
    return ids


def read_features(corpus: Corpus, number: int, samples: Sequence[Sample]) -> list[tuple[Tensor, Tensor]]:
    """The features of a shard's sequences, (n, layers, d) and (n, d) each; ValueError where they are another's."""
    with safe_open(corpus.place(number), "pt") as file:
        if (file.metadata() or {}).get("shard") != corpus.digest(number):
            raise ValueError(f"{corpus.place(number)} belongs to another corpus: choose another folder, or delete it.")
        hidden, last = file.get_tensor("hidden"), file.get_tensor("last")
    starts = [0, *np.cumsum([len(sample.ids) for sample in samples]).tolist()]
    return [(hidden[start:end], last[start:end]) for start, end in pairwise(starts)]
