import copy
import multiprocessing
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fairveil._random import public_coins, secret_coins, seeded_for_tests
from fairveil.errors import FairveilError


def test_secret_stream_is_aes_in_counter_mode(monkeypatch):
    key = bytes(range(16))
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    expected = b"".join(cipher.update(block.to_bytes(16, "little")) for block in range(8))
    monkeypatch.setattr("os.urandom", lambda n_bytes: key[:n_bytes])
    assert secret_coins().generator.bytes(128) == expected


def test_secret_coins_never_repeat_and_say_so():
    one, other = secret_coins(), secret_coins()
    assert one.is_secret
    assert one.generator.bytes(16) != other.generator.bytes(16)


def test_seeded_coins_repeat_and_are_not_secret():
    with seeded_for_tests("a"):
        one, other = secret_coins(), secret_coins()
    assert not one.is_secret
    assert one.generator.bytes(16) == other.generator.bytes(16)
    assert secret_coins().is_secret


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_coins_cannot_be_copied(take):
    with pytest.raises(FairveilError, match="secret key"):
        take(secret_coins())


def _use(coins, answers):
    try:
        coins.generator.random()
        answers.put("went on")
    except FairveilError:
        answers.put("refused")


def test_a_forked_process_cannot_repeat_the_parents_noise():
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_use, args=(secret_coins(), answers))
    child.start()
    assert answers.get(timeout=20) == "refused"
    child.join()


@pytest.mark.parametrize("count", [1, 7, 206, 2048, 2049, 20_000])
def test_normal_numbers_are_handed_out_once(count, seeded):
    coins = secret_coins()
    drawn = np.concatenate([coins.normals(count) for _ in range(max(2, 20_000 // count))])
    assert len(np.unique(drawn)) == len(drawn)
    assert abs(drawn.std() - 1) < 6 / np.sqrt(2 * len(drawn))


def test_public_coins_follow_random_state():
    assert public_coins(3).random() == public_coins(3).random()
    state = np.random.RandomState(0)
    assert public_coins(state).random() != public_coins(state).random()
    generator = np.random.default_rng(0)
    assert public_coins(generator) is generator
