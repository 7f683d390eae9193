"""The drafters' catalogue: names, knobs, and what a knob refuses."""

from typing import Any

import pytest

from spec_viz.drafters.registry import MODULES, Knob, families
from spec_viz.engine.rules import RULES
from spec_viz.models.catalogue import TRAINED, WITHOUT_A_MODEL


def test_every_module_registers_its_family_under_its_own_name() -> None:
    assert tuple(families()) == MODULES


def test_a_family_s_rules_are_known_and_the_default_keeps_the_law() -> None:
    for family in families().values():
        assert {*family.rules} <= RULES.keys()
        assert RULES[family.rules[0]].lossless
        if family.drafts != "none":
            assert family.drafts in RULES[family.rules[0]].drawn
    assert families()["prompt_lookup"].rules[0] == "match"
    assert families()["early_exit"].rules[0] == "token"


def test_a_tree_of_best_guesses_is_judged_by_match_unless_another_rule_is_asked_for() -> None:
    for family in families().values():
        assert family.default_rule(family.options({})) == family.rules[0]
        if any(knob.name == "tree" for knob in family.knobs):
            assert family.default_rule(family.options({"tree": 5})) == "match"
            assert "match" in family.rules


def test_the_catalogue_names_every_drafter_that_needs_no_second_model() -> None:
    assert set(WITHOUT_A_MODEL) == {family.name for family in families().values() if not family.needs_weights}
    assert set(TRAINED) == {family.name for family in families().values() if family.needs_weights}


def test_defaults_pass_their_own_checks_and_complete_what_was_given() -> None:
    for family in families().values():
        defaults = family.options({})
        assert defaults == {knob.name: knob.default for knob in family.knobs}
        assert family.options(defaults) == defaults
    assert families()["prompt_lookup"].options({"max_ngram": 5})["max_ngram"] == 5


@pytest.mark.parametrize("value", [0, 9, -1, 2.0, True, "3", None, [3], float("nan")])
def test_a_whole_number_out_of_range_or_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="n takes a whole number from 1 to 8"):
        Knob("n", "int", 3, 1, 8).check(value)


@pytest.mark.parametrize("value", ["third", "", "FIRST", 1, None, ["first"]])
def test_a_choice_that_is_none_of_them_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="which takes one of first, recent"):
        Knob("which", "choice", "first", choices=("first", "recent")).check(value)


def test_text_takes_any_text_and_nothing_else() -> None:
    knob = Knob("script", "text", "")
    assert knob.check("<img onerror=…>") == "<img onerror=…>"
    with pytest.raises(ValueError, match="script takes text"):
        knob.check(5)


def test_an_unknown_option_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ValueError, match="early_exit has no option 'depth'; it has layers"):
        families()["early_exit"].options({"depth": 3})
    with pytest.raises(ValueError, match="none has no option 'x'; it has none"):
        families()["none"].options({"x": 3})


def test_a_smallest_key_longer_than_the_longest_is_refused() -> None:
    family = families()["prompt_lookup"]
    with pytest.raises(ValueError, match="min_ngram must not be larger than max_ngram"):
        family.build(None, family.options({"min_ngram": 4, "max_ngram": 3}))  # type: ignore[arg-type]
