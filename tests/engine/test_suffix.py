"""Suffix decoding against counting by hand, an implementation without a tree, and drafts of ArcticInference's own."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.registry import Setup
from spec_viz.drafters.suffix import FAMILY, Measure, SuffixTree, best_guess
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import ROOT, Drafter, Outcome, Proposal
from spec_viz.engine.rules import RULES
from spec_viz.engine.target import CachedModel
from spec_viz.lab.law_tiny import sample_tiny
from tests.engine.tiny import GREEDY, generate, model, prompts, run

DRAWS = Draws(0, 1, 1)
# Few letters, so that stretches come back and overlap.
TEXT = st.integers(2, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=25))
TEXTS = st.lists(TEXT, min_size=1, max_size=3)
MEASURES = st.builds(
    Measure,
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 60),
    st.sampled_from([1, None]),
)


def tree_of(texts: Sequence[Sequence[int]], depth: int) -> SuffixTree:
    tree = SuffixTree(depth)
    for text in texts:
        tree.begin()
        tree.read(text)
    return tree


def drafter(prompt: Sequence[int], memory: dict[str, Any] | None = None, **options: Any) -> Drafter:
    setup = Setup(
        CachedModel(model()),
        None,  # type: ignore[arg-type]
        lambda _: [],
        len(prompt),
        frozenset(),
        GREEDY,
        memory={} if memory is None else memory,
    )
    return FAMILY.build(setup, FAMILY.options(options))


def heard(prompt: Sequence[int], text: Sequence[int], memory: dict[str, Any] | None = None, **options: Any) -> Drafter:
    """A drafter that has heard of the text, of which the first tokens are the prompt."""
    made = drafter(prompt, memory, **options)
    made.observe(Outcome((), list(text)))
    return made


def occurrences(texts: Sequence[Sequence[int]], stretch: Sequence[int]) -> int:
    size = len(stretch)
    return sum(
        list(text[start : start + size]) == list(stretch) for text in texts for start in range(len(text) - size + 1)
    )


# ---------------------------------------------------------------- counts


@given(TEXTS, st.integers(2, 6), st.data())
def test_a_node_counts_how_often_its_tokens_occur(texts: list[list[int]], depth: int, data: st.DataObject) -> None:
    stretch = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=depth))
    node = tree_of(texts, depth).find(stretch)
    assert (node.count if node else 0) == occurrences(texts, stretch)


@given(TEXT, st.integers(2, 6), st.data())
def test_reading_in_pieces_counts_the_same(text: list[int], depth: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    pieces = SuffixTree(depth)
    pieces.read(text[:cut])
    pieces.read(text[cut:])
    whole = tree_of([text], depth)
    for size in range(1, depth + 1):
        for start in range(len(text) - size + 1):
            stretch = text[start : start + size]
            found, expected = pieces.find(stretch), whole.find(stretch)
            assert found is not None
            assert expected is not None
            assert found.count == expected.count


def test_nothing_deeper_than_the_tree_is_kept() -> None:
    tree = tree_of([[1, 2, 3, 4]], 3)
    assert tree.find([1, 2, 3]) is not None
    assert tree.find([1, 2, 3, 4]) is None


# ---------------------------------------------------------------- drafts


def counted_drafts(
    texts: Sequence[Sequence[int]], context: Sequence[int], depth: int, measure: Measure
) -> tuple[Fraction, int]:
    """The best score and its match by algorithms §3, step by step, in a tree draft: probabilities multiply, no trie."""
    letters = sorted({token for text in texts for token in text})
    best, best_match = Fraction(0), 0
    for match in range(1, min(len(context), depth)):
        key = list(context[-match:])
        if not occurrences(texts, key):
            break
        frontier = [(Fraction(1), key)]
        every: list[Fraction] = []
        for _ in range(min(measure.depth, depth - match)):
            grown = [
                (chance * Fraction(occurrences(texts, [*so_far, token]), occurrences(texts, so_far)), [*so_far, token])
                for chance, so_far in frontier
                for token in letters
            ]
            frontier = [item for item in grown if item[0] > 0 and item[0] * 100 >= measure.min_percent]
            every += [chance for chance, _ in frontier]
        budget = min(measure.most, measure.factor * match + measure.offset)
        score = sum(sorted(every, reverse=True)[:budget], Fraction(0))
        if score >= best:
            best, best_match = score, match
    return best, best_match


@given(TEXTS, TEXT, st.integers(2, 5), MEASURES)
def test_a_tree_draft_has_the_best_score_there_is(
    texts: list[list[int]], context: list[int], depth: int, measure: Measure
) -> None:
    tree_like = Measure(measure.most, measure.depth, measure.factor, measure.offset, measure.min_percent, branches=None)
    guess = best_guess(tree_of(texts, depth), context, tree_like)
    assert (guess.score, guess.match) == counted_drafts(texts, context, depth, tree_like)


@given(TEXTS, TEXT, st.integers(2, 6), MEASURES)
def test_drafts_are_valid_and_within_their_measure(
    texts: list[list[int]], context: list[int], depth: int, measure: Measure
) -> None:
    guess = best_guess(tree_of(texts, depth), context, measure)
    assert len(guess.tokens) <= min(measure.most, measure.factor * guess.match + measure.offset)
    proposal = Proposal(tuple(guess.tokens), parents=tuple(guess.parents))
    assert max(proposal.depths, default=0) <= measure.depth
    assert proposal.is_chain or measure.branches is None
    key = list(context[len(context) - guess.match :])
    for node in range(len(proposal)):
        path = [proposal.tokens[step] for step in proposal.path(node)]
        assert guess.counts[node] == occurrences(texts, [*key, *path])
        assert guess.before(node) == occurrences(texts, [*key, *path[:-1]])
        assert 100 * guess.counts[node] >= measure.min_percent * guess.occurs
    for at in range(ROOT, len(proposal)):
        siblings = [proposal.tokens[child] for child in proposal.children(at)]
        assert len(set(siblings)) == len(siblings)


TOLD = [1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1, 2, 3, 4, 8, 1, 2, 3]
OTHERS = [[1, 2, 3, 4], [7, 1, 2, 3, 4], [2, 3, 5]]


@pytest.mark.parametrize(
    ("texts", "context", "depth", "measure", "tokens", "parents", "score", "match"),
    [
        ([TOLD], TOLD, 8, Measure(8, 99, 1, 0, 10), [4, 9, 1], [-1, 0, 1], 1.0, 3),
        ([TOLD], TOLD, 8, Measure(8, 99, 2, 1, 10), [4, 9, 1, 2, 3], [-1, 0, 1, 2, 3], 1.5, 3),
        ([TOLD], TOLD, 8, Measure(8, 99, 1, 0, 10, None), [4, 5, 9], [-1, -1, 0], 1.0, 3),
        (
            [TOLD],
            TOLD,
            8,
            Measure(8, 99, 4, 0, 19, None),
            [4, 5, 9, 8, 9, 1, 1, 1],
            [-1, -1, 0, 0, 1, 2, 3, 4],
            2.25,
            3,
        ),
        ([TOLD], TOLD, 3, Measure(8, 99, 1, 1, 10), [4, 9], [-1, 0], 0.75, 1),
        (OTHERS, [6, 2, 3], 8, Measure(4, 99, 1, 0, 10), [4], [-1], 2 / 3, 2),
        (OTHERS, [6, 2, 3], 8, Measure(4, 99, 1, 0, 10, None), [4, 5], [-1, -1], 1.0, 2),
        ([TOLD], [*TOLD, 6], 8, Measure(8, 99, 1, 0, 10), [], [], 0.0, 0),
    ],
)
def test_drafts_are_those_of_arctic_inference(
    texts: list[list[int]],
    context: list[int],
    depth: int,
    measure: Measure,
    tokens: list[int],
    parents: list[int],
    score: float,
    match: int,
) -> None:
    """What `SuffixTree.speculate` of arctic-inference 0.3.0, built from its source, drafts from the same texts."""
    guess = best_guess(tree_of(texts, depth), context, measure)
    assert (guess.tokens, guess.parents, guess.match) == (tokens, parents, match)
    assert float(guess.score) == pytest.approx(score)


def test_of_equal_scores_the_longer_match_counts() -> None:
    # Behind 2 and behind 1 2 the same follows with the same chance.
    guess = best_guess(tree_of([[1, 2, 3, 8]], 8), [1, 2], Measure(1, 4))
    assert guess.match == 1  # a match of the whole context is not looked at
    guess = best_guess(tree_of([[1, 2, 3, 8]], 8), [7, 1, 2], Measure(1, 4))
    assert (guess.match, guess.tokens) == (2, [3])


def test_an_exact_boundary_is_inside() -> None:
    # One in ten is not below ten per cent, whatever a float makes of the product.
    texts = [[1, 2], *([[1, 3]] * 9)]
    assert best_guess(tree_of(texts, 4), [0, 1], Measure(4, 4, 4, 0, 10, None)).tokens == [3, 2]
    assert best_guess(tree_of(texts, 4), [0, 1], Measure(4, 4, 4, 0, 11, None)).tokens == [3]


# ---------------------------------------------------------------- the drafter


@pytest.mark.parametrize("context", [[5], [1, 2, 3]])
def test_a_text_in_which_nothing_comes_back_gets_no_draft(context: list[int]) -> None:
    assert heard(context, context).propose(context, 4, DRAWS) == Proposal()


def test_the_local_tree_grows_with_every_verdict() -> None:
    context = [1, 2, 3]
    made = heard(context, context)
    assert made.propose(context, 4, DRAWS).tokens == ()
    context += [7, 1, 2]
    made.observe(Outcome((0,), context))
    proposal = made.propose(context, 4, DRAWS)
    # 1 2 occurs twice, at the very end too, and 3 followed once.
    assert proposal.tokens == (3, 7)
    assert proposal.why[0] == {
        "key": [1, 2],
        "match": 2,
        "path_chance": 0.5,
        "followed": 1,
        "occurred": 2,
        "earlier_run": False,
    }


def test_earlier_outputs_are_drafted_from_and_prompts_are_not() -> None:
    memory: dict[str, Any] = {}
    first = heard([1, 2], [1, 2, 5, 6, 7, 8], memory)
    first.close()
    assert memory["suffix"] == [(5, 6, 7, 8)]
    proposal = heard([9], [9, 5, 6], memory).propose([9, 5, 6], 4, DRAWS)
    assert proposal.tokens == (7, 8)
    assert [why["earlier_run"] for why in proposal.why if why] == [True, True]
    assert heard([9], [9, 1], memory).propose([9, 1], 4, DRAWS).tokens == ()


def test_without_a_memory_no_run_knows_another() -> None:
    heard([1, 2], [1, 2, 5, 6, 7, 8]).close()
    assert heard([9], [9, 5, 6]).propose([9, 5, 6], 4, DRAWS).tokens == ()


def test_of_equal_scores_the_local_tree_counts() -> None:
    memory: dict[str, Any] = {"suffix": [(1, 2, 3), (1, 2)]}
    proposal = heard([1, 2], [1, 2, 8, 1, 2], memory).propose([1, 2, 8, 1, 2], 1, DRAWS)
    assert proposal.tokens == (8,)
    memory["suffix"] = [(1, 2, 3)]
    assert heard([1, 2], [1, 2, 8, 1, 2], memory).propose([1, 2, 8, 1, 2], 1, DRAWS).tokens == (3,)


def test_the_oldest_outputs_go_first_and_whole() -> None:
    memory: dict[str, Any] = {}
    for token in (5, 6, 7):
        heard([1], [1, token, token], memory, outputs=2).close()
    assert memory["suffix"] == [(6, 6), (7, 7)]
    heard([1], [1, 8], memory, outputs=0).close()
    assert memory["suffix"] == []


def test_closing_twice_keeps_one_output() -> None:
    memory: dict[str, Any] = {}
    made = heard([1], [1, 5], memory)
    made.close()
    made.close()
    assert memory["suffix"] == [(5,)]


@given(TEXT, TEXT, st.integers(1, 12), st.sampled_from(["path", "tree"]), st.integers(1, 64))
def test_proposals_keep_to_gamma_and_to_the_nodes_allowed(
    text: list[int], before: list[int], gamma: int, mode: str, nodes: int
) -> None:
    memory: dict[str, Any] = {"suffix": [tuple(before)]}
    made = heard(text[:1], text, memory, mode=mode, nodes=nodes, factor=8, offset=8, min_percent=0)
    proposal = made.propose(text, gamma, DRAWS)
    assert isinstance(proposal, Proposal)
    assert max(proposal.depths, default=0) <= gamma
    assert len(proposal) <= (gamma if mode == "path" else nodes)
    assert len(proposal.why) == len(proposal)
    assert all(RULES[rule].fits(proposal) for rule in FAMILY.rules)


@pytest.mark.parametrize("mode", ["path", "tree"])
@pytest.mark.parametrize("gamma", [1, 4])
def test_greedy_writes_what_transformers_writes(mode: str, gamma: int) -> None:
    kept = 0
    for prompt in prompts(3):
        memory: dict[str, Any] = {}
        for _ in range(2):
            result = run(prompt, drafter(prompt, memory, mode=mode, offset=4), gamma=gamma)
            assert result.output == generate(prompt, 24)
            kept += sum(len(round_.path) for round_ in result.rounds)
    assert kept > 0


def test_a_text_once_written_is_drafted_whole() -> None:
    prompt = prompts(1)[0]
    memory: dict[str, Any] = {}
    first = run(prompt, drafter(prompt, memory))
    second = run(prompt, drafter(prompt, memory))
    assert second.output == first.output
    assert len(second.rounds) < len(first.rounds)


@pytest.mark.parametrize("mode", ["path", "tree"])
def test_the_law_is_the_target_s(mode: str) -> None:
    assert sample_tiny(FAMILY, "match", {"mode": mode, "offset": 2}, 1_500).passed
