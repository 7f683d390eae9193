"""What a recipe for a head is, and the workshop that every recipe works in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.head import embedding_rows, output_rows
from spec_viz.models.load import Loaded
from spec_viz.training.batches import batches
from spec_viz.training.features import Corpus
from spec_viz.training.fit import Course
from spec_viz.training.vocabulary import DraftVocabulary, choose

# Channels of features are measured on so many ids.
MEASURED = 20_000


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

    `keep` gives the entries of its config and its tensors; `int8` names the matrices that may be rounded, `papers` the
    entries of its config that its papers repeat.
    """

    course: Course
    learner: Callable[[Workshop], nn.Module]
    keep: Callable[[Workshop, Any], tuple[dict[str, Any], dict[str, Tensor]]]
    int8: Callable[[str], bool] = lambda _name: False
    papers: tuple[str, ...] = ()


def small_llama(
    target: LlamaConfig, *, width: int, layers: int, heads: int, groups: int | None, head_dim: int | None
) -> LlamaConfig:
    """The config of a small Llama of these sizes, with the target's vocabulary, angles and ends of text."""
    return LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=head_dim,
        max_position_embeddings=target.max_position_embeddings,
        rms_norm_eps=target.rms_norm_eps,
        rope_parameters=target.rope_parameters,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        pad_token_id=target.pad_token_id,
        tie_word_embeddings=False,
    )


def llama(config: Any) -> dict[str, Any]:
    """What a Llama layer of a head needs to be built again."""
    names = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings rms_norm_eps bos_token_id eos_token_id pad_token_id tie_word_embeddings"
    )
    kept = {name: getattr(config, name) for name in names.split()}
    return kept | {"rope_parameters": dict(config.rope_parameters)}


def maps(vocabulary: DraftVocabulary) -> dict[str, Tensor]:
    """The maps between the draft vocabulary and the target's, as they are stored."""
    return {"d2t": vocabulary.d2t, "t2d": vocabulary.t2d}
