"""The power goes while a group member gives up its tail, or is promoted: its log is the old one or the new one.

Each state of the disk is examined: the kept copy of the tail is complete before the tail is cut, cut bytes do not come
back, and the epochs on disk never name bytes of an earlier epoch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orbitlog.broker.replicas.member_log import StoreLog
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.formats.records.message import make_message
from orbitlog.replication.group.member_files import MemberFiles
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from tests.faults.power_cuts import IMAGES
from tests.support.invariants import reopen
from tests.support.workloads import ROOT, Workload

MESSAGES = 60
FIRST = EpochEntry(1, 0)
BOOT = "boot-1"


def log_bytes(disk: CrashDisk) -> bytes:
    """Return the segments of a log that starts at 0, one after the other."""
    files = {path: content for path, content in disk.files().items() if path.parent.name == tree.COMMITLOG}
    return b"".join(files[path] for path in sorted(files, key=lambda path: path.name))


def copy(source: bytes, member: MessageStore, end: int, piece_bytes: int = 1000) -> None:
    while member.received_to < end:
        start = member.received_to
        segment_left = member.segment_bytes - start % member.segment_bytes
        member.append_replicated(start, source[start : min(start + min(piece_bytes, segment_left), end)])


class Member:
    """A group member on a crash disk that has the log of the first master, flushed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        workload = Workload(seed, sync_flush=False)
        master_disk = CrashDisk()
        master = workload.open(master_disk)
        ends = []
        while workload.sent < MESSAGES:
            workload.append(1)
            ends.append(master.written_to)
        master.flush_log()
        self.old = log_bytes(master_disk)
        self.old_end = master.written_to
        # Where the log of the second master differs: after any record of the first one.
        self.common = self.chance.choice(ends[:-1])
        self.master_config = replace(workload.config, is_group_member=True)
        self.config = replace(self.master_config, is_replica=True)
        self.disk = CrashDisk()
        self.files = MemberFiles(self.disk, ROOT, BOOT)
        self.files.save_epochs((FIRST,))
        self.store = reopen(self.disk, self.config)
        copy(self.old, self.store, self.old_end)
        self.store.flush_log()

    def other_log(self) -> tuple[bytes, int]:
        """Return the log of a second master that has the common part, and other messages after it."""
        disk = CrashDisk()
        MemberFiles(disk, ROOT, BOOT).save_epochs((FIRST,))
        second = reopen(disk, self.config)
        copy(self.old, second, self.common)
        second.confirm(self.common)
        while second.dispatched_to < self.common:
            second.dispatch_once()
        second.close()
        second = reopen(disk, self.master_config)
        for number in range(20):
            second.append(make_message("Elsewhere", b"second %d" % number * 9))
        second.flush_log()
        return log_bytes(disk), second.written_to


def opened(image: CrashDisk, config: StoreConfig) -> tuple[int, bytes, tuple[EpochEntry, ...], dict[Path, bytes]]:
    """Open the store of an image; return the end of its log, its bytes, its epochs and its kept tails."""
    store = reopen(image, config)
    assert not store.damage, store.damage
    end = store.written_to
    store.close()
    files = MemberFiles(image, ROOT, BOOT)
    tails = {tail.path: image.read_file(tail.path) or b"" for tail in files.kept_tails()}
    return end, log_bytes(image), files.read_epochs(), tails


def is_prefix(content: bytes, start: int, end: int, source: bytes) -> bool:
    """Return whether a log has the bytes of `source` from `start` to `end`, and zeros after it."""
    return content[start:end] == source[start:end] and not content[end:].strip(b"\0")


@pytest.mark.parametrize("part", range(2))
def test_power_cut_while_a_tail_is_given_up_leaves_the_old_log_or_the_cut_one(
    part: int, scale: int, checked: Counter[str]
) -> None:
    for run in range(scale):
        member = Member(part + 2 * run)
        new, new_end = member.other_log()
        second = EpochEntry(5, member.common)

        def look(member: Member = member, new: bytes = new) -> None:
            if member.chance.randrange(3):
                return
            end, content, epochs, tails = opened(member.disk.crash(member.chance.randrange(1 << 30)), member.config)
            assert content[: member.common] == member.old[: member.common]
            has_old = end > member.common and is_prefix(content, member.common, end, member.old)
            has_new = end > member.common and is_prefix(content, member.common, end, new)
            assert end == member.common or has_old or has_new, "the log is a mixture"
            if has_old:
                assert epochs == (FIRST,)
            if end < member.old_end or not has_old:
                # The cut has begun. What is left of the tail was never confirmed, and is cut at the next handshake.
                assert list(tails.values()) == [member.old[member.common : member.old_end]]
            if has_new:
                assert epochs == (FIRST, EpochEntry(5, member.common))
            checked.update([IMAGES])

        member.disk.on_step = look
        log = StoreLog(member.store, member.files)
        log.keep_tail(1, member.common, member.old_end)
        log.cut(member.common)
        log.save_epochs((FIRST, second))
        copy(new, member.store, new_end)
        member.store.flush_log()
        member.disk.on_step = lambda: None
        end, content, _, _ = opened(member.disk.crash(1), member.config)
        assert end == new_end
        assert content == new


@pytest.mark.parametrize("part", range(2))
def test_power_cut_during_a_promotion_keeps_every_record_and_the_epoch_of_each(
    part: int, scale: int, checked: Counter[str]
) -> None:
    for run in range(scale):
        member = Member(100 + part + 2 * run)
        # The master died amid a record.
        torn = make_message("Orders", b"torn" * 30)
        log = StoreLog(member.store, member.files)
        if member.store.segment_bytes - member.old_end % member.store.segment_bytes > torn.size_bytes:
            member.store.append_replicated(member.old_end, b"\0\0\1\0" + b"\xda\xa3\x20\xa7" + b"torn")
        saved_epochs = [False]

        def look(member: Member = member, saved_epochs: list[bool] = saved_epochs) -> None:
            if member.chance.randrange(3):
                return
            end, content, epochs, _ = opened(member.disk.crash(member.chance.randrange(1 << 30)), member.config)
            assert end >= member.old_end
            assert content[: member.old_end] == member.old[: member.old_end]
            assert epochs[0] == FIRST
            if end > member.old_end or saved_epochs[0]:
                assert epochs == (FIRST, EpochEntry(2, member.old_end)), "a message of the new epoch without its entry"
            checked.update([IMAGES])

        member.disk.on_step = look
        end = log.settle()
        assert end == member.old_end
        log.save_epochs((FIRST, EpochEntry(2, end)))
        saved_epochs[0] = True
        member.store.confirm(end)
        while member.store.dispatched_to < end:
            member.store.dispatch_once()
        member.store.close()
        master = reopen(member.disk, member.master_config)
        for number in range(8):
            master.append(make_message("Orders", b"new %d" % number))
        master.flush_log()
        master.close()
