"""Classes in a Redis that several replicas share. A class is one value of JSON, its run another, and both expire.

Keys, all below `specviz:1:`, where the number is that of the format: `class:CODE` the class, `run:CODE:ID` the text of
the run that was sent, `classes` the codes by the time they are over, to be counted.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import TypeAdapter, ValidationError
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.retry import Retry

from spec_viz.ui.classroom import ClassError, Classroom, Clock, Sent

log = logging.getLogger(__name__)

PREFIX = "specviz:1:"
INDEX = f"{PREFIX}classes"
# Longer than any class may go without a word; the list of codes then leaves Redis too.
INDEX_LEFT = 24 * 60 * 60
# Until a class names a run that was kept for it.
RUN_LEFT = 60
# Seconds for one answer. A page waits five for its own.
PATIENCE = 1.0
# While Redis is away it is asked so often and no more: who waits for it would hold up all others.
PAUSE = 1.0
SCHEMES = ("redis", "rediss", "unix")
# What an address may set behind its `?`: how long and how often Redis is asked is not an operator's to change.
OPTIONS = re.compile(r"db|username|password|ssl_\w+")

Done = TypeVar("Done")
_CLASSROOM = TypeAdapter(Classroom)


class RedisStore:
    """Classes in a Redis. Raises `ValueError`, without the address in it, where `address` is none.

    The time of an end is told by `clock`, as everywhere; Redis is told how long that is from now, so its own clock may
    differ.
    """

    def __init__(self, address: str, clock: Clock = time.time) -> None:
        self.place = place_of(address)
        self._clock = clock
        # A connection that Redis closed meanwhile is opened anew once; waiting longer is the page's affair.
        try:
            self._redis = Redis.from_url(
                address, socket_timeout=PATIENCE, socket_connect_timeout=PATIENCE, retry=Retry(NoBackoff(), 1)
            )
            # An option that is none shows only here.
            self._redis.connection_pool.make_connection()
        except (ValueError, TypeError):
            raise ValueError("no address of a Redis") from None
        self._away = False
        self._rest = 0.0

    def __len__(self) -> int:
        with self._asking(), self._redis.pipeline() as pipe:
            pipe.zremrangebyscore(INDEX, "-inf", self._clock())
            pipe.zcard(INDEX)
            return int(pipe.execute()[1])

    def answers(self) -> bool:
        """Whether Redis can be reached now; if not, that is logged."""
        try:
            with self._asking():
                self._redis.ping()
        except ClassError:
            return False
        return True

    def close(self) -> None:
        """Hang up."""
        self._redis.close()

    def add(self, room: Classroom) -> bool:
        key = _class_key(room.code)

        def begin(pipe: Pipeline) -> bool:
            taken = self._read(room.code, pipe.get(key)) is not None
            pipe.multi()
            if not taken:
                self._write(pipe, room)
            return not taken

        return self._alone(key, begin)

    def get(self, code: str) -> Classroom | None:
        with self._asking():
            return self._read(code, self._redis.get(_class_key(code)))

    def change(self, code: str, how: Callable[[Classroom], Classroom]) -> Classroom | None:
        key = _class_key(code)

        def step(pipe: Pipeline) -> Classroom | None:
            before = self._read(code, pipe.get(key))
            after = before and how(before)
            pipe.multi()
            if before is None or after is None:
                return None
            self._write(pipe, after)
            if before.sent is not None and before.sent != after.sent:
                pipe.delete(_run_key(code, before.sent))
            return after

        return self._alone(key, step)

    def keep(self, code: str, sent: Sent) -> None:
        with self._asking():
            self._redis.set(_run_key(code, sent.id), sent.text.encode(), ex=RUN_LEFT)

    def run(self, code: str, id_: str) -> str | None:
        with self._asking():
            kept: Any = self._redis.get(_run_key(code, id_))
        try:
            return None if kept is None else bytes(kept).decode()
        except UnicodeDecodeError:
            log.warning("the run of a class in Redis is no text; it is left alone")
            return None

    def end(self, code: str) -> None:
        room = self.get(code)
        with self._asking(), self._redis.pipeline() as pipe:
            pipe.delete(_class_key(code))
            pipe.zrem(INDEX, code)
            if room is not None and room.sent is not None:
                pipe.delete(_run_key(code, room.sent))
            pipe.execute()

    # ------------------------------------------------------------ what all of them need

    def _alone(self, key: bytes, step: Callable[[Pipeline], Done]) -> Done:
        """What `step` returns once nobody else wrote `key` while it read and wrote; until then it is tried anew.

        It ends: whenever it has to try anew, somebody else's step was done.
        """
        tries: list[Done] = []
        with self._asking():
            self._redis.transaction(lambda pipe: tries.append(step(pipe)), key)
        return tries[-1]

    def _read(self, code: str, kept: Any) -> Classroom | None:
        """A class from what Redis holds, which others may have written; what is none counts as not there."""
        if kept is None:
            return None
        try:
            room = _CLASSROOM.validate_json(kept, strict=True)
        except ValidationError as problem:
            log.warning(
                "what Redis holds as a class is none (%d faults); it counts as not there", problem.error_count()
            )
            return None
        return room if room.code == code and room.until > self._clock() else None

    def _write(self, pipe: Pipeline, room: Classroom) -> None:
        left = max(1, round(1000 * (room.until - self._clock())))  # ms
        pipe.set(_class_key(room.code), _CLASSROOM.dump_json(room), px=left)
        if room.sent is not None:
            pipe.pexpire(_run_key(room.code, room.sent), left)
        pipe.zadd(INDEX, {room.code: room.until})
        pipe.expire(INDEX, INDEX_LEFT)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask Redis. Where it does not answer that is said once, here and to whoever asked."""
        if time.monotonic() < self._rest:
            raise ClassError(503, "classroom.error.store")
        try:
            yield
        except RedisError as problem:
            self._rest = time.monotonic() + PAUSE
            if not self._away:
                self._away = True
                # Not its own words, which may quote a value; the kind says what to look for.
                log.warning(
                    "Redis at %s gave no answer (%s). Classes wait, and go on when it is back: see that it runs, that "
                    "this machine reaches it, and that SPECVIZ_REDIS has the right password.",
                    self.place,
                    type(problem).__name__,
                )
            raise ClassError(503, "classroom.error.store") from problem
        if self._away:
            self._away = False
            log.warning("Redis at %s answers again. Classes go on.", self.place)


def place_of(address: str) -> str:
    """Where an address leads, without the name and the password in it. Raises `ValueError` where it leads nowhere."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        options = [name for name, _ in parse_qsl(parts.query, strict_parsing=bool(parts.query))]
    except ValueError:
        # Its own words may quote the password.
        raise ValueError("no address of a Redis") from None
    if parts.scheme == "unix":
        fits = parts.path.startswith("/")
    else:
        # A `/`, `?` or `#` in a password ends the host early; the rest would be taken for a path and told.
        fits = bool(host) and re.fullmatch(r"/?\d*", parts.path) is not None
    fits = fits and all(map(OPTIONS.fullmatch, options))
    if parts.scheme not in SCHEMES or not fits or "@" in parts.path + parts.query or parts.fragment:
        raise ValueError("no address of a Redis")
    return parts.path if parts.scheme == "unix" else f"{host}:{port or 6379}"


def _class_key(code: str) -> bytes:
    return f"{PREFIX}class:{code}".encode("utf-8", "surrogatepass")


def _run_key(code: str, id_: str) -> bytes:
    return f"{PREFIX}run:{code}:{id_}".encode("utf-8", "surrogatepass")
