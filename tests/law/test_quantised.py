"""The real model with a cache of few bits: its own text under speculation, and not the full target's.

In float64: float32 sums a pass over five tokens in another order than passes over one, and codes make that visible.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from spec_viz.engine.quantised import Form, new_quantised_cache
from spec_viz.lab.run import Request, start
from spec_viz.models.load import Loaded, load
from spec_viz.models.quantise import in_float64, quantise
from spec_viz.models.weights import fetch, is_cached

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_cached("smollm2-135m"), reason="the default model is not in the cache"),
]

PROMPTS = ("Write a short list of five fruits.", "Explain in two sentences why the sky is blue.")


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load("smollm2-135m", packed=False, dtype=torch.float64)


def text(loaded: Loaded, prompt: str, drafter: str) -> list[int]:
    rule = "match" if drafter == "draft_model" else None
    return list(start(loaded, Request(prompt, drafter, rule=rule, max_new_tokens=24)).collect().output)


@pytest.mark.parametrize("form", [Form(4), Form(3, True)])
def test_the_text_is_the_quantised_target_s_own_and_not_the_full_one_s(loaded: Loaded, form: Form) -> None:
    fetch("smollm2-draft")
    mine = replace(loaded, cache=partial(new_quantised_cache, form))
    plain = [text(mine, prompt, "none") for prompt in PROMPTS]
    for drafter in ("prompt_lookup", "draft_model"):
        assert [text(mine, prompt, drafter) for prompt in PROMPTS] == plain
    assert plain != [text(loaded, prompt, "none") for prompt in PROMPTS]


def test_weights_of_eight_bits_keep_their_own_text() -> None:
    mine = in_float64(quantise(load("smollm2-135m"), "int8"))
    for prompt in PROMPTS:
        assert text(mine, prompt, "prompt_lookup") == text(mine, prompt, "none")
