"""A second model by name: the catalogue, folders inside the cache, and nothing else of the machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.lab import run
from spec_viz.models.load import load_any
from spec_viz.models.weights import WeightsError
from tests.engine.vocabularies import byte_level


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one checkpoint `mine`, and another checkpoint `outside` beside the cache."""
    config = LlamaConfig(
        vocab_size=310, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model: Any = LlamaForCausalLM(config)
    for place in (tmp_path / "cache" / "mine", tmp_path / "outside"):
        model.save_pretrained(place)
        byte_level().save_pretrained(place)
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_in_the_cache_is_a_model(cache: Path) -> None:
    loaded = load_any("mine", "cpu")
    assert loaded.entry.name == "mine"
    assert loaded.model.config.vocab_size == 310
    assert loaded.dtype == torch.float32


@pytest.mark.parametrize("name", ["../outside", "{outside}", "nothing", "no/where", "../../..", ".", ""])
def test_no_other_folder_is_looked_at(cache: Path, name: str) -> None:
    with pytest.raises(WeightsError) as raised:
        load_any(name.format(outside=cache.parent / "outside"), "cpu")
    assert raised.value.key == "error.unknown_model"


def test_the_target_s_own_name_opens_the_target_and_loads_nothing() -> None:
    tokenizer = byte_level()
    target: Any = SimpleNamespace(
        entry=SimpleNamespace(name="mine"), model=object(), tokenizer=tokenizer, device="cpu", weight_bytes=7
    )
    opened = run._open(target, "mine")
    assert opened.model is target.model
    assert opened.weight_bytes == 7
    assert opened.encode("a<|im_end|>b") == tokenizer.encode("ab", add_special_tokens=False)
