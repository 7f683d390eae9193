"""The draft vocabulary: the ids that the target writes most, found in what it wrote (EAGLE-3; FR-Spec 2502.14856)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spec_viz.training.shards import Sample

SIZE = 8192


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """`ids` (Vd,) ascending; `d2t` (Vd,) what to add to a draft id; `t2d` (V,) whether an id can be drafted.

    `coverage` is the share of the training answers' ids that can be.
    """

    ids: Tensor
    d2t: Tensor
    t2d: Tensor
    coverage: float

    @property
    def places(self) -> Tensor:
        """The draft id of every target id, (V,); −1 where there is none."""
        places = torch.full((len(self.t2d),), -1, dtype=torch.long)
        places[self.ids] = torch.arange(len(self.ids))
        return places


def choose(samples: Iterable[Sample], width: int, size: int = SIZE) -> DraftVocabulary:
    """The `size` most frequent ids of the answers, of `width` there are; ties go to the lower id."""
    counts = np.zeros(width, np.int64)
    for sample in samples:
        np.add.at(counts, sample.answer, 1)
    # A stable sort keeps lower ids first, which a byte-level vocabulary gave to what is more common.
    ids = torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:size]).copy())
    t2d = torch.zeros(width, dtype=torch.bool)
    t2d[ids] = True
    d2t = ids - torch.arange(len(ids))
    return DraftVocabulary(ids, d2t, t2d, float(counts[ids.numpy()].sum() / max(1, counts.sum())))
