"""`law`: the losslessness tests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spec_viz.cli.terminal import command, err, known, load_model, show, signals
from spec_viz.models.catalogue import DEFAULT

if TYPE_CHECKING:
    from spec_viz.lab.law import LawTest

# Rounds in which a length chosen in hindsight shows.
HINDSIGHT = 4000


def add(commands: Any) -> None:
    """Offer `law`."""
    law = command(commands, "law", run_law, "the losslessness tests")
    law.add_argument("--drafter", action="append", metavar="NAME", help="only these drafters on the real model")
    law.add_argument("--rule", action="append", metavar="NAME", help="only these rules")
    law.add_argument("--rounds", type=int, default=100_000)
    law.add_argument("--toy", action="store_true", help="leave the real model out")
    law.add_argument("--planted", action="store_true", help="also run planted faults, each of which must fail")


def run_law(options: argparse.Namespace) -> int:
    """The losslessness tests as a table; exit code 1 when one fails, or when Ctrl-C left some out."""
    from spec_viz.drafters.registry import families
    from spec_viz.engine.rules import RULES
    from spec_viz.lab import law, law_hindsight, law_model, law_tiny

    if options.rounds < law.FEWEST_ROUNDS:
        raise ValueError(f"{options.rounds} rounds are too few to tell one law from another; use {law.FEWEST_ROUNDS}.")
    known("drafter", options.drafter, families())
    known("rule", options.rule, RULES)
    # Some sixty pairs, each over seven tokens only: a fifth of the rounds tells as much.
    tiny = max(law.FEWEST_ROUNDS, options.rounds // 5)

    def every_test() -> Iterator[LawTest]:
        yield from law.toy_tests(options.rounds, options.rule)
        yield from law_tiny.tiny_tests(tiny, options.drafter, options.rule)
        yield from law_tiny.tiny_length_tests(options.rounds, options.drafter, options.rule)
        if not options.toy:
            loaded = load_model(DEFAULT)
            yield from law_model.model_tests(loaded, options.rounds, options.drafter, options.rule)

    done: list[LawTest] = []
    planted: list[LawTest] = []
    with signals() as stopped:
        for test in every_test():
            done.append(test)
            if stopped:
                break
        if options.planted and not stopped:
            planted = [*law.planted(options.rounds), law_hindsight.sample_hindsight(max(tiny, HINDSIGHT))]
    if not done:
        raise ValueError("No test is of these drafters with these rules: leave --drafter or --rule out.")
    tests = law.family_wise(done)
    show(options, [_law_row(test) for test in (*tests, *planted)], "law")
    if stopped:
        err.print("Stopped: these are the tests that were done.")
    return 0 if not stopped and all(test.passed for test in (*tests, *planted)) else 1


def _law_row(test: LawTest) -> dict[str, Any]:
    return {
        "test": test.name,
        "rounds": test.rounds or "all",
        "statistic": f"{test.statistic:.3g}",
        "p-value": "exact" if test.p_value is None else f"{test.p_value:.3g}",
        "verdict": "pass" if test.passed else "FAIL",
    }
