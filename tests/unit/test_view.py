import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from spec_viz.engine.trace import Trace
from spec_viz.ui.view import view
from spec_viz.ui.wording import words
from tests.unit.traces import chains, plain, run

RUN = run("aard", "aaaa", "rddd", "", ms=(4.0, 30.0, 1.0, 1.0))
PLAIN = plain(10, ms=(0.0, 20.0, 1.0, 0.0))


def shown(*traces: Trace, language: str = "en") -> dict[str, Any]:
    return view(traces, words(language), "light")


def numbers(*traces: Trace, language: str = "en") -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in shown(*traces, language=language)["numbers"]}


def test_each_number_carries_its_fraction() -> None:
    rows = numbers(RUN, PLAIN)
    assert (rows["alpha"]["value"], rows["alpha"]["fraction"]) == (0.75, "6 / 8")
    assert rows["efficiency"]["fraction"] == "6 / 12"
    assert rows["tau"]["fraction"] == "10 / 4"
    assert rows["coverage"]["fraction"] == "3 / 4"
    assert rows["c"]["fraction"] == "1.3 / 20.0 ms"
    assert rows["v"]["fraction"] == "n = 5: 30.0 / 20.0 ms"
    assert rows["tokens_per_second"]["fraction"] == "10 / 0.14 s"
    assert rows["speedup"]["fraction"] == "69.4 / 47.6 token/s"
    assert rows["speedup"]["value"] == pytest.approx(1.458, abs=0.001)


def test_vietnamese_numbers_have_a_decimal_comma() -> None:
    assert numbers(RUN, PLAIN, language="vi")["c"]["fraction"] == "1,3 / 20,0 ms"
    assert "1,46" in shown(RUN, PLAIN, language="vi")["verdict"]["text"]


def test_badges_say_where_a_number_comes_from() -> None:
    live = numbers(RUN, PLAIN)
    assert {live[key]["badge"] for key in ("alpha", "speedup", "round_ms")} == {"measured"}
    assert {live[key]["badge"] for key in ("break_even", "best_gamma")} == {"computed"}
    recorded = numbers(replace(RUN, origin="recorded"), replace(PLAIN, origin="recorded"))
    assert recorded["alpha"]["badge"] == "recorded"


def test_every_number_chart_and_part_has_its_words() -> None:
    for language in ("vi", "en"):
        table = words(language).table
        page = shown(RUN, PLAIN, language=language)
        for area, rows in (("number", page["numbers"]), ("chart", page["charts"])):
            for row in rows:
                assert table[f"{area}.{row['key']}"]
                assert table[f"{area}.{row['key']}.help"].endswith((".", "。"))
        assert all(f"memory.{row['key']}" in table for row in page["memory"])


def test_what_cannot_be_known_is_null() -> None:
    rows = numbers(run("aard"))
    assert [rows[key]["value"] for key in ("c", "v", "speedup", "tokens_per_second", "round_ms")] == [None] * 5
    assert "best_gamma" not in rows


def test_memory_counts_entries_times_bytes() -> None:
    rows = {row["key"]: row for row in shown(RUN, PLAIN)["memory"]}
    assert rows["target_weights"]["bytes"] == 5_000_000
    # The third round starts at 18 entries and verifies five tokens.
    assert (rows["target_kv"]["bytes"], rows["target_kv"]["fraction"]) == (23_000, "23 entries × 1000 bytes")
    assert rows["rolled_back"]["bytes"] == 4_000
    assert rows["drafter_kv"]["bytes"] is None
    bare = {row["key"]: row for row in shown(replace(RUN, meta={"drafter": "x"}))["memory"]}
    assert bare["target_weights"]["bytes"] is None


def test_what_is_set_aside_for_a_cache_is_told_where_it_is() -> None:
    assert "room" not in {row["key"] for row in shown(RUN, PLAIN)["memory"]}
    rows = {row["key"]: row for row in shown(run("a", kv_room={"target": 256}))["memory"]}
    assert (rows["room"]["bytes"], rows["room"]["fraction"]) == (256_000, "256 entries × 1000 bytes")
    for language in ("vi", "en"):
        assert words(language).table["memory.room"]


def test_a_drafter_without_a_cache_takes_none() -> None:
    rows = {row["key"]: row for row in shown(run("a", kv_bytes_per_token={"target": 10, "drafter": 0}))["memory"]}
    assert rows["drafter_kv"]["bytes"] == 0


@pytest.mark.parametrize(
    ("round_ms", "key", "times"),
    [
        ((4.0, 30.0, 1.0, 1.0), "verdict.faster", "1.46"),
        ((60.0, 30.0, 1.0, 1.0), "verdict.slower", "1.75"),
        ((20.0, 30.0, 1.0, 1.0), "verdict.even", "1.01"),
    ],
)
def test_the_verdict_says_which_and_by_how_much(
    round_ms: tuple[float, float, float, float], key: str, times: str
) -> None:
    verdict = shown(run("aard", "aaaa", "rddd", "", ms=round_ms), PLAIN)["verdict"]
    assert verdict["key"] == key
    assert verdict["args"] == {"times": times}
    assert times in verdict["text"]


def test_the_reasons_account_for_the_speedup() -> None:
    why = {row["key"]: row for row in shown(RUN, PLAIN)["verdict"]["why"]}
    assert why["verdict.why.alpha"]["args"] == {"alpha": "0.75", "accepted": 6, "judged": 8}
    tau, ratio = (float(why[f"verdict.why.{key}"]["args"][arg]) for key, arg in (("tau", "tau"), ("round", "ratio")))
    # Speedup = tokens a round ÷ what a round costs in plain steps.
    assert tau / ratio == pytest.approx(1.458, abs=0.01)
    assert {"verdict.why.coverage", "verdict.why.c", "verdict.why.v", "verdict.why.overhead"} <= why.keys()
    assert "verdict.why.break_even" in why


def test_costs_that_can_never_pay_are_said_to() -> None:
    dear = run("aaaa", "aaaa", ms=(300.0, 30.0, 1.0, 1.0))
    assert "verdict.why.never" in [row["key"] for row in shown(dear, PLAIN)["verdict"]["why"]]


def test_without_something_to_compare_with_no_speed_is_claimed() -> None:
    assert shown(RUN)["verdict"]["key"] == "verdict.no_baseline"
    elsewhere = plain(10, ms=(0.0, 20.0, 1.0, 0.0), device="cuda")
    assert shown(RUN, elsewhere)["verdict"]["key"] == "verdict.no_baseline"
    assert shown(PLAIN)["verdict"] == {
        "key": "verdict.plain",
        "args": {},
        "text": words("en")("verdict.plain"),
        "why": [],
    }


def test_the_speculative_run_is_shown_whatever_the_order() -> None:
    assert shown(PLAIN, RUN) == shown(RUN, PLAIN)


@given(chains())
def test_any_bundle_becomes_json_with_whole_sentences(subject: Trace) -> None:
    page = shown(subject, PLAIN, language="vi")
    json.dumps(page, allow_nan=False)
    sentences = [page["verdict"]["text"], *(row["text"] for row in page["verdict"]["why"])]
    assert not any("{" in sentence for sentence in sentences)


def test_both_languages_have_the_same_words_and_the_same_places() -> None:
    english, vietnamese = words("en").table, words("vi").table
    mine = [key for key in english if key.split(".")[0] in ("number", "chart", "memory", "verdict")]
    for key in mine:
        assert sorted(_places(english[key])) == sorted(_places(vietnamese[key])), key


def _places(text: str) -> set[str]:
    return {part.split("}")[0] for part in text.split("{")[1:]}
