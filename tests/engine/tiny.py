"""A tiny random Llama, and what transformers itself makes of it: the oracle of the engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.drafters.early_exit import first_layers
from spec_viz.drafters.model import ModelDrafter
from spec_viz.drafters.none import NoDrafter, Stateless
from spec_viz.drafters.prompt_lookup import PromptLookup
from spec_viz.engine.decode import Settings, decode
from spec_viz.engine.draws import Draws
from spec_viz.engine.length import Fixed
from spec_viz.engine.proposal import Drafter, Drawn, Proposal
from spec_viz.engine.target import CachedModel
from spec_viz.engine.trace import Finish, Round
from spec_viz.engine.warp import Warp

VOCABULARY = 40
LAYERS = 3
POSITIONS = 128
EMBEDDING = 10.0
GREEDY = Warp()
LOOKUPS = [
    (near_end, which, where)
    for near_end in ("shorter", "refuse")
    for which in ("first", "recent")
    for where in ("all", "prompt")
]


@cache
def model(layers: int = LAYERS, positions: int = POSITIONS) -> Any:
    """A random Llama in float64; fewer layers give the same weights cut short, as a model of its own."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        # Wide weights spread the logits, so that no greedy choice is a near tie.
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(20)
    whole: Any = LlamaForCausalLM(config)
    whole.to(torch.float64).eval()
    # A loud embedding makes the last token count most: the text then comes round again, and short cuts often agree.
    whole.model.embed_tokens.weight.data *= EMBEDDING
    if layers == LAYERS:
        return whole
    config.num_hidden_layers = layers
    cut: Any = LlamaForCausalLM(config)
    cut.to(torch.float64).eval()
    cut.load_state_dict({name: whole.state_dict()[name] for name in cut.state_dict()})
    return cut


def prompts(number: int, length: int = 20) -> list[list[int]]:
    """Random prompts, each saying its first half twice so that a lookup finds something."""
    generator = torch.Generator().manual_seed(number)
    halves: list[list[int]] = torch.randint(1, VOCABULARY, (number, length // 2), generator=generator).tolist()
    return [half + half for half in halves]


@torch.inference_mode()
def direct(tokens: Sequence[int], layers: int = LAYERS) -> Tensor:
    """Logits (n, V), float32, of one plain pass without a cache."""
    logits: Tensor = model(layers)(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]
    return logits.float()


def generate(prompt: Sequence[int], new: int, **options: Any) -> list[int]:
    """What transformers' own greedy generate writes after the prompt."""
    return list(_generate(tuple(prompt), new, tuple(options.items())))


@cache
def _generate(prompt: tuple[int, ...], new: int, options: tuple[tuple[str, Any], ...]) -> tuple[int, ...]:
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    greedy = {"do_sample": False, "max_new_tokens": new, "pad_token_id": 0, **dict(options)}
    out = model().generate(ids, attention_mask=mask, **greedy)
    return tuple(out[0, len(prompt) :].tolist())


@dataclass(frozen=True)
class Result:
    """A run that has ended."""

    prompt: list[int]
    rounds: list[Round]
    finish: Finish

    @property
    def output(self) -> list[int]:
        return [token for round_ in self.rounds for token in round_.committed]

    @property
    def decoding(self) -> list[Round]:
        return self.rounds[1:]

    def starts(self) -> Iterator[tuple[list[int], Round]]:
        """Every round after the prefill with the ids that were committed when it began."""
        committed = [*self.prompt, *self.rounds[0].committed]
        for round_ in self.decoding:
            yield list(committed), round_
            committed += round_.committed


def never() -> bool:
    return False


def stop_at(asked: int) -> Callable[[], bool]:
    """A stop flag that is up when it is asked for the given time, counted from 0."""
    times = count()
    return lambda: next(times) >= asked


def collect(prompt: Sequence[int], parts: Iterator[Round | Finish]) -> Result:
    got = list(parts)
    assert all(isinstance(part, Round) for part in got[:-1])
    finish = got[-1]
    assert not isinstance(finish, Round)
    return Result(list(prompt), [part for part in got if isinstance(part, Round)], finish)


def run(prompt: Sequence[int], drafter: Drafter | None = None, **settings: Any) -> Result:
    """Decode with the tiny target; `settings` are those of the engine, gamma 4 and 24 tokens unless given."""
    chosen = Settings(**{"gamma": 4, "max_new_tokens": 24, **settings})
    return collect(prompt, decode(CachedModel(model()), drafter or NoDrafter(), prompt, chosen, never))


def lookup(
    prompt: Sequence[int], near_end: str = "shorter", which: str = "first", where: str = "all", longest: int = 3
) -> PromptLookup:
    return PromptLookup(len(prompt), longest, 1, near_end, which, where)


def early_exit(layers: int, warp: Warp = GREEDY, drawn: Drawn = "sampled", width: int = 1) -> ModelDrafter:
    shallow = CachedModel(first_layers(model(), layers))
    return ModelDrafter(shallow, warp, drawn, width, Fixed(), frozenset())


class Copyist(Stateless):
    """Drafts the tokens of `text`, which says what follows a prompt of the given length."""

    def __init__(self, prompt_length: int, text: Sequence[int]) -> None:
        self._start = prompt_length
        self._text = list(text)

    def propose(self, context: Sequence[int], gamma: int, draws: Draws) -> Proposal:
        written = len(context) - self._start
        return Proposal(tuple(self._text[written : written + gamma]))


def spoiled(text: Sequence[int], every: int) -> list[int]:
    """The text with every so manyth token wrong."""
    return [(token + 1) % VOCABULARY if place % every == 0 else token for place, token in enumerate(text, 1)]
