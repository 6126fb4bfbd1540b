"""Loads, stores and copies at any byte address: the machine instructions under every kernel.

Everything on disk is big-endian and unaligned; a load with alignment 1 and a byte swap is one instruction each.
**Nothing here checks bounds.** A kernel may call these only on bytes that it has checked to be inside its buffer.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _pointer(builder: ir.IRBuilder, base: ir.Value, position: ir.Value, bits: int) -> ir.Value:
    address = builder.add(base, position)
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _swapped(builder: ir.IRBuilder, value: ir.Value, bits: int) -> ir.Value:
    swap = builder.module.declare_intrinsic("llvm.bswap", [ir.IntType(bits)])
    return builder.call(swap, [value])


def _big_endian_load(bits: int, result: types.Type) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any, position: Any) -> Any:
        signature = result(types.uintp, types.int64)

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            value = builder.load(_pointer(builder, args[0], args[1], bits), align=1)
            return _swapped(builder, value, bits)

        return signature, codegen

    return load


def _big_endian_store(bits: int, argument: types.Type) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, position: Any, value: Any) -> Any:
        signature = types.void(types.uintp, types.int64, argument)

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            builder.store(_swapped(builder, args[2], bits), _pointer(builder, args[0], args[1], bits), align=1)
            return context.get_dummy_value()

        return signature, codegen

    return store


def _native_load(bits: int, result: types.Type) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any, position: Any) -> Any:
        signature = result(types.uintp, types.int64)

        def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            return builder.load(_pointer(builder, args[0], args[1], bits), align=1)

        return signature, codegen

    return load


load_u16 = _big_endian_load(16, types.uint16)
load_i32 = _big_endian_load(32, types.int32)
load_u32 = _big_endian_load(32, types.uint32)
load_i64 = _big_endian_load(64, types.int64)
store_i32 = _big_endian_store(32, types.int32)
store_i64 = _big_endian_store(64, types.int64)
load_u8 = _native_load(8, types.uint8)
load_half_word = _native_load(32, types.uint32)
load_word = _native_load(64, types.uint64)
"""Eight bytes in memory order, the first in the lowest bits on every machine that numba supports."""


@intrinsic
def copy_bytes(typingctx: Any, to: Any, to_position: Any, source: Any, position: Any, count: Any) -> Any:
    """Copy `count` bytes between two addresses."""
    signature = types.void(types.uintp, types.int64, types.uintp, types.int64, types.int64)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        target = _pointer(builder, args[0], args[1], 8)
        origin = _pointer(builder, args[2], args[3], 8)
        pointer = ir.IntType(8).as_pointer()
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, ir.IntType(64)])
        builder.call(copy, [target, origin, args[4], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Count the zero bits below the lowest one that is set."""
    signature = types.int64(types.uint64)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        function_type = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(1)])
        count = builder.module.declare_intrinsic("llvm.cttz", [ir.IntType(64)], function_type)
        return builder.call(count, [args[0], ir.Constant(ir.IntType(1), 0)])

    return signature, codegen


@intrinsic
def separator_mask(typingctx: Any, address: Any, position: Any) -> Any:
    """Mark which of the next 64 bytes are 0x01 or 0x02, the first in the lowest bit."""
    signature = types.uint64(types.uintp, types.int64)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        vector = ir.VectorType(ir.IntType(8), 64)
        place = builder.inttoptr(builder.add(args[0], args[1]), vector.as_pointer())
        value = builder.load(place, align=1)
        shifted = builder.sub(value, ir.Constant(vector, [1] * 64))
        found = builder.icmp_unsigned("<", shifted, ir.Constant(vector, [2] * 64))
        return builder.bitcast(found, ir.IntType(64))

    return signature, codegen


@intrinsic
def prefetch(typingctx: Any, address: Any, position: Any) -> Any:
    """Ask for a cache line ahead of its use; any address will do, even one outside the buffer."""
    signature = types.void(types.uintp, types.int64)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        function_type = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [pointer], function_type)
        place = _pointer(builder, args[0], args[1], 8)
        builder.call(ask, [place, ir.Constant(i32, 0), ir.Constant(i32, 3), ir.Constant(i32, 1)])
        return context.get_dummy_value()

    return signature, codegen
