"""The page's words: flat dictionaries in two languages, one pair of files an area, merged by language."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "words"
LANGUAGES = ("vi", "en")
ENGLISH = "en"


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of one language; call it with a key and what fills the braces: a text, a number, or a sentence.

    A sentence within a sentence is {"key", "args"}, so that it is said in the same language.
    """

    language: str
    table: Mapping[str, str]

    def __call__(self, key: str, **args: object) -> str:
        text = self.table[key]
        for name, value in args.items():
            said = self(value["key"], **value["args"]) if isinstance(value, dict) else str(value)
            text = text.replace("{" + name + "}", said)
        return text


def usual_language() -> str:
    """The language of a visitor who has chosen none and whose browser speaks neither: SPECVIZ_LANGUAGE, or English."""
    named = os.environ.get("SPECVIZ_LANGUAGE", "").strip().lower()
    return named if named in LANGUAGES else ENGLISH


def words(language: object) -> Words:
    """The words of a language; what names none, whatever it is, gets English."""
    return _words(str(language) if language in LANGUAGES else ENGLISH)


@cache
def _words(language: str) -> Words:
    table: dict[str, str] = {}
    for path in sorted(FOLDER.glob(f"*.{language}.json")):
        area = json.loads(path.read_text(encoding="utf-8"))
        if clash := table.keys() & area.keys():
            raise ValueError(f"{path.name} says again: {sorted(clash)}")
        table.update(area)
    return Words(language, table)
