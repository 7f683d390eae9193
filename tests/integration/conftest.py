"""A room with the tiny model, one thread for it, and its gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from spec_viz.ui.room import Room
from tests.integration.rooms import Gate, ready_room


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return ready_room(monkeypatch)


@pytest.fixture
def gate(room: Room) -> Iterator[Gate]:
    # After the room, whose loading runs the model once.
    with Gate() as gate:
        yield gate
