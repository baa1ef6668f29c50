"""Decision rules: do decisions follow the published law, by the right group's row, and by nothing else?"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special

from fairveil.models.rules import (
    RULES,
    Argmax,
    RandomizedByKey,
    RandomizedThresholds,
    TiltedArgmax,
    label_probabilities,
)

NEVER, ALWAYS = np.inf, -np.inf
THREE_GROUPS = RandomizedThresholds(
    np.array([[-0.5, 0.5, 1.5], [0.2, 0.0, 0.0], [ALWAYS, 0.0, NEVER]]),
    np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.25, 0.6, 0.15]]),
)
JITTERED = RandomizedThresholds(THREE_GROUPS.thresholds, THREE_GROUPS.weights, jitter=0.8)
ONE_EACH = RandomizedThresholds(np.array([[-1.0], [0.0], [1.0]]), np.ones((3, 1)))
TABLES = np.array([[[1.0, 0.3], [-0.2, 1.0]], [[0.4, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
JOINT = np.array([[[1.0, -0.4, 1.2, 0.1], [0.1, 1.0, -0.3, 0.9]]])
CASES = {
    "most likely": Argmax(),
    "drawn": RandomizedByKey(),
    "one threshold": ONE_EACH,
    "thresholds": THREE_GROUPS,
    "thresholds with jitter": JITTERED,
    "tilted": TiltedArgmax(TABLES),
    "tilted with jitter": TiltedArgmax(TABLES, jitter=0.1),
}
rules = pytest.mark.parametrize("rule", CASES.values(), ids=CASES.keys())
fast = settings(max_examples=60)
LOGITS = st.floats(-30, 30, width=32)
UNIT = st.floats(0, 1, exclude_max=True)


def margins_to_logits(margins):
    margins = np.asarray(margins, dtype=np.float64)
    return np.stack([-margins / 2, margins / 2])


def a_crowd(rng, n=400, n_outputs=2):
    """Logits, group codes and lots of n people."""
    return 2 * rng.standard_normal((n_outputs, n)), rng.integers(0, 3, n), rng.random((2, n))


# --- promises of every rule ---------------------------------------------------------------------------------


def test_every_registered_rule_is_tried():
    assert {type(rule) for rule in CASES.values()} == set(RULES.values())


@rules
def test_the_law_is_one_probability_a_class(rule, rng):
    logits, groups, _ = a_crowd(rng)
    law = rule.distribution(logits, groups)
    assert law.shape == (400, 2)
    assert (law >= 0).all()
    np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)
    assert law.min(axis=0).max() < 0.5 < law.max(axis=0).min()  # both decisions occur


@rules
def test_what_the_law_is_certain_of_is_decided_by_every_uniform(rule, rng):
    if getattr(rule, "jitter", 0) and isinstance(rule, TiltedArgmax):
        rule = TiltedArgmax(rule.weights)  # its law says whom ties go to without lots
    logits, groups, uniforms = a_crowd(rng, n=3000)
    logits = 1000 * logits if isinstance(rule, RandomizedByKey) else logits  # what is drawn is certain at the ends only
    law, decided = rule.distribution(logits, groups), rule.decide(logits, groups, uniforms)
    assert law[np.arange(3000), decided].min() > 0
    certain = law.max(axis=1) == 1
    assert certain.sum() > 300
    assert np.array_equal(decided[certain], law.argmax(axis=1)[certain])


@rules
def test_uniforms_matter_only_to_rules_that_draw_them(rule, rng):
    logits, groups, uniforms = a_crowd(rng, n=3000)
    decided, again = (rule.decide(logits, groups, each) for each in (uniforms, rng.random((2, 3000))))
    assert rule.needs_uniforms == (not np.array_equal(decided, again))


@rules
def test_groups_matter_only_to_rules_that_read_them(rule, rng):
    logits, groups, uniforms = a_crowd(rng, n=3000)
    decided, turned = (rule.decide(logits, codes, uniforms) for codes in (groups, (groups + 1) % 3))
    assert rule.reads_group == (not np.array_equal(decided, turned))
    laws = [rule.distribution(logits, codes) for codes in (groups, (groups + 1) % 3)]
    assert rule.reads_group == (not np.array_equal(*laws))


@rules
def test_a_decision_depends_on_the_persons_own_row_only(rule, rng):
    logits, groups, uniforms = a_crowd(rng, n=60)
    whole = rule.decide(logits, groups, uniforms)
    alone = [rule.decide(logits[:, i : i + 1], groups[i : i + 1], uniforms[:, i : i + 1])[0] for i in range(60)]
    assert whole.tolist() == alone
    assert set(alone) == {0, 1}


@rules
def test_nobody_is_decided_calmly(rule):
    nobody = np.empty((2, 0)), np.empty(0, dtype=np.int16)
    assert rule.decide(*nobody, np.empty((2, 0))).shape == (0,)
    assert rule.distribution(*nobody).shape == (0, 2)


@pytest.mark.parametrize(
    "rule, is_random, needs_uniforms",
    [
        (Argmax(), False, False),
        (ONE_EACH, False, False),
        (RandomizedThresholds(np.zeros((2, 2)), np.array([[1.0, 0.0], [0.0, 1.0]])), False, False),
        (RandomizedThresholds(np.zeros((2, 2)), np.array([[1.0, 0.0], [0.5, 0.5]])), True, True),
        (RandomizedThresholds(np.zeros((2, 1)), np.ones((2, 1)), jitter=0.1), False, True),
        (TiltedArgmax(TABLES), False, False),
        (TiltedArgmax(TABLES, jitter=0.1), False, True),
    ],
)
def test_a_rule_says_whether_it_is_random_and_draws_uniforms(rule, is_random, needs_uniforms):
    assert (rule.is_random, rule.needs_uniforms) == (is_random, needs_uniforms)


# --- thresholds ---------------------------------------------------------------------------------------------

POINTS = np.array([-2.0, -0.7, -0.1, 0.0, 0.1, 0.3, 0.55, 1.2, 1.5, 4.0])
N_LOTS = 20_000


def frequencies(rule, uniforms):
    """How often people at each point and of each group are decided for class 1."""
    logits = margins_to_logits(np.repeat(POINTS, N_LOTS))
    return np.array(
        [
            rule.decide(logits, np.full(logits.shape[1], group), uniforms).reshape(-1, N_LOTS).mean(axis=1)
            for group in range(3)
        ]
    )


def laws(rule):
    return np.array(
        [rule.distribution(margins_to_logits(POINTS), np.full(len(POINTS), group))[:, 1] for group in range(3)]
    )


def is_plausible(seen, law):
    """Within five standard errors everywhere; exactly so where the law is certain."""
    return (np.abs(seen - law) <= 5 * np.sqrt(law * (1 - law) / N_LOTS)).all()


@pytest.mark.parametrize("rule", [THREE_GROUPS, JITTERED], ids=["plain", "jitter"])
def test_people_are_decided_as_often_as_the_law_says(rule, rng):
    """Power: a standard error is at most 0.0036, so a law that is off by 0.036 somewhere fails surely."""
    seen = frequencies(rule, rng.random((2, len(POINTS) * N_LOTS)))
    assert is_plausible(seen, laws(rule))
    for wrong in (
        RandomizedThresholds(rule.thresholds + 0.3, rule.weights, rule.jitter),
        RandomizedThresholds(rule.thresholds, rule.weights[:, ::-1], rule.jitter),
        RandomizedThresholds(rule.thresholds[[1, 0, 2]], rule.weights[[1, 0, 2]], rule.jitter),
        RandomizedThresholds(rule.thresholds[[0, 2, 1]], rule.weights[[0, 2, 1]], rule.jitter),
        RandomizedThresholds(rule.thresholds, rule.weights, 0.8 - rule.jitter),
    ):
        assert not is_plausible(seen, laws(wrong))


def test_the_two_uniforms_of_a_person_have_different_uses(rng):
    """With one lot for threshold and jitter alike the frequencies leave the law, and the check sees it."""
    uniforms = rng.random(len(POINTS) * N_LOTS)
    assert not is_plausible(frequencies(JITTERED, np.stack([uniforms, uniforms])), laws(JITTERED))


def test_the_law_equals_an_exact_count_of_uniforms(rng):
    """Both lots on a grid of 100 x 100 midpoints, in plain Python fractions for one group."""
    middles = [Fraction(2 * i + 1, 200) for i in range(100)]
    thresholds, ends = (-0.5, 0.5, 1.5), (Fraction(1, 5), Fraction(7, 10))
    for margin in (-0.3, 0.2, 0.7, 1.3):
        n_above = sum(
            margin + 0.8 * float(jitter - Fraction(1, 2)) > thresholds[sum(lot >= end for end in ends)]
            for lot in middles
            for jitter in middles
        )
        law = JITTERED.distribution(margins_to_logits([margin]), np.zeros(1, dtype=int))[0, 1]
        assert law == pytest.approx(n_above / 10_000, abs=0.01)
        assert 0.05 < law < 0.95


@fast
@given(
    margins=arrays(np.float64, 30, elements=st.floats(-50, 50)),
    uniforms=arrays(np.float64, (2, 1), elements=UNIT),
    group=st.integers(0, 2),
    jitter=st.sampled_from([0.0, 1e-3, 0.8, 20.0]),
)
def test_a_higher_margin_never_turns_a_decision_down(margins, uniforms, group, jitter):
    rule = RandomizedThresholds(THREE_GROUPS.thresholds, THREE_GROUPS.weights, jitter)
    logits, groups = margins_to_logits(np.sort(margins)), np.full(30, group)
    assert (np.diff(rule.decide(logits, groups, np.repeat(uniforms, 30, axis=1))) >= 0).all()
    assert (np.diff(rule.distribution(logits, groups)[:, 1]) >= -1e-12).all()


def test_each_group_has_its_own_row():
    rule = RandomizedThresholds(np.array([[1.0], [-1.0], [0.25]]), np.ones((3, 1)))
    logits, groups = margins_to_logits([0.5, 0.5, 0.5, 0.0, 0.0, 0.0]), np.array([0, 1, 2, 0, 1, 2])
    assert rule.decide(logits, groups, np.zeros((2, 6))).tolist() == [0, 1, 1, 0, 1, 0]
    swapped = RandomizedThresholds(rule.thresholds[[1, 0, 2]], rule.weights)
    assert swapped.decide(logits, groups, np.zeros((2, 6))).tolist() == [1, 0, 1, 1, 0, 0]


def test_swapped_weights_of_two_groups_change_decisions(rng):
    logits, groups, uniforms = a_crowd(rng)
    swapped = RandomizedThresholds(THREE_GROUPS.thresholds, THREE_GROUPS.weights[[2, 1, 0]])
    changed = swapped.decide(logits, groups, uniforms) != THREE_GROUPS.decide(logits, groups, uniforms)
    assert changed[groups == 0].any() and changed[groups == 2].any() and not changed[groups == 1].any()


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("threshold, decision", [(ALWAYS, 1), (NEVER, 0)])
def test_an_infinite_threshold_decides_everybody_alike(rng, jitter, threshold, decision):
    rule = RandomizedThresholds(np.full((3, 1), threshold), np.ones((3, 1)), jitter)
    logits, groups, uniforms = a_crowd(rng)
    logits[:, :2] = [[3e38, -3e38], [-3e38, 3e38]]
    assert (rule.decide(logits, groups, uniforms) == decision).all()
    assert (rule.distribution(logits, groups)[:, decision] == 1).all()


def test_a_margin_on_the_threshold_is_decided_for_class_0():
    rule = RandomizedThresholds(np.array([[0.5]]), np.ones((1, 1)))
    logits = np.array([[0.0, 0.0], [0.5, np.nextafter(0.5, 1)]])
    groups = np.zeros(2, dtype=int)
    assert rule.decide(logits, groups, np.zeros((2, 2))).tolist() == [0, 1]
    assert rule.distribution(logits, groups)[:, 1].tolist() == [0, 1]


@fast
@given(parts=st.lists(st.integers(1, 50), min_size=1, max_size=4), lot=st.floats(0, 1 - 2**-32), data=st.data())
def test_a_threshold_of_weight_0_is_never_drawn(parts, lot, data):
    """Wherever it stands. Lots here end 2^-32 below 1: the rounded sum of the weights may end there, too."""
    weights = np.zeros(7)
    places = sorted(data.draw(st.permutations(range(7)))[: len(parts)])
    weights[places] = np.array(parts) / sum(parts)
    for trap, decision in ((ALWAYS, 0), (NEVER, 1)):
        thresholds = np.where(weights > 0, -trap, trap)
        rule = RandomizedThresholds(thresholds[None], weights[None])
        assert rule.decide(np.zeros((2, 1)), np.zeros(1, dtype=int), np.full((2, 1), lot))[0] == decision


@fast
@given(lot=UNIT, kept=st.floats(0, 1), is_first=st.booleans())
def test_flips_with_any_share_never_draw_a_threshold_of_weight_0(lot, kept, is_first):
    """The rows of a flipping rule: [0, kept, 1 - kept] and [1 - kept, kept, 0]."""
    weights = np.array([[0.0, kept, 1 - kept]] if is_first else [[1 - kept, kept, 0.0]])
    thresholds = np.array([[ALWAYS, NEVER, NEVER]] if is_first else [[NEVER, NEVER, ALWAYS]])
    decided = RandomizedThresholds(thresholds, weights).decide(
        np.zeros((2, 1)), np.zeros(1, dtype=int), np.full((2, 1), lot)
    )
    assert decided.tolist() == [0]


def test_jitter_moves_only_margins_within_half_its_width(rng):
    rule = RandomizedThresholds(np.zeros((1, 1)), np.ones((1, 1)), jitter=0.6)
    margins = np.concatenate([rng.uniform(0.3, 5, 500), rng.uniform(-5, -0.3, 500), rng.uniform(-0.3, 0.3, 500)])
    decided = rule.decide(margins_to_logits(margins), np.zeros(1500, dtype=int), rng.random((2, 1500)))
    assert np.array_equal(decided[:1000], margins[:1000] > 0)
    assert (decided[1000:] != (margins[1000:] > 0)).any()


def test_jitter_splits_equal_margins_into_halves(rng):
    """Power: five standard errors of 20,000 fair lots are 0.018."""
    rule = RandomizedThresholds(np.array([[0.25]]), np.ones((1, 1)), jitter=0.1)
    decided = rule.decide(
        margins_to_logits(np.full(20_000, 0.25)), np.zeros(20_000, dtype=int), rng.random((2, 20_000))
    )
    assert abs(decided.mean() - 0.5) < 0.018


# --- the most likely class, and tilted tables ---------------------------------------------------------------


def tilted_by_hand(tables, logits, groups):
    """The decisions of a tilted rule, person by person."""
    outputs = special.softmax(np.asarray(logits, dtype=np.float64), axis=0)
    decided = []
    for person, group in enumerate(groups):
        table = tables[group if len(tables) > 1 else 0]
        sums = [sum(w * p for w, p in zip(row, outputs[:, person], strict=True)) for row in table]
        decided.append(sums.index(max(sums)))
    return decided


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_most_likely_class_has_the_highest_logit(rng, n_classes):
    logits, groups, uniforms = a_crowd(rng, n_outputs=n_classes)
    decided = Argmax().decide(logits, groups, uniforms)
    assert decided.tolist() == [max(range(n_classes), key=lambda k: column[k]) for column in logits.T]
    assert np.array_equal(Argmax().distribution(logits, groups), np.eye(n_classes)[decided])


@pytest.mark.parametrize("n_tables", [1, 3])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_identity_tables_decide_for_the_most_likely_class(rng, n_classes, n_tables):
    logits, groups, uniforms = a_crowd(rng, n_outputs=n_classes)
    rule = TiltedArgmax(np.tile(np.eye(n_classes), (n_tables, 1, 1)))
    for kind in (np.float32, np.float64):
        assert np.array_equal(rule.decide(logits.astype(kind), groups, uniforms), logits.argmax(axis=0))
    assert np.array_equal(rule.distribution(logits, groups), Argmax().distribution(logits, groups))


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_an_aware_rule_uses_the_table_of_each_persons_group(rng, n_classes):
    logits, groups, uniforms = a_crowd(rng, n_outputs=n_classes)
    tables = np.eye(n_classes) + 0.5 * rng.standard_normal((3, n_classes, n_classes))
    for codes in (groups, groups.astype(np.int16)):
        decided = TiltedArgmax(tables).decide(logits, codes, uniforms)
        assert decided.tolist() == tilted_by_hand(tables, logits, groups)
    swapped = TiltedArgmax(tables[[1, 0, 2]]).decide(logits, groups, uniforms)
    changed = swapped != decided
    assert changed[groups == 0].any() and changed[groups == 1].any() and not changed[groups == 2].any()


def test_a_joint_rule_reads_no_group_and_adds_up_all_outputs(rng):
    logits, groups, uniforms = a_crowd(rng, n_outputs=4)
    rule = TiltedArgmax(JOINT)
    assert not rule.reads_group
    decided = rule.decide(logits, groups, uniforms)
    assert decided.tolist() == tilted_by_hand(JOINT, logits, groups)
    assert np.array_equal(rule.decide(logits, np.full(400, 77), uniforms), decided)
    assert set(decided.tolist()) == {0, 1}
    assert rule.distribution(logits, groups).shape == (400, 2)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 6])
def test_jitter_gives_every_class_its_part_of_a_tie(rng, n_classes):
    """Between a half and twice an even share. Power: five standard errors of a share are at most 0.018."""
    rule = TiltedArgmax(np.eye(n_classes)[None], jitter=0.1)
    tie = np.zeros((n_classes, 20_000))
    groups = np.zeros(20_000, dtype=int)
    shares = np.bincount(rule.decide(tie, groups, rng.random((2, 20_000))), minlength=n_classes) / 20_000
    assert shares.min() > 0.5 / n_classes and shares.max() < 2 / n_classes
    assert (TiltedArgmax(np.eye(n_classes)[None]).decide(tie, groups, rng.random((2, 20_000))) == 0).all()


@fast
@given(
    logits=arrays(np.float32, (3, 8), elements=LOGITS),
    tables=arrays(np.float64, (3, 3, 3), elements=st.floats(-2, 2)),
    uniforms=arrays(np.float64, (2, 8), elements=UNIT),
    jitter=st.floats(1e-3, 0.5),
)
def test_jitter_never_changes_a_clear_decision(logits, tables, uniforms, jitter):
    """Clear is what leads by more than the width of the jitter."""
    plain, groups = TiltedArgmax(tables), np.arange(8) % 3
    scores = np.sort(plain.scores(logits, groups), axis=0)
    is_clear = scores[-1] - scores[-2] > jitter * (1 + 1e-9)
    assume(is_clear.any())
    decided = TiltedArgmax(tables, jitter).decide(logits, groups, uniforms)
    assert np.array_equal(decided[is_clear], plain.decide(logits, groups, uniforms)[is_clear])


@fast
@given(
    order=st.permutations(range(3)),
    logits=arrays(np.float32, (2, 12), elements=LOGITS),
    groups=arrays(np.int16, 12, elements=st.integers(0, 2)),
    uniforms=arrays(np.float64, (2, 12), elements=UNIT),
)
def test_renaming_groups_changes_nothing(order, logits, groups, uniforms):
    """Group g is called order[g] from now on, and its row stands there."""
    place = np.argsort(order)
    renamed = np.array(order)[groups]
    for rule, other in (
        (
            JITTERED,
            RandomizedThresholds(JITTERED.thresholds[place], JITTERED.weights[place], JITTERED.jitter),
        ),
        (TiltedArgmax(TABLES, 0.05), TiltedArgmax(TABLES[place], 0.05)),
    ):
        assert np.array_equal(rule.decide(logits, groups, uniforms), other.decide(logits, renamed, uniforms))
        assert np.array_equal(rule.distribution(logits, groups), other.distribution(logits, renamed))


# --- probabilities of labels --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups, n_classes", [(2, 2), (3, 2), (2, 5)])
def test_probabilities_of_labels_add_up_joint_outputs_over_groups(rng, n_groups, n_classes):
    logits = rng.standard_normal((n_groups * n_classes, 50))
    outputs = special.softmax(logits, axis=0)
    labels = label_probabilities(logits, n_classes)
    assert labels.shape == (n_classes, 50)
    for k in range(n_classes):
        expected = sum(outputs[group * n_classes + k] for group in range(n_groups))
        np.testing.assert_allclose(labels[k], expected, rtol=1e-12)
    np.testing.assert_allclose(labels.sum(axis=0), 1, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_of_labels_of_a_label_model_are_its_own(rng, n_classes):
    logits = rng.standard_normal((n_classes, 50))
    np.testing.assert_allclose(label_probabilities(logits, n_classes), special.softmax(logits, axis=0), rtol=1e-12)
