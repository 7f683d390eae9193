"""The operator's settings, looked at before anything starts: one that means nothing ends the start with one sentence.

Gradio and uvicorn read some of them by themselves, and answer a wrong one with a traceback, with advice to open a
tunnel, or not at all.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from ipaddress import ip_network
from pathlib import Path

from spec_viz.models.weights import WeightsError, chosen_target
from spec_viz.serving.gate import gate
from spec_viz.serving.problems import ServerError
from spec_viz.ui.limits import SettingError, is_on, limits_of
from spec_viz.ui.wording import LANGUAGES, usual_language, words

LANGUAGE, HEADS, DEVICE = "SPECVIZ_LANGUAGE", "SPECVIZ_HEADS", "SPECVIZ_DEVICE"
NAME, PORT, SHARE, BELOW = "GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "GRADIO_SHARE", "GRADIO_ROOT_PATH"
PROXIES, PROCESSES = "FORWARDED_ALLOW_IPS", "WEB_CONCURRENCY"
_SWITCHES = ("SPECVIZ_PUBLIC", "SPECVIZ_SHARED_MEMORY", SHARE)
_BELOW = re.compile(r"(https?://[^\s/?#\\@]+)?(/[^\s/?#\\]+)*/?")
HERE = "127.0.0.1"
# What Gradio tries where no port is set.
_USUAL_PORTS = "7860 to 7959"


def tidy() -> None:
    """Leave others who read the settings nothing to stumble over: an empty one is none, spaces around one are none.

    An empty address to listen at would be every address, and an empty port a traceback. uvicorn reads how many
    processes to start, but Gradio starts one. Gradio asks the page for a sign of life when it starts, and a proxy on
    the way to other networks would look for it there.
    """
    for name in (NAME, PORT, SHARE, BELOW):
        os.environ[name] = os.environ.get(name, "").strip()
        if not os.environ[name]:
            del os.environ[name]
    os.environ.pop(PROCESSES, None)
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if direct.strip() != "*":
        here = filter(None, [direct, HERE, "localhost", os.environ.get(NAME, "")])
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(here)


def check() -> None:
    """SettingError for the first setting that means nothing. A device and a port are tried later."""
    language = os.environ.get(LANGUAGE, "").strip().lower()
    if language and language not in LANGUAGES:
        raise _wrong(LANGUAGE, f"must be {' or '.join(LANGUAGES)}")
    limits_of(os.environ)
    for name in _SWITCHES:
        is_on(os.environ, name)
    _check_heads()
    _check_proxies()
    set_port()
    if not _BELOW.fullmatch(os.environ.get(BELOW, "")):
        raise _wrong(BELOW, "must be a path such as /folder, or a whole address such as https://host/folder")
    try:
        chosen_target()
        gate()
    except (WeightsError, ServerError) as problem:
        raise SettingError(words(usual_language())(problem.key, **problem.fields)) from problem


def check_device() -> None:
    """SettingError where the device that is set is not here."""
    if os.environ.get(DEVICE, "").strip().lower() in ("", "cpu"):
        return
    # It takes seconds to import torch, which the page else does behind itself.
    from spec_viz.models.load import pick_device

    try:
        pick_device()
    except WeightsError as problem:
        raise SettingError(words(usual_language())(problem.key, **problem.fields)) from problem


def check_place() -> None:
    """SettingError where nothing can listen at the address and the port that are set."""
    name, port = os.environ.get(NAME, HERE), set_port()
    with socket.socket() as trial:
        # As Gradio binds: connections that a server left behind when it ended keep nobody from its port.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((name, port or 0))
        except (OSError, UnicodeError) as problem:
            number = getattr(problem, "errno", None)
            if number == errno.EADDRINUSE:
                raise taken() from problem
            if number in (errno.EACCES, errno.EPERM):
                raise _wrong(PORT, "must be a port that you may listen at, usually one from 1024 up") from problem
            told = f"must be an IPv4 address of this computer: {HERE}, or 0.0.0.0 for everybody on its networks"
            raise _wrong(NAME, told) from problem


def set_port() -> int | None:
    """The port that is set, None where any will do; SettingError for what is none."""
    given = os.environ.get(PORT, "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= 5 and 1 <= int(given) <= 65535):
        raise _wrong(PORT, "must be a whole number from 1 to 65535")
    return int(given)


def taken() -> SettingError:
    """What is said where the port that is set, or each of the usual ones, is somebody else's."""
    name = os.environ.get(NAME, HERE)
    if port := set_port():
        return SettingError(
            f"Port {port} of {name} is taken, perhaps by a SpecViz that still runs. End that, or set another port in "
            f"{PORT}."
        )
    return SettingError(f"The ports {_USUAL_PORTS} of {name} are all taken. Set a free one in {PORT}.")


def _check_heads() -> None:
    if not (given := os.environ.get(HEADS, "")):
        return
    if not any(Path(given).glob("*/config.json")):
        raise _wrong(HEADS, "must be a folder with a folder for each trained head (config.json and head.safetensors)")


def _check_proxies() -> None:
    """Who believes every sender believes the first name in X-Forwarded-For, which each visitor makes up."""
    for each in filter(None, map(str.strip, os.environ.get(PROXIES, "").split(","))):
        try:
            everybody = each == "*" or ip_network(each).prefixlen == 0
        except ValueError:
            told = "must list addresses of proxies (10.0.0.7) or their networks (10.0.0.0/8), comma separated"
            raise _wrong(PROXIES, told) from None
        if everybody:
            raise SettingError(
                f"{PROXIES} believes everybody, so any visitor could pass for another one. List the addresses or "
                f"networks of your proxies instead, such as 10.0.0.0/8; behind a proxy on this computer leave it out."
            )


def _wrong(name: str, told: str) -> SettingError:
    return SettingError(f"{name} {told}, and is “{os.environ.get(name, '').strip()[:40]}”.")
