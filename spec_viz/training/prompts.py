"""Every prompt that the target answers for our heads: six tasks, made up from templates and word lists of our own.

The list is the same for the same seed, on every machine. Which prompts are held out hangs on their text alone, so no
seed, no order and no later task ever moves one of them into a training set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from spec_viz.training.pen import Pen
from spec_viz.training.tasks import chat, code, explain, lists, passages

WRITERS: dict[str, Callable[[Pen], str]] = {
    "chat": chat.write,
    "explanation": explain.write,
    "list": lists.write,
    "code": code.write,
    "summary": passages.summarise,
    "question": passages.ask,
}
TASKS = tuple(WRITERS)
PER_TASK = 3_500
# One prompt in twenty is never trained on.
HELD_OUT = 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a person could have typed, and whether it is kept away from training."""

    task: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether no head may learn from the answer: decided by the text's hash."""
        return int.from_bytes(sha256(self.text.encode()).digest()[:8], "big") % HELD_OUT == 0


def make_prompts(seed: int = 0, per_task: int = PER_TASK) -> list[Prompt]:
    """Distinct prompts, as many of each task, all tasks mixed so that any part of the list holds all of them."""
    prompts: list[Prompt] = []
    for task, write in WRITERS.items():
        pen = Pen("prompts", seed, task)
        texts: dict[str, None] = {}
        while len(texts) < per_task:
            texts[write(pen)] = None
        prompts += [Prompt(task, text) for text in texts]
    return Pen("order", seed).some(prompts, len(prompts))


def held_out_prompts(tasks: Sequence[str], limit: int, seed: int = 0) -> list[tuple[str, str]]:
    """(task, text) of the first `limit` held-out prompts of each task, in the order of the tasks."""
    found: dict[str, list[str]] = {task: [] for task in tasks}
    for prompt in make_prompts(seed):
        if prompt.held_out and prompt.task in found and len(found[prompt.task]) < limit:
            found[prompt.task].append(prompt.text)
    return [(task, text) for task, texts in found.items() for text in texts]
