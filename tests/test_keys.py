"""Uniforms by key: the hash as published, the same uniforms for the same record, a key file for its owner alone."""

import copy
import os
import pickle
import stat
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fairveil._random import KEY_BYTES, Key, siphash, uniforms_of_rows
from fairveil.errors import BadStructureError, FairveilError

P = 1e-6
N = 50_000
OFFICIAL_KEY = bytes(range(16))
MASK = 2**64 - 1


def hashed(secret, message, tweak=0):
    """The hash of one message, as a whole number."""
    return int(siphash(secret, np.frombuffer(message, np.uint8)[None, :], tweak)[0])


def people(n=N):
    """A table of n records with nothing random about them: a number and its last digit."""
    return np.stack([np.arange(n), np.arange(n) % 10], axis=1)


def a_key(rng):
    return Key(rng.bytes(KEY_BYTES))


# --- the hash -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length, answer",
    [
        (0, "310e0edd47db6f72"),
        (1, "fd67dc93c539f874"),
        (2, "5a4fa9d909806c0d"),
        (3, "2d7efbd796666785"),
        (8, "6224939a79f5f593"),
        (15, 0xA129CA6149BE45E5.to_bytes(8, "little").hex()),
    ],
)
def test_siphash_gives_the_published_answers(length, answer):
    assert hashed(OFFICIAL_KEY, bytes(range(length))).to_bytes(8, "little").hex() == answer


def plain_siphash(secret, message):
    """SipHash-2-4 in Python's own whole numbers, word by word, as the paper has it."""
    k0, k1 = (int.from_bytes(half, "little") for half in (secret[:8], secret[8:]))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turned(x, by):
        return (x << by | x >> (64 - by)) & MASK

    def rounds(count):
        a, b, c, d = v
        for _ in range(count):
            a, c = (a + b) & MASK, (c + d) & MASK
            b, d, a = turned(b, 13) ^ a, turned(d, 16) ^ c, turned(a, 32)
            a, c = (a + d) & MASK, (c + b) & MASK
            d, b, c = turned(d, 21) ^ a, turned(b, 17) ^ c, turned(c, 32)
        v[:] = a, b, c, d

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@settings(max_examples=60)
@given(secret=st.binary(min_size=16, max_size=16), message=st.binary(max_size=600))
def test_siphash_of_any_key_and_length_equals_plain_whole_numbers(secret, message):
    assert hashed(secret, message) == plain_siphash(secret, message)


@pytest.mark.parametrize("length", [7, 8, 9, 254, 255, 256, 257, 600])
def test_siphash_of_long_messages_equals_plain_whole_numbers(rng, length):
    secret, message = rng.bytes(KEY_BYTES), rng.bytes(length)
    assert hashed(secret, message) == plain_siphash(secret, message)


def test_a_tweak_is_a_change_of_the_second_half_of_the_key():
    other = OFFICIAL_KEY[:8] + bytes([OFFICIAL_KEY[8] ^ 5]) + OFFICIAL_KEY[9:]
    assert hashed(OFFICIAL_KEY, b"somebody", tweak=5) == plain_siphash(other, b"somebody")
    assert hashed(OFFICIAL_KEY, b"somebody", tweak=5) != hashed(OFFICIAL_KEY, b"somebody")


# --- the same record, the same uniforms -------------------------------------------------------------------------


def test_another_process_gives_the_same_uniforms(rng):
    secret = rng.bytes(KEY_BYTES)
    program = (
        "import sys, numpy as np\n"
        "from fairveil._random import Key, uniforms_of_rows\n"
        "table = np.stack([np.arange(50), np.arange(50) % 10], axis=1)\n"
        "print(uniforms_of_rows(Key(bytes.fromhex(sys.argv[1])), table).tobytes().hex())\n"
    )
    answer = subprocess.run([sys.executable, "-c", program, secret.hex()], capture_output=True, text=True, check=True)
    here = uniforms_of_rows(Key(secret), people(50))
    assert bytes.fromhex(answer.stdout.strip()) == here.tobytes()
    assert len(np.unique(here)) == 100


@settings(max_examples=50)
@given(
    table=arrays(np.int32, st.tuples(st.integers(1, 20), st.integers(1, 5))),
    secret=st.binary(min_size=16, max_size=16),
    data=st.data(),
)
def test_the_uniforms_of_a_row_do_not_depend_on_the_other_rows(table, secret, data):
    key = Key(secret)
    uniforms = uniforms_of_rows(key, table)
    order = data.draw(st.permutations(range(len(table))))
    assert np.array_equal(uniforms_of_rows(key, table[order]), uniforms[:, order])
    for row in range(len(table)):
        assert np.array_equal(uniforms_of_rows(key, table[row : row + 1])[:, 0], uniforms[:, row])


def test_the_uniforms_of_a_row_do_not_depend_on_the_memory_layout(rng):
    key, table = a_key(rng), people(40)
    uniforms = uniforms_of_rows(key, table)
    assert np.array_equal(uniforms_of_rows(key, np.asfortranarray(table)), uniforms)
    assert np.array_equal(uniforms_of_rows(key, np.repeat(table, 2, axis=0)[::2]), uniforms)
    assert np.array_equal(uniforms_of_rows(key, np.repeat(table, 2, axis=1)[:, ::2]), uniforms)


def test_equal_rows_have_equal_uniforms_and_others_have_others(rng):
    uniforms = uniforms_of_rows(a_key(rng), np.array([[1, 2], [3, 4], [1, 2], [2, 1]]))
    assert np.array_equal(uniforms[:, 0], uniforms[:, 2])
    assert len(np.unique(uniforms[:, [0, 1, 3]])) == 6


def test_a_table_without_rows_has_no_uniforms(rng):
    assert uniforms_of_rows(a_key(rng), np.empty((0, 3))).shape == (2, 0)


# --- the law of the uniforms ------------------------------------------------------------------------------------
# Chi-square at p 1e-6 with n = 50,000. Over 100 bins it accepts uniform uniforms with probability 1 - 1e-6 and
# rejects uniforms^1.1 (noncentrality 490, where 220 is enough) with probability above 1 - 1e-6. A 10 x 10 table
# sees two numbers that are equal in one record of ten just as surely (noncentrality above 4,000).


def uniform_p(uniforms):
    return stats.chisquare(np.bincount((100 * uniforms).astype(int), minlength=100)).pvalue


def unrelated_p(one, other):
    table = np.bincount(10 * (10 * one).astype(int) + (10 * other).astype(int), minlength=100)
    return stats.chisquare(table).pvalue


def test_uniforms_are_uniform_in_the_unit_interval(rng):
    uniforms = uniforms_of_rows(a_key(rng), people())
    assert uniforms.shape == (2, N)
    assert uniforms.min() >= 0 and uniforms.max() < 1
    for numbers in uniforms:
        assert uniform_p(numbers) > P
        assert uniform_p(numbers**1.1) < P


def assert_unrelated(one, other):
    """A correlation within five standard errors of 0, and a table of both that chi-square accepts."""
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / N**0.5
    assert unrelated_p(one, other) > P
    mixed = np.where(np.arange(N) % 10 == 0, one, other)
    assert abs(np.corrcoef(one, mixed)[0, 1]) > 5 / N**0.5
    assert unrelated_p(one, mixed) < P


def test_the_two_numbers_of_a_record_are_unrelated(rng):
    assert_unrelated(*uniforms_of_rows(a_key(rng), people()))


def test_another_key_gives_unrelated_uniforms(rng):
    key, table = a_key(rng), people()
    for bit in (0, 64, 127):
        other = Key((int.from_bytes(key.secret, "little") ^ (1 << bit)).to_bytes(KEY_BYTES, "little"))
        for one, another in zip(uniforms_of_rows(key, table), uniforms_of_rows(other, table), strict=True):
            assert_unrelated(one, another)


@pytest.mark.parametrize("tweaks", [(0, 1), (0, 2), (1, 2)])
def test_another_tweak_gives_unrelated_uniforms(rng, tweaks):
    secret, message = rng.bytes(KEY_BYTES), people().view(np.uint8)
    one, other = (siphash(secret, message, tweak) / 2.0**64 for tweak in tweaks)
    assert_unrelated(np.minimum(one, 1 - 2**-53), np.minimum(other, 1 - 2**-53))


def test_uniforms_are_unrelated_to_those_of_the_next_record(rng):
    uniforms = uniforms_of_rows(a_key(rng), people(N + 1))[0]
    assert_unrelated(uniforms[:-1], uniforms[1:])


# --- the key and its file -----------------------------------------------------------------------------------


def assert_one_sentence(refusal):
    words = str(refusal.value)
    assert words.startswith("Expected") and words.endswith(".") and ". " not in words and "\n" not in words


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_key_file_is_made_for_its_owner_alone(tmp_path, umask):
    before = os.umask(umask)
    try:
        key = Key.create(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "key").st_mode) == 0o600
    assert Key.read(tmp_path / "key") == key
    assert Key.read(str(tmp_path / "key")).secret == key.secret


def test_every_key_is_another():
    keys = {Key.fresh().secret for _ in range(100)}
    assert len(keys) == 100 and {len(secret) for secret in keys} == {KEY_BYTES}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o666])
def test_a_key_file_that_others_may_touch_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    key = Key.create(path)
    path.chmod(mode)
    with pytest.raises(BadStructureError, match="chmod 600") as refusal:
        Key.read(path)
    assert_one_sentence(refusal)
    assert f"{mode:o}" in str(refusal.value) and key.secret.hex() not in str(refusal.value)
    path.chmod(0o600)
    assert Key.read(path) == key


def test_a_key_never_overwrites_a_file(tmp_path):
    path = tmp_path / "key"
    first = Key.create(path)
    with pytest.raises(BadStructureError, match="does not exist yet") as refusal:
        Key.create(path)
    assert_one_sentence(refusal)
    assert Key.read(path) == first


def test_a_key_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(BadStructureError, match="No such file") as refusal:
        Key.create(tmp_path / "nowhere" / "key")
    assert_one_sentence(refusal)


@pytest.mark.parametrize("where", ["absent", "."])
def test_where_there_is_no_key_file_it_is_refused(tmp_path, where):
    with pytest.raises(BadStructureError, match=r"Key\.create") as refusal:
        Key.read(tmp_path / where)
    assert_one_sentence(refusal)


SECRET = "00112233445566778899aabbccddeeff"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        SECRET[:-1].encode(),
        SECRET[:-2].encode(),
        (SECRET + "00").encode(),
        (SECRET + "\n" + SECRET).encode(),
        SECRET.replace("f", "g").encode(),
        bytes.fromhex(SECRET),
        b"\xff\xfe" * 16,
    ],
)
def test_a_damaged_key_file_is_refused_and_not_quoted(tmp_path, content):
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(BadStructureError, match="32 hex digits") as refusal:
        Key.read(path)
    assert_one_sentence(refusal)
    assert SECRET[:8] not in str(refusal.value)
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


@pytest.mark.parametrize("secret", [b"", bytes(15), bytes(17), SECRET, bytearray(16), None])
def test_a_key_of_another_length_or_kind_is_refused(secret):
    with pytest.raises(BadStructureError, match="16 bytes") as refusal:
        Key(secret)
    assert_one_sentence(refusal)
    assert SECRET not in str(refusal.value)


def test_a_key_does_not_show_itself():
    key = Key(bytes.fromhex(SECRET))
    for shown in (repr(key), str(key), f"{key}", repr([key])):
        assert "Key()" in shown
        assert SECRET not in shown and repr(key.secret)[2:-1] not in shown


def test_a_key_is_its_secret_and_nothing_else():
    key = Key(bytes.fromhex(SECRET))
    assert key == Key(bytes.fromhex(SECRET))
    assert key != Key(bytes(16))


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_key_is_neither_copied_nor_pickled(take):
    with pytest.raises(FairveilError, match="stay in its own file") as refusal:
        take(Key(bytes.fromhex(SECRET)))
    assert SECRET not in str(refusal.value)
