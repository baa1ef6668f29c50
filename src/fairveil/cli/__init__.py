"""The command line: `fairveil train explain check ledger schema`.

Options live in `app`; the work of each command in a module that is loaded when the command is called, so that
`fairveil --help` is quick.
"""

from fairveil.cli.app import main

__all__ = ["main"]
