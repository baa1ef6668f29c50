"""Files in, rows with stated public facts out.

==========  ============================================================================
values      a cell -> its canonical text or number, whatever type its column has
schema      the public facts of a table, kept as a TOML file
encoding    schema + rows -> numbers for a model, and class, group and person codes
readers     CSV and Parquet files -> chunks of rows, or encoded rows that count
datasets    known names -> tables with schemas (bundled/), and synthetic tasks
inspection  file + schema -> what does not fit: exact, for the data holder only
drafting    rows -> a first schema, exact (not private) or from noisy counts
==========  ============================================================================

Nothing public may depend on the rows: encoding follows from the schema alone, a bad value follows a stated
rule silently, and only bad structure or a missing public fact is an error.
"""

from pathlib import Path

DATA_FOLDER = "FAIRVEIL_DATA"
"""The environment variable that names the folder of known data sets that are not bundled."""

BUNDLED = Path(__file__).parent / "bundled"
"""The schemas of all known data sets, and the rows of those that may be redistributed."""
