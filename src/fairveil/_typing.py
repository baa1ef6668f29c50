"""Arrays by the precision of their numbers, so that a name says which one is meant."""

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
