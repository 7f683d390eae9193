"""A tiny random target with a tokenizer of its own, in float64 so that a batch and a lone row agree."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.models.catalogue import Entry, Source
from spec_viz.models.load import Loaded
from spec_viz.training import lesson
from tests.engine.vocabularies import byte_level

# Several ids end a text, so that some answers end by themselves after some thirty tokens.
ENDS = [*range(100, 108)]


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are computed in float32 on every processor, to be held against a recomputation digit by digit."""
    monkeypatch.setattr(lesson, "quick_dtype", lambda: torch.float32)


@pytest.fixture(scope="session")
def tiny() -> Loaded:
    return make_tiny()


def make_tiny() -> Loaded:
    tokenizer = byte_level()
    config = LlamaConfig(
        vocab_size=310,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        # Wide weights spread the logits, so that no greedy choice is a near tie.
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(4)
    model: Any = LlamaForCausalLM(config)
    model.to(torch.float64).eval()
    # A loud embedding makes the last token count most: greedy texts then come round again.
    model.model.embed_tokens.weight.data *= 40.0
    model.generation_config.eos_token_id = ENDS
    entry = Entry("tiny", "tiny", 1, "", Source("hub", "tiny", 1), "tiny", ())
    return Loaded(model, tokenizer, entry, torch.device("cpu"), "cpu", torch.float64, 0, False)
