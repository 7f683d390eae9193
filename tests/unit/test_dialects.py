"""One run under every project's own name for its numbers."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from spec_viz.content.files import PRESETS
from spec_viz.engine.trace import Emitted, Node, Round, Trace, loads
from spec_viz.lab import theory
from spec_viz.lab.dialects import Dialect, translate
from spec_viz.lab.metrics import summarise
from spec_viz.ui.wording import LANGUAGES, words
from tests.unit.traces import chain, chains, plain, run, trace


def said(subject: Trace) -> dict[str, Dialect]:
    """The rates by key, those of a position by key and position."""
    return {f"{d.key} {d.position}" if d.position else d.key: d for d in translate(subject)}


def value(subject: Trace, key: str) -> float:
    found = said(subject)[key].value
    assert found is not None
    return found


def per_position(subject: Trace, key: str) -> list[float | None]:
    return [d.value for d in translate(subject) if d.key == key]


# γ = 4 and α = .8 in exact proportion: of 3125 rounds 625 keep nothing, 500 one, 400 two, 320 three, 1280 all four.
EXACT = run(*["rddd"] * 625, *["ardd"] * 500, *["aard"] * 400, *["aaar"] * 320, *["aaaa"] * 1280)


def test_the_worked_example_of_four_acceptance_rates() -> None:
    # algorithms §11.2
    assert value(EXACT, "pard_acc") == pytest.approx(0.8)
    assert value(EXACT, "vllm_rate") == pytest.approx(2.3616 / 4)
    assert value(EXACT, "vllm_rate") == pytest.approx(0.59, abs=0.005)
    assert value(EXACT, "layerskip_rate") == value(EXACT, "vllm_rate")
    assert value(EXACT, "llama_accept") == pytest.approx(59.04)
    for tau in ("eagle_tau", "specbench_tokens", "pard_length", "dflash_length", "vllm_length", "llama_length"):
        assert value(EXACT, tau) == pytest.approx(theory.expected_tokens(0.8, 4))
        assert value(EXACT, tau) == pytest.approx(3.3616)
    assert value(EXACT, "jetspec_length") == pytest.approx(2.3616)
    unconditional = [0.8, 0.64, 0.512, 0.4096]
    assert per_position(EXACT, "vllm_position") == pytest.approx(unconditional)
    assert per_position(EXACT, "deepspec_position") == pytest.approx(unconditional)
    assert per_position(EXACT, "dspark_position") == pytest.approx([0.8] * 4)


def test_what_llama_cpp_printed_for_a_run_of_its_own() -> None:
    # Pull request 24536 of llama.cpp shows this line: "draft acceptance = 0.64479 (167 accepted / 259 generated), mean
    # acceptance length = 2.92, acceptance rate per position = (0.805, 0.632, 0.483)", from 87 drafts of three.
    kept = [70, 55, 42]
    rounds = ["aaa"] * kept[2] + ["aar"] * (kept[1] - kept[2]) + ["ard"] * (kept[0] - kept[1])
    rounds += ["rdd"] * (85 - len(rounds)) + ["rd", "rd"]
    printed = said(run(*rounds))
    assert (printed["llama_accepted"].value, printed["llama_drafted"].value) == (167, 259)
    assert printed["llama_accept"].value == pytest.approx(64.479, abs=5e-4)
    assert printed["llama_length"].value == pytest.approx(2.92, abs=5e-3)
    assert per_position(run(*rounds), "llama_position") == pytest.approx([0.805, 0.632, 0.483], abs=5e-4)


def test_rounds_without_a_draft_part_the_definitions() -> None:
    subject = run("aaar", "", "", "", "")
    assert value(subject, "vllm_length") == 4.0
    assert value(subject, "eagle_tau") == 8 / 5
    assert value(subject, "jetspec_length") == 3 / 5


def test_short_drafts_part_the_rates_per_position() -> None:
    subject = run("aa", "a", "ar", "rd")
    assert per_position(subject, "vllm_position") == [3 / 4, 1 / 4]
    assert per_position(subject, "deepspec_position") == [3 / 4, 1 / 3]
    assert per_position(subject, "dspark_position") == [3 / 4, 1 / 2]


def test_an_end_of_text_among_the_drafts_parts_emitted_from_accepted_and_one() -> None:
    subject = trace(chain(1, "aa", ended=True))
    assert value(subject, "eagle_tau") == 2
    assert value(subject, "dflash_length") == 3


def test_alpha_of_the_paper_is_the_mean_overlap_of_what_was_judged() -> None:
    nodes = (
        Node(1, -1, 1, "accepted", beta=0.9),
        Node(2, 0, 2, "rejected", beta=0.5),
        Node(3, 1, 3, "discarded"),
    )
    subject = trace(Round(1, nodes, Emitted(7, "correction")))
    assert value(subject, "leviathan_alpha") == pytest.approx(0.7)
    assert "leviathan_alpha" not in said(EXACT)


def test_a_tree_keeps_only_what_is_defined_for_it() -> None:
    nodes = (Node(1, -1, 1, "rejected", beta=0.5), Node(2, -1, 1, "accepted", beta=0.5))
    keys = {d.key for d in translate(trace(Round(1, nodes, Emitted(7, "bonus"))))}
    assert {"eagle_tau", "vllm_length", "jetspec_length", "vllm_position"} <= keys
    assert not {"leviathan_alpha", "pard_acc", "layerskip_rate", "dspark_position", "deepspec_position"} & keys


def test_without_a_draft_there_is_nothing_to_divide() -> None:
    alone = said(plain(5))
    assert alone["vllm_rate"].value is None
    assert alone["vllm_length"].value is None
    assert (alone["specbench_tokens"].value, alone["jetspec_length"].value) == (1.0, 0.0)
    assert all(d.value is None for d in translate(trace()) if d.denominator is not None)


def test_every_definition_is_said_in_both_languages() -> None:
    subject = trace(Round(1, (Node(1, -1, 1, "accepted", beta=0.5),), Emitted(7, "bonus")))
    keys = {d.definition for d in translate(subject)}
    for language in LANGUAGES:
        assert keys == {key for key in words(language).table if key.startswith("dialect.")}


@given(chains())
def test_the_definitions_are_bound_to_each_other(subject: Trace) -> None:
    summary, numbers = summarise(subject), said(subject)
    assert numbers["eagle_tau"].value == numbers["specbench_tokens"].value == numbers["pard_length"].value
    kept = sum(d.numerator for d in translate(subject) if d.key == "vllm_position")
    assert kept == numbers["llama_accepted"].value == summary.accepted
    if not summary.judged:
        return
    assert value(subject, "vllm_rate") <= value(subject, "pard_acc")
    assert value(subject, "eagle_tau") <= value(subject, "vllm_length")
    assert value(subject, "jetspec_length") + 1 == pytest.approx(value(subject, "eagle_tau"))
    shares = [share or 0.0 for share in per_position(subject, "vllm_position")]
    assert all(later <= earlier for earlier, later in pairwise(shares))
    for vllm, deepspec, dspark in zip(
        shares,
        per_position(subject, "deepspec_position"),
        per_position(subject, "dspark_position"),
        strict=True,
    ):
        assert deepspec is not None
        assert vllm <= deepspec
        assert dspark is None or deepspec <= dspark


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.ndjson")), ids=lambda path: path.stem)
def test_the_definitions_agree_on_recorded_runs(path: Path) -> None:
    for recorded in loads(path.read_text(encoding="utf-8")):
        summary, numbers = summarise(recorded), said(recorded)
        assert numbers["eagle_tau"].numerator == len(recorded.output) - 1
        assert numbers["llama_drafted"].value == sum(len(round_.nodes) for round_ in recorded.rounds)
        assert sum(d.numerator for d in translate(recorded) if d.key == "vllm_position") == summary.accepted
        if (overlap := numbers.get("leviathan_alpha")) and overlap.denominator:
            assert overlap.denominator == summary.judged
            assert 0 <= overlap.numerator <= overlap.denominator
