"""The family table: what is declared, what papers say, what was published; nothing where nothing was measured."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spec_viz.cli import main
from spec_viz.content import family
from spec_viz.content.expressions import evaluate
from spec_viz.content.figures import Family
from spec_viz.content.files import LESSONS
from spec_viz.content.lessons import _figure_json, load_lesson, sources
from spec_viz.drafters.registry import families
from spec_viz.models import heads
from spec_viz.models.catalogue import TRAINED
from spec_viz.training.measure import _speedup
from spec_viz.ui.wording import LANGUAGES, words

LIVE: dict[str, Any] = {
    "alpha": 0.5,
    "by_position": [0.6, 0.4],
    "tau": 1.9,
    "c": 0.07,
    "speedup": {"median": 1.3, "low": 0.8, "high": 2.5},
    "prompts": 6,
    "conditions": {"device_name": "a processor", "threads": 2, "gamma": 4, "versions": {"torch": "2"}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of heads with eagle3 alone, measured."""
    place = tmp_path / "eagle3"
    place.mkdir()
    (place / heads.CONFIG).write_text('{"target": "smollm2-135m", "layers": [2, 15, 27]}', encoding="utf-8")
    (place / heads.WEIGHTS).write_bytes(b"")
    (place / heads.PROVENANCE).write_text(json.dumps({"parameters": 7, "live": LIVE}), encoding="utf-8")
    monkeypatch.setattr(heads, "HEADS", tmp_path)
    return place


def named(method: str) -> family.Member:
    return next(member for member in family.members() if member.method == method)


def test_every_trained_drafter_is_in_the_table_and_nothing_else() -> None:
    assert set(family.published()) == set(TRAINED)


def test_every_claim_has_a_source_and_its_conditions_in_both_languages() -> None:
    claims = [claim for claims in family.published().values() for claim in claims]
    assert len(claims) >= len(TRAINED)
    assert {claim.source for claim in claims} <= sources().keys()
    for claim in claims:
        assert set(claim.when) == set(LANGUAGES)
        assert all(claim.when.values())
        assert claim.low is None or claim.low < claim.high


def test_a_claim_that_is_written_while_the_page_runs_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "family.yaml"
    file.write_text(family.FILE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(family, "FILE", file)
    assert named("medusa").claims
    file.write_text("medusa: []\n", encoding="utf-8")
    assert [(member.method, member.claims) for member in family.members()] == [("medusa", ())]


def test_a_measured_head_tells_what_its_papers_and_its_drafter_say(folder: Path) -> None:
    member = named("eagle3")
    anatomy = families()["eagle3"].anatomy
    assert (member.reads, member.order, member.layers) == (anatomy.reads, anatomy.order, (2, 15, 27))
    assert (member.alpha, member.tau, member.c, member.slots) == (0.5, 1.9, 0.07, (0.6, 0.4))
    assert member.speedup == family.Speed(1.3, 0.8, 2.5)
    assert member.conditions is not None
    assert (member.conditions["threads"], member.conditions["torch"]) == (2, "2")


def test_a_head_that_is_not_trained_has_claims_and_no_numbers(folder: Path) -> None:
    member = named("medusa")
    assert not member.trained
    assert member.claims
    measured = (member.alpha, member.tau, member.c, member.speedup, member.parameters, member.conditions, member.slots)
    assert measured == (None, None, None, None, None, None, ())


def test_papers_without_a_speedup_leave_only_that_open(folder: Path) -> None:
    old = {name: value for name, value in LIVE.items() if name not in ("tau", "c", "speedup")}
    (folder / heads.PROVENANCE).write_text(json.dumps({"live": old}), encoding="utf-8")
    member = named("eagle3")
    assert member.trained
    assert (member.alpha, member.speedup, member.tau) == (0.5, None, None)


def test_the_table_of_some_methods_cites_their_sources_alone() -> None:
    found = family.table(sources(), ["medusa", "dflash"])
    assert [member["method"] for member in found["members"]] == ["medusa", "dflash"]
    assert set(found["sources"]) == {"medusa", "spec_bench", "dflash"}


def test_a_lesson_shows_some_methods_and_speaks_of_their_numbers(folder: Path) -> None:
    lesson = load_lesson(LESSONS / "5_1_principles")
    shown = _figure_json(lesson, Family("family", methods=("eagle3", "medusa"), columns=("alpha",), sort="alpha"), "vi")
    assert (shown["kind"], shown["columns"], shown["sort"]) == ("family", ("alpha",), "alpha")
    assert [member["method"] for member in shown["members"]] == ["medusa", "eagle3"]
    assert "eagle3" in shown["sources"]
    assert (
        evaluate("family.eagle3.speedup.median > 1 and family.medusa.alpha is none", {"family": family.names()}) is True
    )


def test_csv_has_a_line_a_method(folder: Path) -> None:
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(family.to_csv()))}
    assert list(rows) == list(family.published())
    assert (rows["eagle3"]["speedup"], rows["eagle3"]["slots"], rows["eagle3"]["threads"]) == ("1.3", "0.60 0.40", "2")
    assert "up to 6.5x" in rows["eagle3"]["published"]
    assert rows["medusa"]["alpha"] == ""


def test_runs_under_other_conditions_stand_apart(folder: Path) -> None:
    lines = family.conditions_lines()
    assert len(lines) == 2
    assert any(line.startswith("eagle3: device_name a processor") for line in lines)


@pytest.mark.parametrize("how", [[], ["--json"], ["--csv"]])
def test_the_command_tells_every_method(how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["family", *how]) == 0
    said = capsys.readouterr().out
    assert all(method in said for method in family.published())
    if how == ["--json"]:
        assert {member["method"] for member in json.loads(said)["members"]} == set(TRAINED)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_has_a_word_for_all_that_the_table_says(language: str) -> None:
    table = words(language).table
    for member in family.members():
        wanted = [f"family.order.{member.order}", f"drafter.{member.method}"]
        wanted += [f"family.read.{what}" for what in member.reads]
        wanted += [f"family.claim.{claim.measure}" for claim in member.claims]
        assert not [key for key in wanted if key not in table]


def test_a_speedup_is_the_median_over_prompts_beside_plain_decoding() -> None:
    rates = {"ours · none": (10.0, 10.0, 20.0), "ours · x": (12.0, 5.0, 60.0)}
    timings: Any = [
        SimpleNamespace(prompt=prompt, method=method, rate=rate)
        for method, each in rates.items()
        for prompt, rate in enumerate(each)
    ]
    assert _speedup(timings, "ours · x") == {"median": 1.2, "low": 0.5, "high": 3.0}
