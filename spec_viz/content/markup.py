"""Lesson words to HTML: expressions, then Markdown without raw HTML, with links that point at the figure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from spec_viz.content.expressions import fill_in, unmark, unmark_html, without_marks

# A link `[words](kind:to)`; what `to` may be is checked against the figure, the glossary and the sources.
LINKS = ("tile", "term", "slot", "formula", "source", "screen")

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")

# Digits that are no measurement: part of a name (EAGLE-3), a year, a place in the course, and the bounds 0 and 1.
_NAME = r"[^\W\d_][\w]*(?:[-.][\w]+)*"
_YEAR = r"(?<![\w.,])(?:19|20)\d\d(?![\w]|[.,]\d)"
_PLACE = r"(?:bài|lesson|bước|step|chương|chapter|mục|section|phần|part)\s+\d+(?:\.\d+)*"
_BOUND = r"(?<![\w.,])[01](?![\w%]|[.,]\d|\s*%)"
_ALLOWED = re.compile(f"{_PLACE}|{_NAME}|{_YEAR}|{_BOUND}", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True)
class Link:
    """A reference in the words: its kind and what it points at."""

    kind: str
    to: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A section as HTML, the list that ends it taken apart as options where asked, and what checks need to know."""

    html: str
    options: tuple[str, ...]
    links: tuple[Link, ...]
    numbers: tuple[str, ...]
    words: int


def render(
    source: str, scope: Mapping[str, Any], language: str, sources: Mapping[str, Any], with_options: bool = False
) -> Rendered:
    """Words to HTML; ClaimError when an expression cannot be computed."""
    tokens = _MARKDOWN.parse(fill_in(source, scope, language))
    links = tuple(_relink(tokens, sources))
    body, items = _options(tokens) if with_options else (tokens, [])
    return Rendered(
        html=_html(body),
        options=tuple(_html(item).strip() for item in items),
        links=links,
        numbers=tuple(_numbers(body)),
        words=len(" ".join(_texts(body)).split()),
    )


def _html(tokens: Sequence[Token]) -> str:
    return unmark_html(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def _options(tokens: list[Token]) -> tuple[list[Token], list[list[Token]]]:
    """What stands before the first list, and the content of that list's items."""
    begin = next((i for i, token in enumerate(tokens) if token.type.endswith("_list_open") and token.level == 0), None)
    if begin is None:
        return tokens, []
    items: list[list[Token]] = []
    for token in tokens[begin + 1 :]:
        if token.type.endswith("_list_close") and token.level == 0:
            break
        if token.type == "list_item_open" and token.level == 1:
            items.append([])
        elif not (token.type == "list_item_close" and token.level == 1):
            items[-1].append(token)
    return tokens[:begin], items


def _relink(tokens: Sequence[Token], sources: Mapping[str, Any]) -> Iterator[Link]:
    """Turn `kind:to` links into references in place; a link of no known kind stays as words, and is yielded too."""
    for block in tokens:
        open_: list[Token] = []
        for token in block.children or ():
            if token.type == "link_open":
                kind, _, to = unmark(unquote(str(token.attrGet("href") or ""))).partition(":")
                yield Link(kind, to)
                token.attrs = _attributes(kind, to, sources)
                token.tag = "a" if "href" in token.attrs else "span"
                open_.append(token)
            elif token.type == "link_close":
                token.tag = open_.pop().tag


def _attributes(kind: str, to: str, sources: Mapping[str, Any]) -> dict[str, str | int | float]:
    if kind not in LINKS:
        return {}
    if kind == "screen":
        return {"data-screen": to}
    known: dict[str, str | int | float] = {"class": "sv-ref", "data-ref": kind, "data-to": to}
    if kind == "source" and to in sources:
        return {**known, "href": sources[to].url, "target": "_blank", "rel": "noopener noreferrer"}
    return {**known, "role": "button", "tabindex": "0"}


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for block in tokens:
        yield from block.children or ([block] if block.type in ("fence", "code_block") else ())


def _texts(tokens: Sequence[Token]) -> Iterator[str]:
    for token in _inline(tokens):
        if token.type in ("text", "code_inline", "fence", "code_block"):
            yield unmark(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            yield " "


def _numbers(tokens: Sequence[Token]) -> Iterator[str]:
    """Numbers typed by hand, outside a citation."""
    for block in tokens:
        cited = False
        typed: list[str] = []
        for token in block.children or [block]:
            if token.type == "link_open":
                cited = token.attrGet("data-ref") == "source"
            elif token.type == "link_close":
                cited = False
            elif not cited:
                typed.append(" " if token.type in ("softbreak", "hardbreak") else token.content)
        yield from typed_numbers("".join(typed))


def typed_numbers(text: str) -> list[str]:
    """Numbers in a text that are neither an expression's value nor one of the allowed kinds."""
    return _NUMBER.findall(_ALLOWED.sub(" ", without_marks(text)))
