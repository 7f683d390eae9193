"""The trace: one immutable record per round, and its NDJSON form.

Everything outside the engine (tiles, charts, lessons, export, tests, the command line) reads only this.
A file is a header line, one line a round and a closing line; a *bundle* is several traces one after another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config

SCHEMA = "specviz.trace/1"
MAX_BYTES = 4_000_000
# No line of a trace that says anything is shorter than forty bytes.
MAX_LINES = MAX_BYTES // 40
MAX_GAMMA = 1000

Origin = Literal["live", "recorded", "server"]
Status = Literal["accepted", "rejected", "discarded"]
Kind = Literal["plain", "correction", "bonus"]
Finish = Literal["eos", "length", "context", "stopped", "error"]
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
# The bounds are those of what reads a trace: a script holds whole numbers up to 2^53, and sums of times stay finite.
Milliseconds = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
Token = Annotated[int, Field(ge=0, le=2**53 - 1)]
Entries = Annotated[int, Field(ge=0, le=2**53 - 1)]
Top = tuple[tuple[Token, Probability], ...]


def _writable(value: dict[str, Any]) -> dict[str, Any]:
    # NaN and numbers too large for a float can be read by Python's and pydantic's parsers but are no JSON.
    json.dumps(value, allow_nan=False)
    return value


Anything = Annotated[dict[str, Any], AfterValidator(_writable)]
TokenTable = dict[int, tuple[str, str | None]]

_STRICT = ConfigDict(strict=True)


class TraceError(ValueError):
    """A trace that cannot be read: `field` names the place, `problem` says what is wrong there."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Node:
    """One drafted token and its fate.

    `parent` is the index of the parent node in the round, -1 for the last committed token; `depth` counts from 1.
    `p`, `q` are the warped probabilities of this token, `p_raw`, `q_raw` those at temperature 1; `accept` is the
    probability with which the rule keeps it, `beta` = Σ min(p, q), `u` the uniform draw that decided. `id` is None
    where a server told how many drafts it refused, but not which.
    """

    id: Token | None
    parent: int
    depth: int
    status: Status
    p: Probability | None = None
    q: Probability | None = None
    p_raw: Probability | None = None
    q_raw: Probability | None = None
    u: Probability | None = None
    accept: Probability | None = None
    beta: Probability | None = None
    p_top: Top | None = None
    q_top: Top | None = None
    residual_top: Top | None = None
    why: Anything | None = None


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Emitted:
    """The target's own token at the end of a round."""

    id: Token
    kind: Kind
    p: Probability | None = None
    p_raw: Probability | None = None
    u: Probability | None = None
    p_top: Top | None = None


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Kv:
    """Entries in the caches: before the round, at its peak, after the roll back."""

    target: tuple[Entries, Entries, Entries] | None = None
    drafter: tuple[Entries, Entries, Entries] | None = None


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Ms:
    """Milliseconds a round spent drafting, in the target's pass, judging, and rolling back."""

    propose: Milliseconds | None = None
    verify: Milliseconds | None = None
    judge: Milliseconds | None = None
    rollback: Milliseconds | None = None

    @property
    def total(self) -> float:
        return sum(part or 0.0 for part in (self.propose, self.verify, self.judge, self.rollback))


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Round:
    """Propose, verify, accept, roll back, emit: one target pass."""

    round: Annotated[int, Field(ge=0)]
    nodes: tuple[Node, ...] = ()
    emitted: Emitted | None = None
    kv: Kv = Kv()
    ms: Ms = Ms()
    prefill: bool = False
    tokens: TokenTable = field(default_factory=dict)

    @property
    def path(self) -> tuple[Node, ...]:
        """The accepted nodes, in the order they are committed."""
        return tuple(node for node in self.nodes if node.status == "accepted")

    @property
    def committed(self) -> tuple[int, ...]:
        """Ids this round adds to the text: the accepted path, then the emitted token."""
        tail = () if self.emitted is None else (self.emitted.id,)
        return tuple(node.id for node in self.path if node.id is not None) + tail


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole run: what was asked (`meta`), the prompt's ids, every round, and why it ended."""

    run: str
    origin: Origin
    meta: dict[str, Any]
    prompt: tuple[Token, ...]
    tokens: TokenTable
    rounds: tuple[Round, ...] = ()
    finish: Finish | None = None

    @property
    def output(self) -> tuple[int, ...]:
        """The generated ids."""
        return tuple(token for round_ in self.rounds for token in round_.committed)

    @property
    def decoding(self) -> tuple[Round, ...]:
        """The rounds that rates count: all but the prefill."""
        return tuple(round_ for round_ in self.rounds if not round_.prefill)

    def text_table(self) -> TokenTable:
        """Every token this trace mentions, with its text (and bytes when they are not whole UTF-8)."""
        table = dict(self.tokens)
        for round_ in self.rounds:
            table.update(round_.tokens)
        return table

    def same_as(self, other: Trace) -> bool:
        """Equal but for what may differ between two runs of the same request: times, date, commit, device, versions."""
        return _comparable(self) == _comparable(other)


_UNSTABLE = ("created", "commit", "device", "device_name", "threads", "versions")


def _comparable(trace: Trace) -> Trace:
    meta = {key: value for key, value in trace.meta.items() if key not in _UNSTABLE}
    rounds = tuple(replace(round_, ms=Ms()) for round_ in trace.rounds)
    return replace(trace, run="", origin="recorded", meta=meta, rounds=rounds)


_ROUND = TypeAdapter(Round)


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class _Header:
    schema: str
    run: str
    origin: Origin
    meta: Anything
    prompt: tuple[Token, ...]
    tokens: TokenTable


_HEADER = TypeAdapter(_Header)
_FINISH: TypeAdapter[Finish] = TypeAdapter(Finish)


# ---------------------------------------------------------------- writing


def header_line(trace: Trace) -> str:
    """The first line of a trace."""
    return _line(
        {
            "schema": SCHEMA,
            "run": trace.run,
            "origin": trace.origin,
            "meta": trace.meta,
            "prompt": trace.prompt,
            "tokens": trace.tokens,
        }
    )


def round_line(round_: Round) -> str:
    """One round as a line; times have three digits."""
    body = asdict(round_)
    if not round_.prefill:
        del body["prefill"]
    if not round_.tokens:
        del body["tokens"]
    body["ms"] = {key: value if value is None else round(value, 3) for key, value in body["ms"].items()}
    return _line(body)


def finish_line(finish: Finish) -> str:
    """The last line of a trace."""
    return _line({"finish": finish})


def dumps(*traces: Trace) -> str:
    """A trace, or a bundle of several, as NDJSON."""
    return "".join(_lines(trace) for trace in traces)


def _lines(trace: Trace) -> str:
    lines = [header_line(trace), *(round_line(round_) for round_ in trace.rounds)]
    if trace.finish is not None:
        lines.append(finish_line(trace.finish))
    return "".join(lines)


def _line(body: dict[str, Any]) -> str:
    line = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
    # A prompt may hold a lone surrogate, which no UTF-8 file and no reader takes.
    return line.encode("utf-8", "replace").decode()


# ---------------------------------------------------------------- reading


def loads(text: str, most: int | None = None) -> tuple[Trace, ...]:
    """Read a trace or a bundle, of at most so many; raise `TraceError` naming the field when anything is wrong."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES or text.count("\n") > MAX_LINES:
        raise TraceError("file", f"larger than {MAX_BYTES // 1_000_000} MB, or of more than {MAX_LINES:,} lines")
    traces = tuple(islice(_read(_parsed(text)), most and most + 1))
    if most and len(traces) > most:
        raise TraceError("line 1, run", f"the file holds more than {most} runs")
    if not traces:
        raise TraceError("line 1", "the file is empty")
    return traces


def _parsed(text: str) -> Iterator[tuple[int, dict[str, Any], str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"line {number}", f"not JSON ({error})") from None
        if not isinstance(body, dict):
            raise TraceError(f"line {number}", "not a JSON object")
        yield number, body, line


def _read(lines: Iterable[tuple[int, dict[str, Any], str]]) -> Iterator[Trace]:
    trace: Trace | None = None
    rounds: list[Round] = []
    for number, body, line in lines:
        where = f"line {number}"
        if "schema" in body:
            if trace is not None:
                yield replace(trace, rounds=tuple(rounds))
            trace, rounds = _read_header(body, line, where), []
        elif trace is None:
            raise TraceError(where, "the header line with `schema` is missing")
        elif "finish" in body:
            finish = _validated(_FINISH, json.dumps(body["finish"]), f"{where}, finish")
            yield replace(trace, rounds=tuple(rounds), finish=finish)
            trace = None
        elif "round" in body:
            round_ = _validated(_ROUND, line, where)
            _check_round(round_, len(rounds), where)
            rounds.append(round_)
    if trace is not None:
        yield replace(trace, rounds=tuple(rounds))


def _read_header(body: dict[str, Any], line: str, where: str) -> Trace:
    schema = body["schema"]
    if schema != SCHEMA:
        raise TraceError(f"{where}, schema", f"expected {SCHEMA}, found {str(schema)[:40]!r}")
    header: _Header = _validated(_HEADER, line, where)
    gamma = header.meta.get("gamma")
    if isinstance(gamma, int) and gamma > MAX_GAMMA:
        # Charts count up to it.
        raise TraceError(f"{where}, meta.gamma", f"{gamma} is more than {MAX_GAMMA}")
    return Trace(header.run, header.origin, header.meta, header.prompt, header.tokens)


def _validated(adapter: TypeAdapter[Any], line: str, where: str) -> Any:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TraceError(f"{where}, {place}" if place else where, first["msg"]) from None


def _check_round(round_: Round, number: int, where: str) -> None:
    if round_.round != number:
        raise TraceError(f"{where}, round", f"expected {number}, found {round_.round}")
    depths = {-1: 0}
    accepted = {-1}
    taken: set[int] = set()
    for index, node in enumerate(round_.nodes):
        place = f"{where}, nodes.{index}"
        if node.parent not in depths:
            raise TraceError(f"{place}.parent", f"{node.parent} is not an earlier node")
        if node.depth != depths[node.parent] + 1:
            raise TraceError(f"{place}.depth", f"{node.depth} under a parent of depth {depths[node.parent]}")
        if node.depth > MAX_GAMMA:
            # As above.
            raise TraceError(f"{place}.depth", f"{node.depth} is more than {MAX_GAMMA}")
        if node.status == "accepted":
            if node.id is None:
                raise TraceError(f"{place}.id", "an accepted draft is part of the text, so it has an id")
            if node.parent not in accepted or node.depth in taken:
                raise TraceError(f"{place}.status", "the accepted nodes are not one path")
            accepted.add(index)
            taken.add(node.depth)
        depths[index] = node.depth
