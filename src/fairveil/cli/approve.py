"""`fairveil schema approve`: a draft becomes public knowledge. It reads the schema alone, and no table."""

from pathlib import Path

from fairveil.cli._places import check_outputs
from fairveil.cli._terminal import say
from fairveil.data.schema import Schema
from fairveil.errors import InvalidParameterError
from fairveil.report.text import approval_text
