"""Do all methods train a torch module, save it without its code, and load it with a constructor?"""

import json
import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from fairveil import (
    DemographicParity,
    Descent,
    FairClassifier,
    FinalSteps,
    FlipTraining,
    Groupwise,
    GroupwiseClassifier,
    LagrangianClassifier,
    LagrangianDual,
    Ledger,
    ParityPostprocessor,
    ParityTraining,
    PrivateClassifier,
    RandomizedParityPostprocessor,
    RateConstrained,
    RateConstrainedClassifier,
    Schema,
    TorchModel,
)
from fairveil.cli import main
from fairveil.errors import InvalidParameterError
from fairveil.models.resnet import group_norm_resnet

torch = pytest.importorskip("torch", reason="needs torch: pip install 'fairveil[torch]'")
nn = torch.nn
pytestmark = pytest.mark.slow

N, SHAPE = 400, (1, 6, 6)
SCHEMA = Schema.for_arrays(36, classes=(0, 1), bounds=(-4, 4), n_public=N, groups=("a", "b"))


def network(n_classes=2):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.Tanh(),
        nn.Linear(8, n_classes),
    )  # fmt: skip


def descent(make=network, **changes):
    numbers = {"n_steps": 12, "sampling_rate": 0.3, "clip_norm": 1.0, "learning_rate": 0.3, "momentum": 0.5}
    return Descent(model=TorchModel(make, SHAPE), **(numbers | changes))


GAP = DemographicParity(tolerance=0.2)
PUBLIC = {"epsilon": 8.0, "schema": SCHEMA, "sensitive": "group", "random_state": 0}
METHODS = {
    "dpsgd": lambda: PrivateClassifier(training=descent(), holdout=0.3, **PUBLIC),
    "dpsgdf": lambda: PrivateClassifier(training=descent(clipping="groups"), **PUBLIC),
    "dpsgdg": lambda: PrivateClassifier(training=descent(clipping="global_adapt"), **PUBLIC),
    "raco": lambda: RateConstrainedClassifier(GAP, training=RateConstrained(descent=descent()), **PUBLIC),
    "fairdp": lambda: GroupwiseClassifier(
        training=Groupwise(descent=descent(learning_rate=0.02)), holdout=0.3, **PUBLIC
    ),
    "pfld": lambda: LagrangianClassifier(
        DemographicParity(), training=LagrangianDual(descent=descent(clip_norm=None)), **PUBLIC
    ),
    "pfld-gradients": lambda: LagrangianClassifier(
        DemographicParity(),
        training=LagrangianDual(descent=descent(clip_norm=None), primal="gradients", primal_bound="private"),
        **PUBLIC,
    ),
    "dp2dp": lambda: ParityPostprocessor(GAP, training=ParityTraining(base=descent()), **PUBLIC),
    "dp2dp-joint": lambda: ParityPostprocessor(
        GAP, training=ParityTraining(aware=False, base=descent(lambda: network(4))), **PUBLIC
    ),
    "dp2dp-decoupled": lambda: ParityPostprocessor(
        GAP, training=ParityTraining(decoupled=True, base=descent()), **PUBLIC
    ),
    "parity": lambda: RandomizedParityPostprocessor(GAP, training=FlipTraining(base=descent()), **PUBLIC),
}


@pytest.fixture(scope="module")
def people():
    """Images whose brightness says the label, and a group that goes with it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    X = np.clip(rng.normal(size=(N, 36)) + 1.5 * y[:, None] - 0.75, -4, 4)
    return X, y, np.where(rng.random(N) < 0.3 + 0.4 * y, "a", "b")


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch):
    monkeypatch.setattr("fairveil.methods.pf_ld.recipe.WARM_UP", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_saves_and_loads_a_module(name, people, tmp_path):
    X, y, groups = people
    clf = METHODS[name]().fit(X, y, sensitive_features=groups)
    assert clf.epsilon_spent_ <= 8.0
    assert clf.model_.n_params == len(clf.params_)
    clf.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "params.safetensors"]
    with pytest.raises(InvalidParameterError, match="module=MyNet"):
        type(clf).load(tmp_path / "model")
    make = (lambda: network(4)) if name == "dp2dp-joint" else network
    loaded = type(clf).load(tmp_path / "model", module=make)
    probabilities = (each.predict_proba(X, sensitive_features=groups) for each in (clf, loaded))
    np.testing.assert_array_equal(*probabilities)


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_a_module_learns(people, epsilon):
    X, y, groups = people
    facts = PUBLIC | {"epsilon": epsilon, "ledger": Ledger()}
    clf = PrivateClassifier(training=descent(n_steps=60), **facts).fit(X, y, sensitive_features=groups)
    assert clf.score(X, y) > 0.9
    with torch.no_grad():
        logits = clf.model_.module_with(clf.params_)(torch.from_numpy(X / 4).float().reshape(-1, *SHAPE))
    assert np.mean(logits.argmax(dim=1).numpy() == clf.predict(X)) > 0.99  # bounds of -4 and 4 become -1 and 1


def test_without_noise_it_is_plain_gradient_descent(people):
    """Full batches, no clipping, no momentum: the averaged iterates of torch's own gradient descent."""
    X, y, groups = people
    numbers = {"n_steps": 6, "sampling_rate": 1.0, "clip_norm": None, "momentum": 0.0}
    clf = PrivateClassifier(training=descent(**numbers), **(PUBLIC | {"epsilon": math.inf}))
    clf.fit(X, y, sensitive_features=groups)
    module = clf.model_.module_with(clf.model_.initial(np.random.default_rng(0)))
    inputs, labels = torch.from_numpy(X / 4).float().reshape(-1, *SHAPE), torch.from_numpy(y)
    optimizer, iterates = torch.optim.SGD(module.parameters(), lr=0.3), []
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
        iterates.append(torch.cat([param.detach().ravel() for param in module.parameters()]).numpy().copy())
    np.testing.assert_allclose(clf.params_, np.mean(iterates[3:], axis=0), atol=2e-5)


def test_a_clone_trains_the_same_module(people):
    X, y, groups = people
    clf = METHODS["dpsgd"]()
    copy = clone(clf).set_params(epsilon=math.inf)
    assert copy.training == clf.training
    assert copy.fit(X, y, sensitive_features=groups).model_.module is network


def test_the_front_door_saves_and_loads_and_the_command_line_refuses(people, tmp_path, capsys, monkeypatch):
    X, y, groups = people
    facts = {"method": "raco", "aware": False, "training": descent(), "holdout": 0.4}
    public = {name: value for name, value in PUBLIC.items() if name != "random_state"}
    clf = FairClassifier(GAP, **public, **facts).fit(X, y, sensitive_features=groups)
    assert clf.summary()["model"] == "torch"
    clf.save(tmp_path / "model")
    loaded = FairClassifier.load(tmp_path / "model", module=network)
    assert np.array_equal(loaded.predict(X), clf.predict(X))
    (tmp_path / "data.csv").write_text("x0\n1\n")
    for command in (
        ["predict", "model", "data.csv", "--out", "out.csv"],
        ["certify", "model", "data.csv", "--epsilon", "1"],
    ):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["fairveil", *command])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert left.value.code == 2 and "module=MyNet" in said.err and "Traceback" not in said.err


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (lambda: descent(lambda: network(3)), "2 outputs"),
        (
            lambda: Descent(model=TorchModel(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (2, 2))),
            "36 features",
        ),
        (lambda: Descent(model="cnn"), "one of auto, linear, mlp"),
        (lambda: descent(clip_norm=math.inf), "finite clip_norm"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_spent(people, training, message):
    X, y, groups = people
    ledger = Ledger()
    with pytest.raises(InvalidParameterError, match=message):
        PrivateClassifier(training=training(), **PUBLIC, ledger=ledger).fit(X, y, sensitive_features=groups)
    assert not ledger.state().charges


def test_several_models_of_one_module_are_refused(people):
    X, y, groups = people
    training = Groupwise(descent=descent(), finish=FinalSteps(n_models=2))
    with pytest.raises(InvalidParameterError, match="n_models"):
        GroupwiseClassifier(training=training, **PUBLIC).fit(X, y, sensitive_features=groups)


def test_a_residual_network_takes_a_private_step_on_color_images(rng):
    def make():
        return group_norm_resnet(2, widths=(8, 16), blocks=(1, 1), n_groups=4)

    X, y = rng.integers(0, 256, size=(40, 3 * 8 * 8)), np.arange(40) % 2
    schema = Schema.for_arrays(192, classes=(0, 1), bounds=(0, 255), n_public=40)
    training = Descent(TorchModel(make, (3, 8, 8)), n_steps=2, clip_norm=1.0, learning_rate=0.2)
    clf = PrivateClassifier(epsilon=1.0, schema=schema, training=training).fit(X, y)
    assert np.isfinite(clf.params_).all() and clf.predict(X).shape == (40,)


def test_a_saved_folder_holds_no_code(people, tmp_path):
    X, y, groups = people
    METHODS["dpsgd"]().fit(X, y, sensitive_features=groups).save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "model.json").read_text())["model"]
    assert set(facts) == {
        "kind", "input_shape", "n_features", "n_classes", "n_params", "fingerprint", "answers"
    }  # fmt: skip
