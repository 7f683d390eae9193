"""From a name to a model on a device: only safetensors, never a repository's own code, only caches that roll back."""

from __future__ import annotations

import logging
import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from safetensors import safe_open
from transformers.cache_utils import Cache

from spec_viz.engine.cache import kv_numbers_per_token, new_cache
from spec_viz.engine.pack import pack
from spec_viz.models.catalogue import CATALOGUE, Entry, Source
from spec_viz.models.weights import WeightsError, cache_folder, find, folder

# Up to here a model runs in float32 on an accelerator too: it costs little and keeps greedy identity visible.
SMALL = 500_000_000
# Sliding layers in these mask by position, so that a cache which keeps every entry is right for them (measured: equal
# to transformers' own generation beyond the window, rejected drafts and trees included).
MASKED_BY_POSITION = ("gemma4_text",)
# Models that also see and hear, by the type of their configuration: where the text part's weights lie.
TEXT_PART = {"gemma4": {r"^model\.language_model\.": "model."}}
# What a run is reckoned with beside the weights, in tokens of the KV cache.
TOKENS = 2048


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
    # A name that no file system takes names no folder.
    with suppress(OSError, ValueError):
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
    if device.type == "cuda":
        # TF32 keeps ten bits of every factor: texts that hang on a near tie would come out otherwise than elsewhere.
        torch.set_float32_matmul_precision("highest")
    dtype = dtype or pick_dtype(entry, device)
    # Of a model that also sees and hears, the part that writes.
    renamed = TEXT_PART.get(config.model_type)
    config = config.get_text_config(decoder=True) if renamed else config
    check_memory(entry.title, numbers_in(place, next(iter(renamed or ()), "")), config, device, dtype)
    # What is left out on purpose would be reported as left over.
    with quiet(), _unreported(bool(renamed)):
        model: Any = AutoModelForCausalLM.from_pretrained(
            place,
            config=config,
            dtype=dtype,
            key_mapping=renamed,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=True)
    model = model.to(device).eval().requires_grad_(False)
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    done = packed and device.type == "cpu" and dtype == torch.float32 and pack(model)
    return Loaded(model, tokenizer, entry, device, device_name(device), dtype, size, done)


@contextmanager
def _unreported(on: bool) -> Iterator[None]:
    from transformers.utils import logging as reports

    level = reports.get_verbosity()
    if on:
        reports.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        reports.set_verbosity(level)


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
    state: none of them gives back what stood there before a rejected draft. A window that is a mask drops nothing: with
    `new_cache`, which keeps every entry, the models of MASKED_BY_POSITION are taken.
    """
    from transformers import AutoModelForCausalLM

    text = config.get_text_config(decoder=True)
    layers = {str(kind) for kind in getattr(text, "layer_types", None) or ()}
    kept = {"full_attention", "sliding_attention"} if text.model_type in MASKED_BY_POSITION else {"full_attention"}
    other = sorted(layers - kept)
    window = getattr(text, "sliding_window", None)
    if not layers and window and getattr(text, "use_sliding_window", True):
        other = ["sliding_attention"]
    kind = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if not other and (kind is None or getattr(kind, "_is_stateful", False)):
        other = [str(config.model_type)]
    if other:
        raise CannotRollBack("error.cannot_roll_back", name=name, layers=", ".join(other))


def numbers_in(place: Path, part: str) -> int:
    """How many numbers a folder's safetensors hold under the names that begin as `part` says; only headers are read."""
    count = 0
    for file in place.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            names = [name for name in weights.keys() if re.match(part, name)]  # noqa: SIM118 - not a mapping
            count += sum(prod(weights.get_slice(name).get_shape()) for name in names)
    return count


def check_memory(title: str, numbers: int, config: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse, before a weight is read, a model that the device has no room for: its weights and the KV of TOKENS."""
    free = free_memory(device)
    need = (numbers + TOKENS * kv_numbers_per_token(config)) * dtype.itemsize
    if free is not None and need > free:
        raise WeightsError(
            "error.no_room",
            title=title,
            need=f"{need / 1e9:.1f}",
            free=f"{free / 1e9:.1f}",
            tokens=TOKENS,
            dtype=str(dtype).removeprefix("torch."),
            device=device.type,
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a device still has for this process; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    told = [free for free in (_machine_free(), _share_free()) if free is not None]
    return min(told, default=None)


def _machine_free() -> int | None:
    place = Path("/proc/meminfo")
    lines = place.read_text(encoding="ascii").splitlines() if place.is_file() else []
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def _share_free() -> int | None:
    """What a container may still take; pages of files that nobody uses any more can be taken back."""

    def read(name: str) -> str:
        return Path(f"/sys/fs/cgroup/memory.{name}").read_text(encoding="ascii").strip()

    try:
        most, used = read("max"), int(read("current"))
        stat = dict(line.split() for line in read("stat").splitlines())
    except OSError:
        return None
    return None if most == "max" else int(most) - used + int(stat.get("inactive_file", 0))


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
