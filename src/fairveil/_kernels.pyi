from typing import Any

def class_sums(
    codes: Any, index: Any, columns: Any, numbers: Any, scaled: Any, weights: Any, biases: Any, out: Any, /
) -> None: ...
def clipped_sums(
    codes: Any,
    index: Any,
    columns: Any,
    numbers: Any,
    scaled: Any,
    n_features: int,
    pulls: Any,
    clips: bool,
    bounds: Any,
    safety: float,
    squares: Any,
    has_bias: bool,
    out: Any,
    /,
) -> None: ...
def level_counts(codes: Any, index: Any, columns: Any, numbers: Any, scaled: Any, out: Any, /) -> None: ...
def hidden_sums(
    codes: Any, index: Any, columns: Any, numbers: Any, scaled: Any, weights: Any, biases: Any, out: Any, /
) -> None: ...
def network_forward(
    codes: Any, index: Any, columns: Any, numbers: Any, scaled: Any, sizes: Any, params: Any, units: Any, logits: Any, /
) -> None: ...
def network_sums(
    codes: Any,
    index: Any,
    columns: Any,
    numbers: Any,
    scaled: Any,
    sizes: Any,
    params: Any,
    units: Any,
    pulls: Any,
    clips: bool,
    bounds: Any,
    safety: float,
    squares: Any,
    out: Any,
    /,
) -> None: ...
def clipped_loss_sums(
    codes: Any,
    index: Any,
    columns: Any,
    numbers: Any,
    scaled: Any,
    params: Any,
    y: Any,
    clips: bool,
    bounds: Any,
    safety: float,
    squares: Any,
    has_bias: bool,
    out: Any,
    /,
) -> None: ...
def two_class_pulls(logits: Any, y: Any, tilts: Any, places: Any, temperature: float, out: Any, /) -> None: ...
def add_on_grid(total: Any, noise: Any, scale: float, grid: float, out: Any, /) -> None: ...
def outer_sums(codes: Any, index: Any, columns: Any, numbers: Any, scaled: Any, deltas: Any, out: Any, /) -> None: ...
