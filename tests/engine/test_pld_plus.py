"""PLD+: its ranks against passes over the whole text, its attention against transformers', its state over rounds."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from spec_viz.drafters.pld_plus import FAMILY, SHOWN, ByAttention, ByHidden, PldPlus, project, weights
from spec_viz.drafters.registry import OptionError, Setup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Outcome, Seen
from spec_viz.engine.target import CachedModel
from tests.engine.tiny import GREEDY, LAYERS, VOCABULARY, generate, model, prompts, run

DRAWS = Draws(0, 1, 1)
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.25,
    "attn_implementation": "eager",
}


@cache
def eager(kind: str) -> Any:
    """A random model that hands out its attention weights; a Qwen3 norms queries and keys on the way."""
    torch.manual_seed(3)
    made: Any = LlamaForCausalLM(LlamaConfig(**SHAPE)) if kind == "llama" else Qwen3ForCausalLM(Qwen3Config(**SHAPE))
    for name, weight in made.named_parameters():
        if "norm" in name:  # all ones as they are made, and then leaving one out would not show
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return made.to(torch.float64).eval()


def drafter(rank: str, layer: int) -> PldPlus:
    return PldPlus(layer, rank, ByHidden() if rank == "hidden" else ByAttention(model(), layer))


def setup() -> Setup:
    return Setup(CachedModel(model()), None, lambda _: [], 4, frozenset(), GREEDY)  # type: ignore[arg-type]


@torch.inference_mode()
def states(tokens: Sequence[int], layer: int) -> Tensor:
    """Hidden states (n, d) of one plain pass without a cache, as transformers numbers them."""
    out = model()(torch.tensor([list(tokens)]), use_cache=False, output_hidden_states=True)
    rows: Tensor = out.hidden_states[layer][0]
    return rows


def scored(text: list[int], rank: str, layer: int) -> dict[int, float]:
    """Every candidate's score, from one pass over all but the last token."""
    places = [place for place in range(1, len(text) - 1) if text[place] == text[-1]]
    rows = states(text[:-1], layer)
    if rank == "hidden":
        return {place: float(torch.cosine_similarity(rows[place - 1], rows[-1], dim=0)) for place in places}
    with torch.inference_mode():
        queries, keys = project(model(), layer, rows, 0)
        attention = weights(queries[:, -1], keys, model().model.layers[layer].self_attn.scaling).mean(0)
    return {place: float(attention[place]) for place in places}


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("layer", range(LAYERS))
def test_attention_worked_out_again_is_the_model_s_own(kind: str, layer: int) -> None:
    ids = prompts(1)[0]
    with torch.inference_mode():
        made = eager(kind)
        out = made(torch.tensor([ids]), use_cache=False, output_hidden_states=True, output_attentions=True)
        queries, keys = project(made, layer, out.hidden_states[layer][0], 0)
        for place in range(len(ids)):
            again = weights(queries[:, place], keys[:, : place + 1], made.model.layers[layer].self_attn.scaling)
            theirs = out.attentions[layer][0, :, place, : place + 1]
            assert again.shape == (4, place + 1)
            torch.testing.assert_close(again, theirs.float(), atol=1e-6, rtol=1e-5)


def test_a_later_place_is_turned_as_if_everything_had_been_projected_at_once() -> None:
    rows = states(prompts(1)[0], 1)
    with torch.inference_mode():
        for whole, part in zip(project(model(), 1, rows, 0), project(model(), 1, rows[7:], 7), strict=True):
            torch.testing.assert_close(whole[:, 7:], part)


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize(("rank", "layer"), [("hidden", 1), ("hidden", LAYERS), ("attention", 1), ("attention", 2)])
def test_every_round_ranks_as_one_pass_over_the_committed_text_would(rank: str, layer: int, gamma: int) -> None:
    """That holds only if the rows of kept drafts are taken in, those of refused ones left out, at the right places."""
    kept = refused = several = 0
    for prompt in prompts(4):
        result = run(prompt, drafter(rank, layer), gamma=gamma)
        assert result.output == generate(prompt, 24)
        for committed, round_ in result.starts():
            scores = scored(committed, rank, layer)
            assert bool(round_.nodes) == (bool(scores) and len(prompt) + 24 - len(committed) > 1)
            if not round_.nodes:
                continue
            why: dict[str, Any] = round_.nodes[0].why or {}
            assert dict(why["places"]) == pytest.approx(scores, abs=1e-5)
            assert why["likeness"] == pytest.approx(max(scores.values()), abs=1e-5)
            assert why["likeness"] == dict(why["places"])[why["found"]] == why["places"][0][1]
            copied = committed[why["copied"] : why["copied"] + gamma]
            assert [node.id for node in round_.nodes] == copied[: len(round_.nodes)]
            several += len(scores) > 1
            kept += len(round_.path)
            refused += len(round_.path) < len(round_.nodes)
    assert several >= 5
    assert kept >= 5
    assert refused >= 5


def heard(text: list[int], rows: Tensor) -> PldPlus:
    """A drafter that ranks by hidden states and has seen these (n − 1, d) in the prefill."""
    made = PldPlus(1, "hidden", ByHidden())
    made.observe(Outcome((), text, Seen(hidden={1: rows})))
    return made


EAST, NORTH, BETWEEN = [1.0, 0.0], [0.0, 1.0], [0.8, 0.6]


def test_the_place_whose_past_is_most_alike_is_copied_from() -> None:
    #       0  1  2  3  4  5  6  7
    text = [5, 9, 1, 6, 9, 2, 7, 9]
    rows = torch.tensor([EAST, NORTH, NORTH, NORTH, NORTH, NORTH, BETWEEN])
    proposal = heard(text, rows).propose(text, 2, DRAWS)
    assert proposal.tokens == (1, 6)
    why = {"key": [9], "found": 1, "copied": 2, "ranked_by": "hidden", "layer": 1, "occurrences": 2}
    assert {name: value for name, value in (proposal.why[0] or {}).items() if name in why} == why
    assert (proposal.why[0] or {})["places"] == [[1, pytest.approx(0.8)], [4, pytest.approx(0.6)]]


def test_among_equals_the_latest_and_fewer_drafts_near_the_end() -> None:
    text = [5, 9, 1, 5, 9, 2, 5, 9]
    rows = torch.tensor([EAST] * 7)
    assert heard(text, rows).propose(text, 6, DRAWS).tokens == (2, 5, 9)


def test_kept_drafts_are_taken_in_and_refused_ones_are_not() -> None:
    text = [5, 9, 1, 6, 9]
    made = heard(text, torch.tensor([EAST, NORTH, NORTH, NORTH]))
    # Row 0 is the 9 at the end; the first draft, 1, was kept, the second refused, and the target wrote 9.
    seen = Seen(hidden={1: torch.tensor([NORTH, BETWEEN, [-1.0, 0.0]])})
    made.observe(Outcome((0,), [*text, 1, 9], seen))
    why = made.propose([*text, 1, 9], 1, DRAWS).why[0] or {}
    assert why["places"] == [[1, pytest.approx(0.8)], [4, pytest.approx(0.6)]]


def test_no_more_places_are_told_than_a_picture_can_show() -> None:
    text = [9, 1] * 20 + [9]
    why = heard(text, torch.tensor([EAST] * 40)).propose(text, 1, DRAWS).why[0] or {}
    assert len(why["places"]) == SHOWN
    # All but the first place, which has no token before it, and the last one itself.
    assert why["occurrences"] == 19


@pytest.mark.parametrize("text", [[9], [9, 9], [9, 1, 9], [5, 6, 7]])
def test_nowhere_to_copy_from_means_no_draft(text: list[int]) -> None:
    assert heard(text, torch.tensor([EAST] * max(len(text) - 1, 1))).propose(text, 4, DRAWS).tokens == ()


@pytest.mark.parametrize(("rank", "high"), [("hidden", LAYERS), ("attention", LAYERS - 1)])
def test_a_layer_that_the_target_does_not_have_is_refused(rank: str, high: int) -> None:
    built = FAMILY.build(setup(), {"rank": rank, "layer": high})
    assert built.needs.layers == (high,)
    with pytest.raises(OptionError, match=f"layer must be at most {high} for this target"):
        FAMILY.build(setup(), {"rank": rank, "layer": high + 1})


@pytest.mark.parametrize("rank", ["hidden", "attention"])
def test_no_draft_stands_behind_an_end_of_text(rank: str) -> None:
    prompt = prompts(1)[0]
    text = generate(prompt, 24)
    end = text[12]
    result = run(prompt, drafter(rank, 1), ends=frozenset({end}))
    assert result.finish == "eos"
    assert result.output == text[: text.index(end) + 1]
    assert all(node.id != end for round_ in result.rounds for node in round_.nodes[:-1])
