"""A real redis-server of our own, on a loopback port and in a folder of the test's; it can be stopped and started."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis, RedisError

from tests.integration.ports import LOCAL, free_port

SECRET = "s3cret"


class RedisServer:
    """What it was told is kept in its folder, so that a server that is started again knows it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.address = f"redis://:{SECRET}@{LOCAL}:{self.port}/0"

    def start(self) -> None:
        told = {"bind": LOCAL, "port": self.port, "dir": self._folder, "requirepass": SECRET}
        told |= {"appendonly": "yes", "save": "", "daemonize": "no", "loglevel": "warning"}
        words = [word for name, value in told.items() for word in (f"--{name}", str(value))]
        self._process = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
        with self.client() as client:
            end = time.monotonic() + 20
            while True:
                assert self._process.poll() is None, "redis-server ended by itself"
                try:
                    client.ping()
                except RedisError:
                    assert time.monotonic() < end, "redis-server does not answer"
                    time.sleep(0.02)
                else:
                    return

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Meanwhile it takes connections and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def client(self) -> Redis:
        return Redis.from_url(self.address, socket_timeout=5)


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
