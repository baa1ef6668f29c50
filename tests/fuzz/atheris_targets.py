"""Coverage-guided search in the parsers: `python tests/fuzz/atheris_targets.py rule -max_total_time=60`.

Needs atheris, which nothing else here needs. A target fails if a parser raises anything but an error of fairveil.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    """Search in one target until its time or its runs are used up, or something is found."""
    import atheris

    with atheris.instrument_imports(include=["fairveil"]):
        from fairveil.errors import FairveilError
        from fuzz.parsers import TARGETS

    target = TARGETS[sys.argv.pop(1)]

    def once(content: bytes) -> None:
        try:
            target(content)
        except FairveilError:
            return

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
