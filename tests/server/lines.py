"""vLLM's own log line about speculation, and what counts must round to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spec_viz.serving.counters import Counts

# The list of rates holds commas too: it ends where the next name begins.
_LINE = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: (?P<length>[\d.]+), .*"
    r"Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens, "
    r"Per-position acceptance rate: (?P<places>[\d., ]+), Avg Draft acceptance rate: (?P<rate>[\d.]+)%"
)


@dataclass(frozen=True, slots=True)
class Line:
    """What a line says: counts, and rates with as many digits as it prints."""

    accepted: int
    drafted: int
    length: float
    rate: float
    places: tuple[float, ...]


def read_line(text: str) -> Line:
    found = _LINE.search(text)
    assert found is not None, f"no line about speculation: {text}"
    places = tuple(float(place) for place in found["places"].split(", "))
    return Line(int(found["accepted"]), int(found["drafted"]), float(found["length"]), float(found["rate"]), places)


def check(counts: Counts, log: Sequence[str]) -> None:
    """The counts are what the lines say: sums over all lines, and the rates where one line says everything."""
    lines = [read_line(text) for text in log]
    assert lines, "the server logged nothing of speculation"
    assert sum(line.accepted for line in lines) == counts.accepted
    assert sum(line.drafted for line in lines) == counts.drafted
    if len(lines) == 1:
        (line,) = lines
        rates = (counts.length.value, counts.rate.value, *(ratio.value for ratio in counts.positions))
        length, rate, *places = (value for value in rates if value is not None)
        # Half of the last digit, and a little for its own rounding.
        assert abs(length - line.length) < 0.00501
        assert abs(100 * rate - line.rate) < 0.0501
        assert len(places) == len(line.places)
        assert all(abs(ours - theirs) < 0.000501 for ours, theirs in zip(places, line.places, strict=True))
    else:
        # Rates of parts enclose those of the whole.
        assert min(line.length for line in lines) - 0.01 <= (counts.length.value or 0)
        assert max(line.length for line in lines) + 0.01 >= (counts.length.value or 0)
