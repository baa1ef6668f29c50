"""docs/assurance/trusted-base.md lists the trusted base. Rewrite: python tests/test_trusted_base.py --write"""

import ast
import importlib
import re
import sys

from _support.source import PACKAGE, ROOT, Source, package_sources

PAGE = ROOT / "docs" / "assurance" / "trusted-base.md"

TABLES = {
    "sees records": (
        *(f"privacy/{name}.py" for name in ("veil", "records", "queries", "noise", "moments")),
        *(f"models/{name}.py" for name in ("linear", "mlp", "decoupled", "rescaled")),
    ),
    "keeps records on disk": ("scale/row_file.py", "scale/packed.py", "scale/capacity.py"),
    "keeps records on workers": ("scale/ray_records.py", "scale/shards.py"),
    "answers one row": (
        *(f"models/{name}.py" for name in ("base", "losses", "rules", "row_stable", "last_layer")),
        "privacy/votes.py",
    ),
    "encodes one row": (
        *(f"data/{name}.py" for name in ("encoding", "slots", "values", "readers", "arrow_columns", "files", "frames")),
        "methods/inputs.py",
    ),
    "carries records": (
        "fair_classifier.py",
        "methods/base.py",
        "methods/engines.py",
        "training/run.py",
        "training/tuning.py",
    ),
    "answers the holder": (
        *(f"data/{name}.py" for name in ("drafting", "guessing", "inspection", "datasets", "images")),
        *(f"cli/{name}.py" for name in ("schema", "predict")),
        "methods/explanations.py",
    ),
    "compares in public": (
        *(f"bench/{name}.py" for name in ("problems", "rivals", "yardsticks")),
        "research/boosting.py",
    ),
    "multiplies rows": ("data/coded.py", "models/products.py", "_kernels.c"),
    "randomness": ("_random.py", "privacy/sampling.py"),
    "tries code of others": ("privacy/probes.py", "methods/probing.py", "models/torch_trials.py"),
    "plays games": ("audit/games.py", "audit/transcript.py"),
    "prices numbers": tuple(
        str(source.path.relative_to(PACKAGE)) for source in package_sources() if source.name.startswith("accounting.")
    ),
    "keeps the ledger": ("privacy/plan.py", "privacy/ledger.py", "privacy/journal.py", "privacy/known_data.py"),
    "optional crossings": (
        *(
            f"privacy/{name}.py"
            for name in ("output_perturbation", "attribute", "column_counts", "selection", "penalties")
        ),
        "models/torch_module.py",
        "models/torch_gradients.py",
    ),
}
LIMITS = {"sees records": 2_300}


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


HOLDS_ROWS = (
    *(f"fairveil.privacy.records.{name}" for name in ("MemoryRecords", "Rows", "Persons", "Drawn", "Index")),
    *(f"fairveil.privacy.veil.{name}" for name in ("Records", "AnyRecords")),
    *(f"fairveil.privacy.column_counts.{name}" for name in ("RawColumn", "open_columns")),
    "fairveil.privacy.attribute.AttributeRecords",
    *(f"fairveil.scale.ray_records.{name}" for name in ("RayRecords", "ray_records")),
    "fairveil.scale.shards.Shard",
    "fairveil.privacy.moments.RowMoments",
    *(
        f"fairveil.data.readers.{name}"
        for name in ("EncodedTable", "Chunk", "load_encoded", "read_chunks", "read_table")
    ),
    *(f"fairveil.data.encoding.{name}" for name in ("Encoder", "columns_of", "canonical_texts", "numbers_of")),
    *(f"fairveil.data.{name}" for name in ("drafting.draft_schema", "guessing.ColumnCounts", "inspection.check_table")),
    *(f"fairveil.methods.inputs.{name}" for name in ("TableSource", "FileSource", "Source")),
)
"""Names of what holds, reads or encodes rows. `PublicRows` is not among them: its columns are public, and no secret."""

HIDDEN = {"_records", "_drawn", "_batches"}
"""Where a veil keeps what it hides."""


def files_outside(*kinds: str) -> list[Source]:
    inside = {file for kind in kinds for file in TABLES[kind]}
    return [one for one in package_sources() if str(one.path.relative_to(PACKAGE)) not in inside]


def test_only_listed_files_import_what_holds_rows():
    """A new file that needs records belongs on the page, or asks the veil instead."""
    importers = [
        f"{source.at(node)} {name}"
        for source in files_outside(*TABLES)
        if source.name  # the package itself names what users import
        for node, name in source.imports()
        if name in HOLDS_ROWS or name in {whole.rpartition(".")[0] for whole in HOLDS_ROWS}
    ]
    assert importers == []


def test_the_names_of_what_holds_rows_exist():
    for name in HOLDS_ROWS:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_only_the_veil_reaches_what_it_hides():
    found = [
        f"{source.at(node)} {name}"
        for source in files_outside("sees records", "keeps records on workers", "optional crossings", "plays games")
        for node, name in source.identifiers()
        if name in HIDDEN
    ]
    assert found == []


def test_only_the_audit_command_uses_audits():
    users = {
        str(source.path.relative_to(PACKAGE))
        for source in package_sources()
        for _, name in source.imports()
        if name.startswith("fairveil.audit")
    }
    assert all(user.startswith("audit/") or user == "cli/audit.py" for user in users)


def test_files_that_carry_records_read_no_row_of_them():
    """They may name records and hand them on: no column, no length, no index of them."""
    carriers = {file for file in TABLES["carries records"] if file.startswith("training/")}
    found = [
        source.at(node)
        for source in package_sources()
        if str(source.path.relative_to(PACKAGE)) in carriers
        for node in source.nodes
        if isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "records"
    ]
    assert found == []


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
