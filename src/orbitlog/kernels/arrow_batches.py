"""Messages of a byte range as Arrow record batches, decoded by the kernels: the columns you ask for, nothing else.

`SCHEMA` lists every column. Texts that are not well-formed, and properties with a name that comes twice, are rare and
go through `formats`, so that both ways always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import RECORD_PREFIX, Bytes, Message, decode_message
from orbitlog.kernels.columns import HeaderColumns, staggered, staggered_bytes
from orbitlog.kernels.gather import (
    CopiedPart,
    copy_parts,
    fill_batch,
    find_values,
    split_properties,
    total_length,
)
from orbitlog.kernels.record_walk import OUTPUT_FULL, SourceBytes, Stop

SCHEMA = pa.schema(
    [
        pa.field("physical_offset", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.string()),
        pa.field("unique_key", pa.string()),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("properties_raw", pa.binary(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("body_crc", pa.int32(), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sys_flag", pa.int32(), nullable=False),
        pa.field("born_timestamp_ms", pa.int64(), nullable=False),
        pa.field("born_host_raw", pa.binary(), nullable=False),
        pa.field("store_timestamp_ms", pa.int64(), nullable=False),
        pa.field("store_host_raw", pa.binary(), nullable=False),
        pa.field("reconsume_times", pa.int32(), nullable=False),
        pa.field("prepared_transaction_offset", pa.int64(), nullable=False),
    ]
)
BATCH_ROWS = 8192
BATCH_BYTES = 4 * 1024 * 1024
# int32 ends: a batch may not hold more, whatever its records are.
_BATCH_BYTES_MAX = 2**30

_Places = npt.NDArray[np.int64]
_Lengths = npt.NDArray[np.int32]
_VALUES = {"tags": (0, props.TAGS), "keys": (1, props.KEYS), "unique_key": (2, props.UNIQ_KEY)}
_STORE_TIME_BYTES = 8
_COPIED = ("body", "topic", "properties_raw")


class ArrowDecoder:
    """Decodes ranges into record batches with the chosen columns."""

    def __init__(
        self, columns: Sequence[str] | None = None, *, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES
    ) -> None:
        names = SCHEMA.names if columns is None else list(columns)
        if unknown := [name for name in names if name not in SCHEMA.names]:
            raise ValueError(f"no column {', '.join(unknown)}; there are {', '.join(SCHEMA.names)}")
        self.schema = pa.schema([SCHEMA.field(name) for name in names])
        self.ended: tuple[int, Stop] = 0, None
        self._batch_rows = batch_rows
        # Columns that are not in the result reuse the same arrays.
        self._scratch = HeaderColumns.allocate(batch_rows)
        self._fixed = [name for name in names if name in HeaderColumns._fields]
        self._fixed_dtypes = [getattr(self._scratch, name).dtype for name in self._fixed]
        self._block_bytes = staggered_bytes(self._fixed_dtypes, batch_rows)
        self._batch_bytes = min(batch_bytes, _BATCH_BYTES_MAX)
        # Room for each copied column: what the batch before needed and some more, so that little is wasted.
        self._room = {name: self._batch_bytes for name in _COPIED if name in names}

    def decode(
        self,
        buffer: Bytes,
        start: int = 0,
        stop: int | None = None,
        *,
        base_physical_offset: int | None = None,
        log_format: LogFormat = LogFormat.ORDINARY,
        check_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages that start in the range; `ended` then has the position and the reason."""
        source = SourceBytes(buffer, base_physical_offset, log_format)
        position, stop = source.range(start, stop)
        why = OUTPUT_FULL
        while why == OUTPUT_FULL:
            header = self._fresh_header()
            copies = {name: self._copied_part(name) for name in _COPIED}
            parts = copies["body"], copies["topic"], copies["properties_raw"]
            rows, position, why = source.run(fill_batch, position, stop, check_crc, self._batch_bytes, header, *parts)
            self._learn_room(source, position, why, rows, copies)
            if rows:
                yield BatchParts(source, header, rows, copies).build(self.schema)
        self.ended = position, source.explain(position, why, check_crc=check_crc)

    def _fresh_header(self) -> HeaderColumns:
        """Return header columns of which the chosen ones are new: batches keep them."""
        block = np.frombuffer(pa.allocate_buffer(self._block_bytes), np.uint8)
        fresh = staggered(self._fixed_dtypes, self._batch_rows, block)
        return self._scratch._replace(**dict(zip(self._fixed, fresh, strict=True)))

    def _copied_part(self, name: str) -> CopiedPart:
        room = self._room.get(name)
        if room is None:
            return CopiedPart(np.empty(0, np.int32), np.empty(0, np.uint8), False)
        data = np.frombuffer(pa.allocate_buffer(room), np.uint8)
        ends = np.frombuffer(pa.allocate_buffer(4 * (self._batch_rows + 1)), np.int32)
        return CopiedPart(ends, data, True)

    def _learn_room(
        self, source: SourceBytes, position: int, why: int, rows: int, copies: dict[str, CopiedPart]
    ) -> None:
        if rows == 0 and why == OUTPUT_FULL:
            # One record larger than all the room: no part of it is larger than itself.
            start = position + source.header_bytes
            size_bytes = int.from_bytes(source.view[start : start + 4], "big")
            self._room = {name: size_bytes for name in self._room}
        elif rows:
            for name in self._room:
                self._room[name] = int(copies[name].ends[rows]) * 5 // 4 * self._batch_rows // rows + 64
                self._room[name] = min(self._room[name], self._batch_bytes + 64)


class BatchParts:
    """A batch being built: its header columns, the parts already copied, and the positions of the rest."""

    def __init__(self, source: SourceBytes, header: HeaderColumns, rows: int, copies: dict[str, CopiedPart]) -> None:
        self._source = source
        self._all_rows = header
        self._rows = rows
        self._copies = copies
        self._values: tuple[_Places, _Lengths, tuple[bool, bool, bool]] | None = None

    @cached_property
    def _header(self) -> HeaderColumns:
        """The rows in use; only columns that are looked for in the properties need all of them cut."""
        return self._all_rows.rows(self._rows)

    def build(self, schema: pa.Schema) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._column(field) for field in schema], schema=schema)

    def _column(self, field: pa.Field) -> pa.Array:
        match field.name:
            case "body" | "topic" | "properties_raw":
                part = self._copies[field.name]
                return _variable(field.type, self._rows, part.ends, part.data)
            case "born_host_raw" | "store_host_raw":
                return self._host(field.name)
            case "tags" | "keys" | "unique_key":
                return self._value(field)
            case "properties":
                return self._property_maps(field)
            case _:
                column = pa.py_buffer(getattr(self._all_rows, field.name))
                return pa.Array.from_buffers(field.type, self._rows, [None, column], null_count=0)

    def _gather(self, kind: pa.DataType, places: _Places, lengths: _Lengths, nulls: bool = False) -> pa.Array:
        """Copy parts of the source into one Arrow column."""
        ends = np.empty(len(lengths) + 1, np.int32)
        data = np.empty(int(total_length(lengths)), np.uint8)
        copy_parts(self._source.address, places, lengths, ends, data)
        validity = np.packbits(lengths >= 0, bitorder="little") if nulls else None
        return _variable(kind, len(lengths), ends, data, validity)

    def _host(self, name: str) -> pa.Array:
        """Hosts have two sizes, so their places follow from the fields around them."""
        header = self._header
        born_place = header.position + RECORD_PREFIX.position("born_host_raw")
        born_length = _host_length(header.sys_flag & flags.BORN_HOST_IPV6)
        if name == "born_host_raw":
            return self._gather(pa.binary(), born_place, born_length)
        store_length = _host_length(header.sys_flag & flags.STORE_HOST_IPV6)
        return self._gather(pa.binary(), born_place + born_length + _STORE_TIME_BYTES, store_length)

    def _value(self, field: pa.Field) -> pa.Array:
        if self._values is None:
            places = np.empty((3, self._rows), np.int64)
            lengths = np.empty((3, self._rows), np.int32)
            ok = find_values(self._source.address, self._header, len(self._source), places, lengths)
            self._values = places, lengths, ok
        places, lengths, well_formed = self._values
        number, property_name = _VALUES[field.name]
        if not well_formed[number]:
            return self._by_formats(field, lambda message: message.properties.get(property_name))
        return self._gather(field.type, places[number], lengths[number], nulls=True)

    def _property_maps(self, field: pa.Field) -> pa.Array:
        row_ends = np.empty(self._rows + 1, np.int32)
        # An item takes at least four bytes but for the last: name, 0x01, value, 0x02.
        room = int(total_length(self._header.properties_length)) // 4 + self._rows
        places, lengths = np.empty((2, room), np.int64), np.empty((2, room), np.int32)
        items = split_properties(self._source.address, self._header, len(self._source), row_ends, places, lengths)
        if items < 0:
            return self._by_formats(field, lambda message: list(message.properties.items()))
        names = self._gather(pa.string(), places[0, :items], lengths[0, :items])
        values = self._gather(pa.string(), places[1, :items], lengths[1, :items])
        return pa.MapArray.from_arrays(pa.array(row_ends, pa.int32()), names, values)

    def _by_formats(self, field: pa.Field, pick: Callable[[Message], object]) -> pa.Array:
        view = self._source.view
        messages = (decode_message(view, int(place), check_crc=False) for place in self._header.position)
        return pa.array([pick(message) for message in messages], field.type)


def _host_length(is_ipv6: _Lengths) -> _Lengths:
    return np.where(is_ipv6, IPV6_HOST_BYTES, IPV4_HOST_BYTES).astype(np.int32)


def _variable(
    kind: pa.DataType,
    rows: int,
    ends: _Lengths,
    data: npt.NDArray[np.uint8],
    validity: npt.NDArray[np.uint8] | None = None,
) -> pa.Array:
    bits = None if validity is None else pa.py_buffer(validity)
    null_count = 0 if validity is None else -1
    return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(ends), pa.py_buffer(data)], null_count=null_count)
