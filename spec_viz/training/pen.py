"""Filling a template: `{name}` stands for one of a list of words; "a" becomes "an" where the next word wants it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

Words = Mapping[str, Sequence[str]]
Item = TypeVar("Item")

_BLANK = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=(\w+))")
_SOUNDS_OPEN = ("hour", "honest", "heir")
_SOUNDS_CLOSED = ("uni", "use", "usu", "uk", "eu", "one", "once")


class Pen:
    """A source of choices that is the same for the same key, on every machine."""

    def __init__(self, *key: int | str) -> None:
        self._random = random.Random("/".join(map(str, key)))

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return self._random.choice(items)

    def some(self, items: Sequence[Item], count: int) -> list[Item]:
        """Some of the items, each at most once."""
        return self._random.sample(items, count)

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self._random.randint(low, high)

    def chance(self, share: float) -> bool:
        """True in this share of all cases."""
        return self._random.random() < share

    def facts(self, words: Words) -> dict[str, str]:
        """One word for every name: the facts that a whole passage keeps to."""
        return {name: self.pick(words[name]) for name in words}

    def fill(self, template: str, words: Words) -> str:
        """The template with every blank filled, and what was filled in filled as well; a first letter is a capital.

        A name that stands twice gets two different words while its list lasts.
        """
        used: set[str] = set()

        def choose(blank: re.Match[str]) -> str:
            words_ = words[blank[1]]
            word = self.pick([word for word in words_ if word not in used] or words_)
            used.add(word)
            return word

        while _BLANK.search(template):
            template = _BLANK.sub(choose, template)
        text = _ARTICLE.sub(_article, template)
        return text[:1].upper() + text[1:]


def say(template: str, facts: Mapping[str, str]) -> str:
    """The template with the facts in its blanks."""
    text = _ARTICLE.sub(_article, template.format(**facts))
    return text[:1].upper() + text[1:]


def _article(found: re.Match[str]) -> str:
    letter, word = found[1], found[2].lower()
    vowel = word.startswith(_SOUNDS_OPEN) or (word[0] in "aeiou" and not word.startswith(_SOUNDS_CLOSED))
    # "8" and "11" and "18" begin with a vowel too when they are read aloud.
    vowel = vowel or word.startswith(("8", "11", "18"))
    return f"{letter}{'n' if vowel else ''} "
