"""What a model provides (logits and clipped gradient sums), and the registry of the kinds of models.

Probabilities that somebody else's classifier gave, in the place of a model's logits.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fairveil._typing import Float32Array, Float64Array
from fairveil._validation import check_number

# Values never steer: whether a floating-point warning appears would depend on single records. As a decorator
# it costs half a microsecond, as a context manager twice that.
ignore_float_warnings = np.errstate(all="ignore")


Bound = float | Float32Array
"""A clip norm for all records, or an array of shape (n_rows,); infinity clips nothing."""


class Known(NamedTuple):
    """What is already known of a batch and need not be computed again: its activations, and the norms of its rows.

    Of coded rows, `squares` says instead how often each feature counts in the squared norm (see `models/rescaled.py`).
    """

    activations: tuple[Float32Array, ...] | None = None
    row_norms: Float32Array | None = None
    squares: Float64Array | None = None


NONE = Known()


class Model(Protocol):
    """Logits and exact clipped gradient sums of one flat float32 parameter vector.

    A model holds public facts only (sizes, activation); parameters and rows arrive by call. Rows `X` are float32
    (B, n_features) or, for classes that set `reads_codes`, coded rows. Everything per class is class-major: logits and
    `dlogits` are (n_classes, B), one column per record. A trainer forms `dlogits` (the derivative of each record's
    objective by its logits), the model returns the sum over records of the clipped parameter gradients.

    Guarantees
    ----------
    Each record adds to `clipped_gradient` a vector of L2 norm at most `clip_norm` (relative excess below
    1e-5, see `fairveil.models.linear`), whatever the rows, `dlogits` and parameters hold, NaN and infinity
    included; what other records add does not depend on it. Assumes that `row_norms`, if passed, are those of
    `X`, and `activations` those of `forward(params, X)`.
    """

    @property
    def n_features(self) -> int:
        """Columns of a row."""

    @property
    def n_classes(self) -> int:
        """Rows of the class-major logits."""

    @property
    def n_params(self) -> int:
        """Length of the flat parameter vector."""

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return starting parameters drawn from public coins."""

    def forward(self, params: Float32Array, X: Any) -> tuple[Float32Array, ...]:
        """Return the activations, layer by layer; the last are the logits (n_classes, B)."""

    def logits(self, params: Float32Array, X: Any) -> Float32Array:
        """Return the logits, class-major (n_classes, B)."""

    def shifted(self, params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
        """Return parameters whose logits are higher by one offset a class, for every row."""

    def clipped_gradient(
        self, params: Float32Array, X: Any, dlogits: Float32Array, bound: Bound, known: Known = NONE
    ) -> NDArray[np.floating]:
        """Return the sum over records, in double precision, of gradients clipped to `bound`; infinity clips none."""

    def gradient_norms(self, params: Float32Array, X: Any, dlogits: Float32Array, known: Known = NONE) -> Float32Array:
        """Return each record's gradient norm (B,); infinity where it is not a finite float32."""


def reads_codes(model: Model) -> bool:
    """Say whether a model reads coded rows (its class sets `reads_codes`); all others are passed rows of float32."""
    return bool(getattr(model, "reads_codes", False))


MODEL_KINDS: dict[str, type] = {}
"""Every kind of model by the name that stands for it in saved models.

A kind is a frozen dataclass whose fields are plain values (numbers, strings, tuples of them) or other models.
"""

NOT_SAVED = {"is_saved": False}
"""Metadata of a field that is not saved with a model, because it is code or says how to compute, not what."""


def model_to_dict(model: Any) -> dict[str, Any]:
    """Return the public facts of a model, without its parameters, for JSON."""
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model) if _is_saved(field)}
    kinds = {cls: name for name, cls in MODEL_KINDS.items()}
    return {
        "kind": kinds[type(model)],
        **{name: model_to_dict(value) if type(value) in kinds else value for name, value in fields.items()},
    }


def _is_saved(field: dataclasses.Field) -> bool:
    return field.init and field.metadata.get("is_saved", True)


def model_from_dict(facts: dict[str, Any]) -> Any:
    """Return the model with these facts (see `model_to_dict`)."""
    fields: dict[str, Any] = {}
    for name, value in facts.items():
        fields[name] = model_from_dict(value) if isinstance(value, dict) else value
        if isinstance(value, list):
            fields[name] = tuple(value)
    return MODEL_KINDS[fields.pop("kind")](**fields)


def with_higher_biases(params: Float32Array, offsets: NDArray[np.floating]) -> Float32Array:
    """Return the flat parameters with the offsets added to the last entries, the class biases of every model here."""
    higher = params.copy()
    higher[-len(offsets) :] += offsets
    return higher


SMALLEST = 1e-30
"""Probabilities are held to at least this: their logarithms stay finite in single precision."""


@dataclass(frozen=True)
class PrefittedProbabilities:
    """A model without parameters: its rows are class probabilities, its logits their logarithms.

    A row that holds no probabilities (not finite, negative, all 0) counts as undecided: every class alike.
    """

    n_classes: int

    def __post_init__(self) -> None:
        check_number("n_classes", self.n_classes, whole=True, at_least=2)

    @property
    def n_features(self) -> int:
        """Columns of a row: one a class."""
        return self.n_classes

    @property
    def n_params(self) -> int:
        """None at all."""
        return 0

    def initial(self, rng: np.random.Generator) -> Float32Array:
        """Return no parameters."""
        return np.empty(0, dtype=np.float32)

    def forward(self, params: Float32Array, X: Float32Array) -> tuple[Float32Array, ...]:
        """Return the logits alone."""
        return (self.logits(params, X),)

    @ignore_float_warnings
    def logits(self, params: Float32Array, X: NDArray[np.floating]) -> Float32Array:
        """Return the logarithms of the probabilities, class-major; each row is looked at by itself."""
        is_sound = np.isfinite(X).all(axis=1) & (X >= 0).all(axis=1) & (X > 0).any(axis=1)
        sound = np.where(is_sound[:, None], X, X.dtype.type(1))
        return np.ascontiguousarray(np.log(np.maximum(sound, X.dtype.type(SMALLEST))).T)


MODEL_KINDS["given"] = PrefittedProbabilities
