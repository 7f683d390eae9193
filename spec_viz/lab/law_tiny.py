"""The losslessness test that every drafter takes: its own code, on a tiny random Llama with seven tokens.

So small a target can be known by heart: after a few thousand rounds nearly every prefix that can occur has been seen,
and a pass is a look-up. What is left to run is the real loop, the real rules and the real drafters. The target's joint
law of the next tokens is exact.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from spec_viz.drafters.registry import CHOSEN_TREE, Family, Setup, families
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.length import LENGTHS, Fixed, Length
from spec_viz.engine.proposal import Needs, Seen
from spec_viz.engine.rules import RULES
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Round
from spec_viz.engine.warp import Warp
from spec_viz.lab.law import LawTest, StandIn, compare_counts, one_thread
from spec_viz.lab.law_heads import open_head
from spec_viz.lab.law_second import OWN, Pieces, open_second, tiny_llama

VOCABULARY = 7
LAYERS = 4
HORIZON = 4
GAMMA = 3
PROMPT = (1, 2, 3, 1, 2, 4, 1, 2)
WARP = Warp(temperature=1.0)

# Options under which a drafter's law is tested beside its defaults, where the defaults would leave something out.
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "draft_model": ({"model": "alike"}, {"model": "other", "vocab": "tli"}),
    "early_exit": ({"layers": 2}, {"layers": 2, "kv": "shared"}),
    "layer_skip": ({"skip": "1-2"}, {"skip": "2", "search": 2}),
    "window": ({"window": 2, "sinks": 1},),
    "scripted": ({"script": "3 1 2 | 4 1"},),
    "pld_plus": ({"layer": 2}, {"rank": "attention", "layer": 2}),
    "suffix": ({"offset": 2}, {"mode": "tree", "offset": 2}),
    # The window alone fills too slowly for so short a text: nothing would ever be drafted from it.
    "lookahead": ({"pool": "text", "ngram": 3},),
    "bigram": ({},),
    "medusa": ({}, {"tree": 6}),
    "eagle3": ({}, {"tree": 6, "top_k": 2}),
    "eagle": ({}, {"tree": 6, "top_k": 2}, {"tree": 6, "shape": "static"}),
    "mtp": ({},),
    "dflash": ({},),
    "dspark": ({}, {"confidence": 30}),
    "pard": ({},),
    "kv_sharing": ({},),
}
# Drafters under which every length policy is tested: one that asks it to stop, one that does not.
LENGTHS_UNDER: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("early_exit", "token", {"layers": 2}),
    ("prompt_lookup", "match", {}),
)
# Made-up milliseconds of a pass and of each row in it, so that a policy that weighs times has some to weigh.
PASS_MS = 3.0
ROW_MS = 1.0


@cache
def tiny_target() -> LlamaForCausalLM:
    """The target of every test here: four layers, seven tokens."""
    return tiny_llama(VOCABULARY, LAYERS, seed=11)


class KnownByHeart(StandIn):
    """Runs every text through a model once and remembers what came out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.device = torch.device("cpu")
        self.context_limit = int(model.config.max_position_embeddings)
        self._ms = 0.0

    def rows(self, texts: Sequence[tuple[list[int], int]], needs: Needs) -> tuple[Tensor, Seen]:
        self._ms += PASS_MS + ROW_MS * len(texts)
        known = [_by_heart(self.model, tuple(fed[:end])) for fed, end in texts]
        logits = torch.stack([row for row, _ in known])
        hidden = {layer: torch.stack([states[layer] for _, states in known]) for layer in needs.layers}
        return logits, Seen(logits if needs.logits else None, hidden)

    def now(self) -> float:
        return self._ms / 1000


@cache
@torch.inference_mode()
def _by_heart(model: Any, text: tuple[int, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Logits (V,) and hidden states (d,) of every layer behind a text."""
    out = model(torch.tensor([text]), output_hidden_states=True)
    return out.logits[0, -1].clone(), tuple(states[0, -1].clone() for states in out.hidden_states)


@cache
def target_law(temperature: float = WARP.temperature) -> Mapping[tuple[int, ...], float]:
    """The tiny target's exact joint law of the HORIZON tokens behind the prompt."""
    warp = replace(WARP, temperature=temperature)
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(HORIZON):
        law = {
            (*tokens, token): mass * chance
            for tokens, mass in law.items()
            for token, chance in enumerate(_next_law((*PROMPT, *tokens), warp))
        }
    return law


def _next_law(text: tuple[int, ...], warp: Warp) -> list[float]:
    return warp.law(_by_heart(tiny_target(), text)[0][None], text)[0].double().tolist()


def tiny_tests(rounds: int, names: Sequence[str] | None, rules: Sequence[str] | None) -> Iterator[LawTest]:
    """Chi-square of every drafter with every lossless rule that fits it, `rounds` rounds each."""
    for family in families().values():
        if (names is None or family.name in names) and can_draft(family):
            for rule in family.rules:
                if RULES[rule].lossless and (rules is None or rule in rules):
                    for options in variants(family, rule):
                        yield sample_tiny(family, rule, options, rounds)


def variants(family: Family, rule: str) -> list[dict[str, Any]]:
    """The options under which a drafter is tested with a rule: a tree of best guesses only where it judges them."""
    return [options for options in OPTIONS.get(family.name, ({},)) if not options.get("tree") or rule in CHOSEN_TREE]


def tiny_length_tests(rounds: int, names: Sequence[str] | None, rules: Sequence[str] | None) -> Iterator[LawTest]:
    """Chi-square of every length policy that can vary, under a drafter that asks it and one that does not."""
    for name, rule, options in LENGTHS_UNDER:
        if (names is None or name in names) and (rules is None or rule in rules):
            for policy, make in LENGTHS.items():
                if policy != "fixed":
                    # A run has HORIZON tokens, too few for a policy to learn from: one lives through all of them.
                    test = sample_tiny(families()[name], rule, options, rounds, length=partial(_same, make()))
                    yield replace(test, name=f"{test.name} · {policy}")


def _same(length: Length) -> Length:
    return length


def sample_tiny(
    family: Family,
    rule: str,
    options: Mapping[str, Any],
    rounds: int,
    gamma: int = GAMMA,
    length: Callable[[], Length] = Fixed,
) -> LawTest:
    """Decode the same prompt again and again by one drafter and rule, and compare the texts with the target's law.

    Each run gets its own seed, and a new drafter: what a drafter learns from one run must not be needed by the next.
    `length` makes the policy of a run.
    """
    checked = tiny_options(family, rule, options)
    counts: Counter[tuple[int, ...]] = Counter()
    done = seed = 0
    with one_thread():
        while done < rounds:
            tokens, ran = decode_tiny(family, rule, checked, seed, gamma=gamma, length=length())
            counts[tokens] += 1
            done += ran
            seed += 1
    changed = ", ".join(f"{name}={value}" for name, value in checked.items() if value != family.options({})[name])
    name = f"tiny · {rule} · {family.name}" + (f" ({changed})" if changed else "")
    return compare_counts(name, done, counts, target_law())


def tiny_options(family: Family, rule: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A drafter's options in this world, checked; a rule gets a tree to judge if it can, and none if it cannot."""
    checked = dict(family.options(options))
    if "width" in checked and RULES[rule].trees and rule != "match":
        checked["width"] = 2
    if checked.get("tree") and rule not in CHOSEN_TREE:
        checked["tree"] = 0
    return checked


def decode_tiny(
    family: Family,
    rule: str,
    checked: Mapping[str, Any],
    seed: int,
    *,
    gamma: int = GAMMA,
    length: Length | None = None,
    warp: Warp = WARP,
) -> tuple[tuple[int, ...], int]:
    """One run of the real loop on the tiny target: the HORIZON tokens it wrote, and its rounds."""
    # A drafter that reads or writes the target's own cache needs a real one.
    cached = "kv" in family.anatomy.reads or checked.get("kv") == "shared"
    target: Any = (CachedModel if cached else KnownByHeart)(tiny_target())
    words: Any = Pieces(OWN)
    policy = length or Fixed()
    setup = Setup(target, words, _read, len(PROMPT), frozenset(), warp, rule, policy, open_second, open_head=open_head)
    drafter = family.build(setup, checked)
    tokens: tuple[int, ...] = ()
    rounds = 0
    settings = Settings(gamma, HORIZON, warp, rule, seed, length=setup.length)
    for part in decode(target, drafter, PROMPT, settings, lambda: False):
        if isinstance(part, Round):
            tokens, rounds = tokens + part.committed, rounds + 1
    return tokens, rounds


def can_draft(family: Family) -> bool:
    """Whether a drafter runs in this world: without weights, or with the ones its options name."""
    return not family.needs_weights or family.name in OPTIONS


def _read(text: str) -> list[int]:
    # A drafter with other pieces may spell numbers that are no token here.
    return [int(word) for word in text.split() if int(word) < VOCABULARY]


def every_pair() -> list[tuple[str, str]]:
    """(drafter, lossless rule) of every pair that the tests must cover."""
    return [
        (family.name, rule)
        for family, rule in itertools.chain.from_iterable(
            ((family, rule) for rule in family.rules) for family in families().values() if can_draft(family)
        )
        if RULES[rule].lossless
    ]
