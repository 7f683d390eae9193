"""Which addresses the page asks: none that a visitor could use to look into a network."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from spec_viz.serving.gate import Gate, Place, gate
from spec_viz.serving.problems import ServerError

LISTED = "https://vllm.example/team, http://10.0.0.5:8000/v1"
PUBLIC = ("SPECVIZ_PUBLIC", "SPECVIZ_SERVERS", "SPACE_ID", "GRADIO_SERVER_NAME", "GRADIO_SHARE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PUBLIC:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up; each leads to a private address, which may be."""
    names: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        names.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


def refused(door: Gate, typed: str) -> str:
    with pytest.raises(ServerError) as told:
        door.admit(typed)
    # What was typed may hold a password, or be markup.
    assert typed not in str(told.value)
    assert typed not in told.value.fields.values()
    return told.value.key


@pytest.mark.parametrize(
    ("typed", "address", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        (" 127.0.0.1:8000/v1/ ", "http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.9.8.7", "http://127.9.8.7", "http://127.9.8.7:80"),
        ("HTTP://LOCALHOST:8000/", "http://localhost:8000", "http://127.0.0.1:8000"),
        ("https://[::1]:8443", "https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_this_computer_may_be_asked_and_no_name_is_looked_up(
    typed: str, address: str, base: str, looked_up: list[str]
) -> None:
    place = gate().admit(typed)
    assert (place.address, place.base) == (address, base)
    assert looked_up == []


@pytest.mark.parametrize(
    "typed",
    [
        "http://169.254.169.254/latest",
        "http://169.254.169.254",
        "http://10.0.0.1:8000",
        "http://192.168.1.1",
        "http://172.16.0.1",
        "http://100.100.100.200",
        "http://8.8.8.8",
        "http://0.0.0.0:8000",
        "http://[::]:8000",
        "http://[fe80::1]:8000",
        "http://[fd00:ec2::254]",
        # Other ways to write 127.0.0.1, or what hides there.
        "http://2130706433:8000",
        "http://0x7f000001",
        "http://0177.0.0.1",
        "http://127.1:8000",
        "http://[::ffff:127.0.0.1]:8000",
        "http://[::ffff:169.254.169.254]",
        "http://[::127.0.0.1]",
        # Names, which lead where their owner wants, and each time elsewhere.
        "http://localhost.:8000",
        "http://localhost.example",
        "http://127.0.0.1.nip.example",
        "http://metadata.google.internal",
        # Paths of this computer that are no server's.
        "http://127.0.0.1:8000/admin",
    ],
)
def test_other_addresses_are_not_asked_nor_looked_up(typed: str, looked_up: list[str]) -> None:
    assert refused(gate(), typed) == "error.server_not_here"
    assert looked_up == []


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "http://",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70",
        "ftp://127.0.0.1",
        "unix://run/docker.sock",
        "http://user:secret@127.0.0.1:8000",
        "http://127.0.0.1:8000@evil.example",
        "http://127.0.0.1\\@evil.example",
        "http://127.0.0.1:8000?x=1",
        "http://127.0.0.1:8000#x",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:port",
        "http://127.0.0.1 :8000",
        "http://127.0.0.1:8000\r\nHost: evil.example",
        "http://[::1%25eth0]:8000",
        "http://[::1",
        "http://１２７.0.0.1:8000",
        "http://127。0。0。1",
        "<img src=x>",
        "http://" + "a" * 400,
        "http://" + "a" * 64,
        "http://a..b:8000",
    ],
)
def test_what_is_no_address_is_refused_as_such(typed: str) -> None:
    with pytest.raises(ServerError) as told:
        gate().admit(typed)
    assert told.value.key == "error.server_address"
    assert told.value.fields == {}


def test_servers_of_the_list_may_have_names_and_are_connected_to_where_they_were_looked_up(
    monkeypatch: pytest.MonkeyPatch, looked_up: list[str]
) -> None:
    monkeypatch.setenv("SPECVIZ_SERVERS", LISTED)
    door = gate()
    assert (door.mode, door.servers) == ("local", ("https://vllm.example/team", "http://10.0.0.5:8000"))
    place = door.admit("https://vllm.example:443/team/")
    assert (place.base, place.named, looked_up) == ("https://10.1.2.3:443/team", "vllm.example", ["vllm.example"])
    assert door.admit("http://127.0.0.1:1").base == "http://127.0.0.1:1"
    # What a visitor types is no server of the operator's, and gets no key of theirs.
    assert (place.gets_key, door.admit("http://127.0.0.1:1").gets_key) == (True, False)
    # Another port, path or scheme is another server.
    for typed in ("https://vllm.example:8443/team", "https://vllm.example", "http://vllm.example/team"):
        assert refused(door, typed) == "error.server_not_here"


@pytest.mark.parametrize(
    "ips",
    [
        [],
        ["169.254.169.254"],
        ["10.1.2.3", "169.254.0.1"],
        ["fe80::1"],
        ["::ffff:a9fe:a9fe"],
        ["0.0.0.0"],
        ["224.0.0.1"],
    ],
)
def test_a_listed_name_that_leads_to_no_server_is_refused(ips: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        if not ips:
            raise socket.gaierror(-2, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setenv("SPECVIZ_SERVERS", LISTED)
    with pytest.raises(ServerError) as told:
        gate().admit("https://vllm.example/team")
    assert told.value.key == "error.server_resolves"


@pytest.mark.parametrize(
    ("name", "value", "is_public"),
    [
        ("SPACE_ID", "me/space", True),
        ("SPECVIZ_PUBLIC", "1", True),
        ("SPECVIZ_PUBLIC", "0", False),
        ("GRADIO_SERVER_NAME", "0.0.0.0", True),
        ("GRADIO_SERVER_NAME", "192.168.1.5", True),
        ("GRADIO_SERVER_NAME", "127.0.0.1", False),
        ("GRADIO_SERVER_NAME", "localhost", False),
        ("GRADIO_SHARE", "True", True),
        ("GRADIO_SHARE", "False", False),
    ],
)
def test_a_public_page_asks_the_servers_of_its_list_and_no_others(
    name: str, value: str, is_public: bool, monkeypatch: pytest.MonkeyPatch, looked_up: list[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert gate().mode == ("off" if is_public else "local")
    if is_public:
        assert refused(gate(), "http://127.0.0.1:8000") == "error.server_off"
    monkeypatch.setenv("SPECVIZ_SERVERS", LISTED)
    assert gate().mode == ("listed" if is_public else "local")
    assert gate().admit("10.0.0.5:8000").ip == "10.1.2.3"
    if is_public:
        assert refused(gate(), "http://127.0.0.1:8000") == "error.server_not_listed"


def test_an_entry_that_is_no_address_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_SERVERS", "http://127.0.0.1:8000, http://user:secret@10.0.0.5")
    with pytest.raises(ServerError) as told:
        gate()
    assert (told.value.key, told.value.fields) == ("error.server_list", {"number": 2})
    assert "secret" not in str(told.value)


def test_the_command_line_asks_whom_it_is_told_to() -> None:
    place = Place.of("http://vllm.internal:8000/v1")
    assert (place.address, place.base, place.ip) == ("http://vllm.internal:8000", "http://vllm.internal:8000", None)
