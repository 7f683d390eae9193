"""The trained heads by name: a recipe run from corpus to files, and the papers that go with them.

A recipe's settings are those that made the heads in `assets/heads`; `train NAME` with no others makes them again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spec_viz.lab.run import conditions
from spec_viz.models.heads import PROVENANCE, write_head
from spec_viz.training import bigram, dflash, draft_model, dspark, eagle, eagle3, kv_sharing, medusa, mtp, pard
from spec_viz.training.batches import batches
from spec_viz.training.evaluate import evaluate
from spec_viz.training.features import Corpus, write_features
from spec_viz.training.fit import Course, Progress, fit, read_curve
from spec_viz.training.generate import quiet
from spec_viz.training.recipe import Recipe, Workshop
from spec_viz.training.shards import MANIFEST

RECIPES: dict[str, Recipe] = {
    "draft_model": draft_model.RECIPE,
    "eagle3": eagle3.RECIPE,
    "eagle": eagle.RECIPE,
    "mtp": mtp.RECIPE,
    "medusa": medusa.RECIPE,
    "dflash": dflash.RECIPE,
    "dspark": dspark.RECIPE,
    "pard": pard.RECIPE,
    "kv_sharing": kv_sharing.RECIPE,
}
NAMES = ("bigram", *RECIPES)


def train(
    name: str,
    shop: Workshop,
    out: Path,
    folder: Path,
    course: Course | None = None,
    stop: Callable[[], bool] = lambda: False,
    hear: Callable[[str, int, int, Mapping[str, Any] | None], None] = quiet,
) -> dict[str, Any] | None:
    """Make a head and write it with its provenance into `out`; the provenance, or None when `stop` ended it.

    Features are computed first where they are missing. Checkpoints and the log lie in `folder`. `hear` is told what is
    being done, how much of it is done of how much, and the last line of the log.
    """
    began = time.monotonic()
    if name == "bigram":
        # As many rows as there are output rows: the target cannot write another id.
        tensors = bigram.count(shop.corpus.samples(held_out=False), len(shop.embedding))
        learned: dict[str, Any] = {}
        kept: dict[str, Any] = {}
        rounded: set[str] = set()
    else:
        recipe = RECIPES[name]
        course = course or recipe.course
        progress, learner = _learn(name, recipe, shop, folder, course, stop, hear)
        if progress is None:
            return None
        kept, tensors = recipe.keep(shop, learner)
        rounded = {key for key in tensors if recipe.int8(key)}
        rates = evaluate(learner, batches(shop.corpus, True, course.budget))
        learned = {
            "course": asdict(course),
            "steps": progress.steps,
            "curve": read_curve(folder),
            "held_out": {task: rates[task].table() for task in sorted(rates)},
            **{name: kept[name] for name in recipe.papers},
        }
    write_head(out, {"method": name, "target": shop.loaded.entry.name, **kept}, tensors, rounded)
    manifest = json.loads((shop.corpus.folder / MANIFEST).read_text(encoding="utf-8"))
    provenance = {
        "head": name,
        "command": _command(name, shop.corpus, course),
        "licence": "Apache-2.0",
        "corpus": {**manifest, "shards": len(shop.corpus.numbers), "tokens": shop.corpus.tokens},
        "draft_vocabulary": {"size": len(shop.vocabulary.ids), "coverage": round(shop.vocabulary.coverage, 4)},
        "parameters": sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()),
        **learned,
        "seconds_of_last_run": round(time.monotonic() - began),
        "conditions": conditions(shop.loaded),
    }
    write_provenance(out, provenance)
    return provenance


def _command(name: str, corpus: Corpus, course: Course | None) -> str:
    """What makes this head again."""
    parts = [f"python -m spec_viz train {name}"]
    if corpus.limit is not None:
        parts.append(f"--shards {corpus.limit}")
    if course is not None:
        own = RECIPES[name].course
        given = {"epochs": course.epochs, "rate": course.rate, "seed": course.seed}
        parts += [f"--{key} {value}" for key, value in given.items() if value != getattr(own, key)]
    return " ".join(parts)


def _learn(
    name: str,
    recipe: Recipe,
    shop: Workshop,
    folder: Path,
    course: Course,
    stop: Callable[[], bool],
    hear: Callable[[str, int, int, Mapping[str, Any] | None], None],
) -> tuple[Progress | None, nn.Module]:
    """The learner at the end of its course; no progress is told where `stop` came before that."""
    torch.manual_seed(course.seed)
    total = sum(len(sample.ids) for held_out in (False, True) for sample in shop.corpus.samples(held_out))
    done = 0

    def count(ids: int) -> None:
        nonlocal done
        done += ids
        hear("features", done, total, None)

    write_features(shop.loaded.model, shop.corpus, stop, count)
    if stop():
        return None, nn.Identity()
    learner = recipe.learner(shop)

    def tell(progress: Progress) -> None:
        hear(name, progress.step, progress.steps, progress.line)

    progress = fit(learner, shop.corpus, folder, course, stop, tell)
    return (progress if progress.step == progress.steps else None), learner.eval()


def write_provenance(folder: Path, provenance: Mapping[str, Any]) -> None:
    """Write a head's papers beside it."""
    half = folder / (PROVENANCE + ".tmp")
    half.write_text(json.dumps(dict(provenance), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    half.replace(folder / PROVENANCE)
