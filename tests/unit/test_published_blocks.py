"""Published DFlash and DSpark heads: written here in their layout, and run as ours beside a small target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.cache_utils import DFlashCache
from transformers.models.muse_glimmer_assistant import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

from spec_viz.drafters import dflash, dspark
from spec_viz.drafters.head import embedding_rows
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Outcome, Proposal, Seen
from spec_viz.engine.warp import Warp
from spec_viz.models.published_blocks import read_dflash, read_dspark
from tests.engine import heads
from tests.engine.tiny import VOCABULARY, model

BLOCK, RANK, MASK = 5, 4, 39
LAYERS = [0, 1]
TEXT = [3, 9, 27, 5, 11, 30, 2, 14, 8]
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
SIZES: dict[str, Any] = {
    "hidden_size": heads.WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "layer_types": ["full_attention"] * 2,
}


def theirs() -> MuseGlimmerAssistantModel:
    """The only DFlash that transformers has of its own: its class, of our size, with random weights."""
    settings: dict[str, Any] = {
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "target_layer_ids": LAYERS,
        "rope_parameters": ROPE,
    }
    config = MuseGlimmerAssistantConfig(**SIZES, **settings)
    torch.manual_seed(1)
    made: Any = MuseGlimmerAssistantModel(config)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, 0.6, 0.3)
    for name, weight in made.named_parameters():
        if "norm" not in name:
            weight.data = torch.randn(weight.shape) * 0.3
    made.eval().requires_grad_(False)
    return made  # type: ignore[no-any-return]


def tensors_of(made: MuseGlimmerAssistantModel) -> dict[str, Tensor]:
    """Its weights by z-lab's names."""
    names = {"encoder.fc": "fc", "encoder.output_norm_enc": "hidden_norm"}
    found = {}
    for name, tensor in made.state_dict().items():
        stem, _, kind = name.rpartition(".")
        found[f"{names.get(stem, stem)}.{kind}"] = tensor.clone()
    return found


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def zlab(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["DFlashDraftModel"],
        **SIZES,
        "block_size": BLOCK,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": LAYERS},
        "rope_theta": 10000.0,
        **changes,
    }


def deepspec(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3DSparkModel"],
        **SIZES,
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "target_layer_ids": LAYERS,
        "markov_rank": RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "rope_parameters": ROPE,
        **changes,
    }


def spark_tensors() -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(2)
    more = {
        "markov_head.markov_w1.weight": (VOCABULARY, RANK),
        "markov_head.markov_w2.weight": (VOCABULARY, RANK),
        "confidence_head.proj.weight": (1, heads.WIDTH + RANK),
        "confidence_head.proj.bias": (1,),
        "lm_head.weight": (VOCABULARY, heads.WIDTH),
    }
    own = {name: torch.randn(shape, generator=make) for name, shape in more.items()}
    return tensors_of(theirs()) | own | {"embed_tokens.weight": embedding_rows(model()).float().clone()}


@torch.inference_mode()
def plain(made: MuseGlimmerAssistantModel, text: list[int], known: int) -> Tensor:
    """States (block, d) that transformers' class gives behind a text; its cache is filled in two steps, at `known`."""
    out = model()(input_ids=torch.tensor([text[:-1]]), use_cache=False, output_hidden_states=True).hidden_states
    features = torch.cat([out[layer + 1] for layer in LAYERS], -1).float()
    block = embedding_rows(model())[[text[-1], *[MASK] * (BLOCK - 1)]][None].float()
    cache: Any = DFlashCache(config=made.config)  # type: ignore[no-untyped-call]
    states = torch.empty(0)
    for start, end in ((0, known), (known, len(text) - 1)):
        if start:
            cache.crop(-BLOCK)
        cache.set_previous_accepted_tokens(end - start)
        states = made(
            noise_embeds=block,
            context_hidden_states=features[:, start:end],
            position_ids=torch.arange(start, end + BLOCK)[None],
            cache=cache,
            use_cache=True,
        ).last_hidden_state[0]
    return states


def drafts(family: Any, head: Any) -> tuple[Any, Proposal]:
    _, drafter = heads.make(family, opened=head, rule="match", warp=Warp(1.0))
    shown = Seen(None, heads.seen(TEXT[:-1], drafter.needs.layers))
    drafter.observe(Outcome((), TEXT, shown))
    return drafter, drafter.propose(TEXT, BLOCK, Draws(0, 1, len(TEXT)))


def test_a_dflash_of_z_lab_says_what_transformers_own_class_says(tmp_path: Path) -> None:
    made = theirs()
    head = read_dflash(write(tmp_path / "head", zlab(), tensors_of(made)), model())
    # Their layer i puts out hidden state i + 1.
    assert (head.config["layers"], head.config["block"]) == ([1, 2], BLOCK)
    drafter, proposal = drafts(dflash.FAMILY, head)
    wanted = plain(made, TEXT, 5)[1:].clone() @ model().lm_head.weight.detach().float().T
    torch.testing.assert_close(drafter._model.logits, wanted, rtol=1e-4, atol=1e-4)
    assert list(proposal.tokens) == wanted.argmax(-1).tolist()


def test_a_dspark_of_deepspec_corrects_by_its_markov_head_and_reads_its_own_rows(tmp_path: Path) -> None:
    tensors = spark_tensors()
    head = read_dspark(write(tmp_path / "head", deepspec(), tensors), model())
    drafter, proposal = drafts(dspark.FAMILY, head)
    states = plain(theirs(), TEXT, 5).clone()
    assert len(proposal) == BLOCK
    assert proposal.q_raw is not None
    for slot, before in enumerate([TEXT[-1], *proposal.tokens[:-1]]):
        row = tensors["markov_head.markov_w1.weight"][before]
        logits = tensors["lm_head.weight"] @ states[slot] + tensors["markov_head.markov_w2.weight"] @ row
        torch.testing.assert_close(proposal.q_raw[slot], logits.softmax(-1), rtol=1e-3, atol=1e-5)
        sure = tensors["confidence_head.proj.weight"][0] @ torch.cat([states[slot], row])
        sure = (sure + tensors["confidence_head.proj.bias"][0]).sigmoid()
        assert drafter._model.confidences[slot] == pytest.approx(float(sure), abs=1e-4)


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    tensors = tensors_of(theirs())
    changes: dict[str, Any]
    for changes, problem in (
        ({"layer_types": ["sliding_attention"] * 2}, "full attention"),
        ({"hidden_size": 16}, "width 16"),
    ):
        with pytest.raises(ValueError, match=problem):
            read_dflash(write(tmp_path / "head", zlab(**changes), tensors), model())
    for changes, problem in (
        ({"markov_head_type": "gated"}, "gated"),
        ({"confidence_head_with_markov": False}, "confidence head"),
    ):
        with pytest.raises(ValueError, match=problem):
            read_dspark(write(tmp_path / "head", deepspec(**changes), spark_tensors()), model())
