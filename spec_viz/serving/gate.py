"""Which servers the page may ask: those on this computer and those that its operator lists, and no others.

A page that fetches what its visitors type can be turned against the network it stands in: its metadata service, its
neighbours, itself. So an address is taken apart before anything is asked, names are looked up here, once, and the
connection goes to the address that was judged. The operator says what is allowed, by environment:

- SPECVIZ_SERVERS lists servers, comma separated; they may have names and stand in a private network.
- On a public host only those can be asked. Public is a Space (SPACE_ID), a page that listens beyond this computer
  (GRADIO_SERVER_NAME) or is shared (GRADIO_SHARE), and what SPECVIZ_PUBLIC=1 says is, as behind a proxy.

Elsewhere addresses of this computer may be typed as well: 127.0.0.1, [::1] and localhost, which is never looked up.
The command line is the operator's own and asks whom it is told to.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from spec_viz.serving.problems import ServerError
from spec_viz.serving.switch import NO

SERVERS, PUBLIC = "SPECVIZ_SERVERS", "SPECVIZ_PUBLIC"
Mode = Literal["off", "listed", "local"]
_PORTS = {"http": 80, "https": 443}
# Of an address, and of what stands between two dots of a name.
_LONGEST, _LABEL = 300, 63
_LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is: scheme, host, port, and what a proxy puts in front of its paths.

    `ip` is the address that a connection goes to, whatever the host's name would lead to then; None leaves that to
    the connection, as for a server that the operator names on the command line. `listed` is one of the operator's list.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""
    ip: str | None = None
    listed: bool = False

    @classmethod
    def of(cls, typed: str | Place) -> Place:
        """A place from an address as it is typed; ServerError where it is none."""
        if isinstance(typed, Place):
            return typed
        text = typed.strip()
        text = text if "://" in text else f"http://{text}"
        # An @ hides the host behind a user's name, a backslash or a % may be read as another letter.
        is_plain = len(text) <= _LONGEST and text.isascii() and not set(text) & set("@\\%?# \t\r\n")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _no_address() from None
        is_name = all(0 < len(label) <= _LABEL for label in host.removesuffix(".").split("."))
        if not is_plain or not text.isprintable() or parts.scheme not in _PORTS or not is_name or port == 0:
            raise _no_address()
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/").removesuffix("/v1"))

    @property
    def address(self) -> str:
        """The address, as a person would type it."""
        return f"{self.scheme}://{self.named}{self.prefix}"

    @property
    def base(self) -> str:
        """What requests are sent to: the judged address where there is one."""
        return f"{self.scheme}://{_bracketed(self.ip or self.host)}:{self.port}{self.prefix}"

    @property
    def gets_key(self) -> bool:
        """Whether the operator named it, in the list or on the command line, and no visitor of the page did."""
        return self.listed or self.ip is None

    @property
    def named(self) -> str:
        """The host and port that the server is told it was asked as."""
        return _bracketed(self.host) + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")


@dataclass(frozen=True, slots=True)
class Gate:
    """Who may be asked: `listed` are the operator's servers, `mode` says whether others can be typed."""

    mode: Mode
    listed: tuple[Place, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses that the operator lists."""
        return tuple(place.address for place in self.listed)

    def admit(self, typed: str) -> Place:
        """The place that an address names, with the address to connect to; ServerError says why it is not asked."""
        if self.mode == "off":
            raise ServerError("error.server_off", "servers cannot be asked on this host")
        place = Place.of(typed)
        if place in self.listed:
            return replace(place, ip=_look_up(place), listed=True)
        if self.mode == "listed":
            raise ServerError("error.server_not_listed", "not a server of the list", servers=", ".join(self.servers))
        ip = _LOCALHOST if place.host == "localhost" else place.host
        if not is_loopback(ip) or place.prefix:
            raise ServerError("error.server_not_here", "not a server on this computer")
        return replace(place, ip=ip)


def gate() -> Gate:
    """The gate as the environment sets it; ServerError where SPECVIZ_SERVERS holds what is no address."""
    listed: list[Place] = []
    for number, typed in enumerate(filter(str.strip, os.environ.get(SERVERS, "").split(",")), 1):
        try:
            listed.append(Place.of(typed))
        except ServerError:
            # By its number: somebody may have written a password there.
            said = f"entry {number} of {SERVERS} is no address"
            raise ServerError("error.server_list", said, number=number) from None
    if not is_public():
        return Gate("local", tuple(listed))
    return Gate("listed" if listed else "off", tuple(listed))


def is_public() -> bool:
    """Whether people beyond this computer may be looking at the page."""
    told = {name: os.environ.get(name, "").strip().lower() for name in (PUBLIC, "GRADIO_SHARE", "GRADIO_SERVER_NAME")}
    name = told["GRADIO_SERVER_NAME"]
    is_shared = any(told[each] not in NO for each in (PUBLIC, "GRADIO_SHARE"))
    return is_shared or bool(os.environ.get("SPACE_ID")) or not (name in ("", "localhost") or is_loopback(name))


def _no_address() -> ServerError:
    return ServerError("error.server_address", "not an address of a server")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether this is an address of this computer in its one plain form, and no other way to write a number."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    # Not `ip.is_loopback` for both: an IPv4 address inside an IPv6 one counts there too.
    return ip.is_loopback if ip.version == 4 else ip == ipaddress.IPv6Address("::1")


def _look_up(place: Place) -> str:
    """The address of a listed server; ServerError where it has none, or one that no server has."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    ips = [str(entry[4][0]) for entry in found]
    if not ips or not all(_is_host(ip) for ip in ips):
        # All of them: which one is first may be another each time.
        raise ServerError("error.server_resolves", f"{place.address} has no address", address=place.address)
    return ips[0]


def _is_host(text: str) -> bool:
    ip = ipaddress.ip_address(text)
    ip = (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip
    return not (ip.is_link_local or ip.is_multicast or ip.is_unspecified)
