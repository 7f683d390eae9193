"""The trained heads: how each is set up, what of it is kept, and the papers that go with it.

A recipe's settings are those that made the heads in `assets/heads`; `train NAME` with no others makes them again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spec_viz.drafters.head import embedding_rows, output_rows
from spec_viz.lab.run import conditions
from spec_viz.models.heads import PROVENANCE, write_head
from spec_viz.models.load import Loaded
from spec_viz.training import bigram
from spec_viz.training.batches import batches
from spec_viz.training.draft_model import DraftModelLearner, small_config
from spec_viz.training.eagle3 import Eagle3Learner
from spec_viz.training.evaluate import calibrate, evaluate
from spec_viz.training.features import Corpus, fused_layers, write_features
from spec_viz.training.fit import Course, Progress, fit, read_curve
from spec_viz.training.generate import quiet
from spec_viz.training.medusa import MedusaLearner
from spec_viz.training.shards import MANIFEST
from spec_viz.training.vocabulary import DraftVocabulary, choose

# Channels of features are measured on so many ids.
MEASURED = 20_000
# Guesses of a Medusa head that its tree may use.
RANKS = 10


@dataclass(frozen=True)
class Workshop:
    """What every recipe works with: the target and the corpus."""

    loaded: Loaded
    corpus: Corpus

    @cached_property
    def vocabulary(self) -> DraftVocabulary:
        """The draft vocabulary of the corpus's training part."""
        return choose(self.corpus.samples(held_out=False), len(self.embedding))

    @cached_property
    def embedding(self) -> Tensor:
        """The target's embedding (V, d), float32."""
        return embedding_rows(self.loaded.model).float()

    @cached_property
    def output(self) -> Tensor:
        """The target's output rows (Vd, d) of the draft vocabulary, float32."""
        return output_rows(self.loaded.model, self.vocabulary.ids).float()

    @cached_property
    def scale(self) -> Tensor:
        """The size of every channel of the features, (layers, d)."""
        batch = next(iter(batches(self.corpus, False, MEASURED)))
        real = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
        return batch.hidden[real].float().std(0).clamp(min=1e-3)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a head is made: its course, the module that learns, and what of that is kept.

    `keep` gives the entries of its config and its tensors; `int8` names the matrices that may be rounded.
    """

    course: Course
    learner: Callable[[Workshop], nn.Module]
    keep: Callable[[Workshop, Any], tuple[dict[str, Any], dict[str, Tensor]]]
    int8: Callable[[str], bool] = lambda _name: False


def _eagle3(work: Workshop) -> nn.Module:
    config = work.loaded.model.config
    norm = work.loaded.model.model.norm.weight.float()
    return Eagle3Learner(config, work.vocabulary, work.embedding, work.output, norm, work.scale, slots=3)


def _keep_eagle3(work: Workshop, learner: Eagle3Learner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = work.loaded.model.config
    kept = {"layers": [*fused_layers(config.num_hidden_layers)], "llama": _llama(config)}
    return kept, learner.fold() | _maps(work.vocabulary)


def _medusa(work: Workshop) -> nn.Module:
    return MedusaLearner(work.vocabulary, work.output, slots=4)


def _keep_medusa(work: Workshop, learner: MedusaLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    accuracies = calibrate(learner, batches(work.corpus, True, Course(1).budget), work.vocabulary, work.output, RANKS)
    return {"heads": learner.slots, "accuracies": accuracies}, dict(learner.heads.state_dict()) | _maps(work.vocabulary)


def _draft_model(work: Workshop) -> nn.Module:
    config = small_config(work.loaded.model.config)
    return DraftModelLearner(config, work.vocabulary, work.embedding, work.output)


def _keep_draft_model(_: Workshop, learner: DraftModelLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return {"llama": _llama(learner.body.config)}, learner.tensors()


RECIPES: dict[str, Recipe] = {
    "draft_model": Recipe(Course(4, budget=3000, rate=2e-3), _draft_model, _keep_draft_model),
    "eagle3": Recipe(
        Course(3, budget=3000, rate=1e-3), _eagle3, _keep_eagle3, lambda name: "proj" in name or name == "fc.weight"
    ),
    "medusa": Recipe(Course(2, budget=3000, rate=1e-3), _medusa, _keep_medusa),
}
NAMES = ("bigram", *RECIPES)


def _llama(config: Any) -> dict[str, Any]:
    """What a Llama layer of a head needs to be built again."""
    names = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings rms_norm_eps bos_token_id eos_token_id pad_token_id tie_word_embeddings"
    )
    kept = {name: getattr(config, name) for name in names.split()}
    return kept | {"rope_parameters": dict(config.rope_parameters)}


def _maps(vocabulary: DraftVocabulary) -> dict[str, Tensor]:
    return {"d2t": vocabulary.d2t, "t2d": vocabulary.t2d}


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
