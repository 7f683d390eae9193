"""Heads that others published, for targets of the catalogue: found in the cache or on the hub, read as heads of ours.

A drafter runs on our own head where one was trained for its target. Where none was, and the catalogue names a published
one, it runs on that. Each layout has its reader; what a reader refuses is said with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from spec_viz.drafters.head import Head
from spec_viz.models import weights
from spec_viz.models.catalogue import PublishedHead, published_head
from spec_viz.models.heads import check_head, read_head
from spec_viz.models.load import Loaded
from spec_viz.models.published_blocks import read_dflash, read_dspark
from spec_viz.models.published_features import read_eagle, read_eagle3, read_mtp
from spec_viz.models.published_models import read_assistant, read_pard
from spec_viz.models.weights import WeightsError

READERS: Mapping[str, Callable[[Path, Any], Head]] = {
    "dflash": read_dflash,
    "dspark": read_dspark,
    "eagle": read_eagle,
    "eagle3": read_eagle3,
    "kv_sharing": read_assistant,
    "mtp": read_mtp,
    "pard": read_pard,
}


def open_head(name: str, loaded: Loaded) -> Head:
    """The head that a drafter runs on beside this target; WeightsError says what to do where there is none."""
    target = loaded.entry.name
    published = published_head(name, target)
    if published is None or _ours(name, target):
        return read_head(name, target)
    return _read(published, weights.folder(published.name), loaded.model)


def _ours(name: str, target: str) -> bool:
    try:
        check_head(name, target)
    except WeightsError:
        return False
    return True


# A head of a large target takes seconds to read and gigabytes to hold.
@lru_cache(maxsize=1)
def _read(published: PublishedHead, place: Path, model: Any) -> Head:
    try:
        return READERS[published.method](place, model)
    except (ValueError, KeyError, OSError, SafetensorError) as problem:
        reason = f"no {problem}" if isinstance(problem, KeyError) else str(problem).rstrip(".")
        fields = {"title": published.title, "place": published.source.place, "problem": reason}
        raise WeightsError("error.published_layout", **fields) from None
