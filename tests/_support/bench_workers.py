"""What happens in the workers of a bench, in a module that they can import."""

import os
import signal

from fairveil.bench.running import result_in


def die_for_dpsgd(run, folder):
    """Do a run, or end as if the kernel had ended the process."""
    if run.contender == "dpsgd":
        os.kill(os.getpid(), signal.SIGKILL)
    return result_in(run, folder)
