"""Published EAGLE-1 and MTP weights: written here in their layouts, and run as ours beside a small target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_layers import MtpModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from spec_viz.drafters import eagle, eagle3, mtp
from spec_viz.drafters.head import Head
from spec_viz.drafters.registry import Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Outcome, Seen
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.models.published_features import read_eagle, read_eagle3, read_mtp
from tests.engine import heads
from tests.engine.tiny import generate, prompts
from tests.engine.tiny import model as tiny_model
from tests.unit import eagle3_heads

V, D, INNER, DEPTH = 50, 32, 48, 2
TEXT = [3, 9, 27, 5, 11, 30, 2, 14, 8]
# As SafeAILab's config.json has them, from before transformers 5.
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": INNER,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def target() -> Any:
    """A small Llama whose output rows are not its embedding."""
    torch.manual_seed(6)
    made: Any = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=DEPTH, initializer_range=0.25))
    return made.eval().requires_grad_(False)


def random_tensors(shapes: Mapping[str, tuple[int, ...]], seed: int = 1) -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=make) * 0.3 + (1.0 if "norm" in name else 0.0)
        for name, shape in shapes.items()
    }


def layer(prefix: str) -> dict[str, tuple[int, ...]]:
    """The published shapes of a layer but for its first norm."""
    return {
        f"{prefix}self_attn.q_proj.weight": (D, D),
        f"{prefix}self_attn.k_proj.weight": (D // 2, D),
        f"{prefix}self_attn.v_proj.weight": (D // 2, D),
        f"{prefix}self_attn.o_proj.weight": (D, D),
        f"{prefix}mlp.gate_proj.weight": (INNER, D),
        f"{prefix}mlp.up_proj.weight": (INNER, D),
        f"{prefix}mlp.down_proj.weight": (D, INNER),
        f"{prefix}post_attention_layernorm.weight": (D,),
    }


def eagle_shapes() -> dict[str, tuple[int, ...]]:
    return {"embed_tokens.weight": (V, D), "fc.weight": (D, 2 * D), "fc.bias": (D,)} | layer("layers.0.")


def deepseek_shapes() -> dict[str, tuple[int, ...]]:
    at = f"model.layers.{DEPTH}."
    norms = ("enorm", "hnorm", "input_layernorm", "shared_head.norm")
    copies = {at + "embed_tokens.weight": (V, D), at + "shared_head.head.weight": (V, D)}
    return copies | {at + "eh_proj.weight": (D, 2 * D)} | {f"{at}{norm}.weight": (D,) for norm in norms} | layer(at)


def qwen_shapes() -> dict[str, tuple[int, ...]]:
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm")
    return {"mtp.fc.weight": (D, 2 * D)} | {f"mtp.{norm}.weight": (D,) for norm in norms} | layer("mtp.layers.0.")


MTP = {"deepseek": deepseek_shapes, "qwen": qwen_shapes}


def write(folder: Path, tensors: Mapping[str, Tensor], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SIZES | config), encoding="utf-8")
    save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
    return folder


def drafted(family: Any, head: Head, target: Any, text: list[int], gamma: int) -> tuple[list[int], Tensor]:
    """A greedy chain behind a text, and the laws (gamma, V) it was read from."""
    model = CachedModel(target)
    setup = Setup(model, None, lambda _: [], 1, frozenset(), Warp(1.0), "match", open_head=lambda _: head)  # type: ignore[arg-type]
    drafter = family.build(setup, family.options({}))
    _, seen = model.prefill(text[:-1], drafter.needs)
    drafter.observe(Outcome((), text, Seen(None, seen.hidden)))
    proposal = drafter.propose(text, gamma, Draws(0, 1, len(text)))
    return list(proposal.tokens), proposal.q_raw


def last_states(target: Any, text: list[int]) -> Tensor:
    with torch.inference_mode():
        states: Tensor = target.model(torch.tensor([text])).last_hidden_state.clone()
    return states


# ---------------------------------------------------------------- EAGLE-1


@torch.inference_mode()
def by_hand(tensors: Mapping[str, Tensor], target: Any, tokens: list[int], states: Tensor) -> Tensor:
    """The states (1, n, d) of a published EAGLE-1 head at every pair: cnets1's forward, on Llama's layer."""
    config = LlamaConfig(**SIZES, num_hidden_layers=1)
    config._attn_implementation = "eager"
    made: Any = LlamaDecoderLayer(config, 0)
    made.input_layernorm = nn.Identity()
    made.load_state_dict(
        {name.removeprefix("layers.0."): tensor for name, tensor in tensors.items() if name.startswith("layers.0.")}
    )
    embedded = target.model.embed_tokens(torch.tensor([tokens]))
    joined = nn.functional.linear(torch.cat([embedded, states], -1), tensors["fc.weight"], tensors.get("fc.bias"))
    where = torch.arange(len(tokens))[None]
    mask = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1)[None, None]
    angles = LlamaRotaryEmbedding(config)(joined, position_ids=where)
    out: Tensor = made(joined, attention_mask=mask, position_ids=where, position_embeddings=angles)
    return out


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_a_published_eagle_head_drafts_what_its_own_code_would(
    tmp_path: Path, target: Any, biased: bool, binary: bool
) -> None:
    tensors = random_tensors(eagle_shapes())
    settings: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    if not biased:
        del tensors["fc.bias"]
        settings["bias"] = False
    folder = write(tmp_path / "eagle", tensors, **settings)
    if binary:
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
    head = read_eagle(folder, target)
    assert head.config["llama"]["rope_parameters"]["rope_theta"] == 5000.0
    tokens, laws = drafted(eagle.FAMILY, head, target, TEXT, 3)
    states, path = last_states(target, TEXT[:-1]), list[int]()
    for token, law in zip(tokens, laws, strict=True):
        out = by_hand(tensors, target, [*TEXT[1:], *path], states)[:, -1:]
        theirs = target.lm_head(out)[0, 0].softmax(-1)
        torch.testing.assert_close(law, theirs, atol=1e-5, rtol=1e-3)
        assert int(theirs.argmax()) == token
        states, path = torch.cat([states, out], 1), [*path, token]


# ---------------------------------------------------------------- EAGLE-3


@pytest.fixture(scope="module")
def deep() -> Any:
    """A target with layers enough to fuse: inputs of layers 2, 3 and 3 where none are numbered."""
    torch.manual_seed(7)
    made: Any = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=6, initializer_range=0.25))
    return made.eval().requires_grad_(False)


def published(layout: str, deep: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    weights = eagle3_heads.tensors(layout, SIZES, deep.model.embed_tokens.weight)
    return eagle3_heads.settings(layout, SIZES), weights


@pytest.mark.parametrize(("layout", "binary"), [("safeailab", False), ("safeailab", True), ("speculators", False)])
def test_a_published_eagle3_head_drafts_what_its_own_code_would(
    tmp_path: Path, deep: Any, layout: str, binary: bool
) -> None:
    config, weights = published(layout, deep)
    head = read_eagle3(eagle3_heads.write(tmp_path / "eagle3", config, weights, binary), deep)
    layers = eagle3_heads.NUMBERED if layout == "speculators" else [2, 3, 3]
    assert head.config["layers"] == layers
    tokens, laws = drafted(eagle3.FAMILY, head, deep, TEXT, 3)
    with torch.no_grad():
        # A layer's input is the hidden state of its number: 0 is the embedding's.
        shown = deep(torch.tensor([TEXT[:-1]]), output_hidden_states=True).hidden_states
        states = torch.cat([shown[layer] for layer in layers], -1) @ weights["fc.weight"].T
        path, ids = list[int](), range(0, V, 2)
        for token, law in zip(tokens, laws, strict=True):
            embedded = deep.model.embed_tokens(torch.tensor([[*TEXT[1:], *path]]))
            out = eagle3_heads.by_hand(layout, SIZES, weights, embedded, states)[:, -1:]
            theirs = eagle3_heads.law(SIZES, weights, out, ids)
            torch.testing.assert_close(law, theirs, atol=1e-5, rtol=1e-3)
            assert int(theirs.argmax()) == token
            states, path = torch.cat([states, out], 1), [*path, token]


def test_an_eagle3_head_without_a_draft_vocabulary_drafts_the_target_s(tmp_path: Path, deep: Any) -> None:
    config, weights = published("safeailab", deep)
    whole = {name: tensor for name, tensor in weights.items() if name not in ("d2t", "t2d", "lm_head.weight")}
    head = read_eagle3(eagle3_heads.write(tmp_path / "tied", config, whole), deep)
    assert head.draft_ids.tolist() == list(range(V))
    _, laws = drafted(eagle3.FAMILY, head, deep, TEXT, 1)
    assert int((laws > 0).sum()) == V


@pytest.mark.parametrize(
    ("changed", "added", "said"),
    [
        ({"norm_output": True}, {}, "asks for norm_output"),
        ({"norm_before_fc": True}, {}, "asks for norm_before_fc"),
        ({"hidden_size": 64}, {}, "for a target of width 64"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}, {}, "of a target that has 6"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 3]}, {}, r"has fc\.weight of shape"),
        ({}, {"midlayer.self_attn.q_norm.weight": torch.ones(8)}, r"has midlayer\.self_attn\.q_norm\.weight"),
        ({}, {"embed_tokens.weight": torch.ones(V, D)}, "an embedding of its own"),
        ({}, {"d2t": torch.full((V // 2,), V)}, "to others than the target's"),
        ({}, {"d2t": torch.zeros(7, dtype=torch.long)}, "output rows for 25 ids and maps 7"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_eagle3_head_that_is_built_otherwise_is_refused(
    tmp_path: Path, deep: Any, changed: dict[str, Any], added: dict[str, Tensor], said: str
) -> None:
    config, weights = published("safeailab", deep)
    folder = eagle3_heads.write(tmp_path / "other", config | changed, weights | added)
    with pytest.raises(ValueError, match=said):
        read_eagle3(folder, deep)


# ---------------------------------------------------------------- MTP


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets transformers look for an MTP module beside a Llama, as it does beside models that are published with one."""
    patterns = [rf"model\.layers\.{DEPTH}\.", r"^mtp\."]
    monkeypatch.setattr(LlamaForCausalLM, "_keys_to_ignore_on_load_unexpected", patterns)
    return MtpModel


@pytest.mark.parametrize("layout", MTP)
def test_a_published_mtp_module_says_what_transformers_own_class_says(
    tmp_path: Path, target: Any, theirs: Any, layout: str
) -> None:
    tensors = random_tensors(MTP[layout]())
    target.save_pretrained(tmp_path / "whole")
    # Beside the model's own weights, in a file of its own as large checkpoints have it.
    config = json.loads((tmp_path / "whole" / "config.json").read_text()) | {"num_mtp_layers": 1}
    (tmp_path / "whole" / "config.json").write_text(json.dumps(config))
    whole = {name: tensor.contiguous() for name, tensor in target.state_dict().items()} | tensors
    save_file(whole, tmp_path / "whole" / "model.safetensors", {"format": "pt"})
    model: Any = LlamaForCausalLM.from_pretrained(tmp_path / "whole", local_files_only=True)
    module = theirs.from_pretrained(model).eval()
    with torch.inference_mode():
        ids, where = torch.tensor([TEXT[1:]]), torch.arange(len(TEXT) - 1)[None]
        drafts, logits, _ = module(ids, last_states(model, TEXT[:-1]), None, where, None)

    head = read_mtp(tmp_path / "whole", target)
    tokens, laws = drafted(mtp.FAMILY, head, target, TEXT, 1)
    torch.testing.assert_close(laws, logits[0].softmax(-1), atol=1e-5, rtol=1e-3)
    assert tokens == drafts[0].tolist()


@pytest.mark.parametrize("layout", MTP)
def test_a_module_used_again_reads_its_own_output(tmp_path: Path, target: Any, theirs: Any, layout: str) -> None:
    """Step by step on transformers' class: what it said at the last pair stands where the target has not been."""
    tensors = random_tensors(MTP[layout]())
    folder = write(tmp_path / "part", tensors, num_hidden_layers=DEPTH)
    config = LlamaConfig(**SIZES, num_hidden_layers=DEPTH)
    config.num_mtp_layers = 1
    monkey: Any = LlamaForCausalLM(config)
    monkey.load_state_dict(target.state_dict())
    module = theirs(monkey, 1).eval()
    head = read_mtp(folder, target)
    names = {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj", "shared_head.norm": "post_norm"}
    module.layers[0].load_state_dict(
        {
            f"{names.get(name.removesuffix('.weight'), 'mtp_block.' + name.removesuffix('.weight'))}.weight": tensor
            for name, tensor in head.tensors.items()
            if name not in ("d2t", "t2d")
        }
    )
    tokens, laws = drafted(mtp.FAMILY, head, target, TEXT, 3)
    states, path = last_states(target, TEXT[:-1]), list[int]()
    for token, law in zip(tokens, laws, strict=True):
        ids = torch.tensor([[*TEXT[1:], *path]])
        with torch.inference_mode():
            out = module.forward_layer(0, states, torch.arange(ids.shape[1])[None], None, input_ids=ids)[:, -1:]
            torch.testing.assert_close(law, target.lm_head(out)[0, 0].softmax(-1), atol=1e-5, rtol=1e-3)
        states, path = torch.cat([states, out], 1), [*path, token]


# ---------------------------------------------------------------- what is refused


def test_what_ours_is_not_built_for_is_refused_by_name(tmp_path: Path, target: Any) -> None:
    published, sizes = random_tensors(deepseek_shapes()), {"num_hidden_layers": DEPTH}
    at = f"model.layers.{DEPTH}."
    latent = published | {at + "self_attn.kv_a_proj_with_mqa.weight": torch.ones(4, D)}
    with pytest.raises(ValueError, match=r"has self_attn\.kv_a_proj_with_mqa\.weight: its layer is not built as"):
        read_mtp(write(tmp_path / "latent", latent, **sizes), target)
    gated = random_tensors(qwen_shapes()) | {"mtp.layers.0.self_attn.q_proj.weight": torch.ones(2 * D, D)}
    with pytest.raises(ValueError, match=r"q_proj\.weight of shape \(64, 32\) instead of \(32, 32\)"):
        read_mtp(write(tmp_path / "gated", gated, **sizes), target)
    with pytest.raises(ValueError, match="holds 2 MTP modules"):
        read_mtp(write(tmp_path / "two", published, **sizes, num_nextn_predict_layers=2), target)
    with pytest.raises(ValueError, match="holds no MTP module"):
        read_mtp(write(tmp_path / "none", published, num_hidden_layers=DEPTH + 1), target)
    lacking = {name: tensor for name, tensor in random_tensors(eagle_shapes()).items() if name != "fc.weight"}
    with pytest.raises(ValueError, match=r"lacks fc\.weight"):
        read_eagle(write(tmp_path / "lacking", lacking), target)
    with pytest.raises(ValueError, match="for a target of width 64"):
        read_eagle(write(tmp_path / "wide", random_tensors(eagle_shapes()), hidden_size=64), target)


def test_a_published_head_of_another_text_leaves_the_greedy_text_as_it_is(tmp_path: Path) -> None:
    """On the loop, beside the tests' own target: nothing it says bends what is written."""
    sizes = {"vocab_size": 40, "rope_theta": 10000.0}
    shapes = {name: shape for name, shape in eagle_shapes().items() if name != "embed_tokens.weight"}
    folder = write(tmp_path / "eagle", random_tensors(shapes), **sizes)
    head = read_eagle(folder, tiny_model())
    for options in ({}, {"tree": 9}):
        result = heads.run_with(eagle.FAMILY, prompts(1)[0], options, opened=head)
        assert result.output == generate(prompts(1)[0], heads.NEW)
