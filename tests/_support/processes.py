"""The program in a process of its own that has its imports done: what real signals and kills strike."""

import multiprocessing
import multiprocessing.context
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.002


def forkserver() -> multiprocessing.context.ForkServerContext:
    """Return a way to start processes in which the command line is loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fairveil.cli.train", "fairveil.cli.frontier", "fairveil.cli.predict"])
    return context


def run_program(words: tuple[str, ...], folder: str, state: str, out: str, err: str) -> None:
    """Be the program: work in a folder, with an index of ledgers, and write what it says into two files."""
    from fairveil.cli import main

    os.chdir(folder)
    os.environ["XDG_STATE_HOME"] = state
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    sys.argv = ["fairveil", *words]
    main()


class Launched:
    """The program while it runs."""

    def __init__(
        self, context: multiprocessing.context.ForkServerContext, words: tuple[object, ...], notes: Path
    ) -> None:
        self._out, self._err = notes / "out", notes / "err"
        state = os.environ["XDG_STATE_HOME"]
        arguments = (tuple(map(str, words)), str(Path.cwd()), state, str(self._out), str(self._err))
        self.process = context.Process(target=run_program, args=arguments)
        self.process.start()

    def wait_for(self, moment: Callable[[], bool]) -> None:
        """Wait until the moment has come or the program has ended."""
        started = time.monotonic()
        while self.process.is_alive() and not moment():
            assert time.monotonic() - started < PATIENCE_SECONDS
            time.sleep(PAUSE_SECONDS)

    def finish(self) -> tuple[int, str, str]:
        """Wait for the end and return the exit code, the output and the errors."""
        self.process.join(PATIENCE_SECONDS)
        assert self.process.exitcode is not None
        return self.process.exitcode, self._out.read_text(), self._err.read_text()

    def strike(self, number: int) -> tuple[int, str, str]:
        """Send a signal and return the exit code, the output and the errors."""
        if self.process.is_alive():
            os.kill(self.process.pid, number)
        return self.finish()
