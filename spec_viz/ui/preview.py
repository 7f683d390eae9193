"""The head of the page as others read it: link previews, a browser's tab, a phone that keeps the page.

Gradio's template says there that it is Gradio's, with a picture from elsewhere, and its manifest lies outside the
folder in which a proxy may serve the page.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from urllib.parse import quote

from spec_viz.content.files import ASSETS
from spec_viz.ui.wording import usual_language, words

_OTHERS = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>\s*')
_MANIFEST = b'<link rel="manifest" href="/manifest.json" />'


def introduced(page: bytes) -> bytes:
    """A page of Gradio's that introduces itself as SpecViz; everything else stays as it is."""
    # What stands in scripts is no head: it may quote one.
    head, script, rest = page.partition(b"<script")
    if not script:
        return page
    return _OTHERS.sub(b"", head) + _own() + script + rest.replace(_MANIFEST, b"", 1)


def _own() -> bytes:
    said = escape(words(usual_language())("shell.preview"))
    return (
        "<title>SpecViz</title>"
        '<meta property="og:type" content="website"><meta property="og:title" content="SpecViz">'
        f'<meta property="og:description" content="{said}"><meta name="description" content="{said}">'
        '<meta name="twitter:card" content="summary">'
        f'<link rel="icon" type="image/svg+xml" href="{_icon()}"><link rel="manifest" href="sv/manifest.json">'
    ).encode()


@cache
def _icon() -> str:
    """The icon within the page: a file would be asked for again at every step, whenever the address changes."""
    return f"data:image/svg+xml,{quote((ASSETS / 'icon.svg').read_text(encoding='utf-8'))}"
