"""A class over two servers that share a Redis, as its teacher and a student live it; and without that Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from spec_viz.ui.classroom_route import REDIS
from spec_viz.ui.room import Room
from spec_viz.ui.wording import words
from tests.browser.acts import EN
from tests.browser.conftest import Visit
from tests.browser.test_classroom import GUESSED, at, guess, joined, opened, press_button, said
from tests.browser.test_look import PHONE, overflow
from tests.integration.launch import served
from tests.integration.redis_server import RedisServer, redis_server

pytestmark = [pytest.mark.browser, pytest.mark.redis]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
def bases(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    monkeypatch.setenv(REDIS, redis.address)
    with served(Room()) as one, served(Room()) as other:
        yield one, other


def test_a_class_waits_for_its_store_and_goes_on(visit: Visit, bases: tuple[str, str], redis: RedisServer) -> None:
    teacher, code = opened(visit, bases[0])
    one = joined(visit, bases[1], code, "&place=lessons")
    at(one, GUESSED)
    members = teacher.locator(".sv-class-inner > .sv-class-count")
    expect(members).to_have_text(EN("classroom.members", n=1))

    redis.stop()
    for page in (teacher, one):
        expect(said(page)).to_have_text(EN("classroom.waits"))
        at(page, GUESSED)
    # A guess that the store does not hear is kept, and nobody opens a class meanwhile.
    guess(one, 1)
    phone = visit(f"{bases[0]}/?class={code}&place=lessons&lang=vi", viewport=PHONE, has_touch=True, is_mobile=True)
    expect(said(phone)).to_have_text(words("vi")("classroom.waits"))
    assert overflow(phone) <= 0
    alone = visit(f"{bases[1]}/?place=lessons&lesson=5_1_principles&step={GUESSED}&lang=en")
    press_button(alone, "classroom.open")
    expect(said(alone)).to_have_text(EN("classroom.error.store"))
    press_button(alone, "classroom.close")

    redis.start()
    expect(said(teacher)).to_have_text(EN("classroom.teacher.follow"))
    expect(said(one)).to_have_text(EN("classroom.student.follow", code=code))
    expect(said(phone)).to_have_text(words("vi")("classroom.student.follow", code=code))
    count = teacher.locator(".sv-class-guesses .sv-class-count")
    expect(count).to_have_text(EN("classroom.guess.count", n=1, members=2))
    press_button(alone, "classroom.open")
    expect(alone.get_by_role("dialog")).to_be_visible()
    press_button(teacher, "lesson.skip")
    at(one, "easy")
