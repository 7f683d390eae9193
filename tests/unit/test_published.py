"""Heads that others published, through the catalogue: found in a local folder, run by the engine, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.cli import main
from spec_viz.drafters.registry import families
from spec_viz.engine.trace import Trace
from spec_viz.lab.run import Request, RequestError, start
from spec_viz.models import heads, published
from spec_viz.models.catalogue import CATALOGUE, PUBLISHED, PublishedHead, Source, heads_table
from spec_viz.models.load import Loaded, load_any
from spec_viz.models.weights import fetch
from spec_viz.ui.wording import LANGUAGES, words
from tests.engine.vocabularies import byte_level

V, D, INNER = 310, 32, 48
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": INNER,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    # Wide weights spread the logits, so that no greedy choice is a near tie.
    "initializer_range": 0.25,
}


def write_pard(folder: Path) -> None:
    torch.manual_seed(3)
    made: Any = LlamaForCausalLM(LlamaConfig(**(SIZES | {"num_hidden_layers": 1, "pard_token": V - 1})))
    made.save_pretrained(folder)


def write_eagle(folder: Path) -> None:
    shapes = {
        "embed_tokens.weight": (V, D),
        "fc.weight": (D, 2 * D),
        "fc.bias": (D,),
        "layers.0.self_attn.q_proj.weight": (D, D),
        "layers.0.self_attn.k_proj.weight": (D // 2, D),
        "layers.0.self_attn.v_proj.weight": (D // 2, D),
        "layers.0.self_attn.o_proj.weight": (D, D),
        "layers.0.mlp.gate_proj.weight": (INNER, D),
        "layers.0.mlp.up_proj.weight": (INNER, D),
        "layers.0.mlp.down_proj.weight": (D, INNER),
        "layers.0.post_attention_layernorm.weight": (D,),
    }
    generator = torch.Generator().manual_seed(1)
    folder.mkdir(parents=True)
    tensors = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**SIZES, "rope_theta": 5000.0}), encoding="utf-8")


WRITERS: dict[str, Callable[[Path], None]] = {"pard": write_pard, "eagle": write_eagle}


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """A small random target in a cache of its own, for which no head of ours was trained."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    torch.manual_seed(6)
    made: Any = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=2))
    made.save_pretrained(tmp_path / "tiny")
    byte_level().save_pretrained(tmp_path / "tiny")
    return load_any("tiny", "cpu")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue names a head of each method for that target."""
    for method in WRITERS:
        head = PublishedHead(f"{method}-tiny", f"{method} for tiny", method, "tiny", 1, Source("hub", "nobody/here", 1))
        monkeypatch.setitem(PUBLISHED, head.name, head)


def run(target: Loaded, drafter: str) -> Trace:
    request = Request("one two one two one", drafter, gamma=3, max_new_tokens=20, chat=False)
    return start(target, request).collect()


@pytest.mark.parametrize("method", WRITERS)
def test_a_published_head_in_the_cache_drafts_and_the_text_is_the_target_s(
    method: str, target: Loaded, listed: None, tmp_path: Path
) -> None:
    WRITERS[method](tmp_path / f"{method}-tiny")
    found = run(target, method)
    assert found.output == run(target, "none").output
    assert sum(len(round_.nodes) for round_ in found.decoding) > 0


def test_a_published_head_that_is_not_here_says_how_to_get_it(target: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    head = PUBLISHED["pard-llama-3.1-8b"]
    made = Loaded(**{name: getattr(target, name) for name in Loaded.__slots__} | {"entry": CATALOGUE[head.target]})
    with pytest.raises(RequestError) as raised:
        run(made, "pard")
    assert raised.value.key == "error.published_missing"
    said = words("en")(raised.value.key, **raised.value.fields)
    assert "models fetch pard-llama-3.1-8b" in said
    assert head.source.place in said


def test_a_layout_that_is_not_ours_is_refused_in_one_sentence(target: Loaded, listed: None, tmp_path: Path) -> None:
    write_pard(tmp_path / "pard-tiny")
    config = tmp_path / "pard-tiny" / "config.json"
    told = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(told | {"model_type": "qwen3"}), encoding="utf-8")
    with pytest.raises(RequestError) as raised:
        run(target, "pard")
    assert raised.value.key == "error.published_layout"
    for language in LANGUAGES:
        assert "nobody/here" in words(language)(raised.value.key, **raised.value.fields)


def test_a_config_without_what_a_reader_needs_is_refused_too(target: Loaded, listed: None, tmp_path: Path) -> None:
    write_eagle(tmp_path / "eagle-tiny")
    (tmp_path / "eagle-tiny" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RequestError) as raised:
        run(target, "eagle")
    assert "hidden_size" in raised.value.fields["problem"]


def test_a_file_that_is_broken_is_said_in_one_sentence(target: Loaded, listed: None, tmp_path: Path) -> None:
    write_eagle(tmp_path / "eagle-tiny")
    (tmp_path / "eagle-tiny" / "model.safetensors").write_bytes(b"half")
    with pytest.raises(RequestError) as raised:
        run(target, "eagle")
    assert raised.value.key == "error.published_layout"


def test_our_own_head_comes_first(
    target: Loaded, listed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "HEADS", tmp_path / "heads")
    write_pard(tmp_path / "pard-tiny")
    assert published.open_head("pard", target).config["method"] == "pard"
    heads.write_head(tmp_path / "heads" / "pard", {"target": "tiny", "mine": True}, {"d2t": torch.zeros(V)})
    assert published.open_head("pard", target).config == {"target": "tiny", "mine": True}
    heads.write_head(tmp_path / "heads" / "pard", {"target": "another"}, {"d2t": torch.zeros(V)})
    assert published.open_head("pard", target).config["method"] == "pard"


def test_the_catalogue_names_targets_drafters_and_readers_that_exist() -> None:
    assert {head.target for head in PUBLISHED.values()} <= CATALOGUE.keys()
    assert {head.method for head in PUBLISHED.values()} <= families().keys() & published.READERS.keys()
    assert len({(head.method, head.target) for head in PUBLISHED.values()}) == len(PUBLISHED)
    assert not PUBLISHED.keys() & CATALOGUE.keys()
    assert {row["name"] for row in heads_table()} == set(PUBLISHED)


def test_without_a_hub_fetching_a_head_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub

    def unreachable(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route to the hub")

    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    monkeypatch.setattr("spec_viz.models.weights._hub_copy", lambda _: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    assert main(["models", "fetch", "dflash-qwen3-4b"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no route to the hub" in said
    assert "z-lab/Qwen3-4B-DFlash-b16" in said
    assert "Traceback" not in said


def test_a_head_that_is_here_is_not_fetched(listed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    write_eagle(tmp_path / "eagle-tiny")
    assert fetch("eagle-tiny") == tmp_path / "eagle-tiny"
