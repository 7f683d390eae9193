"""What a visitor may ask for. The defaults are for a class; an operator sets others by environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spec_viz.serving.switch import NO, YES


class SettingError(ValueError):
    """A setting that means nothing: the sentence is for the operator."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a run its new tokens, its prompt's letters, its seconds; of the line its places, an address's, a browser's.

    A class behind one router is one address, so an address may hold a class.
    """

    max_new_tokens: int = 256
    prompt_chars: int = 8000
    seconds: float = 180.0
    line: int = 64
    line_address: int = 40
    line_browser: int = 3
    # A teacher may let a class share what drafters learn; otherwise it is each visitor's own.
    shared_memory: bool = False


# Variable, field, lowest and highest value.
_NUMBERS = (
    ("SPECVIZ_MAX_NEW_TOKENS", "max_new_tokens", 1, 4096),
    ("SPECVIZ_PROMPT_CHARS", "prompt_chars", 1, 100_000),
    ("SPECVIZ_SECONDS", "seconds", 1, 3600),
    ("SPECVIZ_LINE", "line", 1, 256),
    ("SPECVIZ_LINE_ADDRESS", "line_address", 1, 256),
    ("SPECVIZ_LINE_BROWSER", "line_browser", 1, 256),
)


def limits_of(environ: Mapping[str, str]) -> Limits:
    """The limits that these variables set; those that are not there stay as they are. Raises SettingError."""
    found: dict[str, int] = {}
    for variable, name, low, high in _NUMBERS:
        given = environ.get(variable, "").strip()
        if not given:
            continue
        # So short that it is a number a person meant.
        if not (given.isascii() and given.isdecimal() and len(given) <= 9 and low <= int(given) <= high):
            raise SettingError(f"{variable} must be a whole number from {low} to {high}, and is “{given[:40]}”.")
        found[name] = int(given)
    return Limits(**found, shared_memory=is_on(environ, "SPECVIZ_SHARED_MEMORY"))


def is_on(environ: Mapping[str, str], variable: str) -> bool:
    """Whether a variable switches something on, one that is not set does not; SettingError where it says neither."""
    given = environ.get(variable, "").strip().lower()
    if given not in (*YES, *NO):
        raise SettingError(f"{variable} must be 1 or 0 (or yes, no, true, false, on, off), and is “{given[:40]}”.")
    return given in YES
