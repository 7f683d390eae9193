"""Record a real server: a warm-up that is dropped, then the same questions one after another and side by side.

vLLM writes what speculation did to its log at a fixed interval. Each pass begins right after such a line and ends with
another, so that the lines of a pass count exactly its requests.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from spec_viz.engine.text import Vocabulary
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.heads import HEADS, WEIGHTS
from spec_viz.models.weights import fetch
from spec_viz.serving.client import Server
from spec_viz.serving.counters import scrape
from spec_viz.serving.local import ENVIRONMENT, SPECULATIVE, TORCH, WHEEL, Hear, Practice, command, serving
from spec_viz.serving.problems import ServerError
from spec_viz.serving.saved import SCHEMA, Asked, Pass, Saved

CONCURRENCY = (1, 4)
MAX_TOKENS = 64
WARM_UP = 2
# Seconds between the server's lines. A pass that takes longer has several of them.
INTERVAL = 40
# What it writes at every interval in which something ran, or in the one before; and about speculation, right behind.
_TICK, _DRAFTS = "Avg prompt throughput: ", "SpecDecoding metrics: "


def record(method: str, questions: Sequence[tuple[str, str]], note: str, hear: Hear) -> Saved:
    """Start a server that drafts by this method, ask it the questions (task, text) and return what it did.

    `note` says what else the machine did; a name such as one_core is said in the reader's language (`serve.note.*`).
    """
    given = {name: value for name, value in os.environ.items() if name.startswith(("VLLM_", "OMP_"))}
    environment = given | ENVIRONMENT | {"VLLM_LOG_STATS_INTERVAL": str(INTERVAL)}
    with tempfile.TemporaryDirectory() as scratch:
        hear(f"{method}: starting")
        with serving(method, scratch=Path(scratch), VLLM_LOG_STATS_INTERVAL=str(INTERVAL)) as practice:
            server = Server(practice.address, DEFAULT)
            told = server.version()
            hear(f"{method}: warming up")
            for _, prompt in questions[:WARM_UP]:
                server.ask(prompt, MAX_TOKENS)
            _await_tick(practice)
            passes = [_pass(practice, server, questions, width, hear) for width in CONCURRENCY]
    return Saved(
        schema=SCHEMA,
        method=method,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=({"vllm": told} if told else {})
        | {"wheel": WHEEL, "torch": TORCH, "python": platform.python_version()}
        | {name: version(name) for name in ("httpx", "prometheus-client")},
        machine=_machine(note),
        target=DEFAULT,
        command=command(method),
        environment=environment,
        speculative=SPECULATIVE[method],
        head=_digest(method),
        max_tokens=MAX_TOKENS,
        warm_up=WARM_UP,
        tokens=_texts(passes),
        passes=tuple(passes),
    )


def _pass(practice: Practice, server: Server, questions: Sequence[tuple[str, str]], width: int, hear: Hear) -> Pass:
    """All questions, asked right behind a line of the log, up to its next one."""
    logged = len(_log(practice))
    hear(f"{practice.method}: {len(questions)} questions, {width} side by side")
    before = scrape(practice.address)
    began = time.perf_counter()

    def ask(question: tuple[str, str]) -> Asked:
        task, prompt = question
        sent = 1000 * (time.perf_counter() - began)
        return Asked(task, prompt, round(sent, 3), server.ask(prompt, MAX_TOKENS))

    with ThreadPoolExecutor(width) as pool:
        asked = tuple(pool.map(ask, questions))
    seconds = time.perf_counter() - began
    after = scrape(practice.address)
    _await_tick(practice)
    log = tuple(line[line.index(_DRAFTS) :] for line in _log(practice)[logged:] if _DRAFTS in line)
    return Pass(width, seconds, before, after, log, asked)


def _log(practice: Practice) -> list[str]:
    return practice.log.read_text(encoding="utf-8", errors="replace").splitlines()


def _await_tick(practice: Practice) -> None:
    """Wait until the server has logged all that ran before: for its next line."""
    before = sum(_TICK in line for line in _log(practice))
    ends = time.monotonic() + 4 * INTERVAL
    while sum(_TICK in line for line in _log(practice)) == before:
        if time.monotonic() > ends or not practice.is_up:
            raise ServerError("error.local_down", "the server logs nothing", problem="its log stands still")
        time.sleep(0.2)
    # The line about speculation is written in the same breath.
    time.sleep(1)


def _machine(note: str) -> dict[str, str | int]:
    name = platform.processor() or platform.machine()
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = next(line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        # Only Linux tells it there.
        pass
    cores = len(os.sched_getaffinity(0))
    return {"processor": name, "cores": cores, "note": note}


def _digest(method: str) -> str | None:
    if "model" not in (SPECULATIVE[method] or {}):
        return None
    return hashlib.sha256((HEADS / method / WEIGHTS).read_bytes()).hexdigest()


def _texts(passes: Sequence[Pass]) -> dict[int, tuple[str, str | None]]:
    from transformers import AutoTokenizer

    answers = [each.answer for pass_ in passes for each in pass_.asked]
    ids = sorted({id_ for answer in answers for id_ in (*(answer.prompt or ()), *(answer.ids or ()))})
    return Vocabulary(AutoTokenizer.from_pretrained(fetch(DEFAULT))).table(ids)
