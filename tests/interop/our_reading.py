"""Orbitlog's reading of a store: every record as the official client would print it, and all that is derived."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orbitlog.cli.output.stored_message_rows import message_json
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import LogEnd, SegmentEnd
from orbitlog.kernels.derivation import Derivation
from orbitlog.settings.store_settings import DELAY_LEVELS, MULTI_DISPATCH, StoreGeometry, load_settings
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles, find_store_files
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject

DUMPS = ("commitlog", "consumequeue", "index", "checkpoint", "config")
DUMPS_5X = ("timerwheel", "timerlog")
DUMP_SECONDS_MAX = 120
_INDEX_COUNT = slice(36, 40)
_BYTES_OF_A_KEY = 40 + 4 + 20  # header, slot, entry


def compat_of(packages: ApachePackages) -> Compat:
    return COMPAT_5_5 if packages.is_5x else COMPAT_4_9


def broker_settings(geometry: StoreGeometry, **more: object) -> dict[str, object]:
    """Keys of broker.conf that give a broker's files the sizes of Orbitlog's."""
    return {
        "mappedFileSizeCommitLog": geometry.segment_bytes,
        "mappedFileSizeConsumeQueue": geometry.queue_file_bytes,
        "maxHashSlotNum": geometry.index_layout.slot_count,
        "maxIndexNum": geometry.index_layout.entry_count,
        **more,
    }


def rules_of(compat: Compat, settings: dict[str, object]) -> DeriveRules:
    """The rules that a broker with these settings derives by."""
    given = load_settings(None, [f"{key}={value}" for key, value in settings.items()])
    return DeriveRules(compat, given.value(DELAY_LEVELS), given.value(MULTI_DISPATCH))


def read_log(store: StoreFiles, geometry: StoreGeometry) -> list[Message]:
    """Read every record; any damage is a failure."""
    walk = LogWalk(store.segments, geometry.segment_bytes)
    messages = [message for message, _ in walk.records()]
    assert not walk.damage, walk.damage
    return messages


def as_client_prints(message: Message, compat: Compat) -> JsonObject:
    """The message under the names of `orbitlog dump --json`, as the client of that version prints it in ReadStore."""
    line, error = message_json(message, message.size_bytes)
    assert error is None
    printed: JsonObject = json.loads(line)
    printed["bornHost"], printed["storeHost"] = map(_host, (message.born_host_raw, message.store_host_raw))
    if compat is COMPAT_5_5:
        # Its decoder takes the flag away when it inflates the body; the record still has it.
        printed["sysFlag"] &= ~flags.COMPRESSED
    # Java's decoder leaves out properties whose value is empty, though they are stored.
    printed["properties"] = {name: value for name, value in printed["properties"].items() if value}
    return printed


def assert_served(messages: dict[int, Message], answers: Sequence[JsonObject], compat: Compat) -> int:
    """Compare every message that ReadStore printed with the record at its place; return how many there were."""
    assert [answer for answer in answers if answer["answer"] == "gap"] == []
    served = [answer for answer in answers if answer["answer"] in ("message", "view")]
    for answer in served:
        printed = as_client_prints(messages[answer["commitLogOffset"]], compat)
        given = {name: value for name, value in answer.items() if name not in ("answer", "asked")}
        assert printed == given, {name: (printed[name], given[name]) for name in given if printed[name] != given[name]}
    return len(served)


def _host(raw: bytes) -> str:
    return f"{raw[:-4].hex()}:{int.from_bytes(raw[-4:], 'big')}"


@dataclass(frozen=True)
class Derived:
    """Queue files by topic, queue and first byte; index files in their order."""

    queues: dict[tuple[str, int, int], np.ndarray]
    indexes: list[np.ndarray]

    @property
    def unit_count(self) -> int:
        return sum(int(np.count_nonzero(_units(file).any(axis=1))) for file in self.queues.values())


def derive_in_python(messages: Sequence[Message], rules: DeriveRules, geometry: StoreGeometry) -> Derived:
    files = DerivedFiles(rules, queue_file_bytes=geometry.queue_file_bytes, index_layout=geometry.index_layout)
    files.add(messages)
    return _as_derived(files)


def derive_by_kernels(store: StoreFiles, rules: DeriveRules, geometry: StoreGeometry) -> Derived:
    files = Derivation(rules, queue_file_bytes=geometry.queue_file_bytes, index_layout=geometry.index_layout)
    for segment in store.segments:
        with mapped_view(segment.path) as view:
            stop = files.add(view, segment.base)
        assert isinstance(stop, LogEnd | SegmentEnd), stop
    return _as_derived(files)


def _as_derived(files: DerivedFiles | Derivation) -> Derived:
    queues = {
        (*queue, base): np.frombuffer(content, np.uint8)
        for queue, held in files.queues.items()
        for base, content in held.items()
    }
    return Derived(queues, [np.frombuffer(content, np.uint8) for content in files.index_files])


def derived_on_disk(store: StoreFiles) -> Derived:
    """What the broker itself wrote."""
    queues = {
        (*queue, file.base): np.fromfile(file.path, np.uint8) for queue, files in store.queues.items() for file in files
    }
    return Derived(queues, [np.fromfile(file.path, np.uint8) for file in store.index_files])


def differences(ours: Derived, theirs: Derived) -> Iterator[str]:
    """Return where two derivations differ, with the bytes; nothing if they do not."""
    for key in sorted(ours.queues.keys() | theirs.queues.keys()):
        if key not in ours.queues or key not in theirs.queues:
            yield f"queue file {key}: only {'theirs' if key in theirs.queues else 'ours'}"
        else:
            yield from _byte_difference(f"queue file {key}", ours.queues[key], theirs.queues[key])
    if len(ours.indexes) != len(theirs.indexes):
        yield f"index files: ours {len(ours.indexes)}, theirs {len(theirs.indexes)}"
    for number, (our_file, their_file) in enumerate(zip(ours.indexes, theirs.indexes, strict=False)):
        yield from _byte_difference(f"index file {number}", our_file, their_file)


def _byte_difference(name: str, ours: np.ndarray, theirs: np.ndarray) -> Iterator[str]:
    if len(ours) != len(theirs):
        yield f"{name}: ours has {len(ours)} bytes, theirs {len(theirs)}"
    elif not np.array_equal(ours, theirs):
        places = np.flatnonzero(ours != theirs)
        start = int(places[0]) // ENTRY_BYTES * ENTRY_BYTES
        shown = [bytes(file[start : start + 2 * ENTRY_BYTES]).hex() for file in (ours, theirs)]
        count = f"{len(places)} bytes differ, first at {places[0]}"
        yield f"{name}: {count}; from {start} ours {shown[0]} theirs {shown[1]}"


def lacks_one_key(ours: Derived, theirs: Derived) -> bool:
    """Return whether all is the same but for the last key of the last index file, which a killed broker was putting.

    It writes the entry, then the slot that leads there, then the counts of the header.
    """
    if list(differences(Derived(ours.queues, ours.indexes[:-1]), Derived(theirs.queues, theirs.indexes[:-1]))):
        return False
    our_file, their_file = ours.indexes[-1], theirs.indexes[-1]
    counts = [int.from_bytes(bytes(file[_INDEX_COUNT]), "big") for file in (our_file, their_file)]
    differ = int(np.count_nonzero(our_file != their_file))
    return counts[0] - counts[1] == 1 and differ <= _BYTES_OF_A_KEY


def units_missing_on_disk(ours: Derived, theirs: Derived) -> int:
    """Count units that a killed broker had not derived yet; a unit with other bytes is a failure."""
    assert theirs.queues.keys() <= ours.queues.keys()
    missing = 0
    for key, our_file in ours.queues.items():
        our_units = _units(our_file)
        their_units = _units(theirs.queues[key]) if key in theirs.queues else np.zeros_like(our_units)
        is_written = their_units.any(axis=1)
        assert np.array_equal(our_units[is_written], their_units[is_written]), key
        missing += int(np.count_nonzero(our_units.any(axis=1) & ~is_written))
    return missing


def _units(file: np.ndarray) -> np.ndarray:
    return file.reshape(-1, ENTRY_BYTES)


def dump(kind: str, store: Path, *options: str) -> list[JsonObject]:
    """Run `orbitlog dump KIND STORE --json` as a user would; it must find nothing wrong."""
    program = Path(sys.executable).with_name("orbitlog")
    command = [program, "dump", kind, store, "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_SECONDS_MAX)
    assert done.returncode == 0, f"{kind}: exit {done.returncode}\n{done.stderr[-3000:]}"
    assert done.stderr == "", done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def look_at(root: Path) -> StoreFiles:
    """List a store; anything in it that we do not know is a failure."""
    store = find_store_files(root)
    assert not store.foreign, store.foreign
    return store
