"""A vLLM server's counters at `/metrics`, read as differences: they count since the server started, and all requests.

A window between two looks says what happened in it. Names, labels and formulas as of vLLM 0.32.0
(`vllm/v1/spec_decode/metrics.py`); the counters of data-parallel engines are added up.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from spec_viz.engine.trace import MAX_GAMMA
from spec_viz.lab.metrics import Ratio
from spec_viz.serving.gate import Place
from spec_viz.serving.problems import ServerError
from spec_viz.serving.wire import METRICS, Stop, Wire, never

# Ray's exporter puts its own name in front and has no colons.
_PREFIX = re.compile(r"^(ray_)?vllm[:_]")
_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"
_DRAFTS, _DRAFTED, _ACCEPTED = (
    f"spec_decode_num_{what}_total" for what in ("drafts", "draft_tokens", "accepted_tokens")
)
# Every vLLM counts these, with speculation or without.
_GENERATED, _PROMPTED, _ANSWERS = "generation_tokens_total", "prompt_tokens_total", "time_to_first_token_seconds_count"
_ALWAYS = (_GENERATED, _PROMPTED, _ANSWERS)
_NAMES = (_DRAFTS, _DRAFTED, _ACCEPTED, *_ALWAYS)
# The lines of those, with their labels or without; and how long and how many they can be with a thousand engines.
_WANTED = re.compile(rf"(ray_)?vllm[:_]({'|'.join((_POSITION, *_NAMES))})[ \t{{]")
_LONGEST, _MOST = 2_000, 20_000


@dataclass(frozen=True, slots=True)
class Counts:
    """What speculation did: steps that carried a draft, tokens drafted, tokens kept, and kept by draft position.

    A step without any draft is in none of them, so nothing here says how often the drafter was silent.
    """

    drafts: int
    drafted: int
    accepted: int
    by_position: tuple[int, ...]

    @property
    def adds_up(self) -> bool:
        """Whether this can be: no draft kept that was not made, and the positions' sum is the kept ones'."""
        falls = (self.drafts, *self.by_position)
        return (
            self.accepted <= self.drafted
            and sum(self.by_position) == self.accepted
            and falls == (*sorted(falls, reverse=True),)
        )

    @property
    def rate(self) -> Ratio:
        """vLLM's draft acceptance rate: accepted ÷ drafted."""
        return Ratio(self.accepted, self.drafted)

    @property
    def length(self) -> Ratio:
        """vLLM's mean acceptance length: tokens that a step with a draft brings, the target's own included."""
        return Ratio(self.drafts + self.accepted, self.drafts)

    @property
    def draft_length(self) -> Ratio:
        """Tokens drafted ÷ steps with a draft."""
        return Ratio(self.drafted, self.drafts)

    @property
    def positions(self) -> tuple[Ratio, ...]:
        """Kept at each position ÷ steps with a draft, as vLLM prints it: it never rises with the position.

        Drafts that were too short to have the position count as not kept there.
        """
        return tuple(Ratio(kept, self.drafts) for kept in self.by_position)

    @property
    def conditional(self) -> tuple[Ratio, ...]:
        """Kept at each position ÷ kept at the one before."""
        return tuple(
            Ratio(kept, before)
            for before, kept in zip((self.drafts, *self.by_position), self.by_position, strict=False)
        )

    def __add__(self, other: Counts) -> Counts:
        return self._joined(other, 1)

    def __sub__(self, other: Counts) -> Counts:
        return self._joined(other, -1)

    def _joined(self, other: Counts, sign: int) -> Counts:
        deep = max(len(self.by_position), len(other.by_position))
        mine, theirs = (each.by_position + (0,) * (deep - len(each.by_position)) for each in (self, other))
        return Counts(
            self.drafts + sign * other.drafts,
            self.drafted + sign * other.drafted,
            self.accepted + sign * other.accepted,
            tuple(a + sign * b for a, b in zip(mine, theirs, strict=True)),
        )


NOTHING = Counts(0, 0, 0, ())


@dataclass(frozen=True, slots=True)
class Scrape:
    """The counters at a time; `seconds` are those of a clock of which only differences mean anything.

    `speculation` is None where the server has no such counters: it does not speculate, or `--disable-log-stats`
    keeps it from counting. `answers` are those whose first token is out.
    """

    seconds: float
    generated: int
    prompted: int
    answers: int
    speculation: Counts | None


@dataclass(frozen=True, slots=True)
class Window:
    """What the counters rose by between two looks, and the seconds between them."""

    seconds: float
    generated: int
    prompted: int
    answers: int
    speculation: Counts | None

    @property
    def throughput(self) -> Ratio:
        """Tokens generated a second, of all requests together."""
        return Ratio(self.generated, self.seconds)

    @property
    def tau(self) -> Ratio | None:
        """Tokens ÷ steps after the prefills, silent steps included: of T tokens, all but the kept drafts cost a step.

        Kept drafts behind the end of an answer are counted by vLLM and not sent, which makes this a little too high.
        None where the server does not say what speculation did.
        """
        if self.speculation is None:
            return None
        emitted = self.generated - self.answers
        return Ratio(emitted, max(emitted - self.speculation.accepted, 0))


def scrape(server: str | Place, stop: Stop = never) -> Scrape:
    """Look at a server's counters now; ServerError where it does not answer, or what answers is no vLLM."""
    wire = Wire(Place.of(server))
    text = wire.read("/metrics", METRICS, stop=stop)
    try:
        return parse(text.decode("utf-8"), time.monotonic())
    except ValueError as problem:
        said = f"{wire.address}/metrics: {problem}"
        raise ServerError("error.server_metrics", said, address=wire.address) from problem


def parse(text: str, seconds: float) -> Scrape:
    """The counters in an answer of `/metrics`; ValueError where they are not vLLM's."""
    sums: Counter[str] = Counter()
    places: Counter[int] = Counter()
    # Only the lines that are wanted: a page is thousands of them, and the parser takes its time over each.
    lines = [line for line in text.split("\n") if _WANTED.match(line)]
    if any(len(line) > _LONGEST for line in lines) or len(lines) > _MOST:
        raise ValueError("its counters are longer than any that vLLM has")
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            name = _PREFIX.sub("", sample.name)
            if name == _POSITION:
                place = int(sample.labels.get("position", ""))
                if not 0 <= place < MAX_GAMMA:
                    raise ValueError(f"vLLM's counter {name} names the position {place}")
                places[place] += _whole(sample.value)
            elif name in _NAMES:
                # An entry with the value 0 is an answer too.
                sums[name] += _whole(sample.value)
    missing = [name for name in _ALWAYS if name not in sums]
    if missing:
        raise ValueError(f"vLLM's counter {missing[0]} is missing")
    speculation = None
    if _DRAFTS in sums:
        by_position = tuple(places[place] for place in range(max(places, default=-1) + 1))
        speculation = Counts(sums[_DRAFTS], sums[_DRAFTED], sums[_ACCEPTED], by_position)
    return Scrape(seconds, sums[_GENERATED], sums[_PROMPTED], sums[_ANSWERS], speculation)


def _whole(value: float) -> int:
    # Beyond 2^53 a float counts in steps of two.
    if not 0 <= value <= 2**53:
        raise ValueError(f"{value} is no count")
    return int(value)


def between(before: Scrape, after: Scrape) -> Window:
    """What happened between two looks; ServerError where a counter fell, as it does when a server starts anew."""
    speculation = after.speculation
    if speculation is not None:
        speculation -= before.speculation or NOTHING
    window = Window(
        after.seconds - before.seconds,
        after.generated - before.generated,
        after.prompted - before.prompted,
        after.answers - before.answers,
        speculation,
    )
    rises = [window.seconds, window.generated, window.prompted, window.answers]
    if speculation is not None:
        rises += [speculation.drafts, speculation.drafted, speculation.accepted, *speculation.by_position]
    if min(rises) < 0 or (speculation is None and before.speculation is not None):
        raise ServerError("error.server_restarted", "the counters fell between two looks")
    return window
