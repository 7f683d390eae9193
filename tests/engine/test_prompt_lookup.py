"""Prompt lookup against its two published forms: transformers' class, and the original's function."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from spec_viz.drafters.prompt_lookup import PromptLookup
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import Proposal
from tests.engine.tiny import VOCABULARY, generate, lookup, model, prompts, run

DRAWS = Draws(0, 1, 1)
# Few letters, so that matches abound and overlap.
TEXTS = st.integers(2, 5).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=30))
GAMMAS = st.integers(1, 12)
LONGEST = st.integers(1, 4)


def propose(drafter: PromptLookup, text: Sequence[int], gamma: int) -> Proposal:
    return drafter.propose(text, gamma, DRAWS)


def of_transformers(text: Sequence[int], gamma: int, longest: int) -> list[int]:
    """What transformers' candidate generator drafts."""
    generator = PromptLookupCandidateGenerator(
        num_output_tokens=gamma, max_matching_ngram_size=longest, max_length=10_000
    )
    ids: Any = torch.tensor([list(text)])
    found, _ = generator.get_candidates(ids)
    drafts: list[int] = found[0, len(text) :].tolist()
    return drafts


def of_the_original(text: Sequence[int], gamma: int, longest: int) -> list[int]:
    """`find_candidate_pred_tokens` of apoorvumang/prompt-lookup-decoding, on a list instead of a tensor."""
    length = len(text)
    for size in range(min(longest, length), 0, -1):
        ngram = list(text[-size:])
        for index in range(length - size + 1):
            start = index + size
            if list(text[index:start]) == ngram and start + gamma <= length and start < length - size:
                return list(text[start : start + gamma])
    return []


@given(TEXTS, GAMMAS, LONGEST)
def test_the_shorter_span_is_transformers(text: list[int], gamma: int, longest: int) -> None:
    drafts = propose(lookup(text, "shorter", "first", longest=longest), text, gamma).tokens
    assert list(drafts) == of_transformers(text, gamma, longest)


@given(TEXTS, GAMMAS, LONGEST)
def test_the_refusal_is_the_original_s(text: list[int], gamma: int, longest: int) -> None:
    drafts = propose(lookup(text, "refuse", "first", longest=longest), text, gamma).tokens
    assert list(drafts) == of_the_original(text, gamma, longest)


@given(TEXTS, GAMMAS, LONGEST, st.sampled_from(["shorter", "refuse"]))
def test_the_most_recent_match_is_the_first_of_the_text_read_backwards(
    text: list[int], gamma: int, longest: int, near_end: str
) -> None:
    proposal = propose(lookup(text, near_end, "recent", longest=longest), text, gamma)
    first = propose(lookup(text, near_end, "first", longest=longest), text, gamma)
    assert bool(proposal.tokens) == bool(first.tokens)
    if proposal.tokens:
        (why, *_), (why_first, *_) = proposal.why, first.why
        assert why is not None
        assert why_first is not None
        assert why["key"] == why_first["key"]
        assert why["found"] >= why_first["found"]


@given(TEXTS, GAMMAS, LONGEST, st.sampled_from(["shorter", "refuse"]), st.sampled_from(["first", "recent"]), st.data())
def test_why_says_which_key_was_found_where_and_what_was_copied(
    text: list[int], gamma: int, longest: int, near_end: str, which: str, data: st.DataObject
) -> None:
    prompt = text[: data.draw(st.integers(1, len(text)))]
    where = data.draw(st.sampled_from(["all", "prompt"]))
    searched = prompt if where == "prompt" else text
    drafter = PromptLookup(len(prompt), longest, 1, near_end, which, where)
    proposal = propose(drafter, text, gamma)
    assert len(proposal) <= gamma
    assert len(proposal.why) == len(proposal)
    for why in proposal.why:
        assert why is not None
        size = len(why["key"])
        assert text[-size:] == why["key"] == searched[why["found"] : why["found"] + size]
        assert why["copied"] == why["found"] + size
        assert list(proposal.tokens) == searched[why["copied"] : why["copied"] + len(proposal)]


#       0  1  2  3  4  5  6  7  8
TEXT = [1, 2, 3, 9, 1, 2, 8, 1, 2]


@pytest.mark.parametrize(
    ("options", "gamma", "drafts", "key", "copied"),
    [
        ({"which": "first"}, 3, (3, 9, 1), [1, 2], 2),
        # The second match has three tokens behind it, of which two are the key itself.
        ({"which": "recent"}, 2, (8, 1), [1, 2], 6),
        ({"which": "recent"}, 4, (8, 1, 2), [1, 2], 6),
        # The original wants all four, and goes on to an earlier match that has them.
        ({"which": "recent", "near_end": "refuse"}, 4, (3, 9, 1, 2), [1, 2], 2),
        # Seven tokens stand behind the first match, and the original takes no fewer than asked.
        ({"near_end": "refuse"}, 7, (3, 9, 1, 2, 8, 1, 2), [1, 2], 2),
        ({"near_end": "refuse"}, 8, (), None, None),
        ({"near_end": "shorter"}, 8, (3, 9, 1, 2, 8, 1, 2), [1, 2], 2),
    ],
)
def test_worked_examples(
    options: dict[str, Any], gamma: int, drafts: tuple[int, ...], key: list[int] | None, copied: int | None
) -> None:
    proposal = propose(lookup(TEXT, **options), TEXT, gamma)
    assert proposal.tokens == drafts
    if key is not None:
        assert proposal.why[0] == {"key": key, "found": (copied or 0) - len(key), "copied": copied}


def test_the_longest_key_is_tried_first_and_shorter_ones_down_to_the_smallest_allowed() -> None:
    text = [7, 5, 0, 6, 7, 5, 1, 6, 7, 5]
    assert propose(lookup(text, longest=3), text, 1).tokens == (1,)
    assert propose(lookup(text, longest=2), text, 1).tokens == (0,)
    other = [5, 0, 9, 5]
    assert propose(PromptLookup(4, 3, 1, "shorter", "first", "all"), other, 1).tokens == (0,)
    assert propose(PromptLookup(4, 3, 2, "shorter", "first", "all"), other, 1).tokens == ()


def test_the_prompt_alone_can_be_searched() -> None:
    text = [1, 2, 9, 9, 4, 5, 4]
    assert propose(PromptLookup(3, 3, 1, "shorter", "first", "all"), text, 2).tokens == (5, 4)
    assert propose(PromptLookup(3, 3, 1, "shorter", "first", "prompt"), text, 2).tokens == ()
    assert propose(PromptLookup(3, 3, 1, "shorter", "first", "prompt"), [*text, 1], 2).tokens == (2, 9)


def test_a_text_of_one_token_has_nothing_to_find() -> None:
    assert propose(lookup([3]), [3], 4).tokens == ()


def their_rounds(
    prompt: list[int], new: int, gamma: int, monkeypatch: pytest.MonkeyPatch
) -> dict[int, tuple[Any, int]]:
    """Drafts and accepted count of every round of transformers' own prompt lookup, by the committed length."""
    rounds: dict[int, tuple[Any, int]] = {}
    drafted: list[tuple[int, list[int]]] = []
    get = PromptLookupCandidateGenerator.get_candidates

    def get_candidates(self: Any, input_ids: Any, **kwargs: Any) -> Any:
        found = get(self, input_ids, **kwargs)
        drafted.append((input_ids.shape[1], found[0][0, input_ids.shape[1] :].tolist()))
        return found

    def update(self: Any, input_ids: Any, scores: Any, num_matches: Any) -> None:
        length, drafts = drafted[-1]
        rounds[length] = (drafts, int(num_matches))

    with monkeypatch.context() as patch:
        patch.setattr(PromptLookupCandidateGenerator, "get_candidates", get_candidates)
        patch.setattr(PromptLookupCandidateGenerator, "update_candidate_strategy", update)
        text = generate(prompt, new, prompt_lookup_num_tokens=gamma, max_matching_ngram_size=3)
    assert text == generate(prompt, new)
    return rounds


def test_accepted_counts_are_those_of_transformers_own_prompt_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs drafts before the first pass, ours after the prefill: rounds that begin at the same length are the same.

    The last rounds are left out: ours drafts no more than can still be written, and says how many it kept of those.
    """
    new, gamma = 28, 4
    shared = kept = 0
    for prompt in prompts(4):
        theirs = their_rounds(prompt, new, gamma, monkeypatch)
        end = len(prompt) + new - gamma - 1
        for committed, round_ in run(prompt, lookup(prompt), gamma=gamma, max_new_tokens=new).starts():
            if len(committed) in theirs and len(committed) <= end:
                drafts, accepted = theirs[len(committed)]
                assert [node.id for node in round_.nodes] == drafts
                assert len(round_.path) == accepted
                shared, kept = shared + 1, kept + accepted
    assert shared >= 40
    assert kept >= 5


def test_the_tiny_texts_are_not_all_of_one_token() -> None:
    assert all(len(set(generate(prompt, 28))) > 4 for prompt in prompts(4))
    assert model().config.vocab_size == VOCABULARY
