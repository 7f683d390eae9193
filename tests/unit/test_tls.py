"""HTTPS to an address that was judged: the connection goes there, and the certificate is checked against the name."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spec_viz.serving.client import Server
from spec_viz.serving.counters import scrape
from spec_viz.serving.gate import SERVERS, Place, gate
from spec_viz.serving.problems import ServerError
from spec_viz.ui.wording import LANGUAGES, words
from tests.unit.toys import CHAT, LOCAL, Toy, running, vllm

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")

NAME = "right.test"
# Nobody is there: a name that is looked up a second time leads nowhere.
NOWHERE = "192.0.2.1"
CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = a test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""
KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"


def openssl(folder: Path, told: str) -> None:
    subprocess.run(["openssl", *told.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority of the test's own."""
    folder = tmp_path_factory.mktemp("authority")
    (folder / "a.cnf").write_text(CONFIG.format(names="DNS:none"))
    openssl(folder, f"req -x509 {KEY} -config a.cnf -extensions authority -days 2 -keyout ca.key -out ca.pem")
    return folder


@dataclass
class Secure:
    """A server behind TLS, and the names by which it was greeted."""

    toy: Toy
    port: int
    greeted: list[str | None] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return gate().admit(f"https://{NAME}:{self.port}")


@pytest.fixture
def secure(authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A server whose certificate has these names, listed as right.test, which leads to this computer once."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def answer(host: Any, *more: Any, **options: Any) -> Any:
        if host != NAME:
            return look_up(host, *more, **options)
        asked.append(host)
        return look_up(LOCAL if len(asked) == 1 else NOWHERE, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))

    @contextmanager
    def standing(names: str) -> Iterator[Secure]:
        (tmp_path / "leaf.cnf").write_text(CONFIG.format(names=names))
        ca = f"-CA {authority / 'ca.pem'} -CAkey {authority / 'ca.key'} -CAcreateserial"
        openssl(tmp_path, f"req -new {KEY} -config leaf.cnf -keyout leaf.key -out leaf.csr")
        openssl(tmp_path, f"x509 -req -in leaf.csr {ca} -days 2 -extfile leaf.cnf -extensions leaf -out leaf.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "leaf.pem", tmp_path / "leaf.key")
        with running(vllm(), context) as toy:
            made = Secure(toy, int(toy.address.rpartition(":")[2]))
            context.sni_callback = lambda _socket, name, _context: made.greeted.append(name)
            monkeypatch.setenv(SERVERS, f"https://{NAME}:{made.port}")
            yield made
        assert asked in ([], [NAME])

    return standing


def refused(do: Callable[[], object], key: str) -> None:
    """It ends in this sentence, which both languages have with every hole filled."""
    with pytest.raises(ServerError) as told:
        do()
    assert told.value.key == key
    for language in LANGUAGES:
        said = words(language)(key, **told.value.fields)
        assert NAME in said
        assert "{" not in said


def test_the_right_name_is_asked_at_the_judged_address(secure: Callable[..., Any]) -> None:
    with secure(f"DNS:{NAME}") as made:
        place = made.place
        assert (place.ip, place.host) == (LOCAL, NAME)
        server = Server(place)
        answer = server.ask("count", 5)
        assert answer.ids == (10, 11, 12, 13, 14)
        assert scrape(place).answers == 8
        assert server.texts([10]) == {10: ("<10>", None)}
        assert {path for path, _, _ in made.toy.seen} == {"/v1/models", CHAT, "/metrics", "/detokenize"}
        assert {headers["host"] for _, headers, _ in made.toy.seen} == {f"{NAME}:{made.port}"}
        assert made.greeted == [NAME] * len(made.toy.seen)


@pytest.mark.parametrize("names", ["DNS:wrong.test", f"IP:{LOCAL}", "DNS:*.test.example", f"DNS:x.{NAME}"])
def test_a_certificate_of_another_name_is_refused_before_anything_is_asked(
    secure: Callable[..., Any], names: str
) -> None:
    with secure(names) as made:
        place = made.place
        refused(lambda: Server(place), "error.server_certificate")
        refused(lambda: scrape(place), "error.server_certificate")
        assert made.toy.seen == []


def test_a_certificate_of_nobody_that_is_trusted_is_refused(
    secure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with secure(f"DNS:{NAME}") as made:
        monkeypatch.delenv("SSL_CERT_FILE")
        place = made.place
        refused(lambda: Server(place), "error.server_certificate")
        assert made.toy.seen == []


def test_the_streamed_question_is_refused_alike(secure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with secure(f"DNS:{NAME}") as made:
        server = Server(made.place)
        monkeypatch.delenv("SSL_CERT_FILE")
        refused(lambda: server.ask("count", 5), "error.server_certificate")
        assert made.toy.asked(CHAT) == []


def test_a_redirect_is_not_followed(secure: Callable[..., Any]) -> None:
    with secure(f"DNS:{NAME}") as made, running(vllm()) as elsewhere:
        server = Server(made.place)
        for where in (f"{elsewhere.address}/v1/models", f"https://{NAME}:{made.port}/v1/elsewhere", "/v1/elsewhere"):
            for path in ("/v1/models", CHAT):
                made.toy.routes[path] = lambda handler, _, where=where: handler.send(307, b"", Location=where)
            refused(server.models, "error.server_redirects")
            refused(lambda: server.ask("count", 5), "error.server_redirects")
        assert elsewhere.seen == []
        assert "/v1/elsewhere" not in {path for path, _, _ in made.toy.seen}


def test_a_port_that_speaks_no_tls_has_its_own_sentence(
    secure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with secure(f"DNS:{NAME}"), running(vllm()) as plain:
        address = f"https://{NAME}:{plain.address.rpartition(':')[2]}"
        monkeypatch.setenv(SERVERS, address)
        refused(lambda: Server(gate().admit(address)), "error.server_tls")
        assert plain.seen == []
