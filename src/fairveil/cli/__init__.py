"""The command line: `fairveil train predict certify explain frontier check ledger schema`.

Commands live in `app`, their options in `options`; the work of each command in a module that is loaded when the
command is called, so that `fairveil --help` is quick.
"""

from fairveil.cli.app import main

__all__ = ["main"]
