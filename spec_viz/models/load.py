"""From a name to a model on a device: only safetensors, never a repository's own code, only caches that roll back."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from transformers.cache_utils import Cache

from spec_viz.engine.cache import new_cache
from spec_viz.engine.pack import pack
from spec_viz.models.catalogue import CATALOGUE, Entry, Source
from spec_viz.models.weights import WeightsError, cache_folder, find, folder

# Up to here a model runs in float32 on an accelerator too: it costs little and keeps greedy identity visible.
SMALL = 500_000_000


class CannotRollBack(WeightsError):  # noqa: N818 - reads as what is the case
    """A model whose cache forgets or mixes tokens, so that rejected drafts cannot be taken out of it again."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to decode, and what makes the cache it decodes with.

    `weight_bytes` counts each parameter once, in the dtype it runs in.
    """

    model: Any
    tokenizer: Any
    entry: Entry
    device: torch.device
    device_name: str
    dtype: torch.dtype
    weight_bytes: int
    packed: bool
    cache: Callable[[], Cache] = new_cache


def load(
    name: str, device: str | torch.device | None = None, packed: bool = True, dtype: torch.dtype | None = None
) -> Loaded:
    """Load a model of the catalogue from the cache onto a device (the best one here by default).

    On a CPU its linear layers are packed unless `packed` is False or `dtype` isn't float32. Raises WeightsMissing,
    CannotRollBack, or WeightsError for a device that is not here; fetches nothing.
    """
    entry = find(name)
    return load_folder(folder(name), entry, torch.device(device) if device else pick_device(), packed, dtype)


def load_any(name: str, device: str | torch.device | None = None) -> Loaded:
    """Load a model of the catalogue, a checkpoint's folder inside the cache, or a hub repository that is already here.

    Other folders of the machine are not looked at: the name may come from a visitor of the page. Raises what `load`
    raises; fetches nothing.
    """
    place = None if name in CATALOGUE else _checkpoint(name)
    if place is None:
        return load(name, device)
    # Two bytes a parameter, as nearly every checkpoint is stored today; it only decides the dtype.
    parameters = sum(file.stat().st_size for file in place.glob("*.safetensors")) // 2
    entry = Entry(name, name, parameters, "", Source("hub", name, 2 * parameters), name, ())
    return load_folder(place, entry, torch.device(device) if device else pick_device())


def _checkpoint(name: str) -> Path | None:
    cache_ = cache_folder().resolve()
    place = (cache_ / name).resolve()
    if place.is_relative_to(cache_) and (place / "config.json").is_file():
        return place
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError):
        return None


def load_folder(
    place: Path, entry: Entry, device: torch.device, packed: bool = True, dtype: torch.dtype | None = None
) -> Loaded:
    """Load the checkpoint in a folder as this entry of the catalogue."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from spec_viz.models.convert import quiet

    config = AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=True)
    check_cache(config, entry.name)
    set_threads()
    dtype = dtype or pick_dtype(entry, device)
    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(
            place, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
    tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=True)
    model = model.to(device).eval().requires_grad_(False)
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    done = packed and device.type == "cpu" and dtype == torch.float32 and pack(model)
    return Loaded(model, tokenizer, entry, device, device_name(device), dtype, size, done)


def pick_device() -> torch.device:
    """CUDA, then MPS, then the CPU; `SPECVIZ_DEVICE` (cpu, mps, cuda, cuda:1 …) decides instead where it is set."""
    here = ["cpu"]
    if torch.backends.mps.is_available():
        here.insert(0, "mps")
    if torch.cuda.is_available():
        here[:0] = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    asked = os.environ.get("SPECVIZ_DEVICE", "").strip().lower() or here[0]
    if asked not in here:
        raise WeightsError("error.bad_device", device=asked[:40], known=", ".join(here))
    return torch.device(asked)


def pick_dtype(entry: Entry, device: torch.device) -> torch.dtype:
    """float32 on a CPU and for small models, bfloat16 for big ones elsewhere."""
    return torch.float32 if device.type == "cpu" or entry.parameters < SMALL else torch.bfloat16


def device_name(device: torch.device) -> str:
    """What the maker calls the device."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def check_cache(config: Any, name: str) -> None:
    """Refuse, by its configuration alone, a model that does not keep every token's keys and values apart.

    Sliding windows drop the oldest entries, chunks forget, linear attention and recurrent layers sum tokens into one
    state: none of them gives back what stood there before a rejected draft.
    """
    from transformers import AutoModelForCausalLM

    text = config.get_text_config(decoder=True)
    layers = {str(kind) for kind in getattr(text, "layer_types", None) or ()}
    other = sorted(layers - {"full_attention"})
    window = getattr(text, "sliding_window", None)
    if not layers and window and getattr(text, "use_sliding_window", True):
        other = ["sliding_attention"]
    kind = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if not other and (kind is None or getattr(kind, "_is_stateful", False)):
        other = [str(config.model_type)]
    if other:
        raise CannotRollBack("error.cannot_roll_back", name=name, layers=", ".join(other))


@cache
def set_threads() -> int:
    """Give torch as many threads as this process may really use, once; returns their number.

    A container with two of a machine's sixty-four cores still sees sixty-four: threads beyond its share wait on each
    other.
    """
    threads = min(torch.get_num_threads(), _cores())
    torch.set_num_threads(threads)
    return threads


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = Path("/sys/fs/cgroup/cpu.max")
    quota, _, period = limit.read_text(encoding="ascii").partition(" ") if limit.is_file() else ("max", "", "")
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))
