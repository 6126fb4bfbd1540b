"""The same formats a gigabyte at a time: numba scans of byte ranges into columns, and columns into file bytes.

The modules load numba, numpy and Arrow; nothing that must start at once may import them at its top. Each kernel has a
twin in `formats`, and one contract suite holds the two together.

Without the extra `fast` nothing is compiled. The same kernels then run as Python over `kernels.plain`: slower, with
the same results. `kernels.arrays` and `kernels.unaligned` are the two modules that choose.
"""

from __future__ import annotations

from importlib.util import find_spec


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a finder refuses it; it is half loaded
        return False


COMPILED = all(map(_is_installed, ("numba", "numpy")))
"""Whether kernels are compiled. Found by looking for the packages: importing numba takes half a second."""
