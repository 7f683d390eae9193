"""Numbers as a reader of the chosen language writes them."""

from __future__ import annotations

DECIMAL_MARK = {"vi": ",", "en": "."}


def decimal(value: float, digits: int, language: str) -> str:
    """A number with so many digits behind the language's decimal mark."""
    return f"{value:.{digits}f}".replace(".", DECIMAL_MARK[language])
