"""Every big pair of the catalogue as a tiny random twin: found by its name, loaded by the real way, and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from spec_viz.engine.trace import Trace
from spec_viz.lab.run import Request, RequestError, encode_prompt, start
from spec_viz.models import load as loading
from spec_viz.models import weights
from spec_viz.models.catalogue import BUILT_LIKE_LLAMA, CATALOGUE, DEFAULT, PUBLISHED
from spec_viz.models.load import Loaded, load
from spec_viz.models.published import open_head
from spec_viz.models.weights import WeightsError, chosen_target
from spec_viz.ui.boot import boot
from spec_viz.ui.limits import Limits
from spec_viz.ui.room import Room, bundle_of
from spec_viz.ui.visitor import Visitor
from spec_viz.ui.wording import LANGUAGES, words
from tests.engine.vocabularies import byte_level
from tests.unit import eagle3_heads, test_published_blocks
from tests.unit.test_published import SIZES, V, write_eagle, write_pard

D = SIZES["hidden_size"]
# A prompt that says something twice, so that look-up finds something too.
PROMPT = "one two one two one"
NEW = 20
QWEN: dict[str, Any] = SIZES | {"head_dim": 16, "num_hidden_layers": 6}
# Chat as Qwen3 templates it: without the last setting the model would think first.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}<|im_start|>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"
)


def save(place: Path, model: Any) -> None:
    model.save_pretrained(place)
    tokenizer = byte_level()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(place)


def qwen3(place: Path, seed: int = 6, **changes: Any) -> None:
    torch.manual_seed(seed)
    save(place, Qwen3ForCausalLM(Qwen3Config(**(QWEN | changes))))


def llama(place: Path, seed: int = 6, **changes: Any) -> None:
    torch.manual_seed(seed)
    save(place, LlamaForCausalLM(LlamaConfig(**(SIZES | {"num_hidden_layers": 6} | changes))))


GEMMA: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 32,
    "max_position_embeddings": 128,
    # Shorter than the prompt.
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "hidden_size_per_layer_input": 4,
    "vocab_size_per_layer_input": V,
    "num_kv_shared_layers": 2,
    "final_logit_softcapping": 30.0,
    "initializer_range": 0.3,
}


def gemma4(place: Path) -> None:
    """The whole model as Google publishes it, which also sees; text is a part of it."""
    torch.manual_seed(6)
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"num_key_value_heads": 2, "head_dim": 8, "position_embedding_size": 16}
    config = Gemma4Config(
        text_config=Gemma4TextConfig(**GEMMA).to_dict(),
        vision_config=vision,
        audio_config=None,
        image_token_id=V - 1,
        video_token_id=V - 2,
        audio_token_id=V - 3,
    )
    config.initializer_range = 0.3
    save(place, Gemma4ForConditionalGeneration(config))


def gemma4_assistant(place: Path) -> None:
    torch.manual_seed(2)
    text = GEMMA | {"hidden_size": 16, "num_hidden_layers": 2, "layer_types": GEMMA["layer_types"][:2]}
    text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 2}
    config = Gemma4AssistantConfig(text_config=Gemma4TextConfig(**text).to_dict(), backbone_hidden_size=D)
    made: Any = Gemma4AssistantForCausalLM(config)
    made.save_pretrained(place)


def blocks(place: Path, spark: bool) -> None:
    theirs = test_published_blocks
    tensors = theirs.tensors_of(theirs.theirs())
    make = torch.Generator().manual_seed(2)
    if spark:
        shapes = {
            "markov_head.markov_w1.weight": (V, theirs.RANK),
            "markov_head.markov_w2.weight": (V, theirs.RANK),
            "confidence_head.proj.weight": (1, D + theirs.RANK),
            "confidence_head.proj.bias": (1,),
            "lm_head.weight": (V, D),
            "embed_tokens.weight": (V, D),
        }
        tensors |= {name: torch.randn(shape, generator=make) for name, shape in shapes.items()}
    theirs.write(place, theirs.deepspec() if spark else theirs.zlab(), tensors)


def eagle3(layout: str, target: str) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        rows = load(target, "cpu").model.get_input_embeddings().weight.detach()
        sizes = SIZES | {"rope_theta": 5000.0}
        eagle3_heads.write(place, eagle3_heads.settings(layout, sizes), eagle3_heads.tensors(layout, sizes, rows))

    return write


def default(place: Path) -> None:
    """What `fetch` would have made of the default's GGUF, as far as the cache can tell."""
    llama(place, 9, num_hidden_layers=2)
    manifest = {
        "recipe": weights.RECIPE,
        "sha256": CATALOGUE[DEFAULT].source.sha256,
        "files": {path.name: path.stat().st_size for path in place.iterdir()},
    }
    (place / weights.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


Writer = Callable[[Path], None]
# Each pair: the target and what stands beside it, by their names in the catalogue, and the drafter that runs on it.
PAIRS: dict[str, tuple[str, Writer, str, Writer, str]] = {
    "qwen3-4b + 0.6b": (
        "qwen3-4b",
        qwen3,
        "qwen3-0.6b",
        # Smaller, and its output matrix padded to another width.
        lambda place: qwen3(place, 7, hidden_size=16, num_hidden_layers=2, vocab_size=V + 10),
        "draft_model",
    ),
    "smollm2-1.7b + 135m": ("smollm2-1.7b", llama, DEFAULT, default, "draft_model"),
    "qwen3-4b + eagle3": ("qwen3-4b", qwen3, "eagle3-qwen3-4b", eagle3("safeailab", "qwen3-4b"), "eagle3"),
    "qwen3-8b + eagle3": ("qwen3-8b", qwen3, "eagle3-qwen3-8b", eagle3("speculators", "qwen3-8b"), "eagle3"),
    "llama + eagle3": ("llama-3.1-8b", llama, "eagle3-llama-3.1-8b", eagle3("safeailab", "llama-3.1-8b"), "eagle3"),
    "qwen3-4b + dflash": ("qwen3-4b", qwen3, "dflash-qwen3-4b", lambda place: blocks(place, spark=False), "dflash"),
    "qwen3-4b + dspark": ("qwen3-4b", qwen3, "dspark-qwen3-4b", lambda place: blocks(place, spark=True), "dspark"),
    "llama + eagle": ("llama-3.1-8b", llama, "eagle-llama-3.1-8b", write_eagle, "eagle"),
    "llama + pard": ("llama-3.1-8b", llama, "pard-llama-3.1-8b", write_pard, "pard"),
    "gemma 4 + assistant": ("gemma-4-e2b", gemma4, "assistant-gemma-4-e2b", gemma4_assistant, "kv_sharing"),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    monkeypatch.setenv("SPECVIZ_DEVICE", "cpu")
    return tmp_path


def made(home: Path, pair: str) -> tuple[Loaded, str]:
    """The target of a pair, loaded by its name, with its partner or head lying in the cache; and the drafter."""
    target, write_target, beside, write_beside, drafter = PAIRS[pair]
    write_target(home / target)
    write_beside(home / beside)
    return load(target), drafter


def run(loaded: Loaded, drafter: str, **more: Any) -> Trace:
    asked: dict[str, Any] = {
        "prompt": PROMPT,
        "drafter": drafter,
        "gamma": 3,
        "max_new_tokens": NEW,
        "chat": False,
    } | more
    return start(loaded, Request(**asked)).collect()


def generated(loaded: Loaded, prompt: tuple[int, ...]) -> list[int]:
    """What transformers writes by itself, with its own cache."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = loaded.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, eos_token_id=[-1]
        )
    return list(out[0, len(prompt) :].tolist())


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_found_by_its_names_writes_what_transformers_generates(pair: str, home: Path) -> None:
    loaded, drafter = made(home, pair)
    found = run(loaded, drafter)
    assert found.meta["target"] == PAIRS[pair][0]
    assert sum(len(round_.nodes) for round_ in found.decoding) > 0
    assert len(found.prompt) > GEMMA["sliding_window"]
    assert list(found.output) == generated(loaded, found.prompt)


@pytest.mark.parametrize("pair", ["qwen3-4b + eagle3", "gemma 4 + assistant", "llama + pard"])
def test_drawn_drafts_are_judged_too(pair: str, home: Path) -> None:
    loaded, drafter = made(home, pair)
    found = run(loaded, drafter, rule="token", temperature=0.9, seed=3)
    assert len(found.output) == NEW
    assert sum(len(round_.nodes) for round_ in found.decoding) > 0


@pytest.mark.parametrize("pair", ["qwen3-4b + 0.6b", "qwen3-4b + eagle3", "gemma 4 + assistant"])
def test_a_target_in_bfloat16_has_the_text_it_writes_alone(pair: str, home: Path) -> None:
    target, write_target, beside, write_beside, drafter = PAIRS[pair]
    write_target(home / target)
    write_beside(home / beside)
    loaded = load(target, dtype=torch.bfloat16)
    assert loaded.model.dtype == torch.bfloat16
    found = run(loaded, drafter)
    assert found.meta["dtype"] == "bfloat16"
    assert sum(len(round_.nodes) for round_ in found.decoding) > 0
    assert 0 < len(found.output) <= NEW


def test_the_partner_drafts_without_being_named(home: Path) -> None:
    loaded, _ = made(home, "qwen3-4b + 0.6b")
    assert run(loaded, "draft_model").meta["drafter_options"]["model"] == "qwen3-0.6b"


@pytest.mark.parametrize("drafter", CATALOGUE["gemma-4-e2b"].drafters)
def test_every_drafter_that_gemma_is_offered_leaves_its_text_as_it_is(drafter: str, home: Path) -> None:
    gemma4(home / "gemma-4-e2b")
    loaded = load("gemma-4-e2b")
    options = {"script": " two one two"} if drafter == "scripted" else {}
    found = run(loaded, drafter, options=options)
    assert list(found.output) == generated(loaded, found.prompt)


@pytest.mark.parametrize("drafter", BUILT_LIKE_LLAMA)
def test_what_takes_llama_s_layers_apart_is_refused_beside_gemma(drafter: str, home: Path) -> None:
    gemma4(home / "gemma-4-e2b")
    with pytest.raises(RequestError) as raised:
        run(load("gemma-4-e2b"), drafter)
    assert raised.value.key == "error.drafter_target"
    for language in LANGUAGES:
        assert "{" not in words(language)(raised.value.key, **raised.value.fields)


def test_of_a_model_that_also_sees_the_text_part_is_the_same_function(home: Path) -> None:
    gemma4(home / "gemma-4-e2b")
    whole: Any = Gemma4ForConditionalGeneration.from_pretrained(home / "gemma-4-e2b", local_files_only=True)
    ids = torch.tensor([[5, 9, 40, 7, 12, 80, 3, 66, 21, 90, 14]])
    with torch.inference_mode():
        theirs = whole.eval()(input_ids=ids).logits
        ours = load("gemma-4-e2b", packed=False).model(ids).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_every_published_head_and_partner_of_the_catalogue_has_a_twin_of_its_kind() -> None:
    twins = {(drafter, CATALOGUE[target].tokenizer) for target, _, _, _, drafter in PAIRS.values()}
    assert {(head.method, CATALOGUE[head.target].tokenizer) for head in PUBLISHED.values()} <= twins
    partnered = {entry.tokenizer for entry in CATALOGUE.values() if entry.partner and entry.name != DEFAULT}
    assert {("draft_model", tokenizer) for tokenizer in partnered} <= twins


# ---------------------------------------------------------------- chat, ends, limits


def test_a_model_that_could_think_first_is_asked_not_to(home: Path) -> None:
    qwen3(home / "qwen3-4b")
    loaded = load("qwen3-4b")
    ids = encode_prompt(loaded, Request("one two", "none"))
    assert loaded.tokenizer.decode(ids).endswith("<think></think>")


def test_ends_and_limit_are_the_checkpoint_s_own(home: Path) -> None:
    qwen3(home / "qwen3-4b")
    config = home / "qwen3-4b" / "generation_config.json"
    told = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    loaded = load("qwen3-4b")
    text = run(loaded, "prompt_lookup").output
    first = next(token for at, token in enumerate(text) if at > 2 and token not in text[:at])
    # Qwen3 has two ends of text, and either one ends a run.
    config.write_text(json.dumps(told | {"eos_token_id": [V - 1, first]}), encoding="utf-8")
    loaded = load("qwen3-4b")
    ended = run(loaded, "prompt_lookup")
    assert (ended.output[-1], ended.finish) == (first, "eos")
    with pytest.raises(RequestError) as raised:
        run(loaded, "prompt_lookup", prompt="one " * 200)
    assert raised.value.fields["limit"] == SIZES["max_position_embeddings"] - 1


# ---------------------------------------------------------------- memory


def test_a_target_that_has_no_room_is_refused_before_a_weight_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qwen3(home / "qwen3-4b")
    monkeypatch.setattr(loading, "numbers_in", lambda *_: CATALOGUE["qwen3-4b"].parameters)
    monkeypatch.setattr(loading, "free_memory", lambda _: 12_000_000_000)
    monkeypatch.setattr(Qwen3ForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were read"))
    with pytest.raises(WeightsError) as raised:
        load("qwen3-4b")
    assert raised.value.key == "error.no_room"
    # 4.02 billion numbers of four bytes; the twin's own KV cache is small beside them.
    assert (raised.value.fields["need"], raised.value.fields["free"]) == ("16.1", "12.0")
    for language in LANGUAGES:
        said = words(language)(raised.value.key, **raised.value.fields)
        assert "Qwen3-4B" in said
        assert "SPECVIZ_TARGET" in said
        assert "{" not in said


@pytest.mark.parametrize("pair", ["qwen3-4b + 0.6b", "gemma 4 + assistant"])
def test_the_numbers_in_a_folder_are_those_of_the_model_that_is_loaded(pair: str, home: Path) -> None:
    target, write, *_ = PAIRS[pair]
    write(home / target)
    part = next(iter(loading.TEXT_PART["gemma4"])) if target.startswith("gemma") else ""
    loaded = load(target, packed=False)
    # An output matrix that is the embedding is stored once; some numbers that are stored are no parameters.
    stored = {tensor.data_ptr(): tensor.numel() for tensor in loaded.model.state_dict().values()}
    assert loading.numbers_in(home / target, part) == sum(stored.values())


def test_the_machine_says_what_is_free() -> None:
    found = [free for free in (loading._machine_free(), loading._share_free()) if free is not None]
    assert all(free > 0 for free in found)


# ---------------------------------------------------------------- the one setting, and the page


def test_one_setting_names_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECVIZ_TARGET", raising=False)
    assert chosen_target() == DEFAULT
    monkeypatch.setenv("SPECVIZ_TARGET", " qwen3-4b ")
    assert chosen_target() == "qwen3-4b"
    for wrong in ("Qwen/Qwen3-4B", "../qwen3-4b", "dflash-qwen3-4b"):
        monkeypatch.setenv("SPECVIZ_TARGET", wrong)
        with pytest.raises(WeightsError) as raised:
            chosen_target()
        said = words("en")(raised.value.key, **raised.value.fields)
        assert all(name in said for name in CATALOGUE)


def test_the_page_offers_what_runs_on_the_target_and_says_what_to_fetch(home: Path) -> None:
    qwen3(home / "qwen3-4b")
    blocks(home / "dflash-qwen3-4b", spark=False)
    data = boot(Limits(), "qwen3-4b")
    assert [target["name"] for target in data["targets"]] == ["qwen3-4b"]
    assert data["recorded"]["name"] == DEFAULT
    by_name = {drafter["name"]: drafter for drafter in data["drafters"]}
    ready = {name for name, drafter in by_name.items() if drafter["ready"]}
    assert ready == {*CATALOGUE["qwen3-4b"].drafters, "dflash"}
    assert by_name["dflash"]["fetch"] is None
    assert by_name["eagle3"]["fetch"] == "python -m spec_viz models fetch eagle3-qwen3-4b"
    assert by_name["draft_model"]["fetch"] == "python -m spec_viz models fetch qwen3-0.6b"
    assert by_name["medusa"]["fetch"] is None
    # Papers and layers of heads that were trained for another target say nothing here.
    assert all(drafter["provenance"] is None for drafter in by_name.values())
    assert by_name["eagle3"]["anatomy"]["layers"] is None
    model = next(knob for knob in by_name["draft_model"]["knobs"] if knob["name"] == "model")
    assert model["default"] == "qwen3-0.6b"
    for preset in data["presets"]:
        assert preset["settings"].get("drafter", "prompt_lookup") in ready
        assert "model" not in preset["settings"].get("options", {})


def test_the_default_page_is_as_it_was(home: Path) -> None:
    data = boot(Limits())
    assert data["targets"][0]["name"] == data["recorded"]["name"] == DEFAULT
    assert all(drafter["fetch"] is None for drafter in data["drafters"])


@pytest.mark.parametrize("pair", ["qwen3-4b + dflash", "gemma 4 + assistant"])
def test_a_room_serves_a_big_pair(pair: str, home: Path) -> None:
    target, write_target, beside, write_beside, drafter = PAIRS[pair]
    write_target(home / target)
    write_beside(home / beside)
    room = Room(Limits(), target)
    room.warm().join()
    assert room.state()["ready"], room.state()
    asked = {"nonce": "n", "prompt": PROMPT, "drafter": drafter, "max_new_tokens": 8, "race": True}
    answer = list(room.serve(asked, Visitor("here", "b", "t")))[-1]
    ours, plain = bundle_of(answer)
    assert (ours.meta["target"], ours.meta["drafter"], plain.meta["drafter"]) == (target, drafter, "none")
    assert ours.output == plain.output
    assert len(ours.output) == 8


def test_a_head_that_the_page_offers_is_the_one_that_is_opened(home: Path) -> None:
    loaded, drafter = made(home, "qwen3-8b + eagle3")
    assert open_head(drafter, loaded).config["layers"] == eagle3_heads.NUMBERED
