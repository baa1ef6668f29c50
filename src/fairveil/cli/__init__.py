"""The command line: `fairveil train predict certify explain frontier check ledger schema`.

Commands and their options are in `app`; the work of each command is in a module that is loaded when the command is
used, so that `fairveil --help` is quick.
"""

from fairveil.cli.app import main as main
