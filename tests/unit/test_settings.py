"""The operator's settings before anything starts: one that means nothing is told in one sentence that names it."""

from __future__ import annotations

import asyncio
import os
import socket
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Any
from urllib.request import proxy_bypass

import pytest
import uvicorn
from hypothesis import assume, given
from hypothesis import strategies as st
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from spec_viz.serving.gate import is_public
from spec_viz.serving.switch import NO, YES
from spec_viz.ui import settings
from spec_viz.ui.limits import SettingError, limits_of
from tests.integration.ports import LOCAL, free_port

PREFIXES = ("SPECVIZ_", "GRADIO_SERVER_", "GRADIO_SHARE", "GRADIO_ROOT_PATH", "FORWARDED_", "WEB_", "SPACE_ID")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    for name in ("no_proxy", "NO_PROXY"):
        # Set first, so that what `tidy` sets is taken back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


WRONG = [
    ("SPECVIZ_LANGUAGE", ["fr", "vn", "en,vi", "<b>"]),
    ("SPECVIZ_HEADS", ["/nonexistent", __file__, str(Path(__file__).parent)]),
    ("SPECVIZ_TARGET", ["gpt-2"]),
    ("SPECVIZ_LINE", ["0", "many"]),
    ("SPECVIZ_PUBLIC", ["perhaps", "2", "-1", "ja"]),
    ("SPECVIZ_SHARED_MEMORY", ["perhaps", "2", "on off"]),
    ("SPECVIZ_SERVERS", ["ftp://x", "http://ok:1, http://user:secret@10.0.0.5", "http://", "a b"]),
    ("GRADIO_SERVER_PORT", ["abc", "0", "99999", "65536", "-1", "7860.0", "٣", "9" * 400]),
    ("GRADIO_SHARE", ["perhaps"]),
    ("GRADIO_ROOT_PATH", ["foo", "foo/bar", "https://", "ftp://x/y", "/a b", "/a?b", "//host/a", "/a//b", "\\a"]),
    ("FORWARDED_ALLOW_IPS", ["*", "127.0.0.1, *", "0.0.0.0/0", "::/0", "nonsense", "10.0.0.1/8", "10.0.0.*", "10.0.0"]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG for value in values])
def test_what_means_nothing_is_told_by_the_name_of_its_setting(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as caught:
        settings.check()
    told = str(caught.value)
    # A model that is not known is told as it is to a visitor.
    assert name in told or value in told
    assert len(told) < 260
    assert "\n" not in told
    assert "secret" not in told


RIGHT = [
    ("SPECVIZ_LANGUAGE", ["", "vi", " EN "]),
    ("SPECVIZ_HEADS", ["", "assets/heads"]),
    ("SPECVIZ_SERVERS", ["", "http://10.0.0.5:8000, https://vllm.example/team", "vllm"]),
    ("GRADIO_SERVER_PORT", ["", "1", "7860", " 65535 "]),
    ("GRADIO_ROOT_PATH", ["", "/", "/folder", "/folder/", "/a/b-c_d.e~f", "https://host.example/folder"]),
    ("FORWARDED_ALLOW_IPS", ["", "127.0.0.1,::1", "10.0.0.0/8, 2001:db8::/32", "10.0.0.7"]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT for value in values])
def test_what_means_something_starts(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.chdir(Path(__file__).parents[2])
    settings.check()


@pytest.mark.parametrize("word", [*YES, *NO, " YES ", "True"])
def test_yes_and_no_are_the_same_words_for_every_setting_that_switches(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    means_yes = word.strip().lower() in YES
    assert limits_of({"SPECVIZ_SHARED_MEMORY": word}).shared_memory is means_yes
    for name in ("SPECVIZ_PUBLIC", "GRADIO_SHARE"):
        with monkeypatch.context() as during:
            during.setenv(name, word)
            settings.check()
            assert is_public() is means_yes


# ---------------------------------------------------------------- proxies that are believed


def client_of(trusted: str, sender: str, said: str) -> str:
    """Who uvicorn takes the visitor for, where `sender` connects and names him as `said`."""
    seen: list[str] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    scope: Any = {"type": "http", "client": (sender, 1), "headers": [(b"x-forwarded-for", said.encode())]}
    nothing: Any = None
    asyncio.run(ProxyHeadersMiddleware(answer, trusted)(scope, nothing, nothing))
    return seen[0]


def test_who_believes_everybody_believes_the_name_that_a_visitor_makes_up() -> None:
    for trusted in ("*", "0.0.0.0/0"):
        assert client_of(trusted, "10.0.0.7", "192.0.2.1, 203.0.113.9") == "192.0.2.1"


_NETWORKS = st.lists(
    st.builds(
        lambda address, bits: str(ip_network(f"{address}/{bits}", strict=False)),
        st.ip_addresses(v=4),
        st.integers(0, 32),
    ),
    min_size=1,
    max_size=4,
)


@given(_NETWORKS, st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_behind_believed_proxies_a_visitor_is_who_connected_to_the_outermost(
    networks: list[str], visitor: IPv4Address, made_up: IPv4Address
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORWARDED_ALLOW_IPS", ",".join(networks))
        try:
            settings.check()
        except SettingError:
            assert any(ip_network(each).prefixlen == 0 for each in networks)
            return
    assume(not any(visitor in ip_network(each) for each in networks))
    proxy = str(ip_network(networks[0])[0])
    assert client_of(",".join(networks), proxy, f"{made_up}, {visitor}") == str(visitor)
    # Who comes by himself is who he is, whatever he says.
    assert client_of(",".join(networks), str(visitor), str(made_up)) == str(visitor)


# ---------------------------------------------------------------- what others read by themselves


def test_an_empty_setting_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "GRADIO_SHARE", "GRADIO_ROOT_PATH")
    for name in names:
        monkeypatch.setenv(name, " ")
    settings.tidy()
    assert not set(names) & set(os.environ)
    monkeypatch.setenv("GRADIO_SERVER_NAME", f" {LOCAL} ")
    settings.tidy()
    assert os.environ["GRADIO_SERVER_NAME"] == LOCAL


@pytest.mark.parametrize("told", ["", "intranet.example", "*"])
def test_no_proxy_is_asked_for_this_computer_and_those_stay_that_were_named(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("no_proxy", told), ("NO_PROXY", told), ("http_proxy", "http://192.0.2.1:3128")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GRADIO_SERVER_NAME", "192.0.2.7")
    settings.tidy()
    for host in (LOCAL, "localhost", "192.0.2.7", *([told] if told else [])):
        assert proxy_bypass(host), host
    assert bool(proxy_bypass("elsewhere.example")) is (told == "*")


@pytest.mark.parametrize("told", ["4", "0", "abc", ""])
def test_no_number_of_processes_troubles_the_server(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", told)
    settings.tidy()
    settings.check()
    assert uvicorn.Config("app").workers == 1


# ---------------------------------------------------------------- where to listen, and on what to run


def test_a_port_that_is_taken_is_told_and_no_other_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOCAL, 0)) as other:
        port = other.getsockname()[1]
        for name in (LOCAL, "0.0.0.0"):
            monkeypatch.setenv("GRADIO_SERVER_NAME", name)
            monkeypatch.setenv("GRADIO_SERVER_PORT", str(port))
            with pytest.raises(SettingError, match=f"Port {port} of {name} is taken.*GRADIO_SERVER_PORT"):
                settings.check_place()
            monkeypatch.delenv("GRADIO_SERVER_PORT")
            settings.check_place()
            # What Gradio tries then may all be taken.
            assert f"7860 to 7959 of {name} are all taken" in str(settings.taken())
    monkeypatch.setenv("GRADIO_SERVER_PORT", str(free_port()))
    settings.check_place()


# Somebody else's, nobody's (RFC 5737), of a kind that Gradio does not listen at, and names that lead nowhere.
@pytest.mark.parametrize("name", ["8.8.8.8", "192.0.2.1", "::1", "nowhere.invalid", "a" * 300, "1.2.3"])
@pytest.mark.parametrize("port", ["", "7860"])
def test_an_address_that_is_not_this_computer_s_is_told_as_such(
    name: str, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_NAME", name)
    monkeypatch.setenv("GRADIO_SERVER_PORT", port)
    with pytest.raises(SettingError, match="GRADIO_SERVER_NAME must be an IPv4 address of this computer") as caught:
        settings.check_place()
    assert name[:40] in str(caught.value)
    assert len(str(caught.value)) < 260


def test_a_port_that_may_not_be_listened_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", bind)
    monkeypatch.setenv("GRADIO_SERVER_PORT", "80")
    with pytest.raises(SettingError, match=r"^GRADIO_SERVER_PORT must be a port that you may listen at"):
        settings.check_place()


@pytest.mark.parametrize("device", ["toaster", "cuda:99", "mps:7", "cpu:1"])
def test_a_device_that_is_not_here_is_told_with_those_that_are(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_DEVICE", device)
    with pytest.raises(SettingError, match=f"SPECVIZ_DEVICE asks for “{device}”.* cpu"):
        settings.check_device()
    monkeypatch.setenv("SPECVIZ_DEVICE", " CPU ")
    settings.check_device()


def test_on_a_space_its_private_network_is_believed_and_nobody_else() -> None:
    text = (Path(__file__).parents[2] / "app.py").read_text(encoding="utf-8")
    listed = text.split('setdefault("FORWARDED_ALLOW_IPS", "')[1].split('"')[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORWARDED_ALLOW_IPS", listed)
        settings.check()
    assert client_of(listed, "10.1.2.3", "192.0.2.1, 203.0.113.9, 10.9.9.9") == "203.0.113.9"
