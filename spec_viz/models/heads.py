"""Trained heads as files: `assets/heads/NAME/` holds config.json, head.safetensors and where they came from.

Matrices may be stored in int8 with one float32 scale a row (`X.scale` beside `X`), everything else in bfloat16; what is
read is float32. Ids and masks stay as they are.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from spec_viz.drafters.head import Head
from spec_viz.models.weights import WeightsError

# `SPECVIZ_HEADS` names another folder: heads of one's own, tried before they replace ours.
HEADS = Path(os.environ.get("SPECVIZ_HEADS") or Path(__file__).resolve().parents[2] / "assets" / "heads")
CONFIG, WEIGHTS, PROVENANCE = "config.json", "head.safetensors", "provenance.json"
# What a repository of the hub takes without large-file storage is 10 MB; a little is left for its own counting.
LARGEST = 9_500_000
SCALE = ".scale"


def heads() -> list[str]:
    """The names of the heads that are here."""
    return sorted(place.parent.name for place in HEADS.glob(f"*/{CONFIG}") if (place.parent / WEIGHTS).is_file())


def check_head(name: str, target_name: str) -> None:
    """WeightsError where the head is missing or was trained for another target; reads its config alone."""
    if name not in heads():
        raise WeightsError("error.head_missing", name=name, folder=f"assets/heads/{name}")
    trained = str(_config(HEADS / name)["target"])
    if trained != target_name:
        raise WeightsError("error.head_other_target", name=name, trained=trained, target=target_name)


def read_head(name: str, target_name: str) -> Head:
    """The head of this name, float32; WeightsError where it is missing or was trained for another target."""
    check_head(name, target_name)
    # One that was trained anew is read anew.
    return _read(HEADS / name, (HEADS / name / WEIGHTS).stat().st_mtime_ns)


def _config(place: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((place / CONFIG).read_text(encoding="utf-8"))
    return config


# More than there are: what is read again is also placed again, which takes a second.
@lru_cache(maxsize=16)
def _read(place: Path, _written: int) -> Head:
    stored = load_file(place / WEIGHTS)
    tensors = {
        name: _restored(tensor, stored.get(name + SCALE))
        for name, tensor in stored.items()
        if not (name.endswith(SCALE) and name.removesuffix(SCALE) in stored)
    }
    return Head(place.name, _config(place), tensors)


def _restored(tensor: Tensor, scale: Tensor | None) -> Tensor:
    if scale is not None:
        return tensor.float() * scale[:, None]
    return tensor.float() if tensor.is_floating_point() else tensor


def write_head(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], int8: bool | Collection[str] = False
) -> None:
    """Write a head's config and weights into a folder, whole or not at all; what lay there is replaced.

    `int8` names the matrices to store in int8; True means all of them. ValueError when a file would be too large.
    """
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        matrix = tensor.is_floating_point() and tensor.dim() == 2
        if matrix and (int8 is True or (int8 is not False and name in int8)):
            stored[name], stored[name + SCALE] = _rounded(tensor)
        else:
            kept = tensor.bfloat16() if tensor.is_floating_point() else tensor
            stored[name] = kept.cpu().contiguous()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        save_file(stored, new / WEIGHTS)
        (new / CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
        for file in new.iterdir():
            if file.stat().st_size >= LARGEST:
                raise ValueError(f"{file.name} has {file.stat().st_size:,} bytes, and {LARGEST:,} are too many")
        if folder.exists():
            folder.rename(old)
        new.rename(folder)


def _rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (rows, n) as int8 and the float32 scale (rows,) that restores it."""
    values = matrix.detach().float().cpu()
    scale = values.abs().amax(1) / 127
    steps = values / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None]
    return steps.round().to(torch.int8), scale
