"""The directive `curves`: draws a file of docs/research/figures/reproduce/ and names the command that printed it."""

import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent / "benchmarks" / "reproduce"))

from _results import draw, load  # noqa: E402

FIGURES, PICTURES = DOCS / "research" / "figures" / "reproduce", DOCS / "auto" / "curves"


class Curves(Directive):
    """A picture of the curves of one file, with its title, its command and its caveats."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw the file if it is newer than its picture, and return the figure."""
        path = FIGURES / f"{self.arguments[0]}.csv"
        picture = PICTURES / f"{self.arguments[0]}.svg"
        self.state.document.settings.record_dependencies.add(str(path))
        if not picture.exists() or picture.stat().st_mtime < path.stat().st_mtime:
            draw(path, picture)
        notes, caveats, _ = load(path)
        image = nodes.image(uri=f"/{picture.relative_to(DOCS)}", alt=notes["title"])
        caption = nodes.caption("", "", nodes.Text(" ".join([f"{notes['title']}.", *caveats]) + " "))
        caption += nodes.literal("", notes["command"])
        return [nodes.figure("", image, caption)]


def setup(site: Sphinx) -> dict[str, bool]:
    """Make the directive known."""
    site.add_directive("curves", Curves)
    return {"parallel_read_safe": True}
