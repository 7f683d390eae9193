"""ANPD: counts against a recount of the whole text, drafts token by token, and what a run teaches it."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.drafters.anpd import FAMILY, Anpd
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Outcome, Proposal
from tests.engine.tiny import generate, prompts, run

DRAWS = Draws(0, 1, 1)
TEXTS = st.integers(1, 5).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=30))
SIZES = st.integers(2, 6)
GAMMAS = st.integers(1, 8)


def told(n: int, *texts: list[int]) -> Anpd:
    """A drafter that has heard of these committed texts, one after another."""
    drafter = Anpd(n)
    for text in texts:
        drafter.observe(Outcome((), text))
    return drafter


def propose(text: list[int], n: int, gamma: int) -> Proposal:
    return told(n, text).propose(text, gamma, DRAWS)


def recounted(text: list[int], n: int, gamma: int) -> list[dict[str, Any]]:
    """Drafts with their reasons, each counted afresh in the committed text."""
    found: list[dict[str, Any]] = []
    tail = list(text)
    while len(found) < gamma:
        for size in range(min(n - 1, len(tail)), 0, -1):
            key = tail[-size:]
            starts = [start for start in range(len(text) - size) if text[start : start + size] == key]
            if starts:
                times = Counter(text[start + size] for start in starts)
                last = {text[start + size]: start for start in starts}
                token = max(times, key=lambda token: (times[token], last[token]))
                why = {"key": key, "times": times[token], "out_of": len(starts), "found": last[token]}
                found.append({"token": token, **why})
                tail.append(token)
                break
        else:
            break
    return found


@given(TEXTS, SIZES, GAMMAS, st.data())
def test_counts_kept_along_the_way_draft_what_a_recount_of_the_whole_text_drafts(
    text: list[int], n: int, gamma: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(1, len(text)), max_size=4)))
    drafter = told(n, *(text[:cut] for cut in cuts), text)
    proposal = drafter.propose(text, gamma, DRAWS)
    drafts = [{"token": token, **(why or {})} for token, why in zip(proposal.tokens, proposal.why, strict=True)]
    assert drafts == recounted(text, n, gamma)
    # To draft is not to learn.
    assert drafter.propose(text, gamma, DRAWS) == proposal


#       0  1  2  3  4  5  6  7  8  9 10
TEXT = [1, 2, 3, 4, 2, 3, 5, 2, 3, 4, 2]


def test_the_most_frequent_successor_of_the_longest_known_context() -> None:
    proposal = propose(TEXT, 3, 3)
    assert proposal.tokens == (3, 4, 2)
    assert proposal.why == (
        {"key": [4, 2], "times": 1, "out_of": 1, "found": 3},
        # After (2, 3) came 4, 5 and 4.
        {"key": [2, 3], "times": 2, "out_of": 3, "found": 7},
        {"key": [3, 4], "times": 2, "out_of": 2, "found": 8},
    )


def test_among_equals_the_most_recent() -> None:
    assert propose([1, 7, 1, 8, 1], 2, 1).tokens == (8,)
    assert propose([1, 8, 1, 7, 1], 2, 1).tokens == (7,)
    # Twice beats once, however long ago.
    assert propose([1, 7, 1, 7, 1, 8, 1], 2, 1).tokens == (7,)


def test_an_unknown_context_is_shortened_down_to_the_last_token() -> None:
    text = [5, 6, 1, 2, 9, 8, 2]
    assert propose(text, 4, 1).why == ({"key": [2], "times": 1, "out_of": 1, "found": 3},)
    assert propose([5, 6, 7], 4, 4).tokens == ()


def test_a_draft_splices_places_that_never_stood_side_by_side() -> None:
    # From 1 the text went on to 2 3 4, but 3 mostly led to 5.
    text = [1, 2, 3, 4, 3, 5, 3, 5, 1]
    assert propose(text, 2, 3).tokens == (2, 3, 5)


def test_a_draft_goes_on_beyond_the_end_of_what_was_read() -> None:
    """Copying could only offer what stands there; counting goes round and round."""
    assert propose([7, 8, 7], 3, 6).tokens == (8, 7, 8, 7, 8, 7)


@pytest.mark.parametrize("text", [[], [3], [3, 4]])
def test_nothing_known_means_no_draft(text: list[int]) -> None:
    assert propose(text, 4, 4).tokens == ()


def test_n_is_from_a_bigram_up() -> None:
    assert FAMILY.options({}) == {"n": 5}
    with pytest.raises(ValueError, match="n takes a whole number from 2 to 8"):
        FAMILY.options({"n": 1})


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("n", [2, 4])
def test_the_text_is_the_target_s_and_only_committed_tokens_are_counted(n: int, gamma: int) -> None:
    kept = refused = 0
    for prompt in prompts(4):
        result = run(prompt, Anpd(n), gamma=gamma)
        assert result.output == generate(prompt, 24)
        for committed, round_ in result.starts():
            offered = [draft["token"] for draft in recounted(committed, n, gamma)]
            assert [node.id for node in round_.nodes] == offered[: len(round_.nodes)]
            kept += len(round_.path)
            refused += len(round_.path) < len(round_.nodes)
    assert kept >= 5
    assert refused >= 5


def test_no_draft_stands_behind_an_end_of_text() -> None:
    prompt = prompts(1)[0]
    text = generate(prompt, 24)
    end = text[12]
    result = run(prompt, Anpd(3), ends=frozenset({end}))
    assert result.finish == "eos"
    assert result.output == text[: text.index(end) + 1]
    assert all(node.id != end for round_ in result.rounds for node in round_.nodes[:-1])
