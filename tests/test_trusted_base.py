"""docs/assurance/trusted-base.md lists the trusted base. Rewrite: python tests/test_trusted_base.py --write"""

import re
import sys

from _support.source import PACKAGE, ROOT, package_sources

PAGE = ROOT / "docs" / "assurance" / "trusted-base.md"

TABLES = {
    "sees records": (
        *(f"privacy/{name}.py" for name in ("veil", "records", "queries", "noise", "moments")),
        *(f"models/{name}.py" for name in ("linear", "mlp", "decoupled")),
    ),
    "answers one row": tuple(f"models/{name}.py" for name in ("base", "losses", "rules", "row_stable", "last_layer")),
    "encodes one row": ("data/encoding.py", "data/values.py", "data/readers.py", "methods/inputs.py"),
    "randomness": ("_random.py",),
    "prices numbers": tuple(
        str(source.path.relative_to(PACKAGE)) for source in package_sources() if source.name.startswith("accounting.")
    ),
    "keeps the ledger": ("privacy/plan.py", "privacy/ledger.py", "privacy/journal.py"),
    "optional crossings": tuple(
        f"privacy/{name}.py" for name in ("output_perturbation", "attribute", "column_counts", "selection")
    ),
}
LIMITS = {"sees records": 2_000}


def lines_of(file: str) -> int:
    return len((PACKAGE / file).read_text().splitlines())


def table_of(kind: str) -> str:
    rows = [(f"`{file}`", f"{lines_of(file):,}") for file in TABLES[kind]]
    rows.append(("**sum**", f"**{sum(lines_of(file) for file in TABLES[kind]):,}**"))
    return "\n".join(["| file | lines |", "|---|---:|", *(f"| {file} | {lines} |" for file, lines in rows)])


def generated(page: str) -> str:
    """Return the page with every table between its two markers computed anew."""
    for kind in TABLES:
        start, end = f"<!-- table: {kind} -->", "<!-- end -->"
        pattern = rf"(?s){re.escape(start)}.*?{re.escape(end)}"
        page, n_tables = re.subn(pattern, f"{start}\n{table_of(kind)}\n{end}", page)
        assert n_tables == 1, f"Expected one table of {kind!r} in {PAGE.name}, got {n_tables}."
    return page


def test_the_page_lists_the_files_and_lines_of_today():
    page = PAGE.read_text()
    assert page == generated(page), "run: python tests/test_trusted_base.py --write"


def test_code_that_sees_records_is_short_enough_to_be_read():
    sizes = {kind: sum(lines_of(file) for file in TABLES[kind]) for kind in LIMITS}
    assert {kind: size for kind, size in sizes.items() if size > LIMITS[kind]} == {}


def test_every_file_of_privacy_and_accounting_has_one_kind_of_trust():
    files = [file for kind in TABLES.values() for file in kind]
    packages = {
        str(source.path.relative_to(PACKAGE))
        for source in package_sources()
        if source.name.startswith(("privacy.", "accounting."))
    }
    assert sorted(packages - set(files)) == []
    assert sorted(file for file in set(files) if files.count(file) > 1) == []


def test_only_the_trusted_base_reads_rows_of_records():
    """`Rows` is what queries see of a person: no file outside the trusted base may use it."""
    trusted = {file for kind in TABLES.values() for file in kind}
    readers = [
        source.at(node)
        for source in package_sources()
        for node, name in source.imports()
        if name == "fairveil.privacy.records.Rows" and str(source.path.relative_to(PACKAGE)) not in trusted
    ]
    assert readers == []


def test_accounting_imports_nothing_that_holds_data():
    allowed = ("fairveil.accounting", "fairveil.errors", "fairveil._validation", "fairveil._typing")
    offenders = [
        f"{source.at(node)} {name}"
        for source in package_sources()
        if source.name.startswith("accounting.")
        for node, name in source.imports()
        if name.startswith("fairveil") and not name.startswith(allowed)
    ]
    assert offenders == []


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    PAGE.write_text(generated(PAGE.read_text()))
