"""Two kinds of randomness: public generators that a user may seed, and secret coins that nobody can.

Noise, batches and splits are drawn from secret coins: AES in counter mode under a fresh key of the operating
system. Seeding them would void the guarantee, so it is a switch for tests: `is_secret` is then False, and whoever uses
the coins must record the release as not private.

Uniform numbers by key: the same key and the same record give the same number, everywhere.

A randomized rule must not let people try again until they like the answer. It takes its uniform numbers from a keyed
hash (SipHash-2-4, Aumasson and Bernstein 2012) of the record's values, under a key that the user holds: nobody without
the key can predict a number, and the holder can repeat every answer. The key hides no record and plays no part in the
accounting.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter

from fairveil._reading import read_bounded
from fairveil.errors import BadStructureError, FairveilError

KEY_BYTES = 16
MOST_KEY_BYTES = 1024
"""A key file holds its digits and perhaps some blanks."""
NORMALS_PER_DRAW = 8192
"""How many normal numbers are drawn at once for small requests."""

_test_seed: ContextVar[str | None] = ContextVar("fairveil_test_seed", default=None)


class Coins:
    """A stream of random numbers that knows whether anyone could foresee it; threads may share it.

    Attributes
    ----------
    generator : numpy.random.Generator
        The stream itself.
    is_secret : bool
        True only for coins keyed by the operating system.
    """

    __slots__ = ("_generator", "_lock", "_normals", "_process", "_used", "is_secret")

    def __init__(self, generator: np.random.Generator, *, is_secret: bool) -> None:
        self._generator = generator
        self._lock = Lock()
        self._process = os.getpid()
        self._normals = np.empty(0)
        self._used = 0
        self.is_secret = is_secret

    @property
    def generator(self) -> np.random.Generator:
        """The stream, refused to a forked process: it would repeat the parent's noise."""
        if os.getpid() != self._process:
            raise FairveilError("Expected coins to stay in the process that made them; make new ones after a fork.")
        return self._generator

    def normals(self, count: int) -> NDArray[np.float64]:
        """Return that many standard normal numbers, each used once; small requests share one large draw."""
        generator = self.generator
        if count > NORMALS_PER_DRAW // 4:
            return generator.standard_normal(count)
        with self._lock:  # two threads must not be handed the same numbers
            if self._used + count > len(self._normals):
                self._normals, self._used = generator.standard_normal(NORMALS_PER_DRAW), 0
            self._used += count
            return self._normals[self._used - count : self._used]

    def __reduce__(self) -> NoReturn:
        raise FairveilError("Coins hold a secret key and cannot be copied or pickled; make new ones instead.")

    def __repr__(self) -> str:
        return f"Coins(is_secret={self.is_secret})"


def fresh_secret() -> bytes:
    """Return sixteen bytes of the operating system's randomness: the only source of secret coins and keys."""
    return os.urandom(KEY_BYTES)


def secret_coins() -> Coins:
    """Return fresh coins keyed by the operating system (or the test's seed inside `seeded_for_tests`)."""
    seed = _test_seed.get()
    key = fresh_secret() if seed is None else hashlib.sha256(seed.encode()).digest()[:KEY_BYTES]
    return _keyed_coins(key, is_secret=seed is None)


def derived_coins(secret: bytes, purpose: str, *, is_secret: bool) -> Coins:
    """Return the coins of a secret for one purpose, which whoever holds the secret can toss again.

    Examples
    --------
    >>> first, again = (derived_coins(bytes(16), "split", is_secret=False).generator.random() for _ in range(2))
    >>> first == again
    True
    """
    return _keyed_coins(hashlib.sha256(secret + purpose.encode()).digest()[:KEY_BYTES], is_secret=is_secret)


def _keyed_coins(key: bytes, *, is_secret: bool) -> Coins:
    return Coins(np.random.Generator(AESCounter(key=int.from_bytes(key, "little"))), is_secret=is_secret)


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


Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Key:
    """Sixteen secret bytes that determine randomized decisions and tie-breaks; never saved in a model folder.

    Examples
    --------
    >>> Key.fresh()
    Key()
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY_BYTES:
            raise BadStructureError(f"Expected a key of {KEY_BYTES} bytes, got something else; make one anew.")

    def __reduce__(self) -> NoReturn:
        raise FairveilError(
            "Expected a key to stay in its own file, got a request to copy or pickle it; read it again with Key.read."
        )

    @classmethod
    def fresh(cls) -> "Key":
        """Return a key from the operating system's randomness."""
        return cls(fresh_secret())

    @classmethod
    def create(cls, path: str | Path) -> "Key":
        """Write a fresh key into a new file at `path` that only its owner may read."""
        key = cls.fresh()
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise BadStructureError(
                f"Expected a key file that does not exist yet, got {path}; read it instead."
            ) from None
        except OSError as problem:
            raise BadStructureError(f"Expected to write a key to {path}, got {problem.strerror}.") from None
        with os.fdopen(handle, "w") as file:
            file.write(key.secret.hex() + "\n")
        return key

    @classmethod
    def read(cls, path: str | Path) -> "Key":
        """Return the key in the file at `path`; one that others may read is refused."""
        text = read_bounded(Path(path), "a key file (Key.create makes one)", MOST_KEY_BYTES)
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & 0o077:
            raise BadStructureError(
                f"Expected {path} to be readable by its owner only, got mode {mode:o}; run chmod 600 on it."
            )
        try:
            return cls(bytes.fromhex(text.decode("ascii").strip()))
        except ValueError:
            raise BadStructureError(f"Expected a key of {2 * KEY_BYTES} hex digits in {path}, got others.") from None


KeyOrPath = Key | str | Path
"""A key, or the file that holds it."""


def uniforms_of_rows(key: Key, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return two independent numbers in [0, 1) for each row of a table, shape (2, n_rows), from that row's bytes alone.

    Examples
    --------
    >>> key, table = Key(bytes(16)), np.arange(6).reshape(3, 2)
    >>> bool((uniforms_of_rows(key, table)[:, 1] == uniforms_of_rows(key, table[1:2])[:, 0]).all())
    True
    """
    table = np.ascontiguousarray(rows)
    message = table.view(np.uint8).reshape(len(table), table.shape[1] * table.dtype.itemsize)
    hashes = np.stack([siphash(key.secret, message, tweak) for tweak in (0, 1)])
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def siphash(secret: bytes, message: NDArray[np.uint8], tweak: int = 0) -> Words:
    """Return SipHash-2-4 of each row of bytes; a further hash of the same row has another `tweak` of the key."""
    n_rows, length = message.shape
    padded = np.zeros((n_rows, 8 * (length // 8 + 1)), dtype=np.uint8)
    padded[:, :length], padded[:, -1] = message, length % 256
    k0, k1 = np.frombuffer(secret, dtype="<u8") ^ np.array([0, tweak], dtype=np.uint64)
    state = [
        np.full(n_rows, constant ^ k, dtype=np.uint64) for constant, k in zip(_CONSTANTS, (k0, k1, k0, k1), strict=True)
    ]
    for word in padded.view("<u8").T:
        state[3] ^= word
        _mix(state, 2)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    _mix(state, 4)
    hashed: Words = state[0] ^ state[1] ^ state[2] ^ state[3]
    return hashed


_CONSTANTS = tuple(
    np.uint64(number) for number in (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
)


def _mix(v: list[Words], n_rounds: int) -> None:
    """Do some rounds in place."""
    for _ in range(n_rounds):
        v[0] += v[1]
        v[1] = _rotated(v[1], 13) ^ v[0]
        v[0] = _rotated(v[0], 32)
        v[2] += v[3]
        v[3] = _rotated(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = _rotated(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = _rotated(v[1], 17) ^ v[2]
        v[2] = _rotated(v[2], 32)


def _rotated(word: Words, by: int) -> Words:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))
