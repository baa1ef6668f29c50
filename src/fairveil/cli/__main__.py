"""`python -m fairveil.cli` is `fairveil`."""

from fairveil.cli.app import main

main()
