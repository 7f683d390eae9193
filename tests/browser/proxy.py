"""A real nginx before the page, as it comes; on a loopback port, and it can be stopped and started."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from tests.integration.ports import LOCAL, free_port

# Nothing that concerns buffering or the protocol is set: nginx asks the page in HTTP/1.0 and holds answers back.
CONFIG = """
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{servers}
}}
"""
SERVER = """
  server {{
    listen {here};
    location {below}/ {{
      proxy_pass http://{there}/;
      proxy_set_header Host $http_host;
      {more}
    }}
  }}
"""


class Proxy:
    """`address` is the page's, without a slash at its end; `servers` is what nginx is told of it."""

    def __init__(self, nginx: str, folder: Path, address: str, servers: str) -> None:
        self.address = address
        self._config = folder / "nginx.conf"
        # In one process, which is who runs the test: a worker of its own might not enter the folder.
        self._command = [nginx, "-p", str(folder), "-c", str(self._config), "-g", "daemon off; master_process off;"]
        self._process: subprocess.Popen[bytes] | None = None
        self._config.write_text(CONFIG.format(folder=folder, servers=servers))

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env={**os.environ, "TZ": "UTC"})
        end = time.monotonic() + 20
        while True:
            assert self._process.poll() is None, "nginx ended by itself"
            try:
                with urlopen(f"{self.address}/robots.txt", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < end, "nginx does not answer"
                time.sleep(0.05)

    def stop(self) -> None:
        """Cut every connection."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None


@contextmanager
def proxied(nginx: str, folder: Path, page: str, below: str = "", more: str = "") -> Iterator[Proxy]:
    """A proxy before a page, in a folder of its site where `below` names one; `more` are further words for nginx."""
    here = f"{LOCAL}:{free_port()}"
    servers = SERVER.format(here=here, there=urlsplit(page).netloc, below=below, more=more)
    with started(Proxy(nginx, folder, f"http://{here}{below}", servers)) as proxy:
        yield proxy


@contextmanager
def started(proxy: Proxy) -> Iterator[Proxy]:
    """The proxy while it runs."""
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
