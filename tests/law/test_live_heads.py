"""A head is what its papers say: its α on held-out prompts, run live, within two points of what stands there."""

from __future__ import annotations

import pytest

from spec_viz.drafters.registry import families
from spec_viz.lab.metrics import summarise
from spec_viz.lab.run import Request, start
from spec_viz.models.catalogue import DEFAULT
from spec_viz.models.heads import heads
from spec_viz.models.load import load
from spec_viz.models.readiness import read_provenance, standing
from spec_viz.models.weights import is_cached
from spec_viz.training.prompts import TASKS, held_out_prompts

pytestmark = pytest.mark.skipif(not is_cached(DEFAULT), reason=f"the weights of {DEFAULT} are not in the cache")


@pytest.mark.slow
@pytest.mark.parametrize("name", heads())
def test_live_acceptance_is_that_of_the_papers(name: str) -> None:
    papers = read_provenance(name)["live"]
    told = papers["conditions"]
    loaded = load(DEFAULT)
    accepted = judged = 0
    for _, prompt in held_out_prompts(TASKS, papers["prompts"] // len(TASKS)):
        request = Request(prompt, name, gamma=told["gamma"], max_new_tokens=told["max_new_tokens"])
        summary = summarise(start(loaded, request).collect())
        accepted, judged = accepted + summary.accepted, judged + summary.judged
    assert accepted / judged == pytest.approx(papers["alpha"], abs=0.02)


def test_every_head_that_comes_with_the_program_is_ready() -> None:
    assert {"bigram", "draft_model", "eagle3", "medusa"} < {*heads()}
    for name in heads():
        assert standing(families()[name]).ready, name
