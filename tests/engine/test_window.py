"""Window: the target over its first and its last entries, filled anew from the target's own cache each round."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.registry import OptionError, Setup
from spec_viz.drafters.window import FAMILY, Window
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws, pick
from spec_viz.engine.proposal import Proposal, chain, depths
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from spec_viz.lab.batch import start_batch
from spec_viz.lab.law_tiny import OPTIONS, sample_tiny
from tests.engine.tiny import GREEDY, LAYERS, collect, generate, model, never, prompts
from tests.law.test_run import ask, loaded

TOKENS = prompts(1)[0]
WHOLE = {"window": 128, "sinks": 4}


def build(target: CachedModel, options: dict[str, Any], rule: str = "match", warp: Warp = GREEDY) -> Any:
    setup: Any = Setup(target, None, lambda _: [], 1, frozenset(), warp, rule)  # type: ignore[arg-type]
    return FAMILY.build(setup, FAMILY.options(options))


def run_with(
    options: dict[str, Any], prompt: list[int], rule: str = "match", warp: Warp = GREEDY, gamma: int = 4
) -> Any:
    target = CachedModel(model())
    drafter = build(target, options, rule, warp)
    return collect(prompt, decode(target, drafter, prompt, Settings(gamma, 24, warp, rule), never))


@torch.inference_mode()
def seen_through(text: list[int], tree: Proposal, sinks: int, window: int) -> torch.Tensor:
    """Logits of a tree's nodes by one plain pass whose mask hides what a window behind `text` leaves out."""
    before, count = len(text), len(tree)
    sees = torch.ones(before + count, before + count, dtype=torch.bool).tril()
    for node in range(count):
        own = [before + step for step in tree.path(node)]
        places = [*range(min(sinks, before)), *range(max(before - window, 0), before), *own]
        sees[before + node] = torch.isin(torch.arange(before + count), torch.tensor(places))
    mask = torch.zeros(sees.shape, dtype=torch.float64).masked_fill_(~sees, torch.finfo(torch.float64).min)
    at = [*range(before), *(before + depth - 1 for depth in depths(tree.parents))]
    out = model()(
        input_ids=torch.tensor([[*text, *tree.tokens]]),
        attention_mask=mask[None, None],
        position_ids=torch.tensor([at]),
        use_cache=False,
    )
    logits: torch.Tensor = out.logits[0, before:]
    return logits.float()


@pytest.mark.parametrize("parents", [chain(4), (-1, 0, 0, 1)], ids=["chain", "tree"])
@pytest.mark.parametrize(("sinks", "window"), [(0, 1), (1, 2), (4, 5), (4, 16), (7, 40)])
def test_a_window_computes_what_a_mask_over_the_whole_text_computes(
    sinks: int, window: int, parents: tuple[int, ...]
) -> None:
    target = CachedModel(model())
    target.prefill(TOKENS)
    view = Window(target, sinks, window)
    view.read()
    tree = Proposal((7, 8, 9, 3), parents=parents)
    want = seen_through(TOKENS, tree, sinks, window)
    torch.testing.assert_close(view.feed([7], keep=1), want[:1])
    for start, end in ((1, 3), (3, 4)):
        got, _ = view.feed_tree(tree.tokens[start:end], parents[:end], end - start)
        torch.testing.assert_close(got, want[start:end])
    assert view.length == len(TOKENS) + 4
    assert view.held == min(sinks + window, len(TOKENS)) + 4


@given(st.integers(1, 60), st.integers(0, 9), st.integers(1, 70))
def test_what_is_read_are_the_first_and_the_last_entries_each_once(length: int, sinks: int, window: int) -> None:
    target = CachedModel(model())
    for layer in range(LAYERS):
        places = torch.arange(length).double()[None, None, :, None].expand(1, 2, -1, 8)
        target._cache.update(places, 100 + places, layer)
    view = Window(target, sinks, window)
    for _ in range(2):
        read, whole = view.read()
        want = sorted({*range(length)[:sinks], *range(length)[-window:]})
        assert (read, whole, view.held, view.length) == (len(want), length, len(want), length)
        for keys, values in map(view.entries, range(LAYERS)):
            assert keys[0, 0, :, 0].tolist() == want
            assert values[0, 1, :, 3].tolist() == [100 + place for place in want]


def test_drafting_leaves_the_target_s_entries_as_they_are() -> None:
    target = CachedModel(model())
    target.prefill(TOKENS)
    before = [(keys.clone(), values.clone()) for keys, values in map(target.entries, range(LAYERS))]
    drafter = build(target, {"window": 3, "sinks": 2})
    assert len(drafter.propose([*TOKENS, 5], 4, Draws(0, 1, 21))) == 4
    for (keys, values), (old_keys, old_values) in zip(map(target.entries, range(LAYERS)), before, strict=True):
        assert torch.equal(keys, old_keys)
        assert torch.equal(values, old_values)


@pytest.mark.parametrize("rule", ["match", "token", "block"])
def test_a_window_over_everything_is_the_target_itself_and_every_draft_is_kept(rule: str) -> None:
    for prompt in prompts(3):
        result = run_with(WHOLE, prompt, rule)
        assert result.output == generate(prompt, 24)
        assert all(len(round_.path) == len(round_.nodes) for round_ in result.decoding)
        # 23 tokens behind the prefill: four rounds of four drafts and one token, then one of what is left.
        assert [len(round_.committed) for round_ in result.decoding] == [5, 5, 5, 5, 3]


@pytest.mark.parametrize("options", [{"window": 1, "sinks": 0}, {"window": 2, "sinks": 1}, {"window": 12}], ids=str)
@pytest.mark.parametrize("gamma", [1, 4])
def test_greedy_ids_are_transformers_own(options: dict[str, Any], gamma: int) -> None:
    kept = 0
    for prompt in [*prompts(2), [7]]:
        result = run_with(options, prompt, gamma=gamma)
        assert result.output == generate(prompt, 24)
        kept += sum(len(round_.path) for round_ in result.decoding)
    assert kept > 0


@pytest.mark.parametrize(("rule", "width"), [("token", 1), ("specinfer", 3), ("without_replacement", 2)])
def test_nothing_of_a_round_is_left_in_the_next(rule: str, width: int) -> None:
    warp = Warp(1.0)
    options = {"window": 3, "sinks": 1, "width": width}
    prompt, target = TOKENS, CachedModel(model())
    drafter = build(target, options, rule, warp)
    propose, checked = drafter.propose, 0

    def beside_a_new_one(context: list[int], gamma: int, draws: Draws) -> Proposal:
        nonlocal checked
        fresh: Proposal = build(target, options, rule, warp).propose(context, gamma, draws)
        found: Proposal = propose(context, gamma, draws)
        assert (found.tokens, found.parents, found.why) == (fresh.tokens, fresh.parents, fresh.why)
        assert found.q is not None
        assert fresh.q is not None
        assert torch.equal(found.q, fresh.q)
        checked += 1
        return found

    drafter.propose = beside_a_new_one
    result = collect(prompt, decode(target, drafter, prompt, Settings(3, 24, warp, rule), never))
    assert checked == len(result.decoding) - (not result.decoding[-1].nodes)
    fates = {node.status for round_ in result.decoding for node in round_.nodes}
    assert {"accepted", "rejected"} <= fates


def test_drafts_are_drawn_from_the_q_that_is_reported() -> None:
    warp = Warp(temperature=1.2, top_k=9)
    target = CachedModel(model())
    target.prefill(TOKENS)
    draws = Draws(3, 1, len(TOKENS) + 1)
    proposal = build(target, {"window": 4, "sinks": 1}, "token", warp).propose([*TOKENS, 5], 4, draws)
    assert proposal.drawn == "sampled"
    assert [pick(row, draws.by_round("draft", place)) for place, row in enumerate(proposal.q)] == list(proposal.tokens)
    fed = Proposal((5, *proposal.tokens))
    logits = seen_through(TOKENS, fed, 1, 4)
    context = [*TOKENS, 5]
    for place, q in enumerate(proposal.q):
        torch.testing.assert_close(q, warp.law(logits[place : place + 1], context)[0])
        context.append(proposal.tokens[place])


def test_its_cache_does_not_grow_with_the_text_and_the_reasons_tell_how_much_it_read() -> None:
    result = run_with({"window": 6, "sinks": 2}, TOKENS)
    for committed, round_ in list(result.starts())[:-1]:
        before, peak, after = round_.kv.drafter
        # One pass less than drafts: the last draft is drawn and never fed.
        assert (peak, after) == (8 + len(round_.nodes), 8)
        assert before in (0, 8)
        assert all(node.why == {"kv_read": 8, "kv_all": len(committed) - 1} for node in round_.nodes)
    drafter = build(CachedModel(model()), {})
    assert drafter.kv_bytes_per_token == kv_bytes_per_token(model())
    assert drafter.weight_bytes == 0


def test_a_tree_that_the_rule_cannot_judge_is_refused() -> None:
    with pytest.raises(ValueError, match="rule block judges chains"):
        build(CachedModel(model()), {"width": 2}, "block")


@pytest.mark.parametrize("wrong", [{"window": 0}, {"sinks": -1}, {"window": 5000}, {"layers": 2}])
def test_a_window_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        FAMILY.options(wrong)


def test_it_is_refused_where_several_texts_share_the_target_s_cache() -> None:
    with pytest.raises(ValueError, match="the target's own cache"):
        start_batch(loaded(), [ask(drafter="window")], 1)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "without_replacement"])
def test_the_law_is_kept(rule: str) -> None:
    for options in OPTIONS["window"]:
        assert sample_tiny(FAMILY, rule, options, 4000).passed
