"""Two kinds of randomness: public generators that a user may seed, and secret coins that nobody can.

Noise, batches and splits are drawn from secret coins: AES in counter mode under a fresh key of the operating
system. Seeding them would void the guarantee, so it is a switch for tests: `is_secret` is then False, and whoever uses
the coins must record the release as not private.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter

from fairveil.errors import FairveilError

KEY_BYTES = 16
NORMALS_PER_DRAW = 8192
"""How many normal numbers are drawn at once for small requests."""

_test_seed: ContextVar[str | None] = ContextVar("fairveil_test_seed", default=None)


class Coins:
    """A stream of random numbers that knows whether anyone could foresee it.

    Attributes
    ----------
    generator : numpy.random.Generator
        The stream itself.
    is_secret : bool
        True only for coins keyed by the operating system.
    """

    __slots__ = ("_generator", "_normals", "_process", "_used", "is_secret")

    def __init__(self, generator: np.random.Generator, *, is_secret: bool) -> None:
        self._generator = generator
        self._process = os.getpid()
        self._normals = np.empty(0)
        self._used = 0
        self.is_secret = is_secret

    @property
    def generator(self) -> np.random.Generator:
        """The stream, refused to a forked process: it would repeat the parent's noise."""
        if os.getpid() != self._process:
            raise FairveilError(
                "Expected coins to stay in the process that made them; make new ones after a fork."
            )
        return self._generator

    def normals(self, count: int) -> NDArray[np.float64]:
        """Return that many standard normal numbers, each used once; small requests share one large draw."""
        generator = self.generator
        if count > NORMALS_PER_DRAW // 4:
            return generator.standard_normal(count)
        if self._used + count > len(self._normals):
            self._normals, self._used = generator.standard_normal(NORMALS_PER_DRAW), 0
        self._used += count
        return self._normals[self._used - count : self._used]

    def below(self, bound: int) -> int:
        """Return a uniform whole number in [0, bound), exactly, for a bound of any size."""
        n_bits = (bound - 1).bit_length()
        n_bytes = (n_bits + 7) // 8
        while True:
            number = int.from_bytes(self.generator.bytes(n_bytes), "little") >> (8 * n_bytes - n_bits)
            if number < bound:
                return number

    def __reduce__(self) -> NoReturn:
        raise FairveilError("Coins hold a secret key and cannot be copied or pickled; make new ones instead.")

    def __repr__(self) -> str:
        return f"Coins(is_secret={self.is_secret})"


def secret_coins() -> Coins:
    """Return fresh coins keyed by the operating system (or the test's seed inside `seeded_for_tests`)."""
    seed = _test_seed.get()
    key = os.urandom(KEY_BYTES) if seed is None else hashlib.sha256(seed.encode()).digest()[:KEY_BYTES]
    generator = np.random.Generator(AESCounter(key=int.from_bytes(key, "little")))
    return Coins(generator, is_secret=seed is None)


def public_coins(random_state: Any = None) -> np.random.Generator:
    """Return the generator that `random_state` names: an int, a Generator, a RandomState or None."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    return np.random.default_rng(random_state)


def reproducible_coins(random_state: Any) -> Coins:
    """Return coins that `random_state` seeds, for fits at epsilon = infinity, where nothing is secret."""
    return Coins(public_coins(random_state), is_secret=False)


@contextmanager
def seeded_for_tests(seed: str) -> Iterator[None]:
    """Make `secret_coins` repeatable inside the block; what is released there counts as not private."""
    token = _test_seed.set(seed)
    try:
        yield
    finally:
        _test_seed.reset(token)
