"""Everything that a grid may name: methods of the registry, yardsticks, rivals. Loading this module registers them."""

from fairveil.bench.contenders import Contender, contenders, register
from fairveil.bench.yardsticks import YARDSTICKS
from fairveil.data.schema_errors import close_match
from fairveil.errors import InvalidParameterError

OTHERS = (*YARDSTICKS,)
"""Contenders beside the methods of the registry; those of other packages are added here."""

register(*OTHERS)


def contender_named(name: str) -> Contender:
    """Return the contender of this name; refuse unknown names."""
    known = contenders()
    if name not in known:
        raise InvalidParameterError(
            f"Expected methods among {', '.join(known)}; got {name!r}{close_match(name, list(known))}."
        )
    return known[name]
