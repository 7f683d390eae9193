"""Claims: what a text says of a run, as an expression that is evaluated on the run's trace.

The expression is Jinja in a sandbox over: `rounds` (after the prefill), `summary` (lab.metrics of the run), `baseline`
(summary of the run without a drafter, or none), `text` (what was generated), `meta`, `finish`, and `same_text`
(the run wrote what its baseline wrote).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec_viz.content.sandbox import ClaimError, Sandbox
from spec_viz.engine.trace import Trace
from spec_viz.lab.metrics import summarise

_SANDBOX = Sandbox()


def names(traces: Sequence[Trace]) -> dict[str, Any]:
    """What an expression over this bundle may speak of."""
    run = traces[0]
    base = next((trace for trace in traces[1:] if trace.meta.get("drafter") == "none"), None)
    return {
        "rounds": run.decoding,
        "summary": summarise(run, base),
        "baseline": None if base is None else summarise(base),
        "text": text_of(run),
        "meta": run.meta,
        "finish": run.finish,
        "same_text": base is not None and base.output == run.output,
        "token": {key: entry[0] for key, entry in run.text_table().items()},
    }


def text_of(trace: Trace) -> str:
    """The generated text, letters joined across tokens."""
    table = trace.text_table()
    pieces = (table[token] for token in trace.output)
    return b"".join(bytes.fromhex(code) if code else text.encode() for text, code in pieces).decode(errors="replace")


def evaluate(expression: str, traces: Sequence[Trace]) -> Any:
    """The value of an expression over a bundle; ClaimError when it cannot be computed."""
    try:
        spoken = names(traces)
    except (KeyError, ValueError) as error:
        raise ClaimError(f"the trace holds a token without its text: {error}") from None
    return _SANDBOX.evaluate(expression, spoken)


def holds(claim: str, traces: Sequence[Trace]) -> bool:
    """Whether the bundle satisfies the claim."""
    return evaluate(claim, traces) is True
