"""A trace from anywhere: read, summed up, drawn and laid on the formula, or refused in one sentence."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_viz.content.presets import load_presets
from spec_viz.engine.trace import MAX_BYTES, MAX_GAMMA, SCHEMA, Trace, TraceError, dumps, loads
from spec_viz.ui.lab import place
from spec_viz.ui.page import shown
from spec_viz.ui.room import bundle_of
from spec_viz.ui.wording import LANGUAGES, words
from tests.browser.acts import small_trace
from tests.fuzz.cases import case, cases, mutated, sendable, vandalised

Lines = list[dict[str, Any]]


@cache
def bundles() -> tuple[Lines, ...]:
    """Small bundles: one made by hand, and the first rounds of recorded ones with what each tells besides."""
    presets = {preset.name: preset for preset in load_presets()}
    found = [small_trace(["a", "b", "ă", "<"])]
    names = ("weather", "eagle_tree", "medusa", "dflash")
    found += [dumps(*(_short(trace) for trace in presets[name].recorded())) for name in names]
    found.append(
        dumps(*(_short(trace) for name in ("weather", "bigram", "repeat") for trace in presets[name].recorded()))
    )
    return tuple([json.loads(line) for line in text.splitlines()] for text in found)


def _short(trace: Trace) -> Trace:
    from dataclasses import replace

    return replace(trace, rounds=trace.rounds[:4])


@st.composite
def files(draw: st.DrawFn) -> str:
    lines = draw(mutated(bundles()))
    ascii_ = draw(st.booleans())
    if not isinstance(lines, list):
        lines = [lines]
    text = "".join(json.dumps(line, ensure_ascii=ascii_) + "\n" for line in lines)
    return draw(vandalised(text, 2)) if draw(st.booleans()) else text


def read(text: str) -> tuple[Trace, ...]:
    try:
        return loads(text)
    except TraceError as problem:
        assert problem.field
        return ()


@cases()
@given(files())
def test_a_file_is_a_trace_or_an_error_that_names_the_place(text: str) -> None:
    with case("trace import: loads"):
        traces = read(text)
        if traces:
            # What was read can be written, and is then the same; times are written with three digits.
            written = dumps(*traces)
            assert dumps(*loads(written)) == written


@cases()
@given(files())
def test_the_page_s_lines_are_left_out_and_the_rest_is_a_trace(text: str) -> None:
    with case("trace import: bundle_of"):
        try:
            found = bundle_of('{"request":"1"}\n{"wait":0}\n' + text)
        except TraceError:
            return
        assert found


@cases()
@given(files(), st.sampled_from(["vi", "en", "fr", "", None, 7, [], {}]), st.sampled_from(["light", "dark", None, {}]))
def test_a_file_is_drawn_or_refused_in_a_sentence(text: str, language: Any, theme: Any) -> None:
    with case("trace import: numbers and charts"):
        answer = shown([text, language, theme])
        sendable(answer)
        if "error" in answer:
            said(answer["error"])
        else:
            assert answer["numbers"]


@cases()
@given(files(), st.sampled_from(["vi", "en", None, []]))
def test_a_file_is_laid_on_the_formula_or_not(text: str, language: Any) -> None:
    with case("trace import: place on the formula"):
        answer = place([text, language])
        sendable(answer)
        if "none" in answer:
            said(answer["none"])


def said(problem: dict[str, Any]) -> None:
    """The sentence is there in both languages, with every hole filled."""
    for language in LANGUAGES:
        sentence = words(language)(problem["key"], **problem["args"])
        assert sentence
        for name in problem["args"]:
            assert "{" + name + "}" not in sentence


# ---------------------------------------------------------------- as large as a file may be


def _header(**more: Any) -> dict[str, Any]:
    meta = {"drafter": "toy", "gamma": 4, "rule": "token", **more}
    return {"schema": SCHEMA, "run": "r", "origin": "live", "meta": meta, "prompt": [1], "tokens": {"1": ["a", None]}}


def _large(kind: str) -> str:
    """Files just below the limit, each large in its own way."""
    emitted = {"id": 1, "kind": "plain"}
    lines: list[Any] = [_header()]
    if kind == "one path":
        lines.append(
            {
                "round": 0,
                "nodes": [{"id": 1, "parent": n - 1, "depth": n + 1, "status": "accepted"} for n in range(60_000)],
            }
        )
    elif kind == "deep paths":
        deep = [{"id": 1, "parent": n - 1, "depth": n + 1, "status": "accepted"} for n in range(MAX_GAMMA)]
        lines += [{"round": n, "nodes": deep, "emitted": emitted, "ms": {"verify": 1.0}} for n in range(60)]
        lines += [_header(drafter="none"), {"round": 0, "nodes": [], "emitted": emitted, "ms": {"verify": 1.0}}]
    elif kind == "siblings":
        lines.append(
            {"round": 0, "nodes": [{"id": n, "parent": -1, "depth": 1, "status": "rejected"} for n in range(60_000)]}
        )
    elif kind == "rounds":
        lines += [{"round": n, "nodes": [], "emitted": emitted, "ms": {"verify": 1.0}} for n in range(45_000)]
    elif kind == "traces":
        lines = [_header(drafter=f"toy{n}", seed=n) for n in range(20_000)]
    elif kind == "plain runs":
        lines = [_header(drafter="none", seed=n, device=n) for n in range(15_000)] + [_header(), _header()]
    elif kind == "blank lines":
        return json.dumps(_header()) + "\n" * (MAX_BYTES - 1000)
    elif kind == "page's lines":
        return json.dumps(_header()) + "\n" + '{"wait":1}\n' * (MAX_BYTES // 12)
    elif kind == "one token":
        lines[0]["tokens"]["1"][0] = "x" * (MAX_BYTES - 1000)
    elif kind == "prompt":
        lines[0]["prompt"] = [1] * 1_200_000
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    assert len(text) < MAX_BYTES
    return text


@pytest.mark.parametrize(
    "kind",
    [
        "one path",
        "deep paths",
        "siblings",
        "rounds",
        "traces",
        "plain runs",
        "blank lines",
        "page's lines",
        "one token",
        "prompt",
    ],
)
def test_the_largest_file_of_each_kind_is_done_in_time(kind: str) -> None:
    text = _large(kind)
    with case("trace import: as large as may be"):
        sendable(shown([text, "en", "light"]))
    with case("trace import: as large as may be"):
        sendable(place([text, "en"]))
