"""A bigram table: what followed a token most often. The floor for every head, and Leviathan's own (2211.17192)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from spec_viz.training.shards import Sample

# Successors kept of each token.
KEPT = 16


def count(samples: Iterable[Sample], width: int) -> dict[str, Tensor]:
    """`next` (V, KEPT) int32 and `chance` (V, KEPT), the shares among the kept; zeros where a token was never followed.

    Only what the target wrote is counted: from the answer's first token on.
    """
    pairs = [np.stack([sample.answer[:-1], sample.answer[1:]]).astype(np.int64) for sample in samples]
    before, behind = np.concatenate(pairs, 1)
    keys, counts = np.unique(before * width + behind, return_counts=True)
    firsts, seconds = keys // width, keys % width
    # By token, the most frequent successor first; ties go to the lower id.
    order = np.lexsort((seconds, -counts, firsts))
    firsts, seconds, counts = firsts[order], seconds[order], counts[order]
    place = np.arange(len(firsts)) - np.searchsorted(firsts, firsts)
    kept = place < KEPT
    successors, chance = np.zeros((width, KEPT), np.int32), np.zeros((width, KEPT), np.float32)
    successors[firsts[kept], place[kept]] = seconds[kept]
    chance[firsts[kept], place[kept]] = counts[kept]
    chance /= np.maximum(chance.sum(1, keepdims=True), 1)
    return {"next": torch.from_numpy(successors), "chance": torch.from_numpy(chance)}
