"""Small traces written by hand, and random valid ones, for tests of everything that reads traces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from spec_viz.engine.trace import Emitted, Kind, Kv, Ms, Node, Round, Status, Trace

META: dict[str, Any] = {
    "target": "toy",
    "drafter": "prompt_lookup",
    "rule": "match",
    "gamma": 4,
    "device": "cpu",
    "kv_bytes_per_token": {"target": 1000, "drafter": 100},
    "weight_bytes": {"target": 5_000_000, "drafter": 400_000},
}
STATUS: dict[str, Status] = {"a": "accepted", "r": "rejected", "d": "discarded"}


def chain(
    number: int, fates: str, ms: tuple[float, float, float, float] | None = None, before: int = 10, ended: bool = False
) -> Round:
    """A decoding round from a word such as "aard": two accepted, one rejected, one discarded."""
    nodes = tuple(
        Node(id=100 + place, parent=place - 1, depth=place + 1, status=STATUS[fate]) for place, fate in enumerate(fates)
    )
    kept = fates.count("a")
    kind: Kind = "plain" if not fates else "correction" if "r" in fates else "bonus"
    return Round(
        round=number,
        nodes=nodes,
        emitted=None if ended else Emitted(7, kind),
        kv=Kv((before, before + 1 + len(fates), before + 1 + kept), None),
        ms=Ms(*ms) if ms else Ms(),
    )


def prefill(ms: float = 50.0) -> Round:
    return Round(round=0, emitted=Emitted(7, "plain"), kv=Kv((0, 10, 10), None), ms=Ms(0, ms, 0, 0), prefill=True)


def trace(*rounds: Round, **meta: Any) -> Trace:
    return Trace("run", "live", {**META, **meta}, (1, 2, 3), {7: ("x", None)}, (prefill(), *rounds), "length")


def run(*fates: str, ms: tuple[float, float, float, float] | None = None, **meta: Any) -> Trace:
    """A trace whose decoding rounds are these words, all of the same times, with cache lengths that follow."""
    rounds, before = [], 10
    for number, word in enumerate(fates, 1):
        rounds.append(chain(number, word, ms, before))
        before += 1 + word.count("a")
    return trace(*rounds, **meta)


def plain(tokens: int, ms: tuple[float, float, float, float] | None = None, **meta: Any) -> Trace:
    return run(*[""] * tokens, ms=ms, drafter="none", **meta)


@st.composite
def fates(draw: st.DrawFn, gamma: int = 4, full: bool = False) -> str:
    """A legal chain: some accepted, then perhaps one rejected and the rest discarded."""
    drafted = gamma if full else draw(st.integers(0, gamma))
    kept = draw(st.integers(0, drafted))
    return "a" * kept + ("r" + "d" * (drafted - kept - 1) if kept < drafted else "")


def chains(full: bool = False) -> st.SearchStrategy[Trace]:
    times = st.tuples(*[st.floats(0.1, 50.0)] * 4)
    words = st.lists(fates(full=full), min_size=1, max_size=12)
    return st.builds(lambda words_, ms: run(*words_, ms=ms), words, times)
