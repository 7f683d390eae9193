"""What the Serve rooms set side by side: servers under a load, named in the reader's language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_viz.lab.metrics import Ratio
from spec_viz.serving import METHODS
from spec_viz.serving.saved import Pass, Saved
from spec_viz.ui.wording import Words

if TYPE_CHECKING:
    from spec_viz.serving.compare import Side


@dataclass(frozen=True, slots=True)
class Shown:
    """A server under one load.

    `place` is its number among those that speculate, −1 where it does not; `pace` are milliseconds ÷ tokens after the
    first of all answers together; `same` counts the answers that are, token for token, those of the plain server, and
    is None where there is none to hold them against.
    """

    name: str
    side: Side
    place: int
    pace: Ratio
    same: int | None

    @property
    def is_plain(self) -> bool:
        """Whether it decodes plainly."""
        return self.place < 0

    @property
    def round_ms(self) -> float | None:
        """Milliseconds a round: what a token takes, times the tokens of a round."""
        tau = self.side.tau.value if self.side.tau else None
        return None if tau is None or self.pace.value is None else self.pace.value * tau


def shown(runs: Sequence[Saved], t: Words) -> list[Shown]:
    """Every server under every load that it was asked under, in the order of the runs."""
    from spec_viz.serving.compare import sides

    drafting = [run.method for run in runs if run.speculative is not None]
    found = []
    for run in runs:
        place = drafting.index(run.method) if run.method in drafting else -1
        for side in sides([run]):
            mine = run.at(side.concurrency)
            found.append(Shown(name_of(run, t), side, place, _pace(mine), _same(run, mine, runs)))
    return found


def name_of(run: Saved, t: Words) -> str:
    """A server of ours by how it drafts, any other as its visitor called it."""
    return t(f"lesson.runs.name.{run.method}") if run.method in METHODS else run.method


def levels(runs: Sequence[Saved]) -> list[int]:
    """How many questions were asked side by side, of any of the servers."""
    return sorted({each.concurrency for run in runs for each in run.passes})


def _pace(mine: Pass) -> Ratio:
    after = [asked.answer.after_first for asked in mine.whole]
    return Ratio(1000 * sum(seconds for _, seconds in after), sum(count for count, _ in after))


def _same(run: Saved, mine: Pass, runs: Sequence[Saved]) -> int | None:
    plain = next((each for each in runs if each.speculative is None and each is not run), None)
    beside = next((each for each in plain.passes if each.concurrency == mine.concurrency), None) if plain else None
    if beside is None:
        return None
    theirs = {asked.prompt: asked.answer.ids for asked in beside.whole}
    return sum(asked.answer.ids is not None and asked.answer.ids == theirs.get(asked.prompt) for asked in mine.whole)
