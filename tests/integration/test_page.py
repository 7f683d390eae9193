"""The page's server side: what its head says, what it computes from a trace, and which doors stay shut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx
import pytest

from spec_viz.content.presets import load_presets
from spec_viz.engine.trace import SCHEMA
from spec_viz.serving.gate import is_public
from spec_viz.ui.boot import FIRST, boot, script_tag
from spec_viz.ui.limits import Limits
from spec_viz.ui.page import build, head, launch_options, shown
from spec_viz.ui.room import Room, bundle_of
from spec_viz.ui.wording import LANGUAGES, words
from tests.integration.launch import served


@pytest.fixture(scope="module")
def web() -> Iterator[httpx.Client]:
    # A proxy of this machine has no say in what goes to the machine itself.
    with served(Room()) as address, httpx.Client(base_url=address, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def recorded() -> str:
    return next(preset for preset in load_presets() if preset.name == FIRST).trace_path.read_text(encoding="utf-8")


# ---------------------------------------------------------------- numbers and charts of a trace


def test_a_recorded_bundle_gets_numbers_charts_memory_and_a_verdict(recorded: str) -> None:
    for language in LANGUAGES:
        view = shown([recorded, language, "dark"])
        assert view.keys() == {"numbers", "charts", "memory", "verdict", "lanes"}
        assert {row["badge"] for row in view["numbers"]} == {"recorded", "computed"}
        assert view["verdict"]["text"] == words(language)(view["verdict"]["key"], **view["verdict"]["args"])
        json.dumps(view, allow_nan=False)


def test_the_page_s_own_lines_are_no_part_of_a_trace(recorded: str) -> None:
    mixed = '{"request":"1"}\n{"wait":2}\n{"wait":0}\n' + recorded + '{"notice":{"key":"error.unknown","args":{}}}\n'
    assert bundle_of(mixed) == bundle_of(recorded)


BROKEN: list[tuple[str, str]] = [
    ("", "error.bad_trace_line"),
    ("\n\n", "error.bad_trace_line"),
    ("not a trace", "error.bad_trace_line"),
    ('{"schema":', "error.bad_trace_line"),
    ("[1,2]", "error.bad_trace_line"),
    ('{"a":1}', "error.bad_trace_line"),
    ('{"round":0}', "error.bad_trace_line"),
    ("[" * 100_000, "error.bad_trace_line"),
    ('{"schema":"specviz.trace/2"}', "error.trace_version"),
    ('{"schema":["<img src=x onerror=alert(1)>"]}', "error.trace_version"),
    (" " * 4_000_001, "error.trace_too_large"),
    (
        json.dumps({"schema": SCHEMA, "run": "r", "origin": "x", "meta": {}, "prompt": [], "tokens": {}}),
        "error.bad_trace",
    ),
    (
        json.dumps({"schema": SCHEMA, "run": "r", "origin": "live", "meta": {}, "prompt": [-1], "tokens": {}}),
        "error.bad_trace",
    ),
    (
        '{"schema":"specviz.trace/1","run":"\ud800","origin":"live","meta":{},"prompt":[],"tokens":{}}',
        "error.bad_trace_line",
    ),
]


@pytest.mark.parametrize(("text", "key"), BROKEN, ids=[text[:30] for text, _ in BROKEN])
def test_a_file_that_is_no_trace_gets_one_sentence(text: str, key: str) -> None:
    answer = shown([text, "vi", "light"])
    assert answer.keys() == {"error"}
    assert answer["error"]["key"] == key
    for language in LANGUAGES:
        sentence = words(language)(key, **answer["error"]["args"])
        assert "{" not in sentence
        assert len(sentence) < 300
        json.dumps(sentence).encode()


# Where a value stands in the recorded run (line, then the way to it), and what a script or a chart cannot hold there.
UNBEARABLE: list[tuple[int, list[str | int], Any]] = [
    (1, ["meta", "gamma"], 10**9),
    (1, ["prompt", 0], 2**64),
    (2, ["emitted", "id"], 2**53),
    (2, ["kv", "target", 1], 2**64),
    (2, ["kv", "target", 0], -1),
    (2, ["ms", "verify"], 1e308),
    (2, ["ms", "propose"], 10**30),
]


@pytest.mark.parametrize(("line", "way", "value"), UNBEARABLE, ids=[str(way) for _, way, _ in UNBEARABLE])
def test_a_number_that_breaks_charts_is_refused_by_its_name(
    recorded: str, line: int, way: list[str | int], value: Any
) -> None:
    found = [json.loads(each) for each in recorded.splitlines()]
    *above, name = way
    at = found[line - 1]
    for step in above:
        at = at[step]
    at[name] = value
    answer = shown(["".join(json.dumps(each) + "\n" for each in found), "vi", "light"])
    assert answer["error"]["key"] == "error.bad_trace"
    assert answer["error"]["args"]["line"] == str(line)
    assert answer["error"]["args"]["field"].startswith(str(way[0]))


ODD: list[Any] = [None, "x", -1, 0, 2.5, 1e308, [], {}, {"target": "x"}, {"target": -5, "drafter": 10**30}, True, [[1]]]


def test_a_header_that_says_strange_things_is_drawn_with_what_is_known(recorded: str) -> None:
    found = [json.loads(line) for line in recorded.splitlines()]
    for name in found[0]["meta"]:
        for value in ODD:
            strange = deepcopy(found)
            strange[0]["meta"][name] = value
            view = shown(["".join(json.dumps(line) + "\n" for line in strange), "en", "light"])
            assert view.keys() == {"numbers", "charts", "memory", "verdict", "lanes"}, (name, value)
            for row in view["memory"]:
                assert row["bytes"] is None or 0 <= row["bytes"] < 2**53, (name, value)
            json.dumps(view, allow_nan=False)


@pytest.mark.parametrize("asked", [None, {}, [], ["a"], [1, 2, 3], "text", [None, None, None], [{}, [], 7]])
def test_a_question_of_the_wrong_shape_is_answered_as_an_empty_file(asked: Any) -> None:
    assert shown(asked)["error"] == {"key": "error.bad_trace_line", "args": {"line": "1"}}


# ---------------------------------------------------------------- what the page starts with


def test_nothing_in_the_boot_data_can_close_its_tag() -> None:
    hostile = {"words": "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"}
    tag = script_tag(hostile)
    body = tag.partition(">")[2].rpartition("</script>")[0]
    assert "<" not in body
    assert json.loads(body) == hostile


@pytest.mark.parametrize(
    ("given", "usual"), [("vi", "vi"), (" EN ", "en"), ("", "en"), ("fr", "en"), ("<script>", "en")]
)
def test_the_host_says_what_language_those_get_who_ask_for_none(
    monkeypatch: pytest.MonkeyPatch, given: str, usual: str
) -> None:
    monkeypatch.setenv("SPECVIZ_LANGUAGE", given)
    assert boot(Limits())["language"] == usual


def test_the_boot_data_holds_both_languages_the_limits_and_the_first_picture(recorded: str) -> None:
    data = boot(Limits(max_new_tokens=7, prompt_chars=99))
    assert data["words"].keys() == set(LANGUAGES)
    assert (data["limits"]["max_new_tokens"], data["limits"]["prompt_chars"]) == (7, 99)
    assert data["first"] == {"preset": FIRST, "ndjson": recorded}
    for preset in data["presets"]:
        assert preset["title"].keys() == preset["lesson"].keys() == set(LANGUAGES)
        assert preset["settings"].get("max_new_tokens", 1) <= Limits().max_new_tokens
        assert preset["settings"].get("gamma", 1) <= data["limits"]["gamma_max"]


def test_the_head_names_no_other_host_and_only_files_that_exist(web: httpx.Client) -> None:
    found = re.findall(r'(?:href|src)="([^"]+)"', head(Room()))
    assert len(found) > 10
    for place in found:
        assert place.startswith("sv/")
        assert web.get(f"/{place}").status_code == 200


# ---------------------------------------------------------------- doors


def test_scripts_charts_and_recorded_runs_are_served_and_nothing_beside_them(web: httpx.Client, recorded: str) -> None:
    assert web.get("/sv/vendor/plotly.min.js").headers["content-type"].startswith("text/javascript")
    assert web.get(f"/sv/lessons/presets/{FIRST}.ndjson").text == recorded
    for place in ("sv/", "sv/../app.py", "sv/%2e%2e/app.py", "sv/..%2f..%2fetc/passwd", "sv/lessons/../../app.py"):
        assert web.get(f"/{place}").status_code == 404, place


def test_nobody_skips_the_line_by_the_api(web: httpx.Client) -> None:
    assert web.get("/gradio_api/info").json() == {"named_endpoints": {}, "unnamed_endpoints": {}}
    # What goes through the queue comes to the room's own line like every page.
    for place in ("run/run", "api/run", "run/predict"):
        # A refused call ends its connection, so none is used twice.
        answer = web.post(f"/gradio_api/{place}", json={"data": [""]}, headers={"Connection": "close"})
        assert answer.status_code >= 400, place
    assert web.get("/monitoring/summary").status_code == 404


def test_usage_is_not_reported(web: httpx.Client) -> None:
    config = web.get("/config").json()
    assert config["analytics_enabled"] is False


@pytest.mark.parametrize(("set_", "told"), [("", None), ("7861", 7861)])
def test_the_port_that_is_set_is_asked_for_and_no_other(
    set_: str, told: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_PORT", set_)
    # Where it is None, Gradio looks for a free one.
    assert launch_options(Room())["server_port"] == told


@pytest.mark.parametrize(("set_", "told"), [("", None), ("0", None), ("no", None), ("1", True), ("Yes", True)])
def test_a_tunnel_is_opened_by_the_word_that_makes_the_page_public(
    set_: str, told: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPECVIZ_PUBLIC", "GRADIO_SERVER_NAME", "SPACE_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRADIO_SHARE", set_)
    assert launch_options(Room())["share"] is told
    assert is_public() is bool(told)


def test_a_space_s_page_does_not_lay_the_hub_s_header_over_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTEM", "spaces")
    monkeypatch.setenv("SPACE_ID", "somebody/specviz")
    assert build(Room()).get_config_file()["space_id"] is None
