"""A released rule and records of other people in, noisy outcomes out: what a certificate is made of."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from fairveil._random import secret_coins
from fairveil._validation import check_delta, check_epsilon
from fairveil.fairness.evaluation import Evaluation
from fairveil.privacy.ledger import Ledger, session_ledger
from fairveil.privacy.veil import AnyRecords, open_veils
from fairveil.training.run import make_counting_plan, release_outcomes

if TYPE_CHECKING:
    from fairveil.methods.base import PrivateClassifier


def count_outcomes(
    rule: "PrivateClassifier",
    read: Callable[[], AnyRecords],
    epsilon: float,
    delta: float,
    ledger: Ledger | None = None,
) -> Evaluation:
    """Return noisy (group x label x decision) counts of a fitted rule.

    Guarantees
    ----------
    (epsilon, delta)-differential privacy for the people that `read` returns, one added or removed; their ledger is
    asked before they are read, and debited before anything is counted. The rule may be known before the people are
    chosen.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    front = rule.front()
    plan = make_counting_plan(epsilon, delta, front.task.unit)
    books = session_ledger() if ledger is None else ledger
    books.check(plan.charges())
    with threadpool_limits(1, user_api="blas"):
        veil = open_veils(read(), plan, books, secret_coins(), "counts for a certificate")["holdout"]
        counts, noise_variance = release_outcomes(veil, rule.model_, rule.params_, rule.rule_, front.task)
    return Evaluation(counts, noise_variance, front.people)
