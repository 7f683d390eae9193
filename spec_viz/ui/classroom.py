"""A class that takes a lesson together: where it stands, who leads it, what it guessed. Nothing personal is kept.

A class lives in a `Store`: in the memory of this process, which all of its members must then reach, or in a Redis that
several replicas share (`classroom_redis`).
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from spec_viz.engine.trace import TraceError, loads
from spec_viz.ui.bucket import Buckets
from spec_viz.ui.households import Households

# No sign that is taken for another one when it is read from a wall; no vowel, W or D, of which a Vietnamese keyboard
# (Telex, VNI) would make another letter: 26^5 codes.
ALPHABET = "23456789BCFGHJKLMNPQRSTVXZ"
CODE_LENGTH = 5
# A page in the background is let ask once a minute by its browser.
AWAY = 100.0
# How old a member's or the teacher's last sign may be before another one is noted: most looks then change nothing.
NOTED = 5.0
OPENING = 300.0
MOST_OPTIONS = 12
MOST_NUMBER = 1e9

AskKind = Literal["choice", "number"]
Steps = Mapping[str, AskKind | None]
Clock = Callable[[], float]


class ClassError(Exception):
    """What a class does not do, with the HTTP status and the words that say so: `key` and its `fields`."""

    def __init__(self, status: int, key: str, **args: Any) -> None:
        super().__init__(key)
        self.status = status
        self.key = key
        self.fields = args


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """How much of everything there may be: `left` and `idle` are seconds, `sent` bytes.

    Of one address (a household, a school) there may be `address_classes` open and `address_members` in them, and after
    `address_openings` classes one more every `OPENING` seconds.

    A class ends `left` seconds after its teacher's page was seen last, and `idle` seconds after the teacher last did
    anything: a page that is forgotten in a tab keeps no class.
    """

    classes: int = 20
    members: int = 60
    address_classes: int = 3
    address_openings: int = 12
    address_members: int = 180
    sent: int = 1_000_000
    left: float = 30 * 60.0
    idle: float = 3 * 60 * 60.0


# Where all who ask sit at one computer, nobody takes a place from anybody.
ALONE = ClassLimits(address_classes=20, address_openings=100_000, address_members=20 * 60)


@dataclass(frozen=True, slots=True)
class Sent:
    """A run that the teacher has sent: a bundle of traces as text."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Classroom:
    """One class as it stands.

    `key` is the digest of the teacher's token, `steps` the lesson's steps with the kind of guess each asks for. With
    `board` the class looks at the run that was sent, not at the step. `guesses` are by step, then by member; a member
    is a random name that a page made up for itself, and `seen` says when it asked last. `sent` is the id of the run
    that was sent last, whose text lies beside the class. The teacher `led` last then, and the class is over at `until`
    unless something happens.
    """

    code: str
    key: str
    lesson: str
    step: str
    steps: Steps
    led: float
    until: float
    follow: bool = True
    board: bool = False
    revealed: frozenset[str] = frozenset()
    guesses: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)
    sent: str | None = None


class Store(Protocol):
    """Where classes are kept. Every verb is atomic, and a class whose `until` has passed is not there any more.

    A store that is away for the moment raises `ClassError` 503, `classroom.error.store`.
    """

    def __len__(self) -> int: ...

    def add(self, room: Classroom) -> bool:
        """Keep a new class; False where its code is taken."""

    def get(self, code: str) -> Classroom | None:
        """The class as it stands."""

    def change(self, code: str, how: Callable[[Classroom], Classroom]) -> Classroom | None:
        """The class after `how`, which is pure: a store may call it again when others changed the class meanwhile.

        A run that the class names no longer is forgotten.
        """

    def keep(self, code: str, sent: Sent) -> None:
        """Keep a run beside the class, for a `change` to name it: polls read the class, and the run is large."""

    def run(self, code: str, id_: str) -> str | None:
        """The text of a run that was kept."""

    def end(self, code: str) -> None:
        """Forget the class and its run."""


class MemoryStore:
    """Classes in the memory of one process."""

    def __init__(self, clock: Clock = time.time) -> None:
        self._rooms: dict[str, Classroom] = {}
        self._runs: dict[tuple[str, str], str] = {}
        self._clock = clock
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            self._sweep()
            return len(self._rooms)

    def add(self, room: Classroom) -> bool:
        with self._lock:
            self._sweep()
            return self._rooms.setdefault(room.code, room) is room

    def get(self, code: str) -> Classroom | None:
        room = self._rooms.get(code)
        return room if room is not None and room.until > self._clock() else None

    def change(self, code: str, how: Callable[[Classroom], Classroom]) -> Classroom | None:
        with self._lock:
            before = self.get(code)
            if before is None:
                return None
            after = self._rooms[code] = how(before)
            if before.sent is not None and before.sent != after.sent:
                self._runs.pop((code, before.sent), None)
            return after

    def keep(self, code: str, sent: Sent) -> None:
        with self._lock:
            self._runs[code, sent.id] = sent.text

    def run(self, code: str, id_: str) -> str | None:
        return self._runs.get((code, id_))

    def end(self, code: str) -> None:
        with self._lock:
            self._rooms.pop(code, None)
            self._sweep()

    def _sweep(self) -> None:
        now = self._clock()
        self._rooms = {code: room for code, room in self._rooms.items() if room.until > now}
        self._runs = {(code, id_): text for (code, id_), text in self._runs.items() if code in self._rooms}


class School:
    """What teachers and members do with classes, over a store. `lessons` gives a lesson's steps, or None."""

    def __init__(
        self,
        store: Store,
        lessons: Callable[[str], Steps | None],
        limits: ClassLimits | None = None,
        clock: Clock = time.time,
    ) -> None:
        self.limits = limits or ClassLimits()
        self._store = store
        self._lessons = lessons
        self._clock = clock
        openings = Buckets(self.limits.address_openings, 1 / OPENING, clock)
        most_classes, most_members = self.limits.address_classes, self.limits.address_members
        self._households = Households(most_classes, openings, most_members, AWAY, clock)

    # ------------------------------------------------------------ the teacher

    def open(self, lesson: str, step: str, address: str = "") -> tuple[str, str]:
        """A new class at this step: its code, and the token that leads it, which is kept nowhere.

        `address` is the teacher's (`visitor.network`), "" where it is not known.
        """
        steps = self._steps(lesson, step)
        if len(self._store) >= self.limits.classes:
            raise ClassError(503, "classroom.error.many", most=self.limits.classes)
        token = secrets.token_urlsafe(24)
        opened: list[str] = []

        def begin() -> str:
            opened.append(self._begun(_digest(token), lesson, step, steps))
            return opened[0]

        refusal = self._households.open(address, lambda code: self._store.get(code) is not None, begin)
        if refusal is not None:
            raise ClassError(429, f"classroom.error.{refusal}", most=self.limits.address_classes)
        return opened[0], token

    def _begun(self, key: str, lesson: str, step: str, steps: Steps) -> str:
        """The code of a class that begins now."""
        now = self._clock()
        while True:
            code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
            if self._store.add(Classroom(code, key, lesson, step, steps, led=now, until=now + self.limits.left)):
                return code

    def lead(
        self,
        code: str,
        token: str,
        *,
        lesson: str | None = None,
        step: str | None = None,
        follow: bool | None = None,
        reveal: str | None = None,
    ) -> None:
        """Go to a step (of another lesson too), let the class roam or follow, show everybody a step's answer."""
        if step is None and lesson is not None:
            raise ClassError(400, "classroom.error.wrong")
        # A lesson is read from its folder: not while the store waits.
        elsewhere = None if lesson in (None, self._led_by(code, token).lesson) else self._steps(str(lesson), step)

        def how(room: Classroom) -> Classroom:
            room = self._led(room, token)
            if elsewhere is not None and lesson is not None:
                room = replace(room, lesson=lesson, steps=elsewhere, revealed=frozenset(), guesses={})
            for name in (step, reveal):
                if name is not None and name not in room.steps:
                    raise ClassError(400, "classroom.error.step")
            if step is not None:
                room = replace(room, step=step, board=False)
            if follow is not None:
                room = replace(room, follow=follow)
            if reveal is not None:
                room = replace(room, revealed=room.revealed | {reveal})
            return room

        self._change(code, how)

    def send(self, code: str, token: str, text: str) -> str:
        """Put a run on the boards of the class; its id."""
        self._led_by(code, token)
        if len(text.encode("utf-8", "surrogatepass")) > self.limits.sent:
            raise ClassError(413, "classroom.error.big", kilobytes=self.limits.sent // 1000)
        try:
            loads(text)
        except TraceError as problem:
            raise ClassError(400, "classroom.error.trace") from problem
        sent = Sent(secrets.token_hex(4), text)
        self._store.keep(code, sent)
        self._change(code, lambda room: replace(self._led(room, token), sent=sent.id, board=True))
        return sent.id

    def end(self, code: str, token: str) -> None:
        """End the class: everything it held is forgotten."""
        self._led_by(code, token)
        self._store.end(code)

    def attend(self, code: str, token: str) -> dict[str, Any]:
        """How the class stands, for its teacher: with the number of members and all guesses."""
        room = self._led_by(code, token)
        now = self._clock()
        until = min(now + self.limits.left, room.led + self.limits.idle)
        if until > room.until + NOTED:
            room = self._change(code, lambda room: replace(room, until=max(room.until, until)))
        present = sum(now - seen <= AWAY for seen in room.seen.values())
        return {**_stands(room), "members": present, "guesses": _tallies(room, room.guesses.keys())}

    # ------------------------------------------------------------ a member

    def find(self, code: str) -> None:
        """Nothing, where there is such a class."""
        self._room(code)

    def look(self, code: str, member: str, address: str = "") -> dict[str, Any]:
        """How the class stands, for a member: with the guesses of the steps whose answer everybody has been shown."""
        self._counted(code, member, address)
        room = self._room(code)
        if self._clock() - room.seen.get(member, -math.inf) > NOTED:
            room = self._change(code, lambda room: self._seated(room, member))
        return {**_stands(room), "guesses": _tallies(room, room.revealed)}

    def guess(self, code: str, member: str, step: str, value: float, address: str = "") -> None:
        """Count a member's guess, in place of an earlier one; after the answer was shown none is taken."""
        self._counted(code, member, address)

        def how(room: Classroom) -> Classroom:
            kind = room.steps.get(step)
            fits = _is_option(value) if kind == "choice" else abs(value) <= MOST_NUMBER
            if kind is None or not fits:
                raise ClassError(400, "classroom.error.wrong")
            if step in room.revealed:
                raise ClassError(409, "classroom.error.shown")
            given = room.guesses.get(step, {})
            # Who left and came anew under another name has guessed twice; there is an end to that too.
            if member not in given and len(given) >= 2 * self.limits.members:
                raise ClassError(403, "classroom.error.full", most=self.limits.members)
            guesses = {**room.guesses, step: {**given, member: round(value, 2)}}
            return replace(self._seated(room, member), guesses=guesses)

        self._change(code, how)

    def sent(self, code: str, id_: str) -> str:
        """The text of the run that was sent last."""
        text = self._store.run(code, id_) if self._room(code).sent == id_ else None
        if text is None:
            raise ClassError(404, "classroom.error.no_run")
        return text

    # ------------------------------------------------------------ what all of them need

    def _steps(self, lesson: str, step: str | None) -> Steps:
        steps = self._lessons(lesson)
        if steps is None or step not in steps:
            raise ClassError(400, "classroom.error.step")
        return steps

    def _room(self, code: str) -> Classroom:
        room = self._store.get(code)
        if room is None:
            raise ClassError(404, "classroom.error.none")
        return room

    def _change(self, code: str, how: Callable[[Classroom], Classroom]) -> Classroom:
        room = self._store.change(code, how)
        if room is None:
            raise ClassError(404, "classroom.error.none")
        return room

    def _led_by(self, code: str, token: str) -> Classroom:
        """The class as it stands, for who holds its token."""
        room = self._room(code)
        if not hmac.compare_digest(room.key, _digest(token)):
            raise ClassError(403, "classroom.error.leads")
        return room

    def _led(self, room: Classroom, token: str) -> Classroom:
        """The class while its teacher does something."""
        if not hmac.compare_digest(room.key, _digest(token)):
            raise ClassError(403, "classroom.error.leads")
        now = self._clock()
        return replace(room, led=now, until=now + self.limits.left)

    def _counted(self, code: str, member: str, address: str) -> None:
        """Count who asks among those of the address; for a code that is none too, which may be tried out."""
        if not self._households.join(address, code, member):
            raise ClassError(429, "classroom.error.crowd", most=self.limits.address_members)

    def _seated(self, room: Classroom, member: str) -> Classroom:
        """The class with this member in it; who has not been seen for a while gives the place up."""
        now = self._clock()
        present = {name: seen for name, seen in room.seen.items() if now - seen <= AWAY}
        if member not in present and len(present) >= self.limits.members:
            raise ClassError(403, "classroom.error.full", most=self.limits.members)
        return replace(room, seen={**present, member: now})


def plain_code(typed: str) -> str:
    """A code as it was made, from how a person typed it: small letters, a space or a dash do no harm."""
    return "".join(sign for sign in typed.upper() if sign not in " -")[: CODE_LENGTH + 1]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _is_option(value: float) -> bool:
    return float(value).is_integer() and 0 <= value < MOST_OPTIONS


def _stands(room: Classroom) -> dict[str, Any]:
    return {
        "lesson": room.lesson,
        "step": room.step,
        "follow": room.follow,
        "board": room.board,
        "sent": room.sent,
        "revealed": sorted(room.revealed),
    }


def _tallies(room: Classroom, steps: Iterable[str]) -> dict[str, list[tuple[float, int]]]:
    """How often each value was guessed, by step, smallest value first: no guess can be told from another."""
    return {step: sorted(Counter(room.guesses.get(step, {}).values()).items()) for step in sorted(steps)}
