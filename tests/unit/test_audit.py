"""The audit of what is installed: a vulnerability fails it, and a database that is away is said aloud."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOCAL = "127.0.0.1"
VULNERABLE = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-1"],
    "summary": "a hole",
    "details": "a hole",
    "affected": [
        {
            "package": {"name": "holey", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An environment with two packages."""
    for name in ("holey", "sound"):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def database() -> Iterator[Callable[[dict[str, Any]], str]]:
    """Starts a stand-in of OSV that knows these vulnerabilities by package; its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(known: dict[str, Any]) -> str:
        class Osv(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps({"vulns": known.get(asked["package"]["name"], [])}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer((LOCAL, 0), Osv)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://{LOCAL}:{server.server_address[1]}/v1/query"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def audit(installed: Path, address: str) -> tuple[int, str, str]:
    command = [sys.executable, str(ROOT / ".ci" / "audit.py"), "--path", str(installed), "--osv-url", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_known_vulnerability_fails_and_is_named(installed: Path, database: Callable[[dict[str, Any]], str]) -> None:
    code, said, _ = audit(installed, database({"holey": [VULNERABLE]}))
    assert code == 1
    assert "holey 1.0: PYSEC-2026-1 CVE-2026-1, mended in 1.1" in said
    assert "sound" not in said


def test_without_one_it_says_how_many_packages_were_asked_for(
    installed: Path, database: Callable[[dict[str, Any]], str]
) -> None:
    assert audit(installed, database({})) == (0, "2 packages audited, no known vulnerability.\n", "")


def test_a_database_that_is_away_is_said_aloud(installed: Path) -> None:
    code, said, aloud = audit(installed, f"http://{LOCAL}:1/v1/query")
    assert code == 0
    assert said == ""
    assert "!!!!!!!!\nNOT AUDITED: the database is not reachable, nothing was audited." in aloud


def test_a_vulnerability_may_stay_only_with_its_reason(
    installed: Path, database: Callable[[dict[str, Any]], str], tmp_path: Path
) -> None:
    # The script with one more line, as somebody would write it.
    script = (ROOT / ".ci" / "audit.py").read_text(encoding="utf-8")
    excused = tmp_path / "audit.py"
    excused.write_text(script.replace("= {}", '= {"CVE-2026-1": "not called"}', 1), encoding="utf-8")
    address = database({"holey": [VULNERABLE]})
    command = [sys.executable, str(excused), "--path", str(installed), "--osv-url", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "2 packages audited, no known vulnerability besides CVE-2026-1.\n")
