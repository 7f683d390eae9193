"""Published block drafters as heads: DFlash (z-lab) and DSpark (DeepSpec), each a config and one file of weights.

Both call the weights as we do, and draft the target's whole vocabulary. Three things are theirs: `target_layer_ids`
number the layers whose *outputs* are read, so they are one less than those of the hidden states; the place of a token
to be filled in is held by a spare token of the target, `mask_token_id`; and DeepSpec's files repeat the target's
embedding and output rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from spec_viz.drafters.head import Head, embedding_rows
from spec_viz.drafters.readout import OWN_ROWS

EMBEDDING = "embed_tokens.weight"
FIRST, SECOND = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"


def read_dflash(folder: Path, model: Any) -> Head:
    """A DFlash head in z-lab's layout, for a target; ValueError where its config says what we do not run."""
    config, tensors = _read(folder, model)
    return Head("dflash", {"method": "dflash", **_kept(config, folder)}, tensors)


def read_dspark(folder: Path, model: Any) -> Head:
    """A DSpark head in DeepSpec's layout, for a target; ValueError where its config says what we do not run.

    Published confidences come without temperatures: each is 1.
    """
    config, tensors = _read(folder, model)
    kind = _setting(config, "markov_head_type", "vanilla")
    if kind != "vanilla":
        raise ValueError(f"{folder} corrects by a {kind} Markov head; only the vanilla one is known.")
    if not _setting(config, "confidence_head_with_markov", False):
        raise ValueError(f"{folder} has no confidence head that reads the token before.")
    # Here every id can be drafted, and nothing reads the row of those that cannot.
    tensors[FIRST] = torch.nn.functional.pad(tensors[FIRST], (0, 0, 0, 1))
    kept = _kept(config, folder)
    more = {"markov_rank": tensors[SECOND].shape[1], "temperatures": [1.0] * kept["block"]}
    return Head("dspark", {"method": "dspark", **kept, **more}, tensors)


def _read(folder: Path, model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    if config["hidden_size"] != model.config.hidden_size:
        raise ValueError(f"{folder} drafts for a target of width {config['hidden_size']}.")
    table = tensors.pop(EMBEDDING, embedding_rows(model))
    tensors["mask"] = table[int(_setting(config, "mask_token_id"))].float().clone()
    width = len(tensors[OWN_ROWS]) if OWN_ROWS in tensors else len(embedding_rows(model))
    return config, tensors | {"d2t": torch.zeros(width, dtype=torch.long), "t2d": torch.ones(width, dtype=torch.bool)}


def _kept(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    if "sliding_attention" in (config.get("layer_types") or ()):
        raise ValueError(f"{folder} has layers that forget: only full attention is known.")
    names = (
        "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings rms_norm_eps"
    )
    llama = {name: config[name] for name in names.split()}
    # Files written before transformers 5 name the base alone.
    llama["rope_parameters"] = config.get("rope_parameters") or {
        "rope_type": "default",
        "rope_theta": config["rope_theta"],
    }
    return {
        "layers": [layer + 1 for layer in _setting(config, "target_layer_ids")],
        "llama": llama,
        "block": int(_setting(config, "block_size")),
    }


def _setting(config: Mapping[str, Any], name: str, *otherwise: Any) -> Any:
    """A setting that lies at the top of a config, or in its part about DFlash."""
    inner: Mapping[str, Any] = config.get("dflash_config") or {}
    if name in config or name in inner or not otherwise:
        return config[name] if name in config else inner[name]
    return otherwise[0]
