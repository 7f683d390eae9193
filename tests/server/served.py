"""What a vLLM server says of a request: its tokens, and step by step how many drafts it had and kept.

As a program it writes the recording that `test_vllm_ngram.py` reads where no server is at hand:

    SPECVIZ_VLLM=http://127.0.0.1:8000 python -m tests.server.served TOKENS PROMPTS "FLAGS OF THE SERVER"
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from spec_viz.content.presets import load_presets

RECORDED = Path(__file__).parent / "recorded" / "ngram.json"
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


def address() -> str | None:
    """Where a server with the flags of `test_vllm_ngram.py` runs, from SPECVIZ_VLLM."""
    return os.environ.get("SPECVIZ_VLLM")


def prompts() -> Sequence[str]:
    """First turns of the Spec-Bench file named by SPECVIZ_QUESTIONS, every sixteenth; or REPEATING and the presets'."""
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


def recorded() -> dict[str, Any]:
    """The recording: its conditions, and for each prompt the raw answer."""
    body: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return body


def record(server: str, tokens: int, count: int, flags: str) -> None:
    """Ask the server the first `count` prompts and write the recording."""
    conditions = {
        "vllm": httpx.get(f"{server}/version").raise_for_status().json()["version"],
        "flags": flags,
        "max_tokens": tokens,
        "date": datetime.now(UTC).date().isoformat(),
    }
    answers = [{"prompt": prompt, "answer": ask(server, prompt, tokens)} for prompt in prompts()[:count]]
    body = {"conditions": conditions, "answers": answers}
    RECORDED.write_text(json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    where = address()
    if where is None or len(sys.argv) != 4:
        sys.exit(__doc__)
    record(where, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
