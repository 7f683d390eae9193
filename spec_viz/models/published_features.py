"""Published heads that go on from the target's states: EAGLE-1 and EAGLE-3 (SafeAILab), MTP modules (DeepSeek, Qwen).

EAGLE-1 is a folder of its own: a Llama config and one file of weights, with a copy of the target's embedding. An MTP
module lies in its model's own checkpoint: behind the last layer under that layer's number plus one (DeepSeek-V3), or
under `mtp.` (Qwen3-Next). Both share the target's embedding and output rows, and draft its whole vocabulary. EAGLE-3
is a folder too, with output rows and a draft vocabulary of its own; two layouts of it are read.

What these models put into the module's block is often not Llama's: latent or gated attention, experts. Such a module is
refused by the name of a tensor that has no place here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig

from spec_viz.drafters.eagle import Eagle
from spec_viz.drafters.eagle3 import NORMED, Eagle3
from spec_viz.drafters.head import Head, embedding_rows
from spec_viz.drafters.mtp import Mtp
from spec_viz.drafters.readout import OWN_ROWS

# What of a config a Llama layer needs; files written before transformers 5 have the older two.
SETTINGS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
)
OLDER = ("rope_theta", "rope_scaling")
# Qwen's names for what DeepSeek calls otherwise.
RENAMED = {
    "fc.": "eh_proj.",
    "pre_fc_norm_embedding.": "enorm.",
    "pre_fc_norm_hidden.": "hnorm.",
    "norm.": "shared_head.norm.",
    "layers.0.": "",
}
EMBEDDING = "embed_tokens.weight"
# Copies of what the target has.
SHARED = (EMBEDDING, "shared_head.head.weight")
# What EAGLE-3.1 and heads for gpt-oss do beside, by the names of their settings: none of it is built here.
BESIDE = ("norm_output", "norm_before_fc", "fc_norm", "parallel_drafting")


def read_eagle(folder: Path, model: Any) -> Head:
    """An EAGLE-1 head in SafeAILab's layout, for a target; ValueError where it is not built as ours or for another.

    It knows no accuracies of its guesses, so it has no static tree. Layout: EAGLE `cnets1.py`, algorithms §6.1.
    """
    config, tensors = _config(folder), _tensors(folder)
    if not config.get("bias", True):
        # Heads for Llama 3 were published without the bias of fc.
        tensors["fc.bias"] = torch.zeros(len(tensors["fc.weight"]))
    return _head("eagle", folder, config, tensors, Eagle, model)


def read_mtp(folder: Path, model: Any) -> Head:
    """The MTP module in a checkpoint of DeepSeek's or Qwen's layout; ValueError where it is not built as ours.

    Layouts: vLLM `deepseek_mtp.py` and `qwen3_next_mtp.py`, algorithms §7.1 and §7.2. A model with several modules has
    one for every further token, and none of them was made to be used again: it is refused.
    """
    config = _config(folder)
    numbered = f"model.layers.{config['num_hidden_layers']}."
    tensors: dict[str, Tensor] = {}
    for name, tensor in _tensors(folder).items():
        if name.startswith(numbered):
            tensors[name.removeprefix(numbered)] = tensor
        elif name.startswith("mtp."):
            tensors[_renamed(name.removeprefix("mtp."))] = tensor
    if not tensors:
        raise ValueError(f"{folder} holds no MTP module.")
    modules = config.get("num_nextn_predict_layers", 1)
    if modules != 1:
        raise ValueError(f"{folder} holds {modules} MTP modules: only a single one is used again.")
    return _head("mtp", folder, config, tensors, Mtp, model)


def read_eagle3(folder: Path, model: Any) -> Head:
    """An EAGLE-3 head for a target; ValueError where it is not built as ours or for another target.

    Layouts: SafeAILab `cnets.py` and SpecForge (`midlayer.`, sizes at the top of the config), speculators `eagle3`
    (`layers.0.`, sizes under `transformer_layer_config`); vLLM `llama_eagle3.py` reads both, algorithms §6.4. Numbered
    layers are those whose *input* is fused, which is what our numbers of hidden states say; where none are numbered
    they are 2, n/2 and n - 3. `d2t` holds offsets. A head without it drafts the target's whole vocabulary.
    """
    whole = _config(folder)
    config = whole | whole.get("transformer_layer_config", {})
    for setting in BESIDE:
        if whole.get(setting):
            raise ValueError(f"{folder} asks for {setting}, which is not built here.")
    tensors = {_eagle3_name(name): tensor for name, tensor in _tensors(folder).items()}
    _check_embedding(folder, tensors.get(EMBEDDING), embedding_rows(model))
    own = {name: tensors.pop(name) for name in (OWN_ROWS, "d2t", "t2d") if name in tensors}
    depth = int(model.config.num_hidden_layers)
    layers = whole.get("eagle_aux_hidden_state_layer_ids") or [2, depth // 2, depth - 3]
    if not all(0 <= layer < depth for layer in layers):
        raise ValueError(f"{folder} fuses the inputs of layers {layers} of a target that has {depth}.")
    normed = bool(whole.get(NORMED))
    made = _head("eagle3", folder, config, tensors, lambda sizes: Eagle3(sizes, len(layers)), model)
    kept = dict(made.config) | {"layers": list(layers), NORMED: normed}
    return Head("eagle3", kept, dict(made.tensors) | _draft_vocabulary(folder, own, len(embedding_rows(model))))


def _eagle3_name(name: str) -> str:
    return name.removeprefix("model.").replace("layers.0.", "midlayer.", 1)


def _check_embedding(folder: Path, table: Tensor | None, rows: Tensor) -> None:
    """ValueError where a head's copy of the target's embedding is none: ours reads tokens through the target's."""
    if table is None:
        return
    width = min(len(table), len(rows))
    if table.shape[1] == rows.shape[1] and not torch.equal(table[:width].to(rows), rows[:width]):
        raise ValueError(f"{folder} reads tokens through an embedding of its own; only the target's is known.")


def _draft_vocabulary(folder: Path, own: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """A head's output rows, if it has any, and the maps between its vocabulary and the target's of this width."""
    rows = {name: tensor.float() for name, tensor in own.items() if name == OWN_ROWS}
    if "d2t" not in own:
        count = len(rows[OWN_ROWS]) if rows else width
        return rows | {"d2t": torch.zeros(count, dtype=torch.long), "t2d": torch.arange(width) < count}
    d2t = own["d2t"].long()
    ids = torch.arange(len(d2t)) + d2t
    if rows and len(rows[OWN_ROWS]) != len(d2t):
        raise ValueError(f"{folder} has output rows for {len(rows[OWN_ROWS])} ids and maps {len(d2t)}.")
    if int(ids.min()) < 0 or int(ids.max()) >= width or len({*ids.tolist()}) != len(ids):
        raise ValueError(f"{folder} maps its ids to others than the target's {width}.")
    return rows | {"d2t": d2t, "t2d": torch.zeros(width, dtype=torch.bool).index_fill(0, ids, True)}


def _renamed(name: str) -> str:
    for theirs, ours in RENAMED.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor in a folder's files, safetensors or, where there are none, torch's own."""
    found: dict[str, Tensor] = {}
    for place in sorted(folder.glob("*.safetensors")):
        found |= load_file(place)
    if not found:
        for place in sorted(folder.glob("*.bin")):
            found |= torch.load(place, map_location="cpu", weights_only=True)
    return found


def _head(
    name: str,
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    make: Callable[[LlamaConfig], nn.Module],
    model: Any,
) -> Head:
    if config["hidden_size"] != model.config.hidden_size:
        raise ValueError(f"{folder} drafts for a target of width {config['hidden_size']}.")
    read = LlamaConfig(**{key: config[key] for key in (*SETTINGS, *OLDER) if config.get(key) is not None})
    own = {key: tensor.float() for key, tensor in tensors.items() if key not in SHARED}
    with torch.device("meta"):
        wanted = make(read).state_dict()
    for key in sorted(wanted.keys() ^ own.keys()):
        raise ValueError(f"{folder} {'lacks' if key in wanted else 'has'} {key}: its layer is not built as Llama's.")
    for key, tensor in own.items():
        if tensor.shape != wanted[key].shape:
            raise ValueError(f"{folder} has {key} of shape {(*tensor.shape,)} instead of {(*wanted[key].shape,)}.")
    llama = {key: getattr(read, key) for key in SETTINGS}
    width = len(embedding_rows(model))
    maps = {"d2t": torch.zeros(width, dtype=torch.long), "t2d": torch.ones(width, dtype=torch.bool)}
    return Head(name, {"method": name, "llama": llama}, own | maps)
