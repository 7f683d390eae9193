"""Classes: who leads and who is counted, what is told to whom, how much there may be, and when one is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace

import pytest

from spec_viz.content.presets import load_presets
from spec_viz.ui.bucket import Buckets
from spec_viz.ui.classroom import (
    ALPHABET,
    AWAY,
    CODE_LENGTH,
    MOST_OPTIONS,
    OPENING,
    ClassError,
    ClassLimits,
    Classroom,
    MemoryStore,
    School,
    Sent,
    Steps,
    Store,
    plain_code,
)
from spec_viz.ui.classroom_redis import RedisStore
from spec_viz.ui.households import REMEMBERED, Households
from tests.integration.redis_server import RedisServer, redis_server

LESSONS: dict[str, Steps] = {
    "one": {"start": None, "choose": "choice", "count": "number", "end": None},
    "two": {"other": "choice", "start": None},
}
LIMITS = ClassLimits(classes=3, members=4, sent=200_000, left=600.0, idle=3600.0)
ALICE, BOB = "a" * 16, "b" * 16


@dataclass
class Now:
    """A clock that a test moves."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
def store(request: pytest.FixtureRequest, now: Now) -> Iterator[Store]:
    """Either store; all that is said of one here holds for both."""
    if request.param == "memory":
        yield MemoryStore(now)
        return
    server: RedisServer = request.getfixturevalue("redis")
    with server.client() as client:
        client.flushall()
    store = RedisStore(server.address, now)
    yield store
    store.close()


@pytest.fixture
def school(store: Store, now: Now) -> School:
    return School(store, LESSONS.get, LIMITS, now)


@pytest.fixture
def run() -> str:
    return next(iter(load_presets())).trace_path.read_text(encoding="utf-8")


def refused(status: int, key: str) -> AbstractContextManager[object]:
    """Expect a refusal with this status and these words."""

    def fits(problem: ClassError) -> bool:
        return (problem.status, problem.key) == (status, f"classroom.error.{key}")

    return pytest.raises(ClassError, check=fits)


# ---------------------------------------------------------------- opening and leading


def test_a_class_begins_at_a_step_and_follows(school: School) -> None:
    code, _ = school.open("one", "choose")
    assert len(code) == CODE_LENGTH
    assert set(code) <= set(ALPHABET)
    assert school.look(code, ALICE) == {
        "lesson": "one",
        "step": "choose",
        "follow": True,
        "board": False,
        "sent": None,
        "revealed": [],
        "guesses": {},
    }


@pytest.mark.parametrize(("lesson", "step"), [("three", "start"), ("one", "other"), ("", ""), ("../one", "start")])
def test_no_class_begins_where_no_step_is(school: School, lesson: str, step: str) -> None:
    with refused(400, "step"):
        school.open(lesson, step)


def test_the_teacher_goes_on_and_the_class_sees_it(school: School) -> None:
    code, token = school.open("one", "start")
    school.lead(code, token, step="count")
    assert school.look(code, ALICE)["step"] == "count"
    school.lead(code, token, follow=False)
    assert school.look(code, ALICE)["follow"] is False
    assert school.look(code, ALICE)["step"] == "count"


def test_another_lesson_starts_without_the_guesses_of_the_first(school: School) -> None:
    code, token = school.open("one", "choose")
    school.guess(code, ALICE, "choose", 1)
    school.lead(code, token, reveal="choose")
    school.lead(code, token, lesson="two", step="other")
    seen = school.attend(code, token)
    assert (seen["lesson"], seen["step"], seen["revealed"], seen["guesses"]) == ("two", "other", [], {})
    with refused(400, "step"):
        school.lead(code, token, step="choose")
    with refused(400, "wrong"):
        school.lead(code, token, lesson="one")


@pytest.mark.parametrize("token", ["", "x", "ü", "\ud800"])
def test_only_who_holds_the_token_leads(school: School, run: str, token: str) -> None:
    code, own = school.open("one", "start")
    other = school.open("one", "start")[1]
    for wrong in (token, other):
        with refused(403, "leads"):
            school.lead(code, wrong, step="end")
        with refused(403, "leads"):
            school.attend(code, wrong)
        with refused(403, "leads"):
            school.send(code, wrong, run)
        with refused(403, "leads"):
            school.end(code, wrong)
    assert school.attend(code, own)["step"] == "start"


def test_the_token_is_not_kept(store: Store, school: School) -> None:
    code, token = school.open("one", "start")
    assert token not in repr(store.get(code))


# ---------------------------------------------------------------- guesses


def test_guesses_are_the_teacher_s_until_the_answer_is_shown(school: School) -> None:
    code, token = school.open("one", "choose")
    school.guess(code, ALICE, "choose", 2)
    school.guess(code, BOB, "choose", 0)
    assert school.attend(code, token)["guesses"] == {"choose": [(0, 1), (2, 1)]}
    assert school.look(code, ALICE)["guesses"] == {}
    school.lead(code, token, reveal="choose")
    shown = school.look(code, BOB)
    assert (shown["revealed"], shown["guesses"]) == (["choose"], {"choose": [(0, 1), (2, 1)]})


def test_who_guesses_again_is_counted_once_and_nobody_after_the_answer(school: School) -> None:
    code, token = school.open("one", "count")
    for value in (2.5, 7, 3.14159):
        school.guess(code, ALICE, "count", value)
    assert school.attend(code, token)["guesses"] == {"count": [(3.14, 1)]}
    school.lead(code, token, reveal="count")
    with refused(409, "shown"):
        school.guess(code, BOB, "count", 1)


@pytest.mark.parametrize(
    ("step", "value"),
    [("start", 0), ("other", 0), ("choose", -1), ("choose", MOST_OPTIONS), ("choose", 0.5), ("count", 1e10)],
)
def test_a_guess_that_no_form_sends_is_refused(school: School, step: str, value: float) -> None:
    code, token = school.open("one", "start")
    with refused(400, "wrong"):
        school.guess(code, ALICE, step, value)
    assert school.attend(code, token)["guesses"] == {}


def test_no_view_tells_who_guessed(school: School) -> None:
    code, token = school.open("one", "choose")
    school.guess(code, ALICE, "choose", 1)
    school.lead(code, token, reveal="choose")
    assert ALICE not in repr(school.attend(code, token)) + repr(school.look(code, BOB))


# ---------------------------------------------------------------- a run that is sent


def test_a_sent_run_stands_on_the_boards_until_the_teacher_goes_on(school: School, run: str) -> None:
    code, token = school.open("one", "start")
    id_ = school.send(code, token, run)
    seen = school.look(code, ALICE)
    assert (seen["board"], seen["sent"]) == (True, id_)
    assert school.sent(code, id_) == run
    school.lead(code, token, follow=False)
    assert school.look(code, ALICE)["board"] is True
    school.lead(code, token, step="start")
    assert school.look(code, ALICE)["board"] is False
    second = school.send(code, token, run)
    assert second != id_
    with refused(404, "no_run"):
        school.sent(code, id_)


def test_what_is_no_run_or_too_much_is_not_sent(school: School, run: str) -> None:
    code, token = school.open("one", "start")
    for text in ("", "not a run", "\ud800", '{"schema":"specviz.trace/1"}', run[: len(run) // 2]):
        with refused(400, "trace"):
            school.send(code, token, text)
    with refused(413, "big"):
        school.send(code, token, run + "\n" * LIMITS.sent)
    assert school.look(code, ALICE)["sent"] is None


# ---------------------------------------------------------------- limits and the end


def test_there_are_so_many_classes_and_no_more(school: School, now: Now) -> None:
    opened = [school.open("one", "start") for _ in range(LIMITS.classes)]
    with refused(503, "many"):
        school.open("one", "start")
    school.end(*opened[0])
    school.open("one", "start")
    now.now += LIMITS.left + 1
    assert len({school.open("one", "start")[0] for _ in range(LIMITS.classes)}) == LIMITS.classes


def test_a_class_takes_so_many_members_and_forgets_who_has_gone(school: School, now: Now) -> None:
    code, token = school.open("one", "start")
    members = [f"{place:016x}" for place in range(LIMITS.members)]
    for member in members:
        school.look(code, member)
    assert school.attend(code, token)["members"] == LIMITS.members
    with refused(403, "full"):
        school.look(code, ALICE)
    with refused(403, "full"):
        school.guess(code, ALICE, "choose", 0)
    # Who is there goes on, and comes back; who has gone frees a place.
    now.now += AWAY - 1
    for member in members[1:]:
        school.look(code, member)
    now.now += 2
    assert school.attend(code, token)["members"] == LIMITS.members - 1
    school.look(code, ALICE)
    with refused(403, "full"):
        school.look(code, members[0])


def test_guesses_of_members_who_come_under_ever_new_names_have_an_end(school: School, now: Now) -> None:
    code, token = school.open("one", "choose")
    for place in range(2 * LIMITS.members):
        school.guess(code, f"{place:016x}", "choose", 0)
        now.now += AWAY / 2
        school.attend(code, token)
    with refused(403, "full"):
        school.guess(code, ALICE, "choose", 0)
    assert school.attend(code, token)["guesses"] == {"choose": [(0, 2 * LIMITS.members)]}


def test_a_class_outlives_a_teacher_s_pause_but_not_a_teacher_who_left(school: School, now: Now) -> None:
    code, token = school.open("one", "start")
    now.now += LIMITS.left - 1
    school.attend(code, token)
    now.now += LIMITS.left - 1
    assert school.look(code, ALICE)["step"] == "start"
    # Members' pages that ask on keep no class.
    now.now += 2
    with refused(404, "none"):
        school.look(code, ALICE)


def test_a_page_that_is_forgotten_in_a_tab_keeps_no_class(school: School, now: Now) -> None:
    code, token = school.open("one", "start")
    seconds = 0.0
    while seconds < LIMITS.idle - 1:
        school.attend(code, token)
        now.now += 60
        seconds += 60
    with refused(404, "none"):
        school.attend(code, token)


def test_the_teacher_ends_the_class(school: School) -> None:
    code, token = school.open("one", "start")
    school.end(code, token)
    with refused(404, "none"):
        school.look(code, ALICE)
    with refused(404, "none"):
        school.lead(code, token, step="end")
    with refused(404, "none"):
        school.end(code, token)


@pytest.mark.parametrize(
    ("typed", "code"), [("k7m2p", "K7M2P"), (" k7-m2 p ", "K7M2P"), ("", ""), ("K7M2PX9", "K7M2PX"), ("ạ", "Ạ")]
)
def test_a_code_may_be_typed_in_many_ways(typed: str, code: str) -> None:
    assert plain_code(typed) == code


# ---------------------------------------------------------------- the store


def room(code: str, until: float, key: str = "k") -> Classroom:
    return Classroom(code=code, key=key, lesson="one", step="start", steps=LESSONS["one"], led=0.0, until=until)


def test_a_store_keeps_codes_apart_and_forgets_what_is_over(store: Store, now: Now) -> None:
    assert store.add(room("A", now.now + 10))
    assert not store.add(room("A", now.now + 10, "other"))
    found = store.get("A")
    assert found is not None
    assert found.key == "k"
    now.now += 10
    assert store.get("A") is None
    assert store.change("A", lambda room: room) is None
    assert len(store) == 0
    assert store.add(room("A", now.now + 10, "other"))


def test_a_change_that_fails_changes_nothing(school: School) -> None:
    code, token = school.open("one", "start")
    with refused(400, "step"):
        school.lead(code, token, follow=False, step="nowhere")
    assert school.look(code, ALICE)["follow"] is True


def test_a_store_gives_back_all_that_it_was_given(store: Store, now: Now) -> None:
    full = replace(
        room("A", now.now + 10.125),
        follow=False,
        board=True,
        revealed=frozenset({"choose", "count"}),
        guesses={"choose": {ALICE: 2.0, BOB: 0.0}, "count": {BOB: -1e9}, "end": {}},
        seen={ALICE: 1_000.1, BOB: 1 / 3},
        sent="a1",
    )
    assert store.add(full)
    assert store.get("A") == full
    assert store.change("A", lambda found: replace(found, step="ö\u2028\x00")) == replace(full, step="ö\u2028\x00")
    assert store.get("A") == replace(full, step="ö\u2028\x00")
    assert store.get("B") is None
    assert store.get("\ud800") is None


def test_a_run_lies_beside_its_class_until_another_takes_its_place(store: Store, now: Now) -> None:
    first, second = Sent("a1", "một\n" * 1000), Sent("b2", "hai")
    assert store.add(room("A", now.now + 10))
    store.keep("A", first)
    store.change("A", lambda found: replace(found, sent="a1"))
    assert store.run("A", "a1") == first.text
    assert (store.run("A", "b2"), store.run("B", "a1")) == (None, None)
    # A change that names the same run keeps it.
    store.change("A", lambda found: replace(found, follow=False))
    assert store.run("A", "a1") == first.text
    store.keep("A", second)
    assert store.run("A", "a1") == first.text
    store.change("A", lambda found: replace(found, sent="b2"))
    assert (store.run("A", "a1"), store.run("A", "b2")) == (None, "hai")
    store.end("A")
    assert (store.get("A"), store.run("A", "b2"), len(store)) == (None, None, 0)
    store.end("A")


def test_guesses_at_one_moment_are_all_counted(store: Store, now: Now) -> None:
    many = 40
    school = School(store, LESSONS.get, ClassLimits(members=many), now)
    code, token = school.open("one", "start")
    ready = threading.Barrier(many)

    def guess(place: int) -> None:
        ready.wait()
        school.guess(code, f"{place:016x}", "choose", place % 2)

    threads = [threading.Thread(target=guess, args=(place,)) for place in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert school.attend(code, token)["guesses"] == {"choose": [(0, many // 2), (1, many // 2)]}


# ---------------------------------------------------------------- a store that is shared


def until(true: Callable[[], bool]) -> None:
    ready = threading.Event()
    for _ in range(2000):
        if true():
            return
        ready.wait(0.01)
    raise AssertionError("it never came true")


@pytest.fixture
def shared(redis: RedisServer) -> Iterator[RedisStore]:
    """A store with a true clock."""
    with redis.client() as client:
        client.flushall()
    store = RedisStore(redis.address)
    yield store
    store.close()


@pytest.mark.redis
def test_a_class_that_is_over_leaves_redis_by_itself(shared: RedisStore, redis: RedisServer, run: str) -> None:
    school = School(shared, LESSONS.get, ClassLimits(left=1.0))
    code, token = school.open("one", "start")
    school.send(code, token, run)
    with redis.client() as client:
        assert len(client.keys()) == 3
        # Nothing stays for good, whatever happens.
        assert all(0 < client.pttl(key) <= 24 * 3600 * 1000 for key in client.scan_iter())
        until(lambda: client.keys() == [b"specviz:1:classes"])
    assert len(shared) == 0


@pytest.mark.redis
def test_a_run_lives_as_long_as_its_class(shared: RedisStore, redis: RedisServer, run: str) -> None:
    school = School(shared, LESSONS.get)
    code, token = school.open("one", "start")
    id_ = school.send(code, token, run)
    with redis.client() as client:
        both = [client.pttl(f"specviz:1:{name}") for name in (f"class:{code}", f"run:{code}:{id_}")]
    assert min(both) > 1000 * (ClassLimits().left - 60)
    assert abs(both[0] - both[1]) < 1000


@pytest.mark.redis
def test_a_poll_does_not_move_the_run(shared: RedisStore, redis: RedisServer, run: str) -> None:
    school = School(shared, LESSONS.get)
    code, token = school.open("one", "start")
    school.send(code, token, run)
    with redis.client() as client:
        assert client.strlen(f"specviz:1:class:{code}") < 1000 < len(run) // 10


@pytest.mark.redis
@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"\xff",
        b"null",
        b"{}",
        b"[1]",
        b'{"code":"K7M2P"}',
        b"\x80\x04K\x01.",
        b'{"code":"OTHER","key":"k","lesson":"one","step":"start","steps":{},"led":0,"until":9e99}',
        b'{"code":"K7M2P","key":"k","lesson":"one","step":"start","steps":{"start":"essay"},"led":0,"until":9e99}',
        b'{"code":"K7M2P","key":"k","lesson":"one","step":"start","steps":{},"led":0,"until":9e99,"seen":{"a":"1"}}',
    ],
)
def test_what_is_no_class_in_redis_counts_as_not_there(shared: RedisStore, redis: RedisServer, kept: bytes) -> None:
    with redis.client() as client:
        client.set("specviz:1:class:K7M2P", kept)
        client.set("specviz:1:run:K7M2P:a1", b"\xff\xfe")
    assert shared.get("K7M2P") is None
    assert shared.change("K7M2P", lambda found: found) is None
    assert shared.run("K7M2P", "a1") is None
    assert shared.add(room("K7M2P", 9e9))
    assert shared.get("K7M2P") == room("K7M2P", 9e9)


@pytest.mark.redis
def test_a_key_of_another_kind_is_told_apart_from_no_class(shared: RedisStore, redis: RedisServer) -> None:
    with redis.client() as client:
        client.lpush("specviz:1:class:K7M2P", "x")
    with refused(503, "store"):
        shared.get("K7M2P")


# ---------------------------------------------------------------- one address and the others


def test_the_classes_of_an_address_are_those_that_are_still_there(store: Store, now: Now) -> None:
    school = School(store, LESSONS.get, replace(LIMITS, classes=9, address_classes=2), now)
    opened = [school.open("one", "start", "a") for _ in range(2)]
    with refused(429, "own"):
        school.open("one", "start", "a")
    school.open("one", "start", "b")
    school.end(*opened[0])
    school.open("one", "start", "a")
    with refused(429, "own"):
        school.open("one", "start", "a")
    now.now += LIMITS.left + 1
    assert len({school.open("one", "start", "a")[0] for _ in range(2)}) == 2


def test_an_address_opens_and_ends_no_faster_than_a_teacher_does(store: Store, now: Now) -> None:
    school = School(store, LESSONS.get, replace(LIMITS, address_openings=4), now)

    def open_() -> None:
        school.end(*school.open("one", "start", "a"))

    for _ in range(4):
        open_()
    with refused(429, "often"):
        open_()
    school.end(*school.open("one", "start", "b"))
    now.now += OPENING
    open_()
    with refused(429, "often"):
        open_()


def test_members_of_an_address_that_are_gone_make_place_for_others(store: Store, now: Now) -> None:
    school = School(store, LESSONS.get, replace(LIMITS, members=9, address_members=4), now)
    codes = [school.open("one", "choose", address)[0] for address in "ab"]
    for place in range(4):
        school.look(codes[place % 2], f"{place:016x}", "a")
    for _ in range(3):
        with refused(429, "crowd"):
            school.look(codes[0], ALICE, "a")
        with refused(429, "crowd"):
            school.guess(codes[0], ALICE, "choose", 1, "a")
    # From elsewhere there is place, and who is counted asks on.
    school.look(codes[0], BOB, "b")
    now.now += AWAY / 2
    school.look(codes[0], f"{0:016x}", "a")
    now.now += AWAY / 2 + 1
    school.look(codes[0], ALICE, "a")
    assert school.look(codes[0], f"{0:016x}", "a")["step"] == "choose"


def test_an_address_of_which_nothing_was_heard_for_long_is_forgotten() -> None:
    households = Households(3, Buckets(3, 1.0), 3, AWAY, lambda: 0.0)
    for number in range(REMEMBERED + 50):
        assert households.join(str(number), "K7M2P", ALICE)
        assert households.open(str(number), lambda _: True, lambda: "K7M2P") is None
    assert (len(households._seen), len(households._codes)) == (REMEMBERED, REMEMBERED)


def test_of_many_who_open_at_one_moment_no_more_than_the_share_is_let_in(now: Now) -> None:
    school = School(MemoryStore(now), LESSONS.get, replace(LIMITS, classes=50), now)
    opened: list[str] = []

    def open_() -> None:
        with suppress(ClassError):
            opened.append(school.open("one", "start", "a")[0])

    threads = [threading.Thread(target=open_) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == LIMITS.address_classes
