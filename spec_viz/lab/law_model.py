"""The losslessness tests on the real model.

A hundred thousand draws need not cost a hundred thousand passes: with top-k 8 a law is eight numbers, so the rows of
every prefix are computed once and remembered, and the real loop, rules and drafters run on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.early_exit import first_layers
from spec_viz.drafters.model import ModelDrafter
from spec_viz.drafters.none import NoDrafter
from spec_viz.drafters.prompt_lookup import PromptLookup
from spec_viz.drafters.registry import Family, families
from spec_viz.drafters.scripted import Scripted
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import Drafter
from spec_viz.engine.rules import RULES, Rule
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Round
from spec_viz.engine.warp import Warp
from spec_viz.lab.law import LawTest, TableModel, compare_counts, one_thread
from spec_viz.lab.run import Request, encode_prompt, encoder, start
from spec_viz.models.load import Loaded
from spec_viz.models.readiness import standing

TOP_K = 8
HORIZON = 4
GAMMA = 2
# Nodes of a drafted tree: on a CPU a pass over many more costs as much as several.
TREE = 12
# Sequences rarer than this are one cell with their neighbours: their prefixes need no pass of their own.
RARE = 1e-3
COLUMNS = 2048
# The drafters whose rows can be remembered with the prompt's; every drafter is tested on the tiny target.
ON_THE_MODEL = ("none", "prompt_lookup", "early_exit", "scripted")
PROMPT = "The old lighthouse keeper opened the door. The old lighthouse keeper looked"
IDENTITY_PROMPTS = (
    "List three colours, then repeat the list.",
    "Repeat this sentence twice: The quick brown fox jumps over the lazy dog.",
    "Why is the sky blue?",
)


class LocalIds:
    """A small numbering of the tokens that matter here, so that a law is a short row."""

    def __init__(self) -> None:
        self._local: dict[int, int] = {}
        self.real: list[int] = []

    def of(self, token: int) -> int:
        """The local number of a real id, given at first sight."""
        if token not in self._local:
            self._local[token] = len(self.real)
            self.real.append(token)
        return self._local[token]


class Remembered:
    """Logits (COLUMNS,) after a prompt and a few tokens: the top eight, everything else cut off, one pass a prefix."""

    def __init__(self, model: CachedModel, prompt: Sequence[int], ids: LocalIds) -> None:
        self._model = model
        self._ids = ids
        self._rows: dict[tuple[int, ...], Tensor] = {}
        self._prompt = len(prompt)
        self._last = prompt[-1]
        model.feed(prompt[:-1], keep=1)

    def __call__(self, fed: Sequence[int], end: int) -> Tensor:
        key = tuple(fed[self._prompt : end])
        if key not in self._rows:
            tail = [self._last, *(self._ids.real[token] for token in key)]
            logits = self._model.feed(tail, keep=1)[0]
            self._model.roll_back(self._prompt - 1)
            values, tokens = logits.topk(TOP_K)
            row = torch.full((COLUMNS,), -torch.inf)
            row[[self._ids.of(token) for token in tokens.tolist()]] = values
            self._rows[key] = row
        return self._rows[key]


def model_tests(
    loaded: Loaded, rounds: int, drafters: Sequence[str] | None = None, rules: Sequence[str] | None = None
) -> Iterator[LawTest]:
    """Chi-square with remembered prefixes, greedy identity and keyed identity, for every drafter and fitting rule."""
    ready = [family.name for family in families().values() if standing(family, loaded.entry.name).ready]
    chosen = [name for name in ready if drafters is None or name in drafters]
    yield from _sampled(loaded, rounds, chosen, rules)
    for name in chosen:
        family = families()[name]
        for options in _forms(family):
            yield _greedy_identity(loaded, name, options)
            # Best guesses are one-hot drafts too.
            if family.drafts == "one_hot" or family.head:
                yield _keyed_identity(loaded, name, options)


def _forms(family: Family) -> list[dict[str, Any]]:
    """Options under which a drafter is compared: its own, a tree where it can grow one, a script where it needs one."""
    if family.name == "scripted":
        return [{"script": " the answer is | and then"}]
    return [{}, {"tree": TREE}] if any(knob.name == "tree" for knob in family.knobs) else [{}]


def _sampled(loaded: Loaded, rounds: int, names: Sequence[str], rules: Sequence[str] | None) -> Iterator[LawTest]:
    request = Request(PROMPT, chat=False)
    prompt, ids, warp = encode_prompt(loaded, request), LocalIds(), Warp(temperature=1.0)
    local = [ids.of(token) for token in prompt]
    target = Remembered(CachedModel(loaded.model), prompt, ids)
    layers = int(families()["early_exit"].options({})["layers"])
    shallow = Remembered(CachedModel(first_layers(loaded.model, layers)), prompt, ids)
    script = [[ids.of(token) for token in encoder(loaded)(" up at the sky")]]
    law = dict(_law(target, local, warp, (), 1.0))

    def build(name: str, rule: Rule) -> Drafter:
        if name == "early_exit":
            width = 2 if rule.trees else 1
            return ModelDrafter(TableModel(shallow), warp, rule.drawn[0], width, Fixed(), frozenset())
        if name == "prompt_lookup":
            return PromptLookup(len(local), 3, 1, "shorter", "first", "all")
        if name == "scripted":
            return Scripted(script)
        return NoDrafter()

    for name in names:
        if name not in ON_THE_MODEL:
            continue
        for rule in families()[name].rules:
            if not RULES[rule].lossless or (rules is not None and rule not in rules):
                continue
            counts: Counter[tuple[int, ...]] = Counter()
            done = seed = 0
            with one_thread():
                while done < rounds:
                    settings = Settings(GAMMA, HORIZON, warp, rule, seed)
                    tokens: tuple[int, ...] = ()
                    for part in decode(TableModel(target), build(name, RULES[rule]), local, settings, lambda: False):  # type: ignore[arg-type]
                        if isinstance(part, Round):
                            tokens, done = tokens + part.committed, done + 1
                    counts[_cell(tokens, law)] += 1
                    seed += 1
            yield compare_counts(f"SmolLM2 · {rule} · {name}", done, counts, law)


def _law(
    rows: Remembered, prompt: Sequence[int], warp: Warp, prefix: tuple[int, ...], mass: float
) -> Iterator[tuple[tuple[int, ...], float]]:
    """The target's joint law of the next HORIZON tokens; a rare prefix stands for all that begins with it."""
    if len(prefix) == HORIZON or mass < RARE:
        yield prefix, mass
        return
    law = warp.law(rows([*prompt, *prefix], len(prompt) + len(prefix))[None], prompt)[0]
    for token in law.nonzero().flatten().tolist():
        yield from _law(rows, prompt, warp, (*prefix, token), mass * float(law[token]))


def _cell(tokens: tuple[int, ...], law: dict[tuple[int, ...], float]) -> tuple[int, ...]:
    """The cell a sequence falls in: its longest prefix that the law lists."""
    for length in range(len(tokens), 0, -1):
        if tokens[:length] in law:
            return tokens[:length]
    return tokens


def _greedy_identity(loaded: Loaded, name: str, options: dict[str, Any]) -> LawTest:
    """Our greedy ids against transformers' own generate; any difference counts."""
    rounds = wrong = 0
    for prompt in IDENTITY_PROMPTS:
        request = Request(prompt, name, options, rule="match" if "tree" in options else None, max_new_tokens=32)
        trace = start(loaded, request).collect()
        rounds += len(trace.rounds)
        ids = torch.tensor([trace.prompt], device=loaded.device)
        out = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)
        wrong += trace.output != tuple(out[0, ids.shape[1] :].tolist())
    form = f"{name} (tree)" if "tree" in options else name
    return LawTest(f"greedy = transformers.generate · {form}", rounds, float(wrong), None, wrong == 0)


def _keyed_identity(loaded: Loaded, name: str, options: dict[str, Any]) -> LawTest:
    """With keyed draws a one-hot drafter writes the baseline's own text at temperature 0.8."""
    rounds = wrong = 0
    for seed, prompt in enumerate(IDENTITY_PROMPTS):
        request = Request(prompt, name, options, rule="match", temperature=0.8, seed=seed, max_new_tokens=32)
        trace = start(loaded, request).collect()
        rounds += len(trace.rounds)
        wrong += trace.output != start(loaded, request.baseline()).collect().output
    form = f"{name} (tree)" if "tree" in options else name
    return LawTest(f"T = 0.8 text = baseline's · {form}", rounds, float(wrong), None, wrong == 0)
