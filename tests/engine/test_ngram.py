"""vLLM's n-gram proposer: its published examples, a plain search as an oracle, and where it meets prompt lookup."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.ngram import FAMILY, Ngram, longest_suffix
from spec_viz.drafters.prompt_lookup import PromptLookup
from spec_viz.drafters.registry import OptionError
from spec_viz.engine.draws import Draws
from tests.engine.tiny import generate, prompts, run

DRAWS = Draws(0, 1, 1)
# Few letters, so that matches abound, overlap and repeat with a period.
TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=40))
LENGTHS = st.tuples(st.integers(1, 7), st.integers(1, 7)).map(sorted)
GAMMAS = st.integers(1, 12)


def drafts(text: Sequence[int], min_n: int, max_n: int, gamma: int) -> list[int]:
    return list(Ngram(min_n, max_n).propose(text, gamma, DRAWS).tokens)


def by_search(text: list[int], min_n: int, max_n: int) -> tuple[int, int] | None:
    """Length and beginning of the match, by trying every length at every place."""
    for length in range(max_n, min_n - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return length, start
    return None


@given(TEXTS, LENGTHS, GAMMAS)
def test_one_pass_finds_what_a_search_of_every_length_at_every_place_finds(
    text: list[int], lengths: list[int], gamma: int
) -> None:
    match = by_search(text, *lengths)
    proposal = Ngram(*lengths).propose(text, gamma, DRAWS)
    if match is None:
        assert not proposal.tokens
    else:
        length, start = match
        copied = start + length
        assert list(proposal.tokens) == text[copied : copied + gamma] != []
        assert proposal.why == ({"key": text[-length:], "found": start, "copied": copied},) * len(proposal)


@given(TEXTS, LENGTHS, GAMMAS)
def test_prompt_lookup_with_the_first_match_and_a_shorter_span_drafts_the_same(
    text: list[int], lengths: list[int], gamma: int
) -> None:
    min_n, max_n = lengths
    same = PromptLookup(len(text), max_n, min_n, "shorter", "first", "all").propose(text, gamma, DRAWS)
    assert drafts(text, min_n, max_n, gamma) == list(same.tokens)


@pytest.mark.parametrize(
    ("text", "min_n", "max_n", "gamma", "expected"),
    [
        # The examples of vLLM's own tests/v1/spec_decode/test_ngram.py.
        ([1, 2, 3, 4, 1, 2, 3, 5, 6], 2, 2, 2, []),
        ([1, 2, 3, 4, 1, 2, 3], 2, 2, 3, [4, 1, 2]),
        ([1, 2, 3, 4, 1, 2, 3], 2, 2, 2, [4, 1]),
        ([1, 2, 3, 4, 1, 2, 3], 1, 1, 3, [4, 1, 2]),
        ([1, 2, 3, 4, 1, 2, 3], 1, 1, 2, [4, 1]),
        ([1, 3, 6, 2, 3, 4, 1, 2, 3], 2, 2, 3, [4, 1, 2]),
        ([1, 3, 6, 2, 3, 4, 1, 2, 3], 1, 1, 2, [6, 2]),
        ([1, 2, 3, 4, 5], 2, 2, 2, []),
        ([1, 2, 3, 4, 1, 2, 3], 4, 4, 2, []),
        ([1, 2, 3, 4, 1, 2, 3], 3, 4, 2, [4, 1]),
        ([2, 3, 4, 5, 1, 2, 3, 4, 1, 2, 3, 4], 3, 4, 2, [1, 2]),
        ([3, 4, 5, 2, 3, 4, 1, 2, 3, 4], 2, 4, 2, [1, 2]),
        ([1, 2, 3, 100, 1, 2, 3, 200, 1, 2, 3, 300, 1, 2, 3], 3, 3, 2, [100, 1]),
        # The example of its docstring: three tokens are left behind the match.
        ([1, 2, 3, 4, 2, 3], 2, 3, 4, [4, 2, 3]),
        # The longest match overlaps the suffix and leaves a single token, however many were asked for.
        ([7, 7, 7, 7], 1, 3, 4, [7]),
    ],
)
def test_published_examples(text: list[int], min_n: int, max_n: int, gamma: int, expected: list[int]) -> None:
    assert drafts(text, min_n, max_n, gamma) == expected


def test_the_pass_over_the_text_is_linear() -> None:
    """Comparisons are counted on the texts that are worst for a search of every length: one letter, then another."""

    class Counted(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return isinstance(other, int) and int(self) == int(other)

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = int.__hash__

    for text in ([0] * 400 + [1], [1] + [0] * 400, [0] * 401, [0, 0, 0, 1] * 100):
        Counted.compared = 0
        longest_suffix([Counted(token) for token in text], 16)
        # Two comparisons a place, and one for each token that an earlier match has to give back.
        assert len(text) - 1 <= Counted.compared <= 3 * len(text)


@pytest.mark.parametrize("text", [[3], [3, 4]])
def test_a_text_shorter_than_any_match_has_no_draft(text: list[int]) -> None:
    assert drafts(text, 1, 5, 4) == []
    assert longest_suffix(text, 5) == (0, 0)


def test_a_shortest_length_above_the_longest_is_refused() -> None:
    with pytest.raises(OptionError, match="min_n must not be larger than max_n"):
        FAMILY.build(None, FAMILY.options({"min_n": 6, "max_n": 5}))  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [1, 4])
def test_the_text_is_the_target_s_and_drafts_are_kept_on_the_way(gamma: int) -> None:
    kept = 0
    for prompt in prompts(4):
        result = run(prompt, Ngram(1, 5), gamma=gamma)
        assert result.output == generate(prompt, 24)
        for committed, round_ in result.starts():
            offered = drafts(committed, 1, 5, gamma)
            assert [node.id for node in round_.nodes] == offered[: len(round_.nodes)]
            kept += len(round_.path)
    assert kept >= 5


def test_no_draft_stands_behind_an_end_of_text() -> None:
    prompt = prompts(1)[0]
    text = generate(prompt, 24)
    end = text[12]
    result = run(prompt, Ngram(1, 5), ends=frozenset({end}))
    assert result.finish == "eos"
    assert result.output == text[: text.index(end) + 1]
    assert all(node.id != end for round_ in result.rounds for node in round_.nodes[:-1])
