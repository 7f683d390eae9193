"""The trace's file form: what is written is read back, and what is broken is refused by name."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_viz.engine import trace as format_
from spec_viz.engine.trace import Emitted, Kv, Ms, Node, Round, Trace, TraceError, dumps, loads

Line = dict[str, Any]

PROBABILITY = st.none() | st.floats(0, 1).map(lambda x: round(x, 6))
MILLISECONDS = st.none() | st.floats(0, 1e6).map(lambda x: round(x, 3))
TOKEN = st.integers(0, 2**31)
TOPS = st.none() | st.lists(st.tuples(TOKEN, st.floats(0, 1)), max_size=5).map(tuple)
# What UTF-8 can hold; text that it cannot is cleaned away before it gets near a trace.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TABLES = st.dictionaries(TOKEN, st.tuples(TEXT, st.none() | st.just("e1bb")), max_size=3)
SIMPLE = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
METAS = st.dictionaries(TEXT, SIMPLE | st.dictionaries(TEXT, SIMPLE, max_size=2), max_size=3)
LENGTHS = st.none() | st.tuples(*[st.integers(0, 9999)] * 3)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """A random tree in which one random path from the root is accepted."""
    made: list[Node] = []
    tip = -1
    for index in range(draw(st.integers(0, 7))):
        parent = draw(st.integers(-1, index - 1))
        depth = 1 if parent == -1 else made[parent].depth + 1
        grows = parent == tip and draw(st.booleans())
        status: Any = "accepted" if grows else draw(st.sampled_from(["rejected", "discarded"]))
        tip = index if grows else tip
        numbers: dict[str, Any] = {
            name: draw(PROBABILITY) for name in ("p", "q", "p_raw", "q_raw", "u", "accept", "beta")
        }
        tops: dict[str, Any] = {name: draw(TOPS) for name in ("p_top", "q_top", "residual_top")}
        made.append(Node(draw(TOKEN), parent, depth, status, **numbers, **tops, why=draw(st.none() | METAS)))
    return tuple(made)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    rounds = tuple(
        Round(
            number,
            draw(nodes()),
            draw(st.none() | st.builds(Emitted, TOKEN, st.sampled_from(["plain", "correction", "bonus"]), PROBABILITY)),
            Kv(draw(LENGTHS), draw(LENGTHS)),
            Ms(draw(MILLISECONDS), draw(MILLISECONDS)),
            prefill=number == 0,
            tokens=draw(TABLES),
        )
        for number in range(draw(st.integers(0, 3)))
    )
    return Trace(
        draw(TEXT),
        draw(st.sampled_from(["live", "recorded", "server"])),
        draw(METAS),
        tuple(draw(st.lists(TOKEN, max_size=4))),
        draw(TABLES),
        rounds,
        draw(st.sampled_from([None, "eos", "length", "context", "stopped", "error"])),
    )


def sample() -> Trace:
    """A prefill, then a round of a chain: one draft kept, one refused, one never judged."""
    top = ((4, 0.75), (5, 0.25))
    chain = (
        Node(4, -1, 1, "accepted", 0.75, 1.0, 0.7, None, 0.5, 0.75, 0.75, top, None, None, {"key": [1, 2]}),
        Node(6, 0, 2, "rejected", 0.0, 1.0, 0.1, None, 0.25, 0.0, 0.0, top, None, top),
        Node(7, 1, 3, "discarded", 0.5, 1.0),
    )
    rounds = (
        Round(0, (), Emitted(3, "plain", 0.5, 0.4, 0.1, top), Kv((0, 2, 2)), Ms(0, 1.5, 0, 0), True, {3: ("a", None)}),
        Round(1, chain, Emitted(5, "correction", 0.25), Kv((2, 6, 4), (2, 4, 4)), Ms(1.25), tokens={4: ("�", "e1bb")}),
    )
    return Trace(
        "one", "live", {"seed": 1, "created": "now"}, (1, 2), {1: ("Ô", None), 2: (" ", None)}, rounds, "length"
    )


@settings(max_examples=50)
@given(st.lists(traces(), min_size=1, max_size=2))
def test_a_bundle_is_read_back_as_it_was(bundle: list[Trace]) -> None:
    text = dumps(*bundle)
    assert loads(text) == tuple(bundle)
    assert all(json.loads(line) for line in text.removesuffix("\n").split("\n"))


def test_a_trace_has_a_line_for_its_header_each_round_and_its_end() -> None:
    lines = [json.loads(line) for line in dumps(sample()).splitlines()]
    assert [next(iter(line)) for line in lines] == ["schema", "round", "round", "finish"]
    assert lines[0]["schema"] == "specviz.trace/1"
    assert "prefill" in lines[1]
    assert "prefill" not in lines[2]


def test_output_is_the_accepted_path_and_the_emitted_token_of_every_round() -> None:
    trace = sample()
    assert trace.output == (3, 4, 5)
    assert trace.decoding == trace.rounds[1:]
    assert trace.text_table() == {1: ("Ô", None), 2: (" ", None), 3: ("a", None), 4: ("�", "e1bb")}


def test_times_are_written_with_three_digits() -> None:
    round_ = replace(sample().rounds[0], ms=Ms(1.23456, 2, None, 0.0004))
    assert json.loads(format_.round_line(round_))["ms"] == {"propose": 1.235, "verify": 2, "judge": None, "rollback": 0}
    assert round_.ms.total == pytest.approx(3.23496)


def test_a_lone_surrogate_in_what_somebody_typed_leaves_the_file_readable() -> None:
    text = dumps(replace(sample(), meta={"prompt_text": "a\ud800b", "drafter_options": {"script": "\udfff"}}))
    assert loads(text.encode().decode())[0].meta == {"prompt_text": "a?b", "drafter_options": {"script": "?"}}


def test_a_file_without_an_end_is_a_run_that_is_still_going_on() -> None:
    trace = sample()
    assert loads("".join(dumps(trace).splitlines(keepends=True)[:-1])) == (replace(trace, finish=None),)


def test_line_ends_of_another_system_and_empty_lines_do_not_matter() -> None:
    assert loads("\n" + dumps(sample()).replace("\n", "\r\n\r\n")) == (sample(),)


def test_fields_nobody_knows_are_ignored() -> None:
    lines = [json.loads(line) for line in dumps(sample()).splitlines()]
    for line in lines:
        line["later"] = {"version": 2}
    for round_ in lines[1:3]:
        round_["kv"]["later"] = 1
        for node in round_["nodes"]:
            node["later"] = "x"
    text = "\n".join(map(json.dumps, [*lines[:2], {"comment": "a line of a kind to come"}, *lines[2:]]))
    assert loads(text) == (sample(),)


def test_the_same_trace_may_differ_in_what_two_runs_of_one_request_differ_in() -> None:
    one = sample()
    slower = tuple(replace(round_, ms=Ms(9, 9, 9, 9)) for round_ in one.rounds)
    meta = {**one.meta, "created": "later", "commit": "abc", "device": "cuda", "versions": {"torch": "9"}}
    assert one.same_as(replace(one, run="two", origin="recorded", meta=meta, rounds=slower))
    for other in (
        replace(one, meta={**one.meta, "seed": 2}),
        replace(one, finish="eos"),
        replace(one, prompt=(1, 3)),
        replace(one, rounds=one.rounds[:1]),
        replace(one, rounds=(one.rounds[0], replace(one.rounds[1], kv=Kv((2, 6, 5), (2, 4, 4))))),
    ):
        assert not one.same_as(other)


# ---------------------------------------------------------------- refusals


def put(value: Any, line: int, *path: str | int) -> Callable[[list[Line]], None]:
    """A change that writes a value at a path in a line."""

    def change(lines: list[Line]) -> None:
        place: Any = lines[line]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def drop(line: int, key: str) -> Callable[[list[Line]], None]:
    def change(lines: list[Line]) -> None:
        del lines[line][key]

    return change


REFUSED = [
    (put("specviz.trace/2", 0, "schema"), "line 1, schema"),
    (put("specviz.result/1", 0, "schema"), "line 1, schema"),
    (put(None, 0, "schema"), "line 1, schema"),
    (put([[]], 0, "schema"), "line 1, schema"),
    (put("somewhere", 0, "origin"), "line 1, origin"),
    (put("1 2", 0, "prompt"), "line 1, prompt"),
    (put([1, "2"], 0, "prompt"), "line 1, prompt.1"),
    (put([1, -2], 0, "prompt"), "line 1, prompt.1"),
    (put([1, 2.5], 0, "prompt"), "line 1, prompt.1"),
    (put([], 0, "meta"), "line 1, meta"),
    (drop(0, "meta"), "line 1, meta"),
    (put("a", 0, "tokens", "1"), "line 1, tokens.1"),
    (put({"one": ["a", None]}, 0, "tokens"), "line 1, tokens.one.[key]"),
    (drop(0, "schema"), "line 1"),
    (put("1", 2, "round"), "line 3, round"),
    (put(True, 2, "round"), "line 3, round"),
    (put(2, 2, "round"), "line 3, round"),
    (put(0, 2, "round"), "line 3, round"),
    (put({}, 2, "nodes"), "line 3, nodes"),
    (put("4", 2, "nodes", 0, "id"), "line 3, nodes.0.id"),
    (put(-4, 2, "nodes", 0, "id"), "line 3, nodes.0.id"),
    (put("kept", 2, "nodes", 0, "status"), "line 3, nodes.0.status"),
    (put(1.25, 2, "nodes", 0, "p"), "line 3, nodes.0.p"),
    (put(-0.25, 2, "nodes", 0, "u"), "line 3, nodes.0.u"),
    (put(float("nan"), 2, "nodes", 0, "q"), "line 3, nodes.0.q"),
    (put(float("inf"), 2, "nodes", 0, "beta"), "line 3, nodes.0.beta"),
    (put("0.5", 2, "nodes", 0, "accept"), "line 3, nodes.0.accept"),
    (put([[4, 1.5]], 2, "nodes", 0, "p_top"), "line 3, nodes.0.p_top.0.1"),
    (put([4, 0.5], 2, "nodes", 1, "residual_top"), "line 3, nodes.1.residual_top.0"),
    (put("because", 2, "nodes", 0, "why"), "line 3, nodes.0.why"),
    (put("maybe", 2, "emitted", "kind"), "line 3, emitted.kind"),
    (put([1, 2], 2, "kv", "target"), "line 3, kv.target.2"),
    (put(-1, 2, "ms", "verify"), "line 3, ms.verify"),
    (put(float("nan"), 2, "ms", "verify"), "line 3, ms.verify"),
    (put("soon", 3, "finish"), "line 4, finish"),
    (put(None, 3, "finish"), "line 4, finish"),
    # A tree that is none.
    (put(1, 2, "nodes", 1, "parent"), "line 3, nodes.1.parent"),
    (put(2, 2, "nodes", 1, "parent"), "line 3, nodes.1.parent"),
    (put(-2, 2, "nodes", 0, "parent"), "line 3, nodes.0.parent"),
    (put(3, 2, "nodes", 1, "depth"), "line 3, nodes.1.depth"),
    (put(0, 2, "nodes", 0, "depth"), "line 3, nodes.0.depth"),
    # Accepted nodes that are not one path.
    (put("accepted", 2, "nodes", 2, "status"), "line 3, nodes.2.status"),
    # Numbers that JSON does not know, where anything may stand.
    (put(float("nan"), 0, "meta", "seed"), "line 1, meta"),
    (put([{"deep": float("-inf")}], 2, "nodes", 0, "why", "key"), "line 3, nodes.0.why"),
]


@pytest.mark.parametrize(("change", "field"), REFUSED, ids=[f"{i}-{field}" for i, (_, field) in enumerate(REFUSED)])
def test_a_broken_trace_is_refused_by_the_field_s_name(change: Callable[[list[Line]], None], field: str) -> None:
    lines = [json.loads(line) for line in dumps(sample()).splitlines()]
    change(lines)
    with pytest.raises(TraceError) as refusal:
        loads("\n".join(map(json.dumps, lines)))
    assert refusal.value.field == field
    assert refusal.value.problem
    assert str(refusal.value) == f"{field}: {refusal.value.problem}"


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(TraceError, match=r"^line 1, meta: "):
        loads(dumps(sample()).replace('"seed":1', '"seed":1e999'))


def test_two_accepted_siblings_are_not_one_path() -> None:
    siblings = (Node(1, -1, 1, "accepted"), Node(2, -1, 1, "accepted"))
    with pytest.raises(TraceError, match=r"line 3, nodes\.1\.status"):
        loads(dumps(replace(sample(), rounds=(sample().rounds[0], Round(1, siblings)))))


def test_rounds_behind_the_end_belong_to_no_trace() -> None:
    lines = dumps(sample()).splitlines()
    with pytest.raises(TraceError, match=r"line 5: the header line"):
        loads("\n".join([*lines, lines[1]]))


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="empty"):
        loads(text)


@pytest.mark.parametrize(
    "line",
    [
        "[1, 2]",
        "7",
        "null",
        "not JSON",
        '{"round": 1',
        "\ufeff{}",
        '{"finish": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"finish": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"round": 2, "nodes": ' + "[" * 900 + "]" * 900 + "}",
        '{"round": 2, "nodes": [], "later": ' + '{"a":' * 900 + "1" + "}" * 900 + "}",
        '{"finish": ' + '{"a":' * 900 + "1" + "}" * 900 + "}",
        '{"finish": "\\ud800"}',
        '{"round": 2, "nodes": [{"id": 1, "parent": -1, "depth": 1, "status": "\ud800"}]}',
        '{"round": 2, "tokens": {"1": ["\\udfff", null]}}',
    ],
    ids=lambda line: line[:24].encode("ascii", "backslashreplace").decode(),
)
def test_a_line_that_is_no_object_of_ours_is_refused_with_its_number(line: str) -> None:
    lines = dumps(sample()).splitlines()
    with pytest.raises(TraceError, match=r"^line 4"):
        loads("\n".join([*lines[:3], line]))


def test_a_file_over_four_megabytes_is_refused_before_it_is_read() -> None:
    text = dumps(sample())
    room = format_.MAX_BYTES - len(text.encode())
    assert loads(text.replace("{", "{" + " " * room, 1))
    with pytest.raises(TraceError, match=r"file: larger than 4 MB"):
        loads(text.replace("{", "{" + " " * (room + 1), 1))


def test_a_file_of_more_lines_than_a_trace_can_have_is_refused_before_it_is_read() -> None:
    text = dumps(sample())
    room = format_.MAX_LINES - text.count("\n")
    assert loads(text + "\n" * room)
    with pytest.raises(TraceError, match=r"of more than 100,000 lines"):
        loads(text + "\n" * (room + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def read_or_refused(text: str) -> None:
    """Only `TraceError` may come out, and what is let in can be written, read again and put on a page."""
    try:
        read = loads(text)
    except TraceError:
        return
    written = dumps(*read)
    assert loads(written) == read
    written.encode()


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


@st.composite
def altered(draw: st.DrawFn) -> str:
    """A good trace with arbitrary values at arbitrary places."""
    lines = [json.loads(line) for line in dumps(sample()).splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        place: Any = draw(st.sampled_from(lines))
        while True:
            key = draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
            if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
                break
            place = place[key]
        place[key] = draw(JSON)
    text = "\n".join(json.dumps(line, ensure_ascii=draw(st.booleans())) for line in lines)
    cut = draw(st.integers(0, len(text)))
    return text if draw(st.booleans()) else text[:cut]


@given(altered())
def test_an_altered_trace_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


def test_only_a_refused_draft_may_go_without_a_name() -> None:
    """A server tells how many drafts it refused, not which."""
    header = json.dumps(
        {"schema": format_.SCHEMA, "run": "r", "origin": "server", "meta": {}, "prompt": [1], "tokens": {}}
    )
    node = {"id": None, "parent": -1, "depth": 1, "status": "rejected"}
    line = {"round": 0, "nodes": [node], "emitted": {"id": 3, "kind": "correction"}}
    (trace,) = loads(f"{header}\n{json.dumps(line)}\n")
    assert trace.rounds[0].nodes[0].id is None
    assert trace.output == (3,)
    with pytest.raises(TraceError, match=r"nodes\.0\.id"):
        loads(f"{header}\n{json.dumps(line | {'nodes': [node | {'status': 'accepted'}]})}\n")
