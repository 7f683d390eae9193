"""Draft model: any other causal language model drafts for the target (algorithms §1.6, §4.2; Timor et al. 2502.05202).

Its ids mean the target's tokens only if both have the same vocabulary. If not, there are two ways round: `slem` passes
text to and fro (string-level exact match), `tli` lets it say only the tokens that both know (token-level intersection).
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from spec_viz.drafters.model import ModelDrafter, model_drafter
from spec_viz.drafters.registry import BY_MODEL, WIDTH, Anatomy, Family, Knob, Opened, OptionError, Setup
from spec_viz.engine.cache import kv_bytes_per_token
from spec_viz.engine.draws import Draws
from spec_viz.engine.proposal import NOTHING, Drafter, Needs, Outcome, Proposal, Seen
from spec_viz.engine.rules import RULES
from spec_viz.engine.target import CachedModel
from spec_viz.engine.text import Vocabulary

# How many committed tokens are tokenised again with a draft, so that its first token is cut where the target cuts it.
LOOK_BACK = 10


@lru_cache(maxsize=8)
def spellings(vocabulary: Vocabulary, width: int) -> tuple[bytes, ...]:
    """The bytes of every id below `width`; nothing for ids that only pad the output matrix."""
    return tuple(vocabulary.bytes_of(token) for token in range(width))


def first_difference(own: Sequence[bytes], theirs: Sequence[bytes]) -> int | None:
    """The first id that stands for other bytes in the other vocabulary; None if there is none, padding left aside."""
    for token in range(max(len(own), len(theirs))):
        if (own[token] if token < len(own) else b"") != (theirs[token] if token < len(theirs) else b""):
            return token
    return None


def in_both(own: Sequence[bytes], theirs: Sequence[bytes], special: set[bytes]) -> dict[int, int]:
    """The target's ids (`own`) whose bytes are a token of the drafter too, with the drafter's id.

    `special` are the texts that only one of the two treats as special. Of several tokens with the same bytes the last
    counts: sentence-piece vocabularies begin with single bytes, which they use only for what they cannot spell.
    """
    spelled = {raw: token for token, raw in enumerate(theirs) if raw and raw not in special}
    return {token: spelled[raw] for raw, token in {raw: i for i, raw in enumerate(own)}.items() if raw in spelled}


class Retelling:
    """The committed text in the drafter's own tokens.

    Special tokens are told one by one, by those of the same name; the text between them must survive being decoded and
    encoded.
    """

    def __init__(self, target: Vocabulary, opened: Opened) -> None:
        self._target = target
        self._opened = opened
        self._special = {name.encode() for name in target.special}
        names = self._special & {name.encode() for name in opened.vocabulary.special}
        own = spellings(opened.vocabulary, opened.model.config.vocab_size)
        self.marks = {token: raw for token, raw in enumerate(own) if raw in names}
        self._marked = {raw: token for token, raw in self.marks.items()}

    def ids(self, context: Sequence[int]) -> list[int] | None:
        """The context in the drafter's ids; None where it can't be told exactly (half a letter, an unknown special)."""
        told: list[int] = []
        plain = b""
        for token in context:
            raw = self._target.bytes_of(token)
            if raw not in self._special:
                plain += raw
                continue
            part = self._plain(plain)
            if part is None or raw not in self._marked:
                return None
            told += [*part, self._marked[raw]]
            plain = b""
        part = self._plain(plain)
        return None if part is None else told + part

    def _plain(self, raw: bytes) -> list[int] | None:
        try:
            ids = self._opened.encode(raw.decode())
        except UnicodeDecodeError:
            return None
        return ids if self.spell(ids) == raw else None

    def spell(self, ids: Sequence[int]) -> bytes:
        """The bytes of some of the drafter's ids."""
        return b"".join(self._opened.vocabulary.bytes_of(token) for token in ids)

    def tail(self, context: Sequence[int]) -> tuple[list[int], str]:
        """The last committed ids behind any special token, LOOK_BACK at most, whole letters only; their text."""
        tail: list[int] = []
        for token in reversed(context[-LOOK_BACK:]):
            if self._target.bytes_of(token) in self._special:
                break
            tail.insert(0, token)
        while tail:
            try:
                return tail, b"".join(map(self._target.bytes_of, tail)).decode()
            except UnicodeDecodeError:
                tail = tail[1:]
        return [], ""


class Reader:
    """A model that follows a text in its own ids: it reads only what its cache does not hold yet."""

    def __init__(self, model: CachedModel) -> None:
        self._model = model
        self._ids: list[int] = []

    @property
    def length(self) -> int:
        return self._model.length

    def read(self, ids: Sequence[int]) -> Tensor:
        """Logits (1, V) of what follows a text; the cache then holds it and nothing else."""
        self.keep(ids[:-1])
        return self.feed(ids[len(self._ids) :], keep=1)

    def keep(self, ids: Sequence[int]) -> None:
        """Forget whatever is not the beginning of these ids."""
        same = next((i for i, (a, b) in enumerate(zip(self._ids, ids, strict=False)) if a != b), None)
        self.roll_back(min(len(self._ids), len(ids)) if same is None else same)

    def feed(self, tokens: Sequence[int], keep: int) -> Tensor:
        self._ids += tokens
        return self._model.feed(tokens, keep)

    def roll_back(self, length: int, path: Sequence[int] = ()) -> None:
        self._ids = [*self._ids[:length], *(self._ids[length + step] for step in path)]
        self._model.roll_back(length, path)

    def close(self) -> None:
        self._ids = []
        self._model.close()


class Translated(Reader):
    """A model fed and read in the target's ids, through the tokens that both know; all others have no chance."""

    def __init__(self, model: CachedModel, shared: Mapping[int, int], width: int, retelling: Retelling | None) -> None:
        super().__init__(model)
        self._shared = shared
        self._width = width
        self._retelling = retelling
        self._theirs = torch.tensor(list(shared), device=model.device)
        self._own = torch.tensor(list(shared.values()), device=model.device)

    def follow(self, context: Sequence[int]) -> Tensor | None:
        """Logits (1, V of the target) behind the target's ids; None where the drafter cannot be told them."""
        ids = self._retelling.ids(context) if self._retelling else [self._shared[token] for token in context]
        return self.translate(self.read(ids)) if ids else None

    def feed_tree(self, tokens: Sequence[int], parents: Sequence[int], keep: int) -> tuple[Tensor, Seen]:
        own = [self._shared[token] for token in tokens]
        self._ids += own
        logits, seen = self._model.feed_tree(own, parents, keep)
        return self.translate(logits), seen

    def translate(self, logits: Tensor) -> Tensor:
        """Logits (n, V of the drafter) as logits (n, V of the target)."""
        theirs = logits.new_full((len(logits), self._width), -torch.inf)
        theirs[:, self._theirs] = logits[:, self._own]
        return theirs


class Intersection(ModelDrafter):
    """`tli`: draws from the drafter's law on the common tokens, renormalised; the target's rule judges it as any q."""

    _model: Translated

    def _begin(self, context: Sequence[int]) -> Tensor | None:
        return self._model.follow(context)

    def observe(self, outcome: Outcome) -> None:
        if self._model.length == 0:
            self._model.follow(outcome.context[:-1])
        else:
            super().observe(outcome)


class StringMatch:
    """`slem`: drafts its best guesses in its own tokens and hands over their text, cut into the target's tokens."""

    needs: Needs = NOTHING

    def __init__(self, model: CachedModel, retelling: Retelling, setup: Setup, memory: tuple[int, int]) -> None:
        self._reader = Reader(model)
        self._retelling = retelling
        self._setup = setup
        self._marks = {
            raw: token for token, raw in enumerate(target_spellings(setup)) if raw in retelling.marks.values()
        }
        self.kv_bytes_per_token, self.weight_bytes = memory

    @property
    def cache_length(self) -> int | None:
        return self._reader.length

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        ids = self._retelling.ids(context)
        if not ids:
            return Proposal()
        logits = self._reader.read(ids)
        drafted: list[int] = []
        # One more than asked for: only a token with another behind it is sure to be cut there.
        while len(drafted) <= gamma:
            best = int(logits[0].argmax())
            drafted.append(best)
            if best in self._retelling.marks or self._setup.length.stops(float(logits[0].softmax(-1)[best])):
                break
            if len(drafted) <= gamma:
                logits = self._reader.feed([best], keep=1)
        tokens, text = self._hand_over(context, drafted)
        tokens = tokens[:gamma]
        return Proposal(tuple(tokens), why=({"drafted_text": text, "drafted_tokens": len(drafted)},) * len(tokens))

    def _hand_over(self, context: Sequence[int], drafted: Sequence[int]) -> tuple[list[int], str]:
        """The drafted text in the target's tokens, without a last one that could still merge with what follows."""
        mark = self._retelling.marks.get(drafted[-1])
        raw = self._retelling.spell(drafted[:-1] if mark else drafted)
        try:
            # A draft may end within a letter; it must not begin within one.
            text = codecs.getincrementaldecoder("utf-8")().decode(raw)
        except UnicodeDecodeError:
            return [], ""
        tail, before = self._retelling.tail(context)
        tokens = self._setup.encode(before + text)
        # Where text and committed tokens would merge, the target has cut otherwise: the draft is then cut by itself.
        tokens = tokens[len(tail) :] if tokens[: len(tail)] == tail else self._setup.encode(text)
        if b"".join(map(self._setup.vocabulary.bytes_of, tokens)) != text.encode():
            return [], ""
        if mark and text.encode() == raw:
            return [*tokens, self._marks[mark]], text
        return tokens[:-1], text

    def observe(self, outcome: Outcome) -> None:
        ids = self._retelling.ids(outcome.context[:-1]) or []
        if ids and self._reader.length == 0:
            self._reader.read(ids)
        self._reader.keep(ids)

    def close(self) -> None:
        self._reader.close()


def target_spellings(setup: Setup) -> tuple[bytes, ...]:
    """The bytes of every id that the target can write."""
    return spellings(setup.vocabulary, setup.target.model.config.vocab_size)


def build(setup: Setup, options: Mapping[str, Any]) -> Drafter:
    """The named model as drafter; ValueError when its vocabulary, or the way of telling it, does not fit."""
    name = str(options["model"]).strip()
    if not name or setup.open_model is None:
        raise OptionError("error.model_unnamed", "model is empty: name the model that drafts", name="model")
    opened = setup.open_model(name)
    model = CachedModel(opened.model, capture=setup.target.capture)
    own, theirs = target_spellings(setup), spellings(opened.vocabulary, opened.model.config.vocab_size)
    memory = (kv_bytes_per_token(opened.model), opened.weight_bytes)
    if options["vocab"] == "slem":
        return _string_match(setup, opened, model, int(options["width"]), memory)
    if options["vocab"] == "tli":
        one_sided = {word.encode() for word in {*setup.vocabulary.special} ^ {*opened.vocabulary.special}}
        shared = in_both(own, theirs, one_sided)
        if not shared:
            raise OptionError("error.nothing_shared", f"{name} and the target have no token in common", model=name)
        translated = Translated(model, shared, len(own), Retelling(setup.vocabulary, opened))
        return _remember(
            model_drafter(translated, setup, int(options["width"]), Intersection, {"tokens_in_both": len(shared)}),
            memory,
        )
    different = first_difference(own, theirs)
    if different is not None:
        raise OptionError(
            "error.vocabularies_differ",
            f"id {different} is another token for {name} than for the target, so its drafts would be judged as other "
            "words: set vocab to slem (passes text) or to tli (uses the common tokens)",
            model=name,
            token=different,
        )
    if len(own) == len(theirs):
        return _remember(model_drafter(model, setup, int(options["width"]), ModelDrafter, defer=True), memory)
    # The same vocabulary, padded to another width.
    shared = {token: token for token in range(min(len(own), len(theirs)))}
    translated = Translated(model, shared, len(own), None)
    return _remember(model_drafter(translated, setup, int(options["width"]), Intersection), memory)


def _string_match(setup: Setup, opened: Opened, model: CachedModel, width: int, memory: tuple[int, int]) -> StringMatch:
    fits = [rule.name for rule in RULES.values() if "one_hot" in rule.drawn and rule.lossless]
    if "one_hot" not in RULES[setup.rule].drawn:
        problem = f"rule {setup.rule} needs drawn drafts and slem chooses them: use {', '.join(fits)}"
        raise OptionError("error.slem_rule", problem, rule=setup.rule, known=", ".join(fits))
    if width > 1:
        raise OptionError("error.option_number", "width must be 1 for slem", name="width", low=1, high=1)
    return StringMatch(model, Retelling(setup.vocabulary, opened), setup, memory)


def _remember(drafter: ModelDrafter, memory: tuple[int, int]) -> ModelDrafter:
    drafter.kv_bytes_per_token, drafter.weight_bytes = memory
    return drafter


FAMILY = Family(
    "draft_model",
    "sampled",
    BY_MODEL,
    build,
    (Knob("model", "text", ""), Knob("vocab", "choice", "same", choices=("same", "slem", "tli")), WIDTH),
    "algorithms §1.6, §4.2; arXiv 2502.05202",
    head="draft_model",
    anatomy=Anatomy(("ids",), "sequential", "gamma", "own"),
)
