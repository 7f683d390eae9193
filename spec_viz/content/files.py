"""Where the content lies, and how its YAML is read: somebody else may have written it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "lessons"
PRESETS = LESSONS / "presets"
ASSETS = ROOT / "assets"

# Ten times the largest file there is. What aliases repeat counts each time: a short file can say a lot by them.
MOST_BYTES, MOST_PARTS, MOST_DEPTH = 1_000_000, 100_000, 40
# Half a letter, which an escape can write, goes over no wire.
HALF = re.compile("[\ud800-\udfff]")


class FileError(ValueError):
    """A file that cannot be read; says what is wrong with it, without its name."""


def read_text(path: Path) -> str:
    """The text of a file with plain ends of lines; FileError where it is none or too long."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileError(f"is larger than {MOST_BYTES // 1_000_000} MB")
        return path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(str(error)) from None


def parse_yaml(text: str) -> Any:
    """What a YAML text says; FileError where it is none, or says too much."""
    try:
        found = yaml.safe_load(text)
    # A date or a number that is none is a ValueError, a list that holds itself may be any of the others.
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise FileError(str(error) or type(error).__name__) from None
    _weigh(found, MOST_PARTS, MOST_DEPTH)
    return found


def _weigh(value: Any, left: int, depth: int) -> int:
    """How many parts are still allowed behind this value."""
    left -= 1
    if left < 0 or depth < 0:
        raise FileError("says more than a file of ours ever does")
    if isinstance(value, str) and HALF.search(value):
        raise FileError("holds half a letter")
    if isinstance(value, dict):
        for pair in value.items():
            for part in pair:
                left = _weigh(part, left, depth - 1)
    elif isinstance(value, list | set | tuple):
        for part in value:
            left = _weigh(part, left, depth - 1)
    return left
