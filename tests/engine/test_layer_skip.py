"""Layer skip: the target without some layers as a drafter, and the search for a set to leave out."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.early_exit import first_layers
from spec_viz.drafters.layer_skip import FAMILY, read_layers, search, without_layers, write_layers
from spec_viz.drafters.registry import OptionError, Setup
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine.tiny import GREEDY, LAYERS, collect, direct, generate, model, never, prompts

TOKENS = prompts(1)[0]


@torch.inference_mode()
def logits_of(each: Any, tokens: list[int] = TOKENS) -> torch.Tensor:
    logits: torch.Tensor = each(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits.float()


def run_with(options: dict[str, Any], prompt: list[int], warp: Warp = GREEDY, rule: str = "match") -> Any:
    target = CachedModel(model())
    setup: Any = Setup(target, None, lambda _: [], len(prompt), frozenset(), warp, rule)  # type: ignore[arg-type]
    drafter = FAMILY.build(setup, FAMILY.options(options))
    return collect(prompt, decode(target, drafter, prompt, Settings(4, 24, warp, rule), never))


@pytest.mark.parametrize("skip", [{2}, {1, 2}])
def test_without_its_last_layers_it_is_an_early_exit(skip: set[int]) -> None:
    short = without_layers(model(), frozenset(skip))
    torch.testing.assert_close(logits_of(short), logits_of(first_layers(model(), LAYERS - len(skip))))


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_layer_left_out_is_a_layer_that_changes_nothing(skip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    got = logits_of(without_layers(model(), frozenset({skip})))
    monkeypatch.setattr(model().model.layers[skip], "forward", lambda states, **_: states)
    torch.testing.assert_close(got, logits_of(model()))


@pytest.mark.parametrize("skip", [{0}, {1}, {0, 1}])
def test_its_cache_counts_the_layers_that_are_left(skip: set[int]) -> None:
    short = without_layers(model(), frozenset(skip))
    cached = CachedModel(short)
    cached.feed(TOKENS[:7], keep=1)
    assert cached.length == 7
    torch.testing.assert_close(cached.feed(TOKENS[7:], keep=4), logits_of(short)[-4:])
    assert kv_bytes_per_token(short) == kv_bytes_per_token(model(), LAYERS - len(skip))


def test_a_view_shares_every_weight_and_leaves_the_target_whole() -> None:
    before = direct(TOKENS)
    short = without_layers(model(), frozenset({0}))
    assert {id(weight) for weight in short.parameters()} <= {id(weight) for weight in model().parameters()}
    logits_of(short)
    assert [layer.self_attn.layer_idx for layer in model().model.layers] == list(range(LAYERS))
    assert torch.equal(direct(TOKENS), before)


@pytest.mark.parametrize(
    ("text", "layers"),
    [("8-19,22", {*range(8, 20), 22}), ("3", {3}), (" 4 , 5-6,", {4, 5, 6}), ("1,1-2", {1, 2}), ("0-28", {*range(29)})],
)
def test_layers_are_read(text: str, layers: set[int]) -> None:
    assert read_layers(text, 30) == layers


@pytest.mark.parametrize("text", ["", ",", "a", "5-3", "30", "0-30", "0-29", "-1", "1-", "1 2", "1;2", "½"])
def test_what_names_no_layers_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="layers from 0 to 29"):
        read_layers(text, 30)


@given(st.frozensets(st.integers(0, 29), min_size=1, max_size=29))
def test_layers_written_are_read_again(layers: frozenset[int]) -> None:
    assert read_layers(write_layers(layers), 30) == layers


def test_runs_of_layers_are_written_short() -> None:
    assert write_layers(frozenset({8, 9, 10, 22, 24, 25})) == "8-10,22,24-25"


@given(st.frozensets(st.integers(0, 9), min_size=1, max_size=9), st.integers(0, 12), st.integers(0, 3))
def test_a_search_keeps_the_best_set_it_saw(first: frozenset[int], count: int, salt: int) -> None:
    seen: dict[frozenset[int], float] = {}

    def score(skip: frozenset[int]) -> float:
        return seen.setdefault(skip, hash((salt, *sorted(skip))) % 1000 / 1000)

    best, high = search(first, 10, count, score)
    assert high == seen[best] == max(seen.values())
    assert first in seen
    for tried in seen:
        assert tried == first or len(tried) == min(len(first), 8) or len(tried) == len(first)
        # The first and the last layer are only left out where the visitor said so.
        assert tried & {0, 9} <= first & {0, 9}


def test_a_search_finds_its_way_to_the_best_layers() -> None:
    best, high = search(frozenset({1, 2, 3}), 12, 200, lambda skip: len(skip & {5, 7, 9}) / 3)
    assert best == {5, 7, 9}
    assert high == 1.0


def test_no_search_asks_for_nothing_and_a_search_asks_once() -> None:
    setup: Any = Setup(CachedModel(model()), None, lambda _: [], 1, frozenset(), GREEDY)  # type: ignore[arg-type]
    assert not FAMILY.build(setup, FAMILY.options({"skip": "1"})).needs.layers
    drafter = FAMILY.build(setup, FAMILY.options({"skip": "1", "search": 3}))
    assert drafter.needs.layers == (LAYERS,)
    result = run_with({"skip": "1", "search": 3}, TOKENS)
    assert result.output == generate(TOKENS, 24)


def test_the_rate_is_that_of_the_chosen_set_on_the_prompt() -> None:
    result = run_with({"skip": "0", "search": 4}, TOKENS)
    reasons = [node.why for round_ in result.decoding for node in round_.nodes]
    assert all(why == reasons[0] for why in reasons)
    target = direct(TOKENS).argmax(-1)
    rates = {
        write_layers(frozenset({layer})): float(
            (logits_of(without_layers(model(), frozenset({layer}))).argmax(-1) == target).float().mean()
        )
        for layer in (0, 1)
    }
    # Of three layers the search may only choose the middle one, beside the set it began with.
    best = "1" if rates["1"] > rates["0"] else "0"
    assert reasons[0] == {"skipped_layers": best, "match_rate": pytest.approx(rates[best]), "subsets_tried": 5}


@pytest.mark.parametrize("skip", ["0", "1", "2", "0-1", "1-2"])
def test_greedy_ids_are_transformers_own(skip: str) -> None:
    for prompt in prompts(2):
        assert run_with({"skip": skip}, prompt).output == generate(prompt, 24)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"skip": "1-2"}, {"skip": "2", "search": 2}], ids=str)
@pytest.mark.parametrize("rule", ["token", "without_replacement"])
def test_the_law_is_kept(rule: str, options: dict[str, Any]) -> None:
    assert sample_tiny(FAMILY, rule, options, 4000).passed
