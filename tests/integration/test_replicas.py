"""A class over two servers that share a Redis: who is where makes no difference, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from spec_viz.content.presets import load_presets
from spec_viz.ui.classroom_route import MEMBER, TOKEN
from tests.integration.redis_server import RedisServer, redis_server
from tests.integration.replica import replica

pytestmark = pytest.mark.redis

SLUG = "5_1_principles"
MANY = 40


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def webs(redis: RedisServer) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two servers."""
    with (
        replica(redis.address) as one,
        replica(redis.address) as other,
        httpx.Client(base_url=one, trust_env=False, timeout=20) as first,
        httpx.Client(base_url=other, trust_env=False, timeout=20) as second,
    ):
        yield first, second


def opened(web: httpx.Client, step: str = "slow") -> tuple[str, dict[str, str]]:
    answer = web.post("/sv/class", json={"lesson": SLUG, "step": step})
    assert answer.status_code == 201, answer.text
    return f"/sv/class/{answer.json()['code']}", {TOKEN: answer.json()["token"]}


def member(place: int) -> dict[str, str]:
    return {MEMBER: f"{place:016x}"}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["key"]


def until_there(web: httpx.Client, place: str, headers: dict[str, str]) -> dict[str, Any]:
    """How the class stands, as a page that keeps asking learns it."""
    end = time.monotonic() + 30
    while (answer := web.get(place, headers=headers)).status_code != 200:
        assert refusal(answer) == (503, "classroom.error.store")
        assert time.monotonic() < end, "the classes never came back"
        time.sleep(0.1)
    found: dict[str, Any] = answer.json()
    return found


def test_a_class_is_one_wherever_its_members_are(webs: tuple[httpx.Client, httpx.Client]) -> None:
    one, other = webs
    place, teacher = opened(one)
    for web, who, value in ((one, 0, 2), (other, 1, 0), (other, 2, 2)):
        assert web.get(place, headers=member(who)).json()["step"] == "slow"
        assert web.post(f"{place}/guess", json={"step": "slow", "value": value}, headers=member(who)).is_success
    for web in webs:
        seen = web.get(place, headers=teacher).json()
        assert (seen["members"], seen["guesses"]) == (3, {"slow": [[0, 1], [2, 2]]})
    # The teacher's requests too may reach either.
    assert other.post(f"{place}/lead", json={"reveal": "slow"}, headers=teacher).is_success
    assert one.get(place, headers=member(0)).json()["guesses"] == {"slow": [[0, 1], [2, 2]]}
    run = next(iter(load_presets())).trace_path.read_bytes()
    id_ = one.post(f"{place}/send", content=run, headers=teacher).json()["sent"]
    assert other.get(place, headers=member(1)).json()["sent"] == id_
    assert other.get(f"{place}/sent/{id_}").content == run
    # What did not change is not told again, whichever of them is asked.
    tag = one.get(place, headers=member(2)).json()["tag"]
    assert other.get(f"{place}?since={tag}", headers=member(2)).status_code == 204
    assert other.post(f"{place}/end", headers=teacher).is_success
    assert refusal(one.get(place, headers=member(0))) == (404, "classroom.error.none")


def test_guesses_at_one_moment_over_both_are_all_counted(webs: tuple[httpx.Client, httpx.Client]) -> None:
    place, teacher = opened(webs[0])
    ready = threading.Barrier(MANY)

    def guess(who: int) -> int:
        ready.wait()
        body = {"step": "slow", "value": who % 3}
        return webs[who % 2].post(f"{place}/guess", json=body, headers=member(who)).status_code

    with ThreadPoolExecutor(MANY) as pool:
        assert set(pool.map(guess, range(MANY))) == {204}
    seen = webs[1].get(place, headers=teacher).json()
    counts = [sum(who % 3 == value for who in range(MANY)) for value in range(3)]
    assert seen["guesses"] == {"slow": [[value, count] for value, count in enumerate(counts)]}
    assert seen["members"] == MANY


def test_when_redis_goes_and_comes_back_the_class_goes_on(
    webs: tuple[httpx.Client, httpx.Client], redis: RedisServer
) -> None:
    place, teacher = opened(webs[0])
    assert webs[1].post(f"{place}/guess", json={"step": "slow", "value": 1}, headers=member(7)).is_success
    redis.stop()
    for web in webs:
        assert refusal(web.get(place, headers=member(7))) == (503, "classroom.error.store")
        assert refusal(web.post(f"{place}/lead", json={"step": "easy"}, headers=teacher)) == (
            503,
            "classroom.error.store",
        )
        assert web.get("/plain").text == "here"
    redis.start()
    for web in webs:
        seen = until_there(web, place, teacher)
        assert (seen["step"], seen["guesses"]) == ("slow", {"slow": [[1, 1]]})
    assert webs[0].post(f"{place}/lead", json={"step": "easy"}, headers=teacher).is_success
    assert webs[1].get(place, headers=member(7)).json()["step"] == "easy"


def test_a_redis_that_hangs_holds_up_nobody_else(webs: tuple[httpx.Client, httpx.Client], redis: RedisServer) -> None:
    web = webs[0]
    place, teacher = opened(web)
    with redis.hung(), ThreadPoolExecutor(MANY) as pool:
        polls = [pool.submit(web.get, place, headers=member(who)) for who in range(MANY)]
        # While they wait for Redis the server answers whoever does not need it.
        assert web.get("/plain").text == "here"
        assert not all(poll.done() for poll in polls)
        assert {refusal(poll.result()) for poll in polls} == {(503, "classroom.error.store")}
    assert until_there(web, place, teacher)["step"] == "slow"
