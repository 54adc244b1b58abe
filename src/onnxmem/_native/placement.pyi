import numpy as np
import numpy.typing as npt

def place_in_order(
    lowers: npt.NDArray[np.int64],
    uppers: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    best_fit: bool,
) -> npt.NDArray[np.int64]: ...
