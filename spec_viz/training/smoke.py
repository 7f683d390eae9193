"""A world small enough to train in seconds: a random Llama of 64 tokens, and a corpus that it writes itself.

It shows that a recipe runs from data to a head that is written and read again, not that the head is good.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spec_viz.models.catalogue import Entry, Source
from spec_viz.models.load import Loaded
from spec_viz.training.generate import Job, Plan, answer
from spec_viz.training.prompts import HELD_OUT, TASKS
from spec_viz.training.shards import Sample, write_manifest, write_shard

NAME = "toy"
TOKENS = 64
PROMPT = 6
ROWS = 160
PLAN = Plan(batch=32, max_new_tokens=40, rows_per_shard=ROWS)


def toy_target() -> Loaded:
    """The small Llama, as if the catalogue had it; its weights are large enough that what follows hangs on the text."""
    config = LlamaConfig(
        vocab_size=TOKENS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=256,
        initializer_range=0.15,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = LlamaForCausalLM(config).eval().requires_grad_(False)  # type: ignore[no-untyped-call]
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    entry = Entry(NAME, "Toy", size // 4, "Apache-2.0", Source("hub", NAME, size), NAME, ())
    cpu = torch.device("cpu")
    return Loaded(model, None, entry, cpu, "CPU", torch.float32, size, False)


def toy_corpus(loaded: Loaded, folder: Path, shards: int = 2) -> None:
    """Shards of the toy target's answers to random prompts, every twentieth held out; half of them greedy."""
    pick = random.Random(5)
    write_manifest(folder, {"target": NAME, "dtype": "float32", "seed": 5})
    for number in range(shards):
        jobs = [
            Job(row, tuple(pick.randrange(1, TOKENS) for _ in range(PROMPT)), row % 2 == 0, number * ROWS + row)
            for row in range(ROWS)
        ]
        rows = answer(loaded.model, jobs, frozenset({0}), PLAN)
        assert rows is not None
        samples = [_sample(place, row.job.ids, row.answer, row.job.greedy) for place, row in enumerate(rows)]
        write_shard(folder, number, samples, {})


def _sample(place: int, prompt: tuple[int, ...], answer_: list[int], greedy: bool) -> Sample:
    ids = np.array([*prompt, *answer_], np.uint16)
    return Sample(ids, PROMPT, greedy, place % HELD_OUT < 2, TASKS[place % len(TASKS)], "length", place)
