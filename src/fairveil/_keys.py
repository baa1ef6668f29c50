"""Uniform numbers by key: the same key and the same record give the same number, everywhere.

A randomized rule must not let people try again until they like the answer. It takes its uniform numbers from a keyed
hash (SipHash-2-4, Aumasson and Bernstein 2012) of the record's values, under a key that the user holds: nobody without
the key can predict a number, and the holder can repeat every answer. The key hides no record and plays no part in the
accounting.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairveil.errors import BadStructureError

KEY_BYTES = 16
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Key:
    """Sixteen secret bytes that decide randomized answers and break ties; never written into a model folder.

    Examples
    --------
    >>> Key.fresh()
    Key()
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY_BYTES:
            raise BadStructureError(
                f"Expected a key of {KEY_BYTES} bytes, got something else; make one anew."
            )

    @classmethod
    def fresh(cls) -> "Key":
        """Return a key from the operating system's randomness."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def create(cls, path: str | Path) -> "Key":
        """Write a fresh key into a new file that only its owner may read."""
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
        """Return the key in a file; one that others may read is refused."""
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
            text = Path(path).read_bytes()
        except OSError as problem:
            raise BadStructureError(
                f"Expected a key file at {path}, got {problem.strerror}; make one with Key.create."
            ) from None
        if mode & 0o077:
            raise BadStructureError(
                f"Expected {path} to be readable by its owner only, got mode {mode:o}; run chmod 600 on it."
            )
        try:
            return cls(bytes.fromhex(text.decode("ascii").strip()))
        except ValueError:
            raise BadStructureError(
                f"Expected a key of {2 * KEY_BYTES} hex digits in {path}, got others."
            ) from None


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
        np.full(n_rows, constant ^ k, dtype=np.uint64)
        for constant, k in zip(_CONSTANTS, (k0, k1, k0, k1), strict=True)
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
    np.uint64(number)
    for number in (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
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
