"""Our `ngram` against vLLM's own proposer on a real server: per step, how many tokens were drafted and kept.

The first test runs on a recording, the second starts a server; `make vllm` builds what it needs. Its prompts are those
of SPECVIZ_QUESTIONS (a file as Spec-Bench has it: one JSON object a line, with `turns`) or, without it, the presets'.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_viz.lab.run import Request
from spec_viz.models.load import Loaded, load
from spec_viz.models.weights import is_cached
from spec_viz.serving.local import GAMMA, program, serving
from tests.server.compare import compare, tell
from tests.server.served import MISSING, ask, prompts, read, recorded

pytestmark = pytest.mark.skipif(not is_cached("smollm2-135m"), reason="the default model is not in the cache")

NEW_TOKENS = 64
OPTIONS = {"min_n": 1, "max_n": 3}


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load("smollm2-135m")


def request_of(prompt: str, tokens: int) -> Request:
    return Request(prompt, "ngram", OPTIONS, gamma=GAMMA, max_new_tokens=tokens)


def test_every_step_drafts_and_keeps_what_the_recorded_server_did(
    loaded: Loaded, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = recorded("ngram")
    conditions = recording["conditions"]
    answers = [(one["prompt"], read(one["answer"])) for one in recording["answers"]]
    assert any(step.drafted < GAMMA for _, answer in answers for step in answer.steps), "no match near the end"
    compared = [compare(loaded, request_of(prompt, conditions["max_tokens"]), answer) for prompt, answer in answers]
    assert len(compared) >= 10
    assert sum(one.steps for one in compared) > 100
    tell(capsys, f"ngram, vLLM {conditions['vllm']} as recorded on {conditions['date']}", compared)


@pytest.mark.server
@pytest.mark.skipif(program() is None, reason=MISSING)
def test_every_step_drafts_and_keeps_what_a_running_server_does(
    loaded: Loaded, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving("ngram", scratch=tmp_path) as practice:
        answers = [(prompt, read(ask(practice.address, prompt, NEW_TOKENS))) for prompt in prompts("ngram")]
    compared = [compare(loaded, request_of(prompt, NEW_TOKENS), answer) for prompt, answer in answers]
    assert len(compared) >= 10
    assert sum(one.steps for one in compared) > 100
    tell(capsys, "ngram, the server", compared)
