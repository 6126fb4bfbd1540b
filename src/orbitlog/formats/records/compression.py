"""Compressed bodies: zlib, LZ4 frame or zstd, by the sysFlag of the message.

Clients compress and inflate; the store never does. Inflating is bounded: a few bytes can claim gigabytes.
The modules for LZ4 and zstd are loaded when the first such body is met. LZ4 is read by the package `lz4`, if it is
installed (extra `lz4`), otherwise by `lz4_frames` in plain Python.
"""

from __future__ import annotations

import functools
import importlib
import sys
import zlib
from types import ModuleType

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats.records import flags
from orbitlog.formats.records.flags import CompressionType

INFLATED_BYTES_MAX = 256 * 1024 * 1024
ZLIB_LEVEL_DEFAULT = 5
_ZSTD_WINDOW_LOG_MAX = 27  # 128 MiB: a frame that asks for more memory is refused


def compress_body(body: bytes, kind: CompressionType, level: int = ZLIB_LEVEL_DEFAULT) -> bytes:
    """Compress as official clients do; zlib output equals Java's `Deflater` of the same level."""
    match kind:
        case CompressionType.LZ4:
            from orbitlog.formats.records import lz4_frames

            return lz4_frames.encode_frame(body)
        case CompressionType.ZSTD:
            return bytes(_zstd().compress(body, level))
        case _:
            return zlib.compress(body, level)


def inflate_body(body: bytes, sys_flag: int, *, limit: int = INFLATED_BYTES_MAX) -> bytes:
    """Return the body as sent: inflated if sysFlag has the compression bit."""
    if not sys_flag & flags.COMPRESSED:
        return body
    kind = flags.compression_type(sys_flag)
    if kind is None:
        raise BadField(f"sysFlag 0x{sys_flag & 0xFFFFFFFF:X} names no known compression", field="body")
    match kind:
        case CompressionType.LZ4:
            return _inflate_lz4(body, limit)
        case CompressionType.ZSTD:
            return _inflate_zstd(body, limit)
        case _:
            return _inflate_zlib(body, limit)


def _inflate_zlib(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadField(f"is not zlib data ({error})", field="compressed body") from None
    return _complete("zlib", inflated, limit, inflater.eof)


def _inflate_lz4(body: bytes, limit: int) -> bytes:
    from orbitlog.formats.records import lz4_frames

    try:
        lz4_frames.check_start(body)
        library = _lz4_library()
        if library is None:
            return _complete("LZ4", lz4_frames.decode_frame(body, limit), limit, True)
        inflater = library.LZ4FrameDecompressor()
        inflated = inflater.decompress(body, max_length=limit + 1)
    except (RuntimeError, EOFError, lz4_frames.BadFrame) as error:
        raise BadField(f"is not an LZ4 frame ({error})", field="compressed body") from None
    if inflater.unused_data:
        raise BadField("is not an LZ4 frame (other bytes follow it)", field="compressed body")
    return _complete("LZ4", inflated, limit, inflater.eof)


@functools.cache
def _lz4_library() -> ModuleType | None:
    try:
        return importlib.import_module("lz4.frame")
    except ModuleNotFoundError:
        return None


def _zstd() -> ModuleType:
    """Return the zstd module of the standard library, or its backport for Python before 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _inflate_zstd(body: bytes, limit: int) -> bytes:
    zstd = _zstd()
    inflater = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX})
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zstd.ZstdError as error:
        raise BadField(f"is not zstd data ({error})", field="compressed body") from None
    if inflater.unused_data:
        raise BadField("continues after the end of its zstd data", field="compressed body")
    return _complete("zstd", inflated, limit, inflater.eof)


def _complete(codec: str, inflated: bytes, limit: int, finished: bool) -> bytes:
    if len(inflated) > limit:
        raise LimitExceeded(field="inflated body", limit=limit, got=f"more than {limit} bytes")
    if not finished:
        raise BadField(f"{codec} data ends too early", field="compressed body")
    return inflated
