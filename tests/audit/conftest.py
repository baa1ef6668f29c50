"""Small plans to audit, and a way to break them."""

from contextlib import nullcontext

import numpy as np
import pytest

from fairveil._random import secret_coins
from fairveil.accounting.composition import calibrate
from fairveil.audit.games import Game, Subject, audit_game
from fairveil.audit.transcript import Canary, Recorded
from fairveil.privacy.plan import Plan, Release, Stage

EPSILON, DELTA = 4.0, 1e-5


def plan_of(*names, law="gaussian", rate=1.0, n_steps=4, kind=Stage, epsilon=EPSILON):
    """Return a plan of one stage that costs this epsilon by its own pricing."""

    def stage(noise):
        releases = tuple(Release(name, law, noise) for name in names)
        return kind("train", releases, 1.0, {-1: rate}, n_steps)

    noise = calibrate(lambda noise: [stage(noise).event], epsilon, DELTA)
    return Plan((stage(noise),), epsilon, DELTA)


def audited(plan, query, bound, repeats, canary=None, **options):
    """Return the audit of a plan whose only release makes this query at every step."""
    (stage,) = plan.stages
    batch = [Recorded(query, bound, stage.releases[0].name, options)]
    canary = canary or Canary.at(np.full(1, 1e4, np.float32), 1, 0)
    script = {stage.name: [batch] * stage.n_steps}
    return audit_game(Game(Subject(plan), canary, secret_coins(), (script,)), repeats)


@pytest.fixture(autouse=True)
def no_threads_to_limit(monkeypatch):
    """Leave out what takes longest in a tiny training: a limit on threads, which the whole test module has."""
    monkeypatch.setattr("fairveil.training.run.threadpool_limits", lambda *_, **__: nullcontext())
