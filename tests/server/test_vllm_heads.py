"""Our trained draft model and EAGLE-3 head, written out for others, on a real vLLM server and on our own engine.

What is compared is the text, and per step how many tokens were drafted and kept: a head whose layout, positions or
fused layers were read otherwise over there would keep less. The first test runs on recordings, the second starts a
server, for which `make vllm` builds what it needs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spec_viz.lab.run import Request
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.heads import heads
from spec_viz.models.load import Loaded, load
from spec_viz.models.weights import is_cached
from spec_viz.serving.local import GAMMA, program, serving
from tests.server.compare import Comparison, compare, tell
from tests.server.served import HEADS, MISSING, RECORDS, Answer, ask, digest, prompts, read, recorded

pytestmark = [
    pytest.mark.skipif(not is_cached(DEFAULT), reason="the default model is not in the cache"),
    pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=pytest.mark.skipif(name not in heads(), reason=f"no head in assets/heads/{name}"))
            for name in HEADS
        ],
    ),
]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(DEFAULT)


def compare_all(loaded: Loaded, name: str, answers: list[Answer], tokens: int) -> list[Comparison]:
    asked = prompts(name)
    assert len(asked) == len(answers) == 10
    compared = [
        compare(loaded, Request(prompt, name, gamma=GAMMA, max_new_tokens=tokens), answer)
        for prompt, answer in zip(asked, answers, strict=True)
    ]
    assert sum(one.steps for one in compared) > 100
    # A head that keeps next to nothing on both sides would be equal too, and say nothing.
    assert sum(one.accepted for one in compared) > sum(one.steps for one in compared) / 2
    return compared


def test_the_recorded_server_kept_what_ours_keeps(
    name: str, loaded: Loaded, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = recorded(name)
    conditions = recording["conditions"]
    assert conditions["head"] == digest(name), f"another head was recorded: python -m tests.server.served {name}"
    assert [one["prompt"] for one in recording["answers"]] == prompts(name)
    answers = [read(one["answer"]) for one in recording["answers"]]
    compared = compare_all(loaded, name, answers, conditions["max_tokens"])
    tell(capsys, f"{name}, vLLM {conditions['vllm']} as recorded on {conditions['date']}", compared)


@pytest.mark.server
@pytest.mark.skipif(program() is None, reason=MISSING)
def test_a_running_server_keeps_what_ours_keeps(
    name: str, loaded: Loaded, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tokens, _ = RECORDS[name]
    with serving(name, scratch=tmp_path) as practice:
        answers = [read(ask(practice.address, prompt, tokens)) for prompt in prompts(name)]
    tell(capsys, f"{name}, the server", compare_all(loaded, name, answers, tokens))
