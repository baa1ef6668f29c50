"""Results as a notebook and `print` show them: small tables and sentences, as text or as escaped HTML.

Functions take plain facts and return text, as those of `text` and `privacy_text`, whose words they use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from fairveil.report.charts import in_words, measurement
from fairveil.report.formatting import level, whole
from fairveil.report.privacy_text import ledger_heading, ledger_row, ledger_totals
from fairveil.report.text import VERDICT_BADGES

Facts = Mapping[str, Any]

MOST_ROWS = 10
"""Entries of a ledger that a notebook shows, the newest ones; printing it shows all."""


@dataclass(frozen=True)
class Table:
    """A caption, columns of text, and notes below.

    Examples
    --------
    >>> table = Table("Two rows", ("group", "rate"), (("a", "1 %"), ("<b>", "22 %")), ("a note",))
    >>> print(table.text())
    Two rows
      group  rate
      a      1 %
      <b>    22 %
      a note
    >>> "<td>&lt;b&gt;</td>" in table.html()
    True
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the table for a terminal."""
        lines = [self.header, *self.rows] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join([self.caption, *(f"  {line}".rstrip() for line in [*cells, *self.notes])])

    def html(self) -> str:
        """Return the table for a notebook; nothing in it becomes markup."""
        header = Markup("").join(Markup("<th>{}</th>").format(name) for name in self.header)
        lines = [Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row) for row in self.rows]
        body = Markup("").join(Markup("<tr>{}</tr>").format(line) for line in lines)
        table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(header, body)
        notes = Markup("").join(Markup("<p>{}</p>").format(note.strip()) for note in self.notes)
        parts = (escape(self.caption), table if self.rows else "", notes)
        return str(Markup('<div class="fairveil"><p><strong>{}</strong></p>{}{}</div>').format(*parts))


def certificate_html(verdict: str, sentence: str) -> str:
    """Return what is certified, and the verdict before it.

    Examples
    --------
    >>> certificate_html("holds", "a < b")
    '<div class="fairveil"><p><strong>✓ holds</strong></p><p>a &lt; b</p></div>'
    """
    _, sign, words = VERDICT_BADGES.get(verdict, ("", "", verdict))
    shown = f"{sign} {words}".strip()
    return str(Markup('<div class="fairveil"><p><strong>{}</strong></p><p>{}</p></div>').format(shown, sentence))


def evaluation_table(facts: Facts) -> Table:
    """Return the rates of every group with their intervals: ``attributes positive n_rows accuracy rates confidence``.

    ``rates`` maps each rate to a mapping from groups to intervals.
    """
    names = list(facts["rates"])
    groups = list(facts["rates"][names[0]])
    rows = tuple((group, *(in_words(measurement(facts["rates"][name][group])) for name in names)) for group in groups)
    return Table(
        f"Rates of {facts['positive']} on about {whole(facts['n_rows'])} held-out rows, with "
        f"{level(facts['confidence'])} intervals",
        (" and ".join(facts["attributes"]), *(name.replace("_", " ") for name in names)),
        rows,
        (f"accuracy of all: {in_words(measurement(facts['accuracy']))}",),
    )


def ledger_table(facts: Facts) -> Table:
    """Return the newest debits of a ledger and the composed total, from the facts of `ledger_text`."""
    entries: Sequence[Facts] = facts["entries"][-MOST_ROWS:]
    n_more = len(facts["entries"]) - len(entries)
    earlier = (f"{n_more} earlier debits are not shown; print(ledger) shows all",) if n_more else ()
    rows = tuple(ledger_row(entry) for entry in entries)
    return Table(ledger_heading(facts), ("at", "purpose", "cost"), rows, (*earlier, *ledger_totals(facts)))
