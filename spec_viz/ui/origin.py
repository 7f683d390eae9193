"""Where a request comes from: this computer, our own page, or another website's."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import Scope

from spec_viz.serving.gate import is_loopback

# RFC 7239, section 4.
_FORWARDED = re.compile(r'(?:for|host)\s*=\s*"?([^",;\s]*)', re.IGNORECASE)
# An IPv6 address that has a port stands in brackets.
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?")
_PLAIN_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def is_from_here(scope: Scope, headers: Headers) -> bool:
    """Whether somebody at this computer asks, as far as a request can tell: what it may ask servers for is theirs.

    A website whose name leads to this computer names itself in Host, or in Origin where a proxy has put another Host
    there. A proxy that has been put before the page and whose operator forgot to say so tells whom it speaks for
    (Caddy, Apache, Traefik), or asks in HTTP/1.0 (nginx, as it comes), which no browser speaks. One that does neither,
    for a program that names no Origin, is not told from this computer. A header can be made up, but only to be refused.
    """
    named = [headers.get("host", ""), *(_netloc(origin) for origin in headers.getlist("origin") if origin != "null")]
    for name in ("x-forwarded-for", "x-real-ip", "x-forwarded-host"):
        named += [each.strip() for value in headers.getlist(name) for each in value.split(",")]
    for value in headers.getlist("forwarded"):
        named += _FORWARDED.findall(value)
    return scope.get("http_version") != "1.0" and all(map(_is_here, named))


def _is_here(host: str) -> bool:
    name = _parted(host)[0]
    return name == "localhost" or is_loopback(name.removeprefix("[").removesuffix("]"))


def is_own_page(headers: Headers) -> bool:
    """Whether no other website asks.

    Browsers say so themselves, where the page came over TLS or from their own computer (Fetch Metadata, section 2); to
    other pages they name their Origin. A page without an address, and a program, name none.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("none", "same-origin")
    return all(origin == "null" or names_us(_netloc(origin), headers) for origin in headers.getlist("origin"))


def names_us(netloc: str, headers: Headers) -> bool:
    """Whether this host and port are the ones that the page was asked by.

    X-Forwarded-Host has no say: a website may have a browser send it (Gradio grants that), and nginx passes it on.
    """
    (name, port), (own, own_port) = _parted(netloc.lower()), _parted(headers.get("host", "").lower())
    # A proxy may leave the port out, or name the usual one.
    return bool(own) and own == name and (own_port in ("", port) or (not port and own_port in ("80", "443")))


def _netloc(address: str) -> str:
    return address.partition("://")[2].partition("/")[0]


def _parted(host: str) -> tuple[str, str]:
    """Name and port, "" where none is given."""
    found = _HOST.fullmatch(host)
    return (found[1], found[2] or "") if found else (host, "")


def is_host(text: str) -> bool:
    """Whether this is a host as an address may name it, and nothing beside it."""
    return _PLAIN_HOST.fullmatch(text) is not None
