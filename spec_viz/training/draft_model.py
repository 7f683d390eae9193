"""The small independent language model as it is trained: distilled on what the target wrote (algorithms §4.4, §12).

It reads tokens through the target's embedding and a learned narrowing, and is read through the target's output rows and
a learned widening. Both products make an ordinary Llama of it, and neither needs storing.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from spec_viz.training.batches import Batch
from spec_viz.training.fit import Course
from spec_viz.training.lesson import Marks, mark, prepare, take
from spec_viz.training.recipe import Recipe, Workshop, llama, small_llama
from spec_viz.training.vocabulary import DraftVocabulary

# Four ninths of SmolLM2's width: its output matrix is then a tenth of the target's work.
HEADS = 4
LAYERS = 3


def small_config(target: LlamaConfig) -> LlamaConfig:
    """A Llama of few heads and layers, with the target's vocabulary and heads of the target's size."""
    head_dim = target.hidden_size // target.num_attention_heads
    heads = min(HEADS, target.num_attention_heads // 2)
    return small_llama(
        target,
        width=heads * head_dim,
        layers=LAYERS,
        heads=heads,
        groups=max(1, heads // 2),
        head_dim=head_dim,
    )


class DraftModelLearner(nn.Module):
    """The small model between the target's frozen embedding (V, d) and its output rows (Vd, d)."""

    slots = 1

    def __init__(self, config: LlamaConfig, vocabulary: DraftVocabulary, embedding: Tensor, output: Tensor) -> None:
        super().__init__()
        self.narrow = nn.Linear(embedding.shape[1], config.hidden_size, bias=False)
        self.widen = nn.Linear(config.hidden_size, output.shape[1], bias=False)
        self.body = LlamaModel(config)
        # Its own table is never read: tokens come in through the target's.
        self.body.set_input_embeddings(nn.Embedding(1, 1, _freeze=True))
        self._vocabulary, self._embedding, self._output = vocabulary, embedding, output
        # A target's embedding is small beside what a layer's residual carries.
        self._size = float(embedding.std())

    def forward(self, batch: Batch) -> Marks:
        """Teacher-forced over a batch: what it says of each token of the answers but the first."""
        lesson = prepare(batch, self._vocabulary, self.slots)
        embedded = self.narrow(self._embedding[batch.ids] / self._size)
        # Padding stands behind, where causal attention never looks.
        states = self.body(inputs_embeds=embedded, use_cache=False).last_hidden_state
        # Anchor t knows x_{t+1}: that is this model's position t + 1.
        loss, sums = mark(lesson, 0, take(self.widen(states), lesson.rows + 1), self._output)
        alpha, agree, weight = sums[:, None]
        return Marks(loss / weight[0].clamp(min=1), alpha, agree, weight)

    def tensors(self) -> dict[str, Tensor]:
        """Its own weights: the body's under Llama's names, and both projections, `narrow` made for raw embeddings."""
        body = {f"model.{name}": value for name, value in self.body.state_dict().items() if "embed_tokens" not in name}
        return body | {"narrow.weight": self.narrow.weight / self._size, "widen.weight": self.widen.weight}


def _learner(work: Workshop) -> nn.Module:
    return DraftModelLearner(small_config(work.loaded.model.config), work.vocabulary, work.embedding, work.output)


def _keep(_: Workshop, learner: DraftModelLearner) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return {"llama": llama(learner.body.config)}, learner.tensors()


RECIPE = Recipe(Course(4, budget=3000, rate=2e-3), _learner, _keep)
