"""Machine code under the kernels: intrinsics that numba compiles. Imported only if the extra `fast` is installed."""
