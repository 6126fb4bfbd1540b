"""Loads, stores, copies and CRCs at any byte of a buffer: the instructions under every kernel.

With the extra `fast` an address is a number, and nothing checks bounds: a kernel may use these only on bytes that it
has checked to be inside its buffer. Without it an address is a memoryview, and they are plain Python.
"""

from __future__ import annotations

from orbitlog.kernels import COMPILED

if COMPILED:
    from orbitlog.kernels.machine.machine_crc import body_crc
    from orbitlog.kernels.machine.machine_loads import (
        copy_bytes,
        load_half_word,
        load_i32,
        load_i64,
        load_u8,
        load_u16,
        load_u32,
        load_word,
        prefetch,
        separator_mask,
        store_i32,
        store_i64,
        trailing_zeros,
    )
else:
    from orbitlog.kernels.plain.plain_loads import (
        body_crc,
        copy_bytes,
        load_half_word,
        load_i32,
        load_i64,
        load_u8,
        load_u16,
        load_u32,
        load_word,
        prefetch,
        separator_mask,
        store_i32,
        store_i64,
        trailing_zeros,
    )

__all__ = [
    "body_crc",
    "copy_bytes",
    "load_half_word",
    "load_i32",
    "load_i64",
    "load_u8",
    "load_u16",
    "load_u32",
    "load_word",
    "prefetch",
    "separator_mask",
    "store_i32",
    "store_i64",
    "trailing_zeros",
]
