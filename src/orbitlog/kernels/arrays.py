"""Arrays for scans: numpy if kernels are compiled, else a plain-Python subset of numpy.

Both change together: a kernel that is not compiled reads memoryviews, which numpy's arrays are not. Code that must work
without the extra `fast` imports `np` and `npt` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.kernels import COMPILED

if TYPE_CHECKING or COMPILED:
    import numpy as np
    import numpy.typing as npt
else:
    from orbitlog.kernels.plain import plain_numpy as np
    from orbitlog.kernels.plain import plain_numpy as npt

__all__ = ["np", "npt"]
