"""Results of every kind, as their files hold them: one door for the page, behind it the module of each kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from spec_viz.lab import concurrency, context, quantisation, sweep
from spec_viz.lab.sweep import ResultError, Told, kind_of, read_as

# Kinds that measure the machine. Each has a module of its name with Plan, size, begin, run, Result and to_csv.
MACHINE = {"concurrency": concurrency, "context": context, "quantisation": quantisation}

_READERS: dict[str, Callable[[Any], Told]] = {
    "sweep": sweep.read,
    "concurrency": concurrency.read,
    "context": context.read,
    "quantisation": partial(read_as, TypeAdapter(quantisation.Result), "quantisation"),
}


def module_of(kind: str) -> Any:
    """The module that declares, runs and reads experiments of a kind; those over γ, temperature, … share one."""
    return MACHINE.get(kind, sweep)


def read(body: Any) -> Told:
    """A record as its file holds it; ResultError names the field that is wrong."""
    kind = kind_of(body)
    if kind not in _READERS:
        raise ResultError("kind", f"expected {' or '.join(_READERS)}, found {kind[:40]}")
    return _READERS[kind](body)
