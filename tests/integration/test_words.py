"""The page's words: both languages say the same things, and every key that is asked for exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spec_viz.content.files import ASSETS
from spec_viz.drafters.registry import families
from spec_viz.models.weights import STAGES
from spec_viz.ui import wording
from spec_viz.ui.wording import FOLDER, LANGUAGES, words

AREAS = sorted(path.name.removesuffix(".en.json") for path in FOLDER.glob("*.en.json"))
ROOT = ASSETS.parent
SCRIPTS = sorted((ASSETS / "js").rglob("*.js"))
PYTHON = sorted((ROOT / "spec_viz").rglob("*.py"))
AREA_NAMES = {key.split(".")[0] for key in words("en").table}
# A quoted dotted name that begins with an area's name is a key: 'board.why', "error.unknown", `number.${key}.help`.
QUOTED = re.compile(rf"""(['"`])((?:{"|".join(sorted(AREA_NAMES))})\.[\w.]*(?:\$?\{{[^}}]*\}}[\w.]*)*)\1""")
HOLE = re.compile(r"\$?\{[^}]*\}")


def read(area: str, language: str) -> dict[str, str]:
    pairs: list[tuple[str, str]] = json.loads(
        (FOLDER / f"{area}.{language}.json").read_text(encoding="utf-8"), object_pairs_hook=list
    )
    names = [key for key, _ in pairs]
    assert len(set(names)) == len(names), "a key stands twice"
    return dict(pairs)


def holes(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{(\w+)\}", text)))


def asked() -> dict[str, set[str]]:
    """Every key that a script or module names, with the files that name it; a hole stands for one or more letters."""
    found: dict[str, set[str]] = {}
    for path in [*SCRIPTS, *PYTHON]:
        for quote, key in QUOTED.findall(path.read_text(encoding="utf-8")):
            if key.endswith(".yaml"):  # a file of that name, not a word
                continue
            if path.suffix == ".py" and quote == "`":  # a name in a docstring
                continue
            if path.suffix == ".py" and "{" in key and f'f"{key}"' not in path.read_text(encoding="utf-8"):
                continue
            found.setdefault(key, set()).add(path.name)
    return found


def matches(key: str, known: set[str]) -> bool:
    pattern = re.compile(".+".join(re.escape(part) for part in HOLE.split(key)))
    return any(pattern.fullmatch(name) for name in known)


def test_every_area_has_both_languages() -> None:
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {f"{area}.{language}.json" for area in AREAS for language in LANGUAGES}


@pytest.mark.parametrize("area", AREAS)
def test_both_languages_have_the_same_keys_with_the_same_holes(area: str) -> None:
    vi, en = (read(area, language) for language in LANGUAGES)
    assert vi.keys() == en.keys()
    assert {key: holes(text) for key, text in vi.items()} == {key: holes(text) for key, text in en.items()}


@pytest.mark.parametrize("area", AREAS)
def test_no_word_is_empty_or_left_in_the_other_language(area: str) -> None:
    vi, en = (read(area, language) for language in LANGUAGES)
    for key in vi:
        # A placeholder may begin with a space that counts.
        assert vi[key].strip(), key
        assert en[key].strip(), key
        # Signs, names and words that Vietnamese keeps are the same; whole sentences are not.
        if len(re.findall(r"[A-Za-z]{3,}", HOLE.sub("", en[key]))) > 3:
            assert vi[key] != en[key], key
        assert not re.search(r"[ạảấầẩẫậắằẳẵặẹẻẽếềểễệịỉĩọỏốồổỗộớờởỡợụủũứừửữựỳỵỷỹđ]", en[key]), key


def test_every_key_that_is_asked_for_exists() -> None:
    known = set(words("en").table)
    missing = {key: files for key, files in asked().items() if not matches(key, known)}
    assert not missing


def test_every_key_that_exists_is_asked_for() -> None:
    patterns = [".+".join(map(re.escape, HOLE.split(key))) for key in asked()]
    used = re.compile("|".join(patterns))
    assert sorted(key for key in words("en").table if not used.fullmatch(key)) == []


def test_every_drafter_and_knob_has_its_words() -> None:
    known = words("en").table
    for family in families().values():
        assert {f"drafter.{family.name}", f"drafter.{family.name}.help"} <= known.keys()
        for knob in family.knobs:
            key = f"knob.{family.name}.{knob.name}"
            assert {key, f"{key}.help", *(f"{key}.{choice}" for choice in knob.choices)} <= known.keys()


def test_every_stage_of_the_first_run_has_its_words() -> None:
    assert {f"error.stage_{stage}" for stage in STAGES} <= words("en").table.keys()


def test_the_words_of_an_error_are_filled_by_what_is_raised() -> None:
    raised: dict[str, list[set[str]]] = {}
    for path in PYTHON:
        source = path.read_text(encoding="utf-8")
        for key, args in re.findall(
            r'(?:Error|Back|Missing|Hash|_say|_notice)\(\s*"(error\.\w+)"((?:[^()]|\([^()]*\))*)\)', source
        ):
            if "**" not in args:
                raised.setdefault(key, []).append(set(re.findall(r"(\w+)=", args)))
    assert len(raised) > 10
    for key, calls in raised.items():
        for given in calls:
            assert set(holes(words("en").table[key])) <= given, key


def test_an_unknown_language_gets_english() -> None:
    odd: Any
    for odd in ("fr", "", "__proto__", "../en"):
        assert words(odd).language == "en"


def test_two_files_that_say_the_same_key_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("spec_viz.ui.wording.FOLDER", tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.en.json").write_text('{"x.y": "z"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"b\.en\.json says again: \['x\.y'\]"):
        wording._words.__wrapped__("en")
