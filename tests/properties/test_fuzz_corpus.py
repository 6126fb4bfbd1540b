"""Every seed of tests/fuzz, and mutations of them, through every decoder that takes bytes from outside."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitlog.errors import OrbitlogError
from orbitlog.formats.derived.checkpoint import decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import IndexLayout, decode_header, decode_index_entry, infer_layout
from orbitlog.formats.derived.queue_entry import decode_entry, scan_entries
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.java import utf8_decode
from orbitlog.formats.records.batch import decode_batch, expand_batch, inner_batch
from orbitlog.formats.records.compression import inflate_body
from orbitlog.formats.records.message import Message, decode_message, encode_message, make_message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.formats.records.message_scan import find_record, scan_messages
from orbitlog.formats.records.properties import check_crc_property, decode_properties
from orbitlog.formats.records.unique_id import parse_unique_id
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.heartbeat_bodies import HeartbeatData
from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable
from orbitlog.wire.bodies.registration_body import decode_registration
from orbitlog.wire.frames import FrameDecoder

CORPUS = Path(__file__).parent.parent / "fuzz"
MUTATION_SEED = 20261115
MUTATIONS = 4000
INFLATED_BYTES_MAX = 4096


def seeds() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted(CORPUS.glob("*.txt")):
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                name, separator, raw = line.partition(": ")
                assert separator
                assert name not in found, f"{path.name}: {name} stands twice"
                found[name] = bytes.fromhex(raw)
    return found


SEEDS = seeds()


def derive_all(data: bytes) -> None:
    files = DerivedFiles(
        DeriveRules(multi_dispatch=True), queue_file_bytes=200, index_layout=IndexLayout(slot_count=3, entry_count=4)
    )
    for found in scan_messages(data):
        if isinstance(found, Message):
            inner_batch(found.properties)
            files.add([found])


def read_record(data: bytes) -> None:
    """A record that is accepted encodes back to the bytes it was read from."""
    message = decode_message(data)
    assert encode_message(message) == data[: message.size_bytes]


DECODERS: dict[str, Callable[[bytes], object]] = {
    "decode_message": read_record,
    "decode_message at its offset": lambda data: decode_message(data, physical_offset=0),
    "decode_message without CRC": lambda data: decode_message(memoryview(data), check_crc=False),
    "decode_message at a position": lambda data: decode_message(b"\xda" + data, 1),
    "scan_messages": lambda data: list(scan_messages(data, base_physical_offset=0)),
    "scan_messages without CRC": lambda data: list(scan_messages(bytearray(data), check_crc=False)),
    "find_record": lambda data: find_record(data, 0, base_physical_offset=0),
    "derive": derive_all,
    "decode_batch": decode_batch,
    "expand_batch": lambda data: expand_batch(make_message("T", data)),
    "decode_entry": decode_entry,
    "scan_entries": lambda data: list(scan_entries(data)),
    "index header": decode_header,
    "index entry": lambda data: decode_index_entry(data, 0),
    "infer_layout": infer_layout,
    "decode_checkpoint": decode_checkpoint,
    "decode_properties": decode_properties,
    "check_crc_property": check_crc_property,
    "inflate": lambda data: inflate_body(data, 0x001, limit=INFLATED_BYTES_MAX),
    "inflate lz4": lambda data: inflate_body(data, 0x101, limit=INFLATED_BYTES_MAX),
    "inflate zstd": lambda data: inflate_body(data, 0x201, limit=INFLATED_BYTES_MAX),
    "inflate unknown": lambda data: inflate_body(data, 0x701, limit=INFLATED_BYTES_MAX),
    "offset id": lambda data: parse_offset_message_id(utf8_decode(data)),
    "offset id in hex": lambda data: parse_offset_message_id(data.hex()),
    "unique id": lambda data: parse_unique_id(utf8_decode(data)),
    "unique id in hex": lambda data: parse_unique_id(data.hex()),
    "host": lambda data: parse_host(utf8_decode(data)),
    "frames": lambda data: FrameDecoder().receive_data(data),
    "frames byte by byte": lambda data: list(
        map(FrameDecoder().receive_data, (data[n : n + 1] for n in range(len(data))))
    ),
    "heartbeat": lambda data: decode_body(HeartbeatData, data),
    "queue offsets": lambda data: encode_body(decode_body(QueueOffsetTable, data)),
    "registration": lambda data: decode_registration(data, compressed=False, version=479),
    "registration, inside its zlib": lambda data: decode_registration(
        zlib.compress(data), compressed=True, version=409
    ),
}


# These report what they found instead of raising; the last refuses everything.
ONE_OUTCOME = {
    "scan_messages": {True},
    "scan_messages without CRC": {True},
    "find_record": {True},
    "decode_properties": {True},
    "inflate unknown": {False},
    "registration, inside its zlib": {False},
}


def accepts(decode: Callable[[bytes], object], data: bytes) -> bool:
    """Return whether bytes are accepted; any error other than Orbitlog's is raised."""
    try:
        decode(data)
    except OrbitlogError:
        return False
    return True


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_seed_gives_a_value_or_our_own_error(decoder: str) -> None:
    outcomes = {accepts(DECODERS[decoder], data) for data in SEEDS.values()}
    assert outcomes == ONE_OUTCOME.get(decoder, {True, False}), "the corpus has something to take and to refuse"


def test_exactly_these_records_are_accepted() -> None:
    """By lengths and CRC alone; what the numbers in them mean is not a decoder's business."""
    text = (CORPUS / "records.txt").read_text()
    names = [line.partition(":")[0] for line in text.splitlines() if line and not line.startswith("#")]
    accepted = [name for name in names if accepts(decode_message, SEEDS[name])]
    assert accepted == [
        "record",
        "record_ipv6",
        "record_version_2",
        "record_version_2_short_topic",
        "record_empty_body",
        "topic_that_climbs",
        "queue_offset_negative",
        "queue_offset_highest",
        "physical_offset_negative",
        "physical_offset_highest",
        "queue_id_lowest",
        "timestamps_lowest",
        "port_negative",
    ]


@pytest.mark.parametrize("decoder", ["inflate", "inflate lz4", "inflate zstd"])
def test_only_whole_bodies_are_inflated(decoder: str) -> None:
    kind = decoder.partition(" ")[2] or "zlib"
    accepted = {name for name, data in SEEDS.items() if accepts(DECODERS[decoder], data)}
    # Java returns nothing for a skippable frame of LZ4 alone, or refuses it: no body is read from it.
    assert accepted == ({kind, "skippable_frame"} if kind == "zstd" else {kind})


# Numbers at which signs and widths change
EDGES = (0, 1, -1, 2**7, -(2**7), 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 91, 8, 20)


def mutations(count: int) -> Iterator[tuple[int, str, bytes]]:
    """Seeds with one to four changes each, always the same."""
    chance = random.Random(MUTATION_SEED)
    names = list(SEEDS)
    for number in range(count):
        name = chance.choice(names)
        data = bytearray(SEEDS[name])
        for _ in range(chance.randint(1, 4)):
            mutate(data, chance, names)
        yield number, name, bytes(data)


def mutate(data: bytearray, chance: random.Random, names: list[str]) -> None:
    place = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0 if place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        case 1 if place + 4 <= len(data):
            struct.pack_into(">i", data, place, chance.choice(EDGES))
        case 2:
            del data[place : place + chance.randint(1, 8)]
        case 3:
            data[place:place] = chance.randbytes(chance.randint(1, 8))
        case 4:
            data[place:] = SEEDS[chance.choice(names)]
        case _:
            data[place : place + 1] = bytes((chance.randrange(256),))


def test_mutated_seeds_give_values_or_our_own_errors() -> None:
    for number, name, data in mutations(MUTATIONS):
        for decoder, decode in DECODERS.items():
            try:
                accepts(decode, data)
            except Exception as error:
                error.add_note(f"seed {MUTATION_SEED}, mutation {number} of {name}, {decoder}: {data.hex()}")
                raise


def test_mutations_repeat() -> None:
    assert list(mutations(50)) == list(mutations(50))
    assert len({data for _, _, data in mutations(200)}) > 190
