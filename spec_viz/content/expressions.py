"""Numbers in a lesson's words: Jinja in a sandbox, over the step's trace, its result and the formulas.

An expression's value goes through Markdown as an opaque mark and becomes escaped text afterwards, so that nothing a
model wrote can turn into markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from jinja2 import TemplateError, Undefined, nodes

from spec_viz.content.claims import names
from spec_viz.content.files import HALF
from spec_viz.content.sandbox import ClaimError, Sandbox, few, spend
from spec_viz.engine.trace import Trace

DECIMAL_MARK = {"vi": ",", "en": "."}
# Private-use letters, which Markdown takes for letters and no text holds.
OPEN, CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{OPEN}([0-9a-f]*){CLOSE}")


def overlap(p: Sequence[float], q: Sequence[float]) -> float:
    """β = Σ min(p, q): the chance that a token drawn from q is kept."""
    return sum(map(min, p, q))


def distance(p: Sequence[float], q: Sequence[float]) -> float:
    """Total variation distance, 1 − β."""
    return sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2


def residual(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """norm(max(p − q, 0)): the law of the correction after a rejection; all zero when p = q."""
    gains = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    total = sum(gains)
    return [gain / total if total else 0.0 for gain in gains]


class Bundles(Mapping[str, dict[str, Any]]):
    """A lesson's traces by name, each as the names a claim may speak of; summarised when first asked for."""

    def __init__(self, traces: Mapping[str, Sequence[Trace]]) -> None:
        self._traces = traces
        self._known: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in self._known:
            traces = self._traces[name]
            try:
                self._known[name] = names(traces)
            except (KeyError, ValueError) as error:
                raise ClaimError(f"the trace {name} holds a token without its text: {error}") from None
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._traces)

    def __len__(self) -> int:
        return len(self._traces)


@cache
def sandbox(language: str) -> Sandbox:
    """Where expressions are evaluated, with the filters that write a number as this language does."""
    mark = DECIMAL_MARK[language]

    def fixed(value: float, digits: int = 2) -> str:
        return f"{value:.{few(digits)}f}".replace(".", mark)

    def percent(value: float, digits: int = 0) -> str:
        return f"{fixed(100 * value, digits)}{chr(0xA0) if language == 'vi' else ''}%"

    def shown(value: object) -> str:
        if isinstance(value, Undefined):
            return str(value)  # raises, and names what is missing
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TypeError(f"prints a {type(value).__name__}, not a number or a text")
        text = f"{value:.3g}".replace(".", mark) if isinstance(value, float) else str(value)
        spend(len(text))
        return f"{OPEN}{text.encode().hex()}{CLOSE}"

    environment = Sandbox(shown)
    environment.globals.update(overlap=overlap, distance=distance, residual=residual)
    environment.filters.update(fixed=fixed, percent=percent)
    return environment


def evaluate(expression: str, scope: Mapping[str, Any]) -> Any:
    """The value of an expression; ClaimError when it cannot be computed."""
    return sandbox("en").evaluate(expression, scope)


def fill_in(source: str, scope: Mapping[str, Any], language: str) -> str:
    """The source with every expression's value in it as a mark; ClaimError when one cannot be computed."""
    if OPEN in source or CLOSE in source or HALF.search(source):
        raise ClaimError(f"the words {source[:60]!r}… hold a letter that marks values, or half of one")
    return sandbox(language).fill_in(source, scope)


def unmark(text: str) -> str:
    """Marks back to their values, plain."""
    return _MARK.sub(lambda mark: bytes.fromhex(mark[1]).decode(), text)


def unmark_html(html: str) -> str:
    """Marks in HTML back to their values, escaped."""
    return _MARK.sub(lambda mark: escape(bytes.fromhex(mark[1]).decode()), html)


def without_marks(text: str) -> str:
    """Only what was typed by hand."""
    return _MARK.sub("", text)


def constants(source: str) -> list[str]:
    """Numbers typed by hand in braces, as `{{ 0.7 }}`: expressions that speak of nothing."""
    try:
        tree = sandbox("en").parse(source)
    except TemplateError:
        return []  # `fill_in` says what is wrong
    printed = [child for output in tree.find_all(nodes.Output) for child in output.nodes]
    return [
        str(child.value)
        for child in printed
        if isinstance(child, nodes.Const) and any(letter.isdigit() for letter in str(child.value))
    ]
