"""Refuse a site that loads anything from a network: it must open from disk."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//[^\"']+")


def refuse_network(site: Sphinx, error: Exception | None) -> None:
    """Name every page that loads a script, a style, a font or a picture from elsewhere."""
    if error is not None:
        return
    folder = Path(site.outdir)
    pages = {str(page.relative_to(folder)): page.read_text(encoding="utf-8") for page in sorted(folder.rglob("*.html"))}
    wrong = [f"{name}: {found}" for name, text in pages.items() for found in LOADED.findall(text)]
    if wrong:
        raise ExtensionError("Expected pages that load nothing from a network, got " + "; ".join(wrong))


def setup(site: Sphinx) -> dict[str, bool]:
    """Check when everything is written."""
    site.connect("build-finished", refuse_network)
    return {"parallel_read_safe": True}
