"""One run, from what a person asked to a trace: the only door to the engine for page, command line and tests."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import torch

from spec_viz.drafters.registry import Family, Opened, OptionError, Setup, families
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.graphs import room_for
from spec_viz.engine.length import LENGTHS
from spec_viz.engine.proposal import Drafter
from spec_viz.engine.rules import RULES, Rule
from spec_viz.engine.target import CachedModel
from spec_viz.engine.text import Vocabulary, clean
from spec_viz.engine.trace import Finish, Round, Trace
from spec_viz.engine.warp import Warp
from spec_viz.models.catalogue import BUILT_LIKE_LLAMA, CATALOGUE, DEFAULT, Entry
from spec_viz.models.load import Loaded, load_any
from spec_viz.models.published import open_head
from spec_viz.models.weights import WeightsError, fetch

MAX_GAMMA = 12
MAX_NEW_TOKENS = 4096
MAX_TEMPERATURE = 2.0


class RequestError(ValueError):
    """A request that cannot be run: `key` names the sentence for the visitor, `args` fill it."""

    def __init__(self, key: str, **args: Any) -> None:
        super().__init__(f"{key} {args}" if args else key)
        self.key = key
        self.fields = args


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks for. `rule` None means the drafter's default, `strength` None that of a lossy rule."""

    prompt: str
    drafter: str = "prompt_lookup"
    options: Mapping[str, Any] = field(default_factory=dict)
    rule: str | None = None
    strength: float | None = None
    length: str = "fixed"
    gamma: int = 4
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    max_new_tokens: int = 64
    chat: bool = True

    def baseline(self) -> Request:
        """The same request without a drafter."""
        return replace(self, drafter="none", options={}, rule=None, strength=None, length="fixed")


_RANGES: dict[str, tuple[type, float, float]] = {
    "gamma": (int, 1, MAX_GAMMA),
    "temperature": (float, 0.0, MAX_TEMPERATURE),
    "top_k": (int, 0, 1_000_000),
    "top_p": (float, 0.01, 1.0),
    "repetition_penalty": (float, 0.5, 2.0),
    "seed": (int, 0, 2**53 - 1),
    "max_new_tokens": (int, 1, MAX_NEW_TOKENS),
}


def check(request: Request, target: Entry = CATALOGUE[DEFAULT]) -> tuple[Request, Family]:
    """The request with every value checked and the options completed, and its drafter; RequestError otherwise.

    A draft model that is not named is the target's partner.
    """
    if not isinstance(request.prompt, str) or not request.prompt.strip():
        raise RequestError("error.empty_prompt")
    numbers: dict[str, Any] = {}
    for name, (kind, low, high) in _RANGES.items():
        value = getattr(request, name)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        if not fits or (kind is int and value != int(value)):
            raise RequestError("error.bad_number", name=name, low=low, high=high)
        numbers[name] = kind(value)
    family = families().get(request.drafter) if isinstance(request.drafter, str) else None
    if family is None:
        raise RequestError("error.unknown_drafter", name=str(request.drafter)[:40])
    if family.name in BUILT_LIKE_LLAMA and family.name not in target.drafters:
        raise RequestError("error.drafter_target", drafter=family.name, target=target.title)
    try:
        options = family.options(request.options)
    except ValueError as error:
        raise _unfit(error) from None
    if options.get("model") == "" and target.partner:
        options["model"] = target.partner
    rule = request.rule or family.default_rule(options)
    if rule not in family.rules:
        raise RequestError(
            "error.rule_does_not_fit", rule=str(rule)[:40], drafter=family.name, known=", ".join(family.rules)
        )
    strength = _strength(RULES[rule], request.strength)
    if not isinstance(request.length, str) or request.length not in LENGTHS:
        raise RequestError("error.unknown_length", name=str(request.length)[:40], known=", ".join(LENGTHS))
    checked = replace(request, rule=rule, strength=strength, options=options, chat=bool(request.chat), **numbers)
    return checked, family


def _strength(rule: Rule, given: Any) -> float | None:
    """The number of a lossy rule, its default when none is given; a lossless rule has none."""
    if rule.strength is None or given is None:
        return rule.strength and rule.strength[0]
    _, low, high = rule.strength
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise RequestError("error.bad_number", name="strength", low=low, high=high)
    return float(given)


def _unfit(error: ValueError) -> RequestError:
    key, fields = (error.key, error.fields) if isinstance(error, OptionError) else ("error.option_unfit", {})
    return RequestError("error.bad_option", problem={"key": key, "args": fields})


@dataclass(frozen=True, slots=True)
class Run:
    """A run about to happen: the header of its trace, and its rounds as they come, each with the texts it needs."""

    header: Trace
    parts: Iterator[Round | Finish]

    def collect(self) -> Trace:
        """Let it run to its end and return the whole trace."""
        rounds: list[Round] = []
        finish: Finish | None = None
        for part in self.parts:
            if isinstance(part, Round):
                rounds.append(part)
            else:
                finish = part
        return replace(self.header, rounds=tuple(rounds), finish=finish)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked request and what the engine's loops take of it, with the header of its trace."""

    target: CachedModel
    drafter: Drafter
    prompt: list[int]
    settings: Settings
    header: Trace


def start(
    loaded: Loaded,
    request: Request,
    stop: Callable[[], bool] = lambda: False,
    memory: dict[str, Any] | None = None,
) -> Run:
    """Prepare a run of this request on a loaded target; nothing is computed before the first round is asked for.

    `memory` is what drafters keep between the runs of one visitor on one target; without it a run begins with none.
    """
    made = prepare(loaded, request, memory)
    parts = decode(made.target, made.drafter, made.prompt, made.settings, stop)
    return Run(made.header, _labelled(parts, vocabulary_of(loaded.tokenizer), set(made.prompt)))


def prepare(loaded: Loaded, request: Request, memory: dict[str, Any] | None = None) -> Prepared:
    """Check a request and build what it needs: the target's cache, the drafter, the prompt's ids; see `start`."""
    request, family = check(request, loaded.entry)
    vocabulary = vocabulary_of(loaded.tokenizer)
    prompt = encode_prompt(loaded, request)
    warp = Warp(request.temperature, request.top_k, request.top_p, request.repetition_penalty)
    target = CachedModel(loaded.model, loaded.cache)
    if len(prompt) >= target.context_limit:
        raise RequestError("error.prompt_too_long", tokens=len(prompt), limit=target.context_limit - 1)
    ends = end_tokens(loaded)
    # The loop asks the policy before a round, the drafter after each token: both must ask the same one.
    length = LENGTHS[request.length]()
    setup = Setup(
        target,
        vocabulary,
        encoder(loaded),
        len(prompt),
        ends,
        warp,
        request.rule or "",
        length,
        partial(_open, loaded),
        memory={} if memory is None else memory,
        open_head=partial(open_head, loaded=loaded),
    )
    try:
        drafter = family.build(setup, request.options)
    except WeightsError as error:
        raise RequestError(error.key, **error.fields) from None
    except ValueError as error:
        raise _unfit(error) from None
    settings = Settings(
        request.gamma, request.max_new_tokens, warp, request.rule or "", request.seed, ends, request.strength, length
    )
    header = Trace(
        run=uuid.uuid4().hex[:12],
        origin="live",
        meta=_meta(loaded, request, drafter) | _room(target, len(prompt) + request.max_new_tokens),
        prompt=tuple(prompt),
        tokens=vocabulary.table(prompt),
    )
    return Prepared(target, drafter, prompt, settings, header)


def _room(target: CachedModel, longest: int) -> dict[str, Any]:
    """How many entries a fixed cache will have room for, known before the run; elsewhere a cache grows as it needs."""
    entries = room_for(min(longest, target.context_limit))
    return {"kv_room": {"target": entries}} if target.capture else {}


def _labelled(parts: Iterator[Round | Finish], vocabulary: Vocabulary, seen: set[int]) -> Iterator[Round | Finish]:
    for part in parts:
        if isinstance(part, Round):
            labelled = vocabulary.label(part, seen)
            seen |= labelled.tokens.keys()
            yield labelled
        else:
            yield part


def encode_prompt(loaded: Loaded, request: Request) -> list[int]:
    """The prompt's ids: through the model's chat template, or as it stands."""
    text = clean(request.prompt, vocabulary_of(loaded.tokenizer).special)
    if not text.strip():
        raise RequestError("error.empty_prompt")
    if request.chat and loaded.tokenizer.chat_template:
        messages = [{"role": "user", "content": text}]
        # Qwen3's template would have it think first; those that know of no thinking leave the setting unread.
        text = loaded.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, enable_thinking=False
        )
        return list(loaded.tokenizer.encode(text, add_special_tokens=False))
    return list(loaded.tokenizer.encode(text))


def encoder(loaded: Loaded) -> Callable[[str], list[int]]:
    """Typed text to ids, with nothing added and no special token let through."""
    special = vocabulary_of(loaded.tokenizer).special
    return lambda text: list(loaded.tokenizer.encode(clean(text, special), add_special_tokens=False))


def end_tokens(loaded: Loaded) -> frozenset[int]:
    """The ids that end a text, as transformers' own generate knows them."""
    ends = loaded.model.generation_config.eos_token_id
    if ends is None:
        ends = loaded.tokenizer.eos_token_id
    if ends is None:
        return frozenset()
    return frozenset([ends] if isinstance(ends, int) else ends)


@lru_cache(maxsize=8)
def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer, built once."""
    return Vocabulary(tokenizer)


def _open(target: Loaded, name: str) -> Opened:
    """A second model for a run, on the target's device; the target itself where its own name is given."""
    loaded = target if name == target.entry.name else _second(name, str(target.device))
    return Opened(loaded.model, vocabulary_of(loaded.tokenizer), encoder(loaded), loaded.weight_bytes)


# One at a time: visitors may name any model that is here, and memory must not fill with all of them.
@lru_cache(maxsize=1)
def _second(name: str, device: str) -> Loaded:
    if name in CATALOGUE and CATALOGUE[name].source.kind == "head":
        # Written out of what is here already, in a second; nothing is downloaded.
        fetch(name)
    return load_any(name, device)


def _meta(loaded: Loaded, request: Request, drafter: Drafter) -> dict[str, Any]:
    # Only a drafter that is a model, or has one, adds to the target's memory.
    kv_drafter = getattr(drafter, "kv_bytes_per_token", 0)
    weights_drafter = getattr(drafter, "weight_bytes", 0)
    return {
        "target": loaded.entry.name,
        "drafter": request.drafter,
        "drafter_options": dict(request.options),
        "rule": request.rule,
        "strength": request.strength,
        "length": request.length,
        "gamma": request.gamma,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "repetition_penalty": request.repetition_penalty,
        "seed": request.seed,
        "max_new_tokens": request.max_new_tokens,
        "chat": request.chat,
        "prompt_text": request.prompt,
        "kv_bytes_per_token": {"target": kv_bytes_per_token(loaded.model), "drafter": kv_drafter},
        "weight_bytes": {"target": loaded.weight_bytes, "drafter": weights_drafter},
        "batch": None,
        **conditions(loaded),
    }


def conditions(loaded: Loaded) -> dict[str, Any]:
    """Where and with what a number was measured: device, dtype, threads, versions, commit, date."""
    return {
        "device": loaded.device.type,
        "device_name": loaded.device_name,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "versions": {"python": python_version(), **{name: version(name) for name in ("torch", "transformers")}},
        "commit": _commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@cache
def _commit() -> str | None:
    """The checkout's commit; None where the program runs outside a git checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
