"""Files of a group member: epochs, boot note, and tails that it gave up."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import StoreError
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.formats.derived.store_state import EPOCHS_FILE
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.replication.group.member_files import MemberFiles
from orbitlog.storefiles.disk import RealDisk

EPOCHS = (EpochEntry(1, 0), EpochEntry(5, 930))


def files(root: Path, boot_id: str = "boot-1") -> MemberFiles:
    return MemberFiles(RealDisk(), root, boot_id)


def test_epochs_survive_a_restart(tmp_path: Path) -> None:
    assert files(tmp_path).read_epochs() == ()
    files(tmp_path).save_epochs(EPOCHS)
    assert files(tmp_path).read_epochs() == EPOCHS


def test_damaged_epoch_file_is_refused(tmp_path: Path) -> None:
    files(tmp_path).save_epochs(EPOCHS)
    (tmp_path / EPOCHS_FILE).write_bytes(b"2\n1338222099\n1-0\n5-931\n")
    with pytest.raises(StoreError, match="start the member with an empty one"):
        files(tmp_path).read_epochs()


@pytest.mark.parametrize(
    ("boot_id", "was_closed", "is_empty", "has_lost"),
    [
        ("boot-1", False, False, False),  # killed
        ("boot-2", False, False, True),  # power cut
        ("boot-2", True, False, False),  # shut down
        ("boot-2", False, True, False),
        ("", False, False, True),  # a system that states no boot id
    ],
)
def test_bytes_may_be_lost_only_after_an_unclean_stop_of_the_machine(
    tmp_path: Path, boot_id: str, was_closed: bool, is_empty: bool, has_lost: bool
) -> None:
    files(tmp_path).note_boot()
    restarted = files(tmp_path, boot_id)
    assert restarted.may_have_lost_bytes(was_closed=was_closed, is_empty=is_empty) is has_lost


def test_member_without_a_boot_note_may_have_lost_bytes(tmp_path: Path) -> None:
    assert files(tmp_path).may_have_lost_bytes(was_closed=False, is_empty=False)


def test_store_is_new_until_the_member_has_noted_it(tmp_path: Path) -> None:
    member = files(tmp_path)
    assert member.is_new(is_empty=True)
    assert not member.is_new(is_empty=False)
    member.note_boot()
    assert not member.is_new(is_empty=True)


def test_kept_tail_has_the_bytes_and_counts_messages_over_segments(tmp_path: Path) -> None:
    start, raw = 1000, b""
    for number in range(3):
        raw += encode_message(make_message("Orders", b"%d" % number, physical_offset=start + len(raw)))
    raw += encode_blank(100) + bytes(92)
    raw += encode_message(make_message("Orders", b"last", physical_offset=start + len(raw)))
    member = files(tmp_path)
    tail = member.keep_tail(7, start, start + len(raw), lambda offset, size: raw[offset - start :][: min(size, 50)])
    assert tail.path.name == f"7-{start}-{start + len(raw)}"
    assert tail.path.read_bytes() == raw
    assert member.kept_tails() == [tail]
    assert [message.body for message in member.tail_messages(tail)] == [b"0", b"1", b"2", b"last"]
    assert member.count_messages(tail) == 4


def test_interrupted_copy_of_a_tail_is_replaced(tmp_path: Path) -> None:
    member = files(tmp_path)
    tail = member.keep_tail(1, 0, 4, lambda offset, size: b"abcd"[offset:])
    tail.path.rename(tail.path.with_name(tail.path.name + ".new"))
    assert member.kept_tails() == []
    assert member.keep_tail(1, 0, 4, lambda offset, size: b"abcd"[offset:]).path.read_bytes() == b"abcd"
