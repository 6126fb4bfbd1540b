"""Run the kernels once on a small log, so that numba compiles them into its cache."""

from __future__ import annotations

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.kernels.arrow_batches import ArrowDecoder
from orbitlog.kernels.columns import read_columns
from orbitlog.kernels.derivation import Derivation
from orbitlog.kernels.record_walk import walk_messages
from orbitlog.kernels.splits import walk_in_splits


def small_segment() -> bytes:
    properties = {"UNIQ_KEY": "0" * 32, "KEYS": "a b", "TAGS": "tag"}
    record = encode_message(make_message("Topic", b"body", properties=properties))
    return record + encode_blank(100).ljust(100, b"\0")


def main() -> None:
    segment = small_segment()
    walk_messages(segment, base_physical_offset=0)
    read_columns(segment, base_physical_offset=0)
    walk_in_splits(segment, 64, base_physical_offset=0)
    list(ArrowDecoder().decode(segment, base_physical_offset=0))
    derivation = Derivation(DeriveRules(), queue_file_bytes=1000, index_layout=IndexLayout(10, 20))
    derivation.add(segment, base_physical_offset=0)


if __name__ == "__main__":
    main()
