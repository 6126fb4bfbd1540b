"""CRC-32 of message bodies, as zlib computes it.

Two ways to the same number. Everywhere: eight tables, eight bytes a step ("slicing by eight"). On x86 with
carry-less multiplication: 64 bytes a step are folded into 16 that have the same remainder, and the tables do the
rest (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.machine.machine_loads import load_u8, load_word

_POLYNOMIAL = 0xEDB88320
# x^(4*128+32), x^(4*128-32), x^(128+32), x^(128-32) modulo the polynomial, bits reflected.
_FOLD_64 = (0x0154442BD4, 0x01C6E41596)
_FOLD_16 = (0x01751997D0, 0x00CCAA009E)


def _slicing_tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, 8):
        for byte in range(256):
            before = int(tables[step - 1, byte])
            tables[step, byte] = before >> 8 ^ int(tables[0, before & 0xFF])
    return tables


_TABLES = _slicing_tables()
_LOW = np.uint64(0xFF)


def _cpu_folds() -> bool:
    """Return whether code that numba compiles here may use carry-less multiplication."""
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES:
        return False
    return bool(llvmlite.binding.get_host_cpu_features().get("pclmul"))


_VECTOR = ir.VectorType(ir.IntType(64), 2)


def _vector(low: int, high: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [low, high])


def _fold(builder: ir.IRBuilder, value: ir.Value, factors: ir.Value, addend: ir.Value) -> ir.Value:
    """Multiply both halves of a 128-bit remainder forward and add the next 16 bytes."""
    function_type = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, ir.IntType(8)])
    multiply = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", fnty=function_type)
    low = builder.call(multiply, [value, factors, ir.Constant(ir.IntType(8), 0x00)])
    high = builder.call(multiply, [value, factors, ir.Constant(ir.IntType(8), 0x11)])
    return builder.xor(builder.xor(low, high), addend)


def _load_vector(builder: ir.IRBuilder, address: ir.Value, displacement: int) -> ir.Value:
    place = builder.add(address, ir.Constant(address.type, displacement))
    return builder.load(builder.inttoptr(place, _VECTOR.as_pointer()), align=1)


@intrinsic
def _fold_blocks(typingctx: Any, address: Any, position: Any, blocks: Any, state: Any) -> Any:
    """Fold `blocks` times 64 bytes (at least one) and the CRC so far into two words with the same remainder."""
    pair = types.UniTuple(types.uint64, 2)
    signature = pair(types.uintp, types.int64, types.int64, types.uint32)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        i64 = ir.IntType(64)
        start = builder.add(args[0], args[1])
        lanes = [_load_vector(builder, start, 16 * lane) for lane in range(4)]
        seed = builder.insert_element(_vector(0, 0), builder.zext(args[3], i64), ir.Constant(ir.IntType(32), 0))
        lanes[0] = builder.xor(lanes[0], seed)
        entry = builder.block
        loop, body, done = (builder.append_basic_block(name) for name in ("fold", "fold.body", "fold.done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        block = builder.phi(i64)
        block.add_incoming(ir.Constant(i64, 1), entry)
        folded = [builder.phi(_VECTOR) for _ in lanes]
        for phi, lane in zip(folded, lanes, strict=True):
            phi.add_incoming(lane, entry)
        builder.cbranch(builder.icmp_signed("<", block, args[2]), body, done)
        builder.position_at_end(body)
        here = builder.add(start, builder.mul(block, ir.Constant(i64, 64)))
        for number, phi in enumerate(folded):
            phi.add_incoming(_fold(builder, phi, _vector(*_FOLD_64), _load_vector(builder, here, 16 * number)), body)
        block.add_incoming(builder.add(block, ir.Constant(i64, 1)), body)
        builder.branch(loop)
        builder.position_at_end(done)
        value = folded[0]
        for lane in folded[1:]:
            value = _fold(builder, value, _vector(*_FOLD_16), lane)
        words = [builder.extract_element(value, ir.Constant(ir.IntType(32), index)) for index in (0, 1)]
        return context.make_tuple(builder, sig.return_type, words)

    return signature, codegen


@inlined
def _step_word(state, word):
    """Take eight bytes into the CRC."""
    mixed = word ^ np.uint64(state)
    return np.uint32(
        _TABLES[7, mixed & _LOW]
        ^ _TABLES[6, (mixed >> np.uint64(8)) & _LOW]
        ^ _TABLES[5, (mixed >> np.uint64(16)) & _LOW]
        ^ _TABLES[4, (mixed >> np.uint64(24)) & _LOW]
        ^ _TABLES[3, (mixed >> np.uint64(32)) & _LOW]
        ^ _TABLES[2, (mixed >> np.uint64(40)) & _LOW]
        ^ _TABLES[1, (mixed >> np.uint64(48)) & _LOW]
        ^ _TABLES[0, (mixed >> np.uint64(56)) & _LOW]
    )


@inlined
def _crc32_tables(address, position, end, state):
    while position + 8 <= end:
        state = _step_word(state, load_word(address, position))
        position += 8
    while position < end:
        state = np.uint32((state >> np.uint32(8)) ^ _TABLES[0, (state ^ np.uint32(load_u8(address, position))) & 0xFF])
        position += 1
    return state


@inlined
def _crc32_folding(address, position, end, state):
    blocks = (end - position) // 64
    if blocks > 0:
        first, second = _fold_blocks(address, position, blocks, state)
        state = _step_word(_step_word(np.uint32(0), first), second)
        position += blocks * 64
    return _crc32_tables(address, position, end, state)


FOLDING = _cpu_folds()
_crc32 = _crc32_folding if FOLDING else _crc32_tables


@inlined
def body_crc(address, position, length):
    """Return the CRC as a record keeps it: without its top bit."""
    state = _crc32(address, position, position + length, np.uint32(0xFFFFFFFF))
    return np.int32((state ^ np.uint32(0xFFFFFFFF)) & np.uint32(0x7FFFFFFF))


@kernel
def crc32_of(data, portable):
    """Return zlib's CRC-32 of an array of bytes; `portable` uses the tables alone."""
    address = data.ctypes.data
    if portable:
        state = _crc32_tables(address, np.int64(0), np.int64(data.shape[0]), np.uint32(0xFFFFFFFF))
    else:
        state = _crc32(address, np.int64(0), np.int64(data.shape[0]), np.uint32(0xFFFFFFFF))
    return state ^ np.uint32(0xFFFFFFFF)
