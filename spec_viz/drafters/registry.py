"""The drafters by name. A drafter's file says what it is and which knobs it has; adding one changes no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from spec_viz.drafters.head import Head
from spec_viz.engine.length import Fixed, Length
from spec_viz.engine.proposal import Drafter
from spec_viz.engine.target import CachedModel
from spec_viz.engine.text import Vocabulary
from spec_viz.engine.warp import Warp

MODULES = (
    "none",
    "prompt_lookup",
    "ngram",
    "anpd",
    "pld_plus",
    "suffix",
    "token_recycling",
    "lookahead",
    "draft_model",
    "early_exit",
    "layer_skip",
    "bigram",
    "medusa",
    "eagle3",
    "eagle",
    "mtp",
    "window",
    "pard",
    "kv_sharing",
    "dflash",
    "dspark",
    "scripted",
)

Value = int | str | bool


class OptionError(ValueError):
    """An option that a drafter does not take: `key` names the visitor's sentence about it, `fields` fill it."""

    def __init__(self, key: str, problem: str, **fields: Any) -> None:
        super().__init__(problem)
        self.key = key
        self.fields = fields


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of a drafter: an integer in [low, high], one of `choices`, or free text."""

    name: str
    kind: Literal["int", "choice", "text"]
    default: Value
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Value:
        """The value if the knob allows it; OptionError names the knob and what it takes."""
        if self.kind == "int":
            if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
                problem = f"{self.name} takes a whole number from {self.low} to {self.high}"
                raise OptionError("error.option_number", problem, name=self.name, low=self.low, high=self.high)
        elif self.kind == "choice" and value not in self.choices:
            known = ", ".join(self.choices)
            raise OptionError("error.option_choice", f"{self.name} takes one of {known}", name=self.name, known=known)
        elif not isinstance(value, str):
            raise OptionError("error.option_text", f"{self.name} takes text", name=self.name)
        return value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Opened:
    """Another model for a run, with its vocabulary and its tokenizer: text to ids, with nothing added or let through.

    `weight_bytes` counts each parameter once.
    """

    model: Any
    vocabulary: Vocabulary
    encode: Callable[[str], list[int]]
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Setup:
    """What a drafter may build on: the target with its cache, its vocabulary, and how the run decodes.

    The rule tells a model how to draw its drafts, the length when to stop drafting. `open_model` finds a model by name,
    for drafters that are one, `open_head` a trained head for this target. `memory` is the visitor's own, kept between
    runs on one target: a drafter that learns from earlier runs puts it there under its name.
    """

    target: CachedModel
    vocabulary: Vocabulary
    encode: Callable[[str], list[int]]
    prompt_length: int
    ends: frozenset[int]
    warp: Warp
    rule: str = "match"
    length: Length = field(default_factory=Fixed)
    open_model: Callable[[str], Opened] | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    open_head: Callable[[str], Head] | None = None

    def head(self, name: str) -> Head:
        """The trained head of this name; ValueError where a run has none to give."""
        if self.open_head is None:
            raise ValueError(f"{name} needs a trained head, and this run knows of none")
        return self.open_head(name)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """How a drafter comes by its drafts, as the page draws it.

    `reads` is what it takes of the target: committed ids, hidden states of some layers or the last one (behind the
    final norm), logits, entries of the KV cache. `order` is how the tokens of one round come about: looked up, one
    after another, all at once, or all at once and then one by one made to fit. `steps` is how many passes of a network
    beside the target's a round takes, `body` whose weights the drafter has.

    `layers` names the knob, or the key of the head's config, that numbers the hidden states. `further` is what else it
    reads once a knob is not at its default: (knob, what).
    """

    reads: tuple[Literal["ids", "hidden", "last_hidden", "logits", "kv"], ...]
    order: Literal["none", "lookup", "sequential", "parallel", "hybrid"]
    steps: Literal["none", "one", "gamma"]
    body: Literal["none", "own", "target"]
    layers: str | None = None
    further: tuple[tuple[str, Literal["last_hidden", "kv"]], ...] = ()


# Copied from the text, or from counts of it.
FROM_TEXT = Anatomy(("ids",), "lookup", "none", "none")


@dataclass(frozen=True, slots=True)
class Family:
    """A drafter as the catalogue shows it: the rules that can judge it, the default first.

    `build` gets the setup and the checked options. `drafts` says what the default rule makes of it, `head`
    which trained head it runs on, if any.
    """

    name: str
    drafts: Literal["none", "one_hot", "sampled"]
    rules: tuple[str, ...]
    build: Callable[[Setup, Mapping[str, Any]], Drafter]
    knobs: tuple[Knob, ...] = ()
    source: str = ""
    head: str | None = None
    anatomy: Anatomy = field(kw_only=True)

    @property
    def needs_weights(self) -> bool:
        """Whether it has nothing to run on without weights of its own."""
        return self.head is not None

    def default_rule(self, options: Mapping[str, Any]) -> str:
        """The rule where none is asked for: the first, or for a tree of best guesses the one that judges those."""
        return "match" if options.get(TREE.name) else self.rules[0]

    def options(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """Every knob's value: what was given, checked, and defaults for the rest; OptionError on an unknown name."""
        knobs = {knob.name: knob for knob in self.knobs}
        for name in given:
            if name not in knobs:
                problem = f"{self.name} has no option {name!r}; it has {', '.join(knobs) or 'none'}"
                raise OptionError("error.option_unknown", problem, drafter=self.name, name=str(name)[:40])
        return {name: knob.check(given.get(name, knob.default)) for name, knob in knobs.items()}


# What can judge drafts that are chosen, in a chain or in a tree, and those of a model that draws as the rule asks.
CHOSEN_CHAIN = ("match", "token", "block", "typical", "synthetic")
CHOSEN_TREE = ("match", "typical")
BY_MODEL = (
    "token",
    "block",
    "match",
    "specinfer",
    "without_replacement",
    "kseq",
    "typical",
    "ensemble",
    "synthetic",
)
WIDTH = Knob("width", "int", 1, 1, 4)
# The most nodes of a tree that a trained head chooses; 0 drafts a chain, or what `width` says.
TREE = Knob("tree", "int", 0, 0, 60)


def check_tree(rule: str) -> None:
    """OptionError where a rule cannot judge a tree of chosen drafts."""
    if rule not in CHOSEN_TREE:
        known = ", ".join(CHOSEN_TREE)
        problem = f"rule {rule} cannot judge a tree of chosen drafts: use {known}, or set tree to 0"
        raise OptionError("error.tree_rule", problem, rule=rule, known=known)


def families() -> dict[str, Family]:
    """Every drafter by name, in the order of `MODULES`."""
    found = [import_module(f"spec_viz.drafters.{module}").FAMILY for module in MODULES]
    return {family.name: family for family in found}
