"""Who asks, told apart as far as it can be told where nobody signs in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

_NAME = re.compile(r"[0-9a-f]{32}")
# A host that is no address (a socket, a test) is kept, but not at any length.
_MOST = 64


@dataclass(frozen=True, slots=True)
class Visitor:
    """A page that asks.

    `address` is where from: a household, or a whole school behind one router. `browser` is a name that a browser made
    up and keeps, "" where there is none. `tab` is one page until it is loaded again.

    A client may claim any browser and any tab, but no address: so names count below their address only, and an address
    has a limit of its own.
    """

    address: str
    browser: str
    tab: str

    @property
    def person(self) -> tuple[str, str]:
        """Who has one turn, in however many tabs. The nameless of an address are one."""
        return (self.address, self.browser)


def visitor_of(host: str | None, browser: Any, tab: str | None) -> Visitor:
    """The visitor behind a request: its host as the server sees it, and what the page says of itself."""
    name = browser if isinstance(browser, str) and _NAME.fullmatch(browser) else ""
    return Visitor(network(host or ""), name, tab or "")


def network(host: str) -> str:
    """What one household or school holds of an address: the address, and of IPv6 its first 64 bits.

    One computer has as many addresses behind those as it likes (RFC 4291, 2.5.1; RFC 8981).
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host[:_MOST]
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
