"""The family of drafters that learn from the target, as one table: what each is, measured here, and published.

Three places are joined and none is typed again: how a drafter works is its own declaration (its anatomy), what it
reached here stands in the papers of its head (`train measure`), and what was published lies in lessons/family.yaml,
each number with its source and its conditions.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from spec_viz.content.files import LESSONS, parse_yaml, read_text
from spec_viz.drafters.registry import families
from spec_viz.models import heads
from spec_viz.models.readiness import read_provenance

Json = dict[str, Any]
Measure = Literal["speedup", "speedup_mtp", "tau"]
FILE = LESSONS / "family.yaml"
# What of a run's conditions the table tells: when two heads differ in one of these, their numbers do not compare.
CONDITIONS = ("device_name", "threads", "dtype", "gamma", "temperature", "max_new_tokens", "batch", "created")


@dataclass(frozen=True, slots=True)
class Claim:
    """A published number: from `low` to `high`, or `high` alone, which `most` calls the best case."""

    measure: Measure
    high: Annotated[float, Field(gt=0)]
    source: str
    when: dict[Literal["vi", "en"], str]
    low: Annotated[float, Field(gt=0)] | None = None
    most: bool = False


Claim.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
_CLAIMS = TypeAdapter(dict[str, tuple[Claim, ...]])


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed ÷ plain decoding: the median over prompts, the smallest and the largest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Member:
    """One method. What was measured is None where it was not: a head that is not trained has nothing but claims.

    `layers` numbers the hidden states that are read, None where they are of no one layer. `slots` are accepted ÷ judged
    at each place of a chain; `prompts` and `conditions` belong to all measured numbers.
    """

    method: str
    reads: tuple[str, ...]
    order: str
    claims: tuple[Claim, ...]
    trained: bool = False
    layers: tuple[int, ...] | None = None
    parameters: int | None = None
    c: float | None = None
    slots: tuple[float, ...] = ()
    alpha: float | None = None
    tau: float | None = None
    speedup: Speed | None = None
    prompts: int | None = None
    conditions: Json | None = None


def published() -> Mapping[str, tuple[Claim, ...]]:
    """What was published of each method, in the table's order."""
    return _published(FILE, FILE.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _published(path: Path, changed: int) -> Mapping[str, tuple[Claim, ...]]:  # noqa: ARG001 - `changed` is part of the key
    found: dict[str, tuple[Claim, ...]] = _CLAIMS.validate_python(parse_yaml(read_text(path)))
    return found


def members() -> tuple[Member, ...]:
    """The table as it stands now: heads that are trained and measured later appear when it is asked for again."""
    return tuple(_member(method, claims) for method, claims in published().items())


def _member(method: str, claims: tuple[Claim, ...]) -> Member:
    family = families()[method]
    anatomy = family.anatomy
    bare = Member(method, anatomy.reads, anatomy.order, claims)
    if family.head not in heads.heads():
        return bare
    papers = read_provenance(family.head)
    live: Mapping[str, Any] = papers.get("live") or {}
    speed = live.get("speedup")
    told = live.get("conditions") or {}
    versions = told.get("versions") or {}
    return Member(
        method,
        anatomy.reads,
        anatomy.order,
        claims,
        trained=True,
        layers=_layers(family.head, anatomy.layers),
        parameters=papers.get("parameters"),
        c=live.get("c"),
        slots=tuple(live.get("by_position", ())),
        alpha=live.get("alpha"),
        tau=live.get("tau"),
        speedup=Speed(**speed) if speed else None,
        prompts=live.get("prompts"),
        conditions={**{name: told.get(name) for name in CONDITIONS}, **versions} if told else None,
    )


def _layers(head: str, name: str | None) -> tuple[int, ...] | None:
    if name is None:
        return None
    config: Json = json.loads((heads.HEADS / head / heads.CONFIG).read_text(encoding="utf-8"))
    return tuple(config[name])


def files() -> list[Path]:
    """What the table is made of, for those who keep a text of it until one of these changes."""
    return [FILE, *heads.HEADS.glob("*/*.json")]


# ---------------------------------------------------------------- for others


def table(sources: Mapping[str, Any], methods: Sequence[str] = ()) -> Json:
    """{"members": [...], "sources": those that the claims cite}, of these methods or of all, as JSON-able data."""
    found = [member for member in members() if not methods or member.method in methods]
    cited = dict.fromkeys(claim.source for member in found for claim in member.claims)
    return {"members": [asdict(member) for member in found], "sources": {name: sources[name] for name in cited}}


def names() -> Json:
    """What a lesson's expressions may speak of: `family.eagle3.alpha`, and `family.eagle3.claims[0].high`."""
    return {member.method: asdict(member) for member in members()}


def conditions_lines() -> list[str]:
    """Where the numbers were measured: a line a run, with the methods it measured."""
    runs: dict[str, list[str]] = {}
    for member in members():
        told = member.conditions
        line = "not measured" if told is None else ", ".join(f"{name} {value}" for name, value in told.items())
        runs.setdefault(line, []).append(member.method)
    return [f"{', '.join(methods)}: {line}" for line, methods in runs.items()]


def rows() -> list[Json]:
    """A flat row a method, for a terminal and for CSV."""
    return [_row(member) for member in members()]


def _row(member: Member) -> Json:
    speed, told = member.speedup, member.conditions or {}
    return {
        "method": member.method,
        "reads": " + ".join(member.reads) + (f" {list(member.layers)}" if member.layers else ""),
        "drafts": member.order,
        "parameters": member.parameters,
        "c": member.c,
        "slots": " ".join(f"{rate:.2f}" for rate in member.slots) or None,
        "alpha": member.alpha,
        "tau": member.tau,
        "speedup": None if speed is None else speed.median,
        "speedup_low": None if speed is None else speed.low,
        "speedup_high": None if speed is None else speed.high,
        "prompts": member.prompts,
        "published": "; ".join(_said(claim) for claim in member.claims) or None,
        **{name: told.get(name) for name in CONDITIONS},
    }


def _said(claim: Claim) -> str:
    unit = {"speedup": "x", "speedup_mtp": "x MTP", "tau": " tokens a round"}[claim.measure]
    numbers = f"{claim.low:g}-{claim.high:g}" if claim.low else f"{'up to ' if claim.most else ''}{claim.high:g}"
    return f"{numbers}{unit} ({claim.when['en']}; {claim.source})"


def to_csv() -> str:
    """The rows as CSV."""
    out = io.StringIO()
    found = rows()
    writer = csv.DictWriter(out, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()
