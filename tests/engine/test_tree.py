"""Trees: one pass over many paths gives what a plain pass over each path gives, and only the kept path stays."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from spec_viz.drafters.none import Stateless
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Needs, Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.warp import Warp
from tests.engine.tiny import VOCABULARY, direct, early_exit, generate, model, prompts, run

PROMPT = prompts(1)[0]
# Float32 sums in another order; the hidden states here are of size one.
close = partial(torch.testing.assert_close, atol=2e-5, rtol=2e-5)


@st.composite
def trees(draw: st.DrawFn, most: int = 14) -> Proposal:
    count = draw(st.integers(1, most))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(count))
    tokens = tuple(draw(st.integers(0, VOCABULARY - 1)) for _ in range(count))
    return Proposal(tokens, parents=parents)


def text_of(tree: Proposal, node: int) -> list[int]:
    return [tree.tokens[step] for step in tree.path(node)]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@settings(max_examples=25)
@given(tree=trees())
def test_every_node_s_logits_are_those_of_a_plain_pass_over_its_path(attention: str, tree: Proposal) -> None:
    each: Any = LlamaForCausalLM(model().config)
    each.load_state_dict(model().state_dict())
    each.eval().set_attn_implementation(attention)
    target = CachedModel(each)
    target.prefill(PROMPT[:-1])
    logits, _ = target.verify(PROMPT[-1], tree)
    close(logits[0], direct(PROMPT)[-1])
    for node in range(len(tree)):
        close(logits[node + 1], direct([*PROMPT, *text_of(tree, node)])[-1])


def test_positions_by_index_instead_of_depth_are_caught() -> None:
    # The planted fault of algorithms §14: siblings that stand one behind the other.
    tree = Proposal((3, 5, 7), parents=(-1, -1, 0))
    target = CachedModel(model())
    target.prefill(PROMPT)
    good, _ = target.feed_tree(tree.tokens, tree.parents, 3)
    target.roll_back(len(PROMPT))
    ids = torch.tensor([[*tree.tokens]])
    mask = torch.full((1, 1, 3, len(PROMPT) + 3), 0.0)
    mask[0, 0, :, len(PROMPT) :] = torch.tensor([[0, -1e9, -1e9], [-1e9, 0, -1e9], [0, -1e9, 0]])
    by_index = torch.tensor([[len(PROMPT), len(PROMPT) + 1, len(PROMPT) + 2]])
    with torch.inference_mode():
        out = model()(input_ids=ids, attention_mask=mask, position_ids=by_index, cache=target._cache, use_cache=True)
    plain = direct([*PROMPT, 3, 7])[-1]
    close(good[2], plain)
    assert float((out.logits[0, 2] - plain).abs().max()) > 1e-3


@settings(max_examples=40)
@given(tree=trees(), more=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=3), data=st.data())
def test_after_a_round_only_the_kept_path_is_in_the_cache(tree: Proposal, more: list[int], data: st.DataObject) -> None:
    path = tree.path(data.draw(st.integers(-1, len(tree) - 1)))
    target = CachedModel(model())
    target.prefill(PROMPT[:-1])
    target.verify(PROMPT[-1], tree)
    target.roll_back(len(PROMPT), path)
    kept = [tree.tokens[node] for node in path]
    assert target.length == len(PROMPT) + len(path)
    logits, _ = target.verify(more[0], Proposal(tuple(more[1:])))
    text = [*PROMPT, *kept, *more]
    close(logits, direct(text)[-len(more) :])


@given(tree=trees(), data=st.data())
def test_a_tree_can_be_fed_level_by_level(tree: Proposal, data: st.DataObject) -> None:
    target = CachedModel(model())
    target.prefill(PROMPT)
    done = 0
    while done < len(tree):
        size = data.draw(st.integers(1, len(tree) - done))
        logits, _ = target.feed_tree(tree.tokens[done : done + size], tree.parents[: done + size], size)
        for row in range(size):
            plain = direct([*PROMPT, *text_of(tree, done + row)])[-1]
            close(logits[row], plain)
        done += size


def test_what_a_drafter_asks_to_see_is_a_plain_pass_s_by_row() -> None:
    tree = Proposal((3, 5, 7), parents=(-1, -1, 1), extra=((4, -1), (6, 0)))
    target, needs = CachedModel(model()), Needs(logits=True, layers=(0, 2))
    _, seen = target.prefill(PROMPT[:-1], needs)
    assert seen.hidden[2].shape[0] == len(PROMPT) - 1
    logits, seen = target.verify(PROMPT[-1], tree, needs)
    assert logits.shape[0] == 4
    assert seen.logits is not None
    texts = [[], [3], [5], [5, 7], [4], [4, 6]]
    with torch.inference_mode():
        for row, text in enumerate(texts):
            out = model()(torch.tensor([[*PROMPT, *text]]), output_hidden_states=True, use_cache=False)
            close(seen.logits[row], out.logits[0, -1].float())
            for layer in (0, 2):
                close(seen.hidden[layer][row], out.hidden_states[layer][0, -1])
    target.roll_back(len(PROMPT), (1, 2))
    assert target.length == len(PROMPT) + 2


class Guesser(Stateless):
    """Drafts a fixed random tree in every round, its tokens new every time."""

    def __init__(self, parents: tuple[int, ...], right: list[int], prompt: int) -> None:
        self._parents = parents
        self._right = right
        self._prompt = prompt

    def propose(self, context: Any, gamma: int, draws: Draws) -> Proposal:
        written = len(context) - self._prompt
        tree = Proposal((0,) * len(self._parents), parents=self._parents)
        tokens = []
        for node, depth in enumerate(tree.depths):
            # The last of the siblings is the right one, so that the kept path is scattered over the cache.
            last = tree.children(tree.parents[node])[-1] == node
            place = written + depth - 1
            right = self._right[place] if place < len(self._right) else 0
            tokens.append(right if last else (right + 1 + node) % VOCABULARY)
        whole = Proposal(tuple(tokens), parents=self._parents)
        return whole.only([node for node, depth in enumerate(whole.depths) if depth <= gamma])


@pytest.mark.parametrize("parents", [(-1, -1, 0, 1, 3), (-1, -1, -1, 0, 0, 2, 2, 5), (-1, 0, 1, 2)])
def test_greedy_trees_write_what_transformers_writes(parents: tuple[int, ...]) -> None:
    for prompt in prompts(4):
        right = list(generate(prompt, 24))
        result = run(prompt, Guesser(parents, right, len(prompt)))
        assert result.output == right
        assert max(len(round_.path) for round_ in result.decoding) > 1


@pytest.mark.parametrize("drawn", ["sampled", "without_replacement", "one_hot"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_s_tree_keeps_both_caches_whole(drawn: Any, temperature: float) -> None:
    warp = Warp(temperature=temperature)
    rule = {"sampled": "specinfer", "without_replacement": "without_replacement", "one_hot": "match"}[drawn]
    drafter = early_exit(2, warp, drawn, width=3)
    result = run(PROMPT, drafter, warp=warp, rule=rule, seed=4)
    for committed, round_ in result.starts():
        assert round_.kv.target is not None
        assert round_.kv.target[0] == len(committed) - 1
        assert round_.kv.target[1] == round_.kv.target[0] + 1 + len(round_.nodes)
        # What the drafter says it drew from is the law of a plain pass of its own layers over the node's path.
        for node in round_.nodes:
            if node.q_top:
                path, at = list[int](), node.parent
                while at >= 0:
                    token = round_.nodes[at].id
                    assert token is not None
                    path.insert(0, token)
                    at = round_.nodes[at].parent
                law = warp.law(direct([*committed, *path], 2)[-1:], committed)[0]
                for token, chance in node.q_top:
                    assert float(law[token]) == pytest.approx(chance, abs=2e-5)
    if temperature == 0:
        assert result.output == list(generate(PROMPT, 24))
