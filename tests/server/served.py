"""What a vLLM server says of a request: its tokens, and step by step how many drafts it had and kept.

As a program it starts a server and writes the recording that is read where none is at hand, of `ngram`, `draft_model`
or `eagle3`; `make vllm` builds what it is started in:

    python -m tests.server.served NAME
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from spec_viz.content.presets import load_presets
from spec_viz.models import heads
from spec_viz.serving.local import command, program, serving
from spec_viz.training.prompts import TASKS, held_out_prompts

RECORDED = Path(__file__).parent / "recorded"
HEADS = ("draft_model", "eagle3")
MISSING = "NO SERVER WAS STARTED: there is no vLLM on this machine. `make vllm` builds one (about 4 GB)"
# Tokens of an answer, and how many of the prompts are recorded.
RECORDS = {"ngram": (48, 12), "draft_model": (64, 10), "eagle3": (64, 10)}
# The default model's answers to these repeat a token at once: the earliest match has fewer tokens behind it than γ.
REPEATING = ("Repeat the word zebra twenty times.", "Write the numbers from 1 to 20, separated by semicolons.")


@dataclass(frozen=True, slots=True)
class Step:
    """One verification that had drafts.

    A step without any is in no list of vLLM's: `Scheduler.update_from_output` calls `RequestSpecDecodeMetrics.observe`
    only where draft tokens were scheduled.
    """

    accepted: int
    drafted: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of prompt and output, whether an end-of-text ended it, and the steps in order."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    ended: bool
    steps: tuple[Step, ...]


def prompts(name: str) -> Sequence[str]:
    """What the server is asked.

    Of a head ten prompts that it was not trained on. Of `ngram` first turns of the Spec-Bench file that
    SPECVIZ_QUESTIONS names (one JSON object a line, with `turns`), every sixteenth; or REPEATING and the presets'.
    """
    if name in HEADS:
        return [text for _, text in held_out_prompts(TASKS, 2)][:10]
    path = os.environ.get("SPECVIZ_QUESTIONS")
    if not path:
        return [*REPEATING, *dict.fromkeys(preset.prompt for preset in load_presets())]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["turns"][0] for line in lines[::16]]


def ask(server: str, prompt: str, tokens: int) -> dict[str, Any]:
    """The raw answer to one chat turn, greedy. The server applies the model's own chat template."""
    with httpx.Client(base_url=server, timeout=300) as client:
        model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0.0,
            "max_tokens": tokens,
            "return_token_ids": True,
        }
        answer: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def read(answer: Mapping[str, Any]) -> Answer:
    """The parts of a raw answer that are compared; KeyError where the server was started without its flags."""
    (choice,) = answer["choices"]
    steps = answer["metrics"]["speculative_decoding"]
    # Both lists are left out where the request drafted nothing at all.
    pairs = zip(steps["per_step_accepted"] or (), steps["per_step_drafted"] or (), strict=True)
    return Answer(
        tuple(answer["prompt_token_ids"]),
        tuple(choice["token_ids"]),
        choice["finish_reason"] == "stop",
        tuple(Step(accepted, drafted) for accepted, drafted in pairs),
    )


def digest(name: str) -> str | None:
    """The sha256 of a head's weights; `ngram` has none."""
    if name not in HEADS:
        return None
    return hashlib.sha256((heads.HEADS / name / heads.WEIGHTS).read_bytes()).hexdigest()


def recorded(name: str) -> dict[str, Any]:
    """The recording: its conditions, and for each prompt the raw answer."""
    body: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return body


def record(name: str) -> None:
    """Ask a server and write the recording."""
    tokens, count = RECORDS[name]
    with TemporaryDirectory() as scratch, serving(name, scratch=Path(scratch)) as practice:
        version = httpx.get(f"{practice.address}/version").raise_for_status().json()["version"]
        asked = prompts(name)[:count]
        answers = [{"prompt": prompt, "answer": ask(practice.address, prompt, tokens)} for prompt in asked]
    conditions = {
        "vllm": version,
        "flags": shlex.join(command(name)),
        "head": digest(name),
        "max_tokens": tokens,
        "date": datetime.now(UTC).date().isoformat(),
    }
    body = {"conditions": conditions, "answers": answers}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"
    (RECORDED / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if program() is None or sys.argv[1:] not in [[name] for name in RECORDS]:
        sys.exit(__doc__)
    record(sys.argv[1])
