"""A head is ready when its papers say that it beats a bigram table; and a table when it is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from spec_viz.drafters.registry import families
from spec_viz.models import heads
from spec_viz.models.readiness import Standing, standing

FAMILIES = families()


def write(folder: Path, name: str, alpha: float | None, target: str = "smollm2-135m") -> None:
    heads.write_head(folder / name, {"method": name, "target": target}, {"d2t": torch.zeros(2, dtype=torch.long)})
    papers = {"head": name} | ({} if alpha is None else {"live": {"alpha": alpha}})
    (folder / name / heads.PROVENANCE).write_text(json.dumps(papers), encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(heads, "HEADS", tmp_path)
    return tmp_path


def test_what_needs_no_weights_is_ready() -> None:
    assert standing(FAMILIES["prompt_lookup"]) == Standing(True)


def test_a_head_that_is_missing_is_not() -> None:
    assert standing(FAMILIES["eagle3"]) == Standing(False)


@pytest.mark.parametrize(("alpha", "floor", "ready"), [(0.5, 0.2, True), (0.2, 0.2, False), (0.1, 0.2, False)])
def test_a_head_must_beat_the_bigram_table(folder: Path, alpha: float, floor: float, ready: bool) -> None:
    write(folder, "bigram", floor)
    write(folder, "eagle3", alpha)
    assert standing(FAMILIES["eagle3"]) == Standing(ready, alpha, floor)
    assert standing(FAMILIES["bigram"]) == Standing(True, floor, floor)


def test_a_head_that_nobody_measured_is_not_ready(folder: Path) -> None:
    write(folder, "bigram", 0.2)
    write(folder, "medusa", None)
    assert standing(FAMILIES["medusa"]) == Standing(False, None, 0.2)


def test_a_head_of_another_target_is_not_ready(folder: Path) -> None:
    write(folder, "bigram", 0.2)
    write(folder, "medusa", 0.5, target="another")
    assert standing(FAMILIES["medusa"]) == Standing(False)
    assert standing(FAMILIES["medusa"], "another") == Standing(True, 0.5, 0.2)
