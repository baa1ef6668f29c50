import copy
import multiprocessing
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fairveil._random import public_coins, secret_coins, seeded_for_tests
from fairveil.errors import FairveilError

pytestmark = pytest.mark.usefixtures("system_secrets")


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


def _draw_in_child(coins, answers):
    try:
        coins.normals(1)
        answers.put("went on")
    except FairveilError:
        answers.put(secret_coins().generator.bytes(16))


def test_after_a_fork_buffered_numbers_are_refused_and_new_coins_are_fresh():
    """The parent has numbers in its buffer, which a child would hand out too; its own coins differ in each child."""
    context, coins = multiprocessing.get_context("fork"), secret_coins()
    coins.normals(1)
    answers = context.Queue()
    children = [context.Process(target=_draw_in_child, args=(coins, answers)) for _ in range(3)]
    for child in children:
        child.start()
    found = [answers.get(timeout=20) for _ in children]
    for child in children:
        child.join()
    assert "went on" not in found
    assert len({*found, secret_coins().generator.bytes(16)}) == 4


def _yield_at_each_line(frame, event, _):
    time.sleep(0)  # another thread may go on here
    return _yield_at_each_line


@pytest.mark.parametrize("draw", [lambda coins: coins.normals(3), lambda coins: coins.generator.random(3)])
def test_threads_that_share_coins_never_draw_the_same_numbers(draw):
    """Threads take turns at every line, so that a number handed out without a lock is handed out twice."""
    coins, found = secret_coins(), []
    threading.settrace(_yield_at_each_line)
    try:
        threads = [
            threading.Thread(target=lambda: found.append([draw(coins).tolist() for _ in range(60)])) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.settrace(None)
    assert len(np.unique(found)) == 6 * 60 * 3


def test_a_thread_has_coins_of_its_own_where_the_caller_has_seeded_ones():
    """The switch for tests does not leak into other threads, and never makes their coins repeat."""
    with seeded_for_tests("a"), ThreadPoolExecutor(3) as pool:
        coins = list(pool.map(lambda _: secret_coins(), range(3)))
    assert all(one.is_secret for one in coins)
    assert len({one.generator.bytes(16) for one in coins}) == 3


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
