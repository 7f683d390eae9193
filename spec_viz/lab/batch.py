"""Several runs side by side, from what people asked to a trace each: the batch's counterpart of run.py."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from spec_viz.drafters.early_exit import SharedDrafter
from spec_viz.engine.batch import Asked, Pass, decode_batch
from spec_viz.engine.schedule import Schedule
from spec_viz.engine.target import CachedModel
from spec_viz.engine.text import Vocabulary
from spec_viz.engine.trace import Finish, Round, Trace
from spec_viz.lab.run import Prepared, Request, prepare, vocabulary_of
from spec_viz.models.load import Loaded


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A batch about to decode: the header of each request's trace, and the passes as they come.

    In a trace of a batch `batch` is {id, size, row}: one id for all its traces, the places side by side, the request's
    own number. A pass is timed once: `verify` is None in the rounds of all but one of the requests that were in it.
    """

    headers: tuple[Trace, ...]
    passes: Iterator[Pass]

    def collect(self) -> tuple[Trace, ...]:
        """Let it run to its end; the traces in the order of the requests."""
        rounds: list[list[Round]] = [[] for _ in self.headers]
        finish: dict[int, Finish] = {}
        for each in self.passes:
            for number, round_ in each.rounds.items():
                rounds[number].append(round_)
            finish.update(each.finished)
        return tuple(
            replace(header, rounds=tuple(rounds[number]), finish=finish.get(number))
            for number, header in enumerate(self.headers)
        )


def start_batch(
    loaded: Loaded,
    requests: Sequence[Request],
    size: int,
    stop: Callable[[], bool] = lambda: False,
    schedule: Schedule | None = None,
) -> BatchRun:
    """Prepare a batch on a loaded target, at most `size` requests side by side; nothing is computed before it is asked.

    ValueError for a drafter that works in the target's own cache: a batch has one for all.
    """
    made = [prepare(loaded, request) for request in requests]
    if size < 1 or not made:
        raise ValueError("a batch has at least one request and one place")
    name, vocabulary = uuid.uuid4().hex[:12], vocabulary_of(loaded.tokenizer)
    headers = tuple(
        replace(each.header, meta={**each.header.meta, "batch": {"id": name, "size": size, "row": row}})
        for row, each in enumerate(made)
    )
    passes = decode_batch(CachedModel(loaded.model), [asked(each) for each in made], size, stop, schedule)
    return BatchRun(headers, _labelled(passes, vocabulary, [set(each.prompt) for each in made]))


def asked(made: Prepared) -> Asked:
    """A prepared request as a batch takes it."""
    if isinstance(made.drafter, SharedDrafter):
        raise ValueError("a drafter in the target's own cache decodes alone: set kv to own")
    return Asked(made.drafter, made.prompt, made.settings)


def _labelled(passes: Iterator[Pass], vocabulary: Vocabulary, seen: list[set[int]]) -> Iterator[Pass]:
    for each in passes:
        rounds = {number: vocabulary.label(round_, seen[number]) for number, round_ in each.rounds.items()}
        for number, round_ in rounds.items():
            seen[number] |= round_.tokens.keys()
        yield replace(each, rounds=rounds)
