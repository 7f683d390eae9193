"""Cases without end: how many of them, what they are made of, and what must hold of each answer.

`SPECVIZ_FUZZ` is the number of cases a surface gets (`make fuzz`: 10,000, another lot each time); without it a few, and
always the same ones.
"""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

import orjson
from fastapi.encoders import jsonable_encoder
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

WANTED = int(os.environ.get("SPECVIZ_FUZZ", "0"))
RAN: Counter[str] = Counter()
# A case takes milliseconds: what takes this long has no bound at all.
HANGS = 60


def cases(quick: int = 40, each: int = 1) -> Callable[[Any], Any]:
    """So many examples, or as many as are wanted; `each` is how many cases one of them stands for."""
    return settings(
        max_examples=-(-WANTED // each) or quick,
        derandomize=not WANTED,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=bool(WANTED),
    )


@contextmanager
def case(surface: str) -> Iterator[None]:
    """One case, counted; it must end."""
    RAN[surface] += 1
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _hangs(*_: object) -> None:
    raise AssertionError(f"a case was not done after {HANGS} s")


def sendable(answer: Any) -> None:
    """The answer goes over the wire as Gradio sends it, and every number arrives as one."""
    body = orjson.dumps(jsonable_encoder(answer), option=orjson.OPT_SERIALIZE_NUMPY)
    orjson.loads(body)
    json.dumps(answer, allow_nan=False)


# ---------------------------------------------------------------- what cases are made of

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    12,
    1000,
    2**31,
    2**53 - 1,
    2**53,
    2**63,
    2**64,
    10**30,
    10**400,
    -(10**30),
    0.0,
    -0.0,
    0.5,
    1.0,
    1.5,
    -2.5,
    1e-320,
    1e300,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    "",
    " ",
    "0",
    "1",
    "none",
    "null",
    "vi",
    "en",
    "dark",
    "x" * 5000,
    "\ud800",
    "\x00",
    "\u2028",
    "\ue000",
    "${alert(1)}",
    "{{7*7}}",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{x}",
    "%s",
    "../..",
    "__proto__",
    "constructor",
    "__class__",
    "live",
    "recorded",
    "server",
    "accepted",
    "rejected",
    "discarded",
    "plain",
    [],
    [[]],
    [None],
    {},
    {"": ""},
    {"__proto__": {}},
    {"key": "value"},
    [0] * 300,
    [[[[[[[[[]]]]]]]]],
)

leaves = st.one_of(
    # A copy, because what is drawn may be changed further.
    st.sampled_from(HOSTILE).map(deepcopy),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.integers(-3, 40),
    st.floats(0, 2),
)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)


@st.composite
def mutated(draw: st.DrawFn, examples: Sequence[Any], most: int = 4) -> Any:
    """A valid example with up to `most` changes: parts set, left out, doubled, moved, renamed or wrapped."""
    body = deepcopy(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(0, most))):
        body = _changed(draw, body, examples)
    return body


def _changed(draw: st.DrawFn, body: Any, examples: Sequence[Any]) -> Any:
    root = [body]
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 4)):
        holder = holder[key]
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
    do = draw(st.sampled_from(_CHANGES))
    do(draw, holder, key, examples)
    return root[0] if root else None


def _set(draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    holder[key] = draw(leaves)


def _replace(draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    holder[key] = draw(anything)


def _leave_out(_draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    del holder[key]


def _double(draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    if isinstance(holder, list):
        holder.insert(draw(st.integers(0, len(holder))), deepcopy(holder[key]))
    else:
        holder[draw(st.text(max_size=6) | st.sampled_from(list(holder)))] = deepcopy(holder[key])


def _rename(draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    if isinstance(holder, dict):
        holder[draw(st.sampled_from(["", "__proto__", "x", *map(str, holder)]))] = holder.pop(key)


def _wrap(_draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    holder[key] = [holder[key]]


def _nudge(draw: st.DrawFn, holder: Any, key: Any, _: Any) -> None:
    value = holder[key]
    if isinstance(value, str):
        at = draw(st.integers(0, len(value)))
        holder[key] = (
            value[:at] + draw(st.sampled_from(["", "\x00", "\ud800", "é", "<", "{", "0", " "])) + value[at + 1 :]
        )
    elif isinstance(value, int | float):
        do = draw(st.sampled_from(_NUDGES))
        # A whole number may be too great to be divided.
        with suppress(OverflowError, ValueError):
            holder[key] = do(value)


_NUDGES: tuple[Callable[[Any], Any], ...] = (
    lambda value: -value,
    lambda value: value + 1,
    lambda value: value - 1,
    lambda value: value * 1000,
    lambda value: value / 3,
    lambda value: value * 1e-300,
    str,
)


def _graft(draw: st.DrawFn, holder: Any, key: Any, examples: Sequence[Any]) -> None:
    """A part of an example, this one or another, in this place."""
    part: Any = deepcopy(draw(st.sampled_from(examples)))
    while isinstance(part, dict | list) and part and draw(st.integers(0, 3)):
        part = draw(st.sampled_from(list(part.values()) if isinstance(part, dict) else part))
    holder[key] = part


_CHANGES = (_set, _set, _replace, _leave_out, _double, _rename, _wrap, _nudge, _nudge, _graft)

SNIPPETS = (
    "\n",
    "\r\n",
    "\x00",
    "\ud800",
    "\u2028",
    '"',
    "'",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "-",
    "9" * 400,
    "9" * 5000,
    "1e999",
    "NaN",
    "null",
    "[" * 300,
    "{{",
    "}}",
    "{%",
    "%}",
    "${",
    "\\",
    "</script>",
    "&a",
    "*a",
    "<<: *a",
    "---\n",
    "### ask\n",
    "## x | y\n",
    "```\n",
    "\t",
    "|",
    "!!python/object:os.system",
    "!!binary",
    "2001-99-99",
    "? [a]\n: b",
    "\ue000",
    "\ue000abc\ue001",
    "(" * 120,
    "# ",
    "> " * 40,
    "- " * 40,
    "![x](y)",
    "[x](term:y)",
    "<b>",
)


@st.composite
def vandalised(draw: st.DrawFn, text: str, most: int = 4) -> str:
    """A text with up to `most` pieces cut out, written over, doubled or put in."""
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(text)))
        to = min(at + draw(st.sampled_from([0, 0, 1, 2, 5, 40, 400])), len(text))
        put = draw(st.sampled_from(SNIPPETS) | st.text(max_size=8) | st.just(text[at:to] * 2))
        text = text[:at] + put + text[to:]
    return text
