"""Loading: the device, the dtype, packed weights that compute the same, and models whose cache cannot roll back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn
from transformers import (
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from spec_viz.engine import pack as packing
from spec_viz.engine.pack import PackedLinear, can_pack, pack
from spec_viz.models.catalogue import CATALOGUE, DEFAULT, table
from spec_viz.models.load import CannotRollBack, check_cache, load, load_folder, pick_device, pick_dtype, set_threads
from spec_viz.models.weights import WeightsError, WeightsMissing

CPU = torch.device("cpu")
packs = pytest.mark.skipif(not can_pack(), reason="this processor or torch cannot pack weights")


def save_checkpoint(place: Path, model: Any) -> Path:
    model.save_pretrained(place)
    words = {f"w{index}": index for index in range(model.config.vocab_size)}
    build: Any = PreTrainedTokenizerFast
    build(tokenizer_object=Tokenizer(WordLevel(words))).save_pretrained(place)
    return place


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return save_checkpoint(tmp_path / "tiny", LlamaForCausalLM(config))


# ---------------------------------------------------------------- packed weights


@packs
@pytest.mark.parametrize("rows", [1, 2, 5, 9, 17, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_computes_what_the_plain_one_does(rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    linear = nn.Linear(576, 192, bias=bias)
    x = torch.randn(1, rows, 576)
    with torch.inference_mode():
        torch.testing.assert_close(PackedLinear(linear)(x), linear(x), atol=1e-5, rtol=1e-4)


@packs
def test_a_packed_model_agrees_with_the_plain_one_and_keeps_its_table(checkpoint: Path) -> None:
    entry = CATALOGUE[DEFAULT]
    plain, packed = (load_folder(checkpoint, entry, CPU, packed=choice) for choice in (False, True))
    assert (plain.packed, packed.packed) == (False, True)
    assert type(plain.model.lm_head) is nn.Linear
    assert not any(isinstance(module, nn.Linear) for module in packed.model.modules())
    assert torch.equal(packed.model.model.embed_tokens.weight, plain.model.lm_head.weight)
    ids = torch.arange(30)[None]
    with torch.inference_mode():
        torch.testing.assert_close(packed.model(ids).logits, plain.model(ids).logits, atol=1e-5, rtol=1e-4)
    assert packed.weight_bytes == plain.weight_bytes == 4 * sum(p.numel() for p in plain.model.parameters())


def test_without_the_operators_a_model_stays_as_it_is(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise NotImplementedError("no such operator here")

    monkeypatch.setattr(PackedLinear, "forward", missing)
    packing.can_pack.cache_clear()
    try:
        loaded = load_folder(checkpoint, CATALOGUE[DEFAULT], CPU)
    finally:
        packing.can_pack.cache_clear()
    assert not loaded.packed
    assert type(loaded.model.lm_head) is nn.Linear


@packs
def test_layers_in_other_dtypes_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(8, 8, dtype=torch.bfloat16), nn.Linear(8, 8))
    pack(model)
    assert [type(layer) for layer in model] == [nn.Linear, PackedLinear]


# ---------------------------------------------------------------- caches that roll back


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(sliding_window=16),
        Gemma3TextConfig(num_hidden_layers=6),
        Qwen2Config(use_sliding_window=True, sliding_window=16, max_window_layers=0),
        MambaConfig(num_hidden_layers=2),
    ],
    ids=lambda config: config.model_type,
)
def test_windows_and_recurrences_are_refused(config: Any) -> None:
    with pytest.raises(CannotRollBack) as refused:
        check_cache(config, "some-model")
    assert refused.value.fields["layers"]


@pytest.mark.parametrize(
    "config",
    [LlamaConfig(), Qwen3Config(), Qwen2Config(sliding_window=16), MistralConfig(sliding_window=None)],
    ids=lambda config: config.model_type,
)
def test_full_attention_is_taken(config: Any) -> None:
    check_cache(config, "some-model")


def test_a_refused_model_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    MistralConfig(sliding_window=16).save_pretrained(tmp_path)
    with pytest.raises(CannotRollBack):
        load_folder(tmp_path, CATALOGUE[DEFAULT], CPU)


# ---------------------------------------------------------------- hub entries, device, dtype


def test_a_hub_entry_loads_from_a_checkpoint_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    monkeypatch.setenv("SPECVIZ_DEVICE", "cpu")
    config = Qwen3Config(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
    )
    save_checkpoint(tmp_path / "qwen3-4b", Qwen3ForCausalLM(config))
    loaded = load("qwen3-4b")
    assert loaded.entry.partner == "qwen3-0.6b"
    assert loaded.tokenizer.encode("w3") == [3]
    with torch.inference_mode():
        assert loaded.model(torch.tensor([[1, 2]])).logits.shape == (1, 2, 40)


def test_load_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    with pytest.raises(WeightsMissing):
        load(DEFAULT)


def test_the_environment_decides_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_DEVICE", "CPU")
    assert pick_device() == CPU
    monkeypatch.setenv("SPECVIZ_DEVICE", "abacus")
    with pytest.raises(WeightsError) as unknown:
        pick_device()
    assert unknown.value.fields == {"device": "abacus", "known": unknown.value.fields["known"]}


@pytest.mark.parametrize(("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_cuda_before_mps_before_the_processor(
    cuda: bool, mps: bool, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECVIZ_DEVICE", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr("torch.cuda.device_count", lambda: int(cuda))
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)
    assert pick_device().type == best


def test_small_models_stay_in_float32_and_big_ones_do_not_on_a_gpu() -> None:
    small, big = CATALOGUE[DEFAULT], CATALOGUE["qwen3-4b"]
    assert pick_dtype(small, torch.device("cuda")) == torch.float32
    assert pick_dtype(big, torch.device("cuda")) == torch.bfloat16
    assert pick_dtype(big, CPU) == torch.float32


def test_threads_are_no_more_than_the_cores_of_this_process() -> None:
    assert 1 <= set_threads() == torch.get_num_threads()


def test_the_table_has_a_row_a_model() -> None:
    rows = table()
    assert [row["name"] for row in rows] == list(CATALOGUE)
    assert len({tuple(row) for row in rows}) == 1


@pytest.mark.gpu
def test_a_gpu_computes_what_the_processor_does(checkpoint: Path) -> None:
    entry = CATALOGUE[DEFAULT]
    ids = torch.arange(30)[None]
    with torch.inference_mode():
        there = load_folder(checkpoint, entry, torch.device("cuda")).model(ids.cuda()).logits.cpu()
        here = load_folder(checkpoint, entry, CPU, packed=False).model(ids).logits
    torch.testing.assert_close(there, here, atol=1e-4, rtol=1e-3)
