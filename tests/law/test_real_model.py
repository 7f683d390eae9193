"""The long proof on the real model: our greedy ids and acceptance counts against transformers' own.

Prompts are the first turns of a Spec-Bench file named by SPECVIZ_QUESTIONS (every eighth, thirty at most), or the
presets' own where none is given.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.generation.candidate_generator import (
    AssistedCandidateGenerator,
    EarlyExitCandidateGenerator,
    PromptLookupCandidateGenerator,
)

from spec_viz.content.presets import load_presets
from spec_viz.drafters.registry import families
from spec_viz.lab.run import Request, end_tokens, start
from spec_viz.models.catalogue import DRAFT
from spec_viz.models.load import Loaded, load
from spec_viz.models.readiness import standing
from spec_viz.models.weights import fetch, is_cached

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_cached("smollm2-135m"), reason="the default model is not in the cache"),
]

Greedy = Callable[[tuple[int, ...]], tuple[int, ...]]

NEW_TOKENS = 64
GAMMA = 4
# Two passes over different numbers of rows may differ by this much in a logit: float32 sums in another order.
ROUNDING = 1e-3


def prompts() -> list[str]:
    path = os.environ.get("SPECVIZ_QUESTIONS")
    if not path:
        return [preset.prompt for preset in load_presets()]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["turns"][0] for line in lines[::8]][:30]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load("smollm2-135m")


def generate(loaded: Loaded, prompt: tuple[int, ...], **options: Any) -> tuple[int, ...]:
    ids = torch.tensor([prompt], device=loaded.device)
    out = loaded.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, **options
    )
    return tuple(out[0, len(prompt) :].tolist())


@pytest.fixture(scope="module")
def plain(loaded: Loaded) -> Greedy:
    """Transformers' own greedy ids behind a prompt, computed once for all drafters."""
    return cache(partial(generate, loaded))


def say(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{line}\n")


@torch.inference_mode()
def margin(loaded: Loaded, tokens: tuple[int, ...]) -> float:
    """By how much the best next logit leads the second."""
    best = loaded.model(torch.tensor([tokens], device=loaded.device)).logits[0, -1].float().topk(2).values
    return float(best[0] - best[1])


@pytest.mark.parametrize("drafter", [family.name for family in families().values() if standing(family).ready])
def test_greedy_ids_are_transformers_own(
    loaded: Loaded,
    plain: Greedy,
    drafter: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ties = []
    for number, prompt in enumerate(prompts()):
        trace = start(loaded, Request(prompt, drafter=drafter, max_new_tokens=NEW_TOKENS)).collect()
        theirs = plain(trace.prompt)
        if trace.output != theirs:
            agreed = next(i for i, (a, b) in enumerate(zip(trace.output, theirs, strict=False)) if a != b)
            lead = margin(loaded, trace.prompt + theirs[:agreed])
            assert lead < ROUNDING, f"prompt {number} differs at token {agreed}, where the best logit leads by {lead}"
            ties.append((number, agreed, lead))
    say(capsys, f"{drafter}: {len(prompts())} prompts, near-ties (prompt, token, lead): {ties}")


def listen(monkeypatch: pytest.MonkeyPatch, kind: Any) -> dict[int, tuple[tuple[int, ...], int]]:
    """What a candidate generator of transformers drafts and how many of it are kept, by the length of the text."""
    heard: dict[int, tuple[tuple[int, ...], int]] = {}
    draft = kind.get_candidates
    learn = kind.update_candidate_strategy
    proposed: list[tuple[int, tuple[int, ...]]] = []

    def get_candidates(self: Any, input_ids: torch.LongTensor, *args: Any, **kwargs: Any) -> Any:
        found = draft(self, input_ids, *args, **kwargs)
        proposed.append((input_ids.shape[1], tuple(found[0][0, input_ids.shape[1] :].tolist())))
        return found

    def update_candidate_strategy(self: Any, input_ids: torch.LongTensor, scores: Any, num_matches: int) -> Any:
        length, tokens = proposed[-1]
        heard[length] = (tokens, int(num_matches))
        return learn(self, input_ids, scores, num_matches)

    monkeypatch.setattr(kind, "get_candidates", get_candidates)
    monkeypatch.setattr(kind, "update_candidate_strategy", update_candidate_strategy)
    return heard


def test_lookup_accepts_in_every_round_what_transformers_lookup_accepts(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Theirs drafts before the first pass, ours after the prefill: from the first common prefix on all rounds agree."""
    heard = listen(monkeypatch, PromptLookupCandidateGenerator)
    compared = 0
    for prompt in prompts()[:10]:
        heard.clear()
        trace = start(loaded, Request(prompt, gamma=GAMMA, max_new_tokens=NEW_TOKENS)).collect()
        if generate(loaded, trace.prompt, prompt_lookup_num_tokens=GAMMA, max_matching_ngram_size=3) != trace.output:
            continue  # a near-tie, told apart by the test above
        ours = dict(_by_length(trace, end_tokens(loaded)))
        common = sorted(ours.keys() & heard.keys())
        assert common, "the two never stood at the same place"
        # Near max_new_tokens each cuts its drafts short in a way of its own.
        last = len(trace.prompt) + NEW_TOKENS - GAMMA
        for length in [length for length in ours if common[0] <= length < last]:
            assert length in heard, f"theirs has no round at {length}"
            assert ours[length] == heard[length], f"at {length}"
            compared += 1
    assert compared > 50
    say(capsys, f"prompt lookup: {compared} rounds, drafts and acceptance equal to transformers'")


def _by_length(trace: Any, ends: frozenset[int]) -> Iterator[tuple[int, tuple[tuple[int, ...], int]]]:
    length = len(trace.prompt)
    for round_ in trace.rounds:
        if not round_.prefill:
            # Theirs drops an end-of-text and what follows it from a draft; ours lets the target judge it.
            drafts = list(takewhile(lambda token: token not in ends, (node.id for node in round_.nodes)))
            yield length, (tuple(drafts), min(len(round_.path), len(drafts)))
        length += len(round_.committed)


def test_early_exit_drafts_and_accepts_in_every_round_what_transformers_early_exit_does(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their schedule held still (γ constant, no confidence stop) the rounds agree from the first common prefix."""
    heard = listen(monkeypatch, EarlyExitCandidateGenerator)
    # The assistant takes these from the model, not from the call.
    still = {
        "num_assistant_tokens": GAMMA,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    for name, value in still.items():
        monkeypatch.setattr(loaded.model.generation_config, name, value)
    compared = 0
    for prompt in prompts()[:3]:
        for kv in ("own", "shared"):
            heard.clear()
            options = {"layers": 24, "kv": kv}
            request = Request(prompt, "early_exit", options, rule="match", gamma=GAMMA, max_new_tokens=NEW_TOKENS)
            trace = start(loaded, request).collect()
            if generate(loaded, trace.prompt, assistant_early_exit=24) != trace.output:
                continue  # a near-tie, told apart by the test above
            ours = dict(_by_length(trace, frozenset()))
            common = sorted(ours.keys() & heard.keys())
            assert common, "the two never stood at the same place"
            # Near max_new_tokens and at an end of text each cuts and counts in a way of its own.
            last = len(trace.prompt) + NEW_TOKENS - GAMMA
            for length in [length for length in ours if common[0] <= length < last]:
                if end_tokens(loaded) & set(ours[length][0]):
                    continue
                assert length in heard, f"theirs has no round at {length}"
                assert ours[length] == heard[length], f"at {length}"
                compared += 1
    assert compared > 50
    say(capsys, f"early exit: {compared} rounds, drafts and acceptance equal to transformers'")


def test_our_draft_model_under_transformers_assisted_generation(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is an ordinary Llama: transformers drafts with it what we draft, and keeps what we keep."""
    if not standing(families()["draft_model"]).ready:
        pytest.skip("the draft model has no trained head here")
    fetch(DRAFT)
    heard = listen(monkeypatch, AssistedCandidateGenerator)
    assistant = load(DRAFT, packed=False).model
    told = assistant.generation_config
    told.num_assistant_tokens, told.num_assistant_tokens_schedule = GAMMA, "constant"
    told.assistant_confidence_threshold = 0.0
    compared = 0
    for prompt in prompts()[:5]:
        heard.clear()
        request = Request(prompt, "draft_model", rule="match", gamma=GAMMA, max_new_tokens=NEW_TOKENS)
        trace = start(loaded, request).collect()
        if generate(loaded, trace.prompt, assistant_model=assistant) != trace.output:
            continue  # a near-tie, told apart by the test above
        ours = dict(_by_length(trace, frozenset()))
        common = sorted(ours.keys() & heard.keys())
        assert common, "the two never stood at the same place"
        # Near max_new_tokens and at an end of text each cuts and counts in a way of its own.
        last = len(trace.prompt) + NEW_TOKENS - GAMMA
        for length in [length for length in ours if common[0] <= length < last]:
            if not end_tokens(loaded) & set(ours[length][0]):
                assert ours[length] == heard[length], f"at {length}"
                compared += 1
    assert compared > 20
    say(capsys, f"draft model: {compared} rounds, drafts and acceptance equal to transformers' assisted generation")
