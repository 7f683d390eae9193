"""Heads as others load them: an ordinary Llama, and EAGLE-3's published layout; both out of head and target alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, LlamaModel

from spec_viz.drafters.eagle3 import Eagle3
from spec_viz.models import heads
from spec_viz.models.catalogue import CATALOGUE, DEFAULT, DRAFT, Source
from spec_viz.models.export import export
from spec_viz.models.heads import read_head, write_head
from spec_viz.models.weights import WeightsError, WeightsMissing, fetch, is_cached
from tests.engine.vocabularies import byte_level

WIDTH, NARROW, DEPTH = 16, 8, 8
LAYERS = [2, 4, 5]
LLAMA: dict[str, Any] = {
    "vocab_size": len(byte_level()),
    "num_hidden_layers": DEPTH,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
VOCABULARY: int = LLAMA["vocab_size"]
DRAFT_IDS = torch.arange(1, VOCABULARY, 3)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with no heads yet and a tiny target in the default one's stead."""
    monkeypatch.setattr(heads, "HEADS", tmp_path / "heads")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setitem(CATALOGUE, DEFAULT, replace(CATALOGUE[DEFAULT], source=Source("hub", "nobody/tiny", 1)))
    write_target(tmp_path / "cache" / DEFAULT)
    return tmp_path


def write_target(folder: Path, tied: bool = True) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = LlamaForCausalLM(LlamaConfig(**LLAMA, hidden_size=WIDTH, tie_word_embeddings=tied))
    model.save_pretrained(folder)
    byte_level().save_pretrained(folder)


def target_rows(home: Path) -> Tensor:
    return load_file(home / "cache" / DEFAULT / "model.safetensors")["model.embed_tokens.weight"]


def drawn(shapes: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(tensor.shape, generator=generator) * 0.3 for name, tensor in shapes.items()}


def small() -> dict[str, Any]:
    return LLAMA | {"hidden_size": NARROW, "num_hidden_layers": 2, "head_dim": 4, "tie_word_embeddings": False}


def put_draft_model(home: Path, seed: int = 1) -> None:
    body = LlamaModel(LlamaConfig(**small())).state_dict()
    shapes = {f"model.{name}": tensor for name, tensor in body.items() if "embed_tokens" not in name}
    shapes |= {"narrow.weight": torch.empty(NARROW, WIDTH), "widen.weight": torch.empty(WIDTH, NARROW)}
    write_head(home / "heads" / "draft_model", {"target": DEFAULT, "llama": small()}, drawn(shapes, seed))


def put_eagle3(home: Path, layers: list[int] = LAYERS) -> None:
    llama = LLAMA | {"hidden_size": WIDTH}
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill(0, DRAFT_IDS, True)
    maps = {"d2t": DRAFT_IDS - torch.arange(len(DRAFT_IDS)), "t2d": t2d}
    body = Eagle3(LlamaConfig(**llama), len(layers)).state_dict()
    config = {"target": DEFAULT, "layers": layers, "llama": llama}
    write_head(home / "heads" / "eagle3", config, drawn(body, 2) | maps, int8={"fc.weight"})


@torch.inference_mode()
def by_hand(home: Path, ids: Tensor) -> Tensor:
    """Logits (1, n, V): in through the target's embedding and `narrow`, out through `widen` and the target's rows."""
    head, rows = read_head("draft_model", DEFAULT), target_rows(home)
    body = LlamaModel(LlamaConfig(**small()))
    body.set_input_embeddings(nn.Embedding(1, 1))
    parts = {name.removeprefix("model."): part for name, part in head.tensors.items() if name.startswith("model.")}
    body.load_state_dict(parts | {"embed_tokens.weight": torch.zeros(1, 1)})
    states = body(inputs_embeds=rows[ids] @ head.tensors["narrow.weight"].T).last_hidden_state
    logits: Tensor = states @ head.tensors["widen.weight"].T @ rows.T
    return logits


def test_the_draft_model_is_a_llama_that_says_what_its_parts_say(home: Path) -> None:
    put_draft_model(home)
    export("draft_model", DEFAULT, home / "made")
    model: Any = AutoModelForCausalLM.from_pretrained(home / "made", local_files_only=True)
    assert type(model) is LlamaForCausalLM
    assert model.dtype == torch.float32
    ids = torch.tensor([[5, 40, 3, 200, 17, 17, 99]])
    with torch.inference_mode():
        logits = model(input_ids=ids).logits
    assert logits.std() > 0.01
    torch.testing.assert_close(logits, by_hand(home, ids), atol=1e-5, rtol=1e-5)
    made, own = (AutoTokenizer.from_pretrained(place) for place in (home / "made", home / "cache" / DEFAULT))
    assert made.get_vocab() == own.get_vocab()


def test_eagle3_has_the_published_names_and_shapes(home: Path) -> None:
    put_eagle3(home)
    export("eagle3", DEFAULT, home / "made")
    tensors = load_file(home / "made" / "model.safetensors")
    d, inner, kv, drafts = WIDTH, LLAMA["intermediate_size"], WIDTH // 2, len(DRAFT_IDS)
    # Those of SafeAILab and SpecForge, algorithms §6.4.
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "d2t": (drafts,),
        "t2d": (VOCABULARY,),
        "fc.weight": (d, 3 * d),
        "lm_head.weight": (drafts, d),
        "norm.weight": (d,),
        "midlayer.hidden_norm.weight": (d,),
        "midlayer.input_layernorm.weight": (d,),
        "midlayer.post_attention_layernorm.weight": (d,),
        "midlayer.self_attn.q_proj.weight": (d, 2 * d),
        "midlayer.self_attn.k_proj.weight": (kv, 2 * d),
        "midlayer.self_attn.v_proj.weight": (kv, 2 * d),
        "midlayer.self_attn.o_proj.weight": (d, d),
        "midlayer.mlp.gate_proj.weight": (inner, d),
        "midlayer.mlp.up_proj.weight": (inner, d),
        "midlayer.mlp.down_proj.weight": (d, inner),
    }
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    assert (dtypes.pop("d2t"), dtypes.pop("t2d")) == (torch.int64, torch.bool)
    assert set(dtypes.values()) == {torch.float32}
    assert torch.equal(tensors["lm_head.weight"], target_rows(home)[DRAFT_IDS])
    head = read_head("eagle3", DEFAULT)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in head.tensors.items())


def test_eagle3_says_what_a_server_must_know(home: Path) -> None:
    put_eagle3(home)
    export("eagle3", DEFAULT, home / "made")
    config = json.loads((home / "made" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["num_hidden_layers"], config["draft_vocab_size"]) == (1, len(DRAFT_IDS))
    assert (config["vocab_size"], config["hidden_size"], config["target_hidden_size"]) == (VOCABULARY, WIDTH, WIDTH)
    # Two servers count layers two ways, so none is named.
    assert "eagle_config" not in config


def test_eagle3_that_fuses_other_layers_is_refused(home: Path) -> None:
    put_eagle3(home, [1, 4, 5])
    with pytest.raises(ValueError, match=r"inputs of layers \[2, 4, 5\] and this head \[1, 4, 5\]"):
        export("eagle3", DEFAULT, home / "made")
    assert not (home / "made").exists()


def test_what_others_cannot_load_is_refused_in_a_sentence(home: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^medusa has no layout that other programs load; draft_model and eagle3 do\.$"
    ):
        export("medusa", DEFAULT, home / "made")
    with pytest.raises(WeightsError, match=r"error\.head_missing"):
        export("eagle3", DEFAULT, home / "made")
    put_eagle3(home)
    write_target(home / "cache" / DEFAULT, tied=False)
    with pytest.raises(ValueError, match=r"^Only heads of a target with tied rows can be written out\.$"):
        export("eagle3", DEFAULT, home / "made")
    assert not (home / "made").exists()


def test_the_draft_model_is_written_out_again_when_its_head_changes(home: Path) -> None:
    put_draft_model(home)
    assert not is_cached(DRAFT)
    file = fetch(DRAFT) / "model.safetensors"
    first, written = load_file(file), file.stat().st_mtime_ns
    assert is_cached(DRAFT)
    assert fetch(DRAFT) / "model.safetensors" == file
    assert file.stat().st_mtime_ns == written
    assert file.stat().st_mode & 0o777 == 0o644

    put_draft_model(home, seed=4)
    assert not is_cached(DRAFT)
    second = load_file(fetch(DRAFT) / "model.safetensors")
    assert first.keys() == second.keys()
    head = read_head("draft_model", DEFAULT).tensors
    torch.testing.assert_close(second["lm_head.weight"], target_rows(home) @ head["widen.weight"])
    assert not torch.allclose(first["lm_head.weight"], second["lm_head.weight"])
    assert sorted(place.name for place in (home / "cache").iterdir() if place.is_dir()) == [DEFAULT, DRAFT]


def test_no_draft_model_without_its_head_or_its_target(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WeightsError, match=r"error\.head_missing"):
        fetch(DRAFT)
    put_draft_model(home)
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "empty"))
    with pytest.raises(WeightsMissing, match=r"error\.weights_missing_head"):
        fetch(DRAFT)
    assert not (tmp_path / "empty" / DRAFT).exists()
