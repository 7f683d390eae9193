"""What can go wrong with a server, as a sentence for a person: a key of the page's words and what fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spec_viz.engine.trace import Anything


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence that can be kept: `key` names it, `fields` fill it."""

    key: str
    fields: Anything


class ServerError(ValueError):
    """A server that may not or cannot be asked, or answers what nobody understands; `key` names the sentence."""

    def __init__(self, key: str, problem: str, /, **fields: Any) -> None:
        super().__init__(problem)
        self.key = key
        self.fields = fields

    @property
    def told(self) -> Problem:
        """The same, to be kept."""
        return Problem(self.key, self.fields)
