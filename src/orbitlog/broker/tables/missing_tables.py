"""Missing tables: refuses a store with messages whose topics, groups or offsets are missing from config/.

Both brokers would start without a table and later write a new one: topics would be unknown to clients, groups would
lose their settings, consumers and delay levels would start over. A table counts as missing if its backup is missing,
too. The files that a Java broker left are never refused:

- A topic or group is saved at its creation, so `topics.json` exists once there is a message, and
  `subscriptionGroup.json` once there is a retry topic.
- `timercheck` is created at the start of a broker of 5.x, so it exists once there is a timer message. If no timer file
  exists, `orbitlog doctor repair` has removed them all, and the broker warns.
- Offsets are saved every few seconds and at a clean stop. After a kill in the first seconds they may be missing, so
  the broker only warns if `abort` exists.

Orbitlog saves its first tables in the first second after its first start, and no empty table of offsets. So it only
warns about the tables of a killed Orbitlog, and about offsets of every store that Orbitlog had open.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.tables.config_files import choose_config
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.storefiles.disk import Disk, disk_errors
from orbitlog.storefiles.store_contents import refuse_writing
from orbitlog.storefiles.store_paths import StorePaths

_FIRST_BYTES = 8
_OFFSETS = frozenset((CONSUMER_OFFSET.name, DELAY_OFFSET.name))


def refuse_missing_tables(paths: StorePaths, disk: Disk) -> list[str]:
    """Raise `StoreLayoutError` if a table is missing that the store must have had; return warnings about others."""
    root = paths.root
    with disk_errors(f"listing {root / tree.CONFIG}"):
        missing = dict(_missing(disk, root))
        if not missing or not _has_messages(disk, paths):
            return []
    refuse_writing(root, disk, log_directories=paths.log_directories)  # such as tables in RocksDB
    for directory in paths.log_directories:
        if disk.list_directory(directory):
            disk.lock_directory(directory).release()  # a log in use belongs to another root, which has the tables
    refused = [name for name in missing if name not in _excused(disk, root)]
    if not refused:
        if not _has_retry_topics(disk, root / tree.CONFIG):
            missing.pop(CONSUMER_OFFSET.name, None)  # there was no group yet
        return [f"{root / tree.CONFIG / name} is missing: {loss}" for name, loss in missing.items()]
    name, others = refused[0], ", ".join(name for name in missing if name != refused[0])
    raise StoreLayoutError(
        f"store not opened: {root / tree.CONFIG / name} is missing{others and f' (also missing: {others})'}, but"
        f" {paths.shown} has messages: {missing[name]}; {_advice(root, name)}"
    )


def _advice(root: Path, name: str) -> str:
    restore = f"copy the table into {root / tree.CONFIG} from the broker that wrote the store"
    if name == TOPICS.name:
        return f"{restore}, or rebuild it with `orbitlog doctor repair {root} --apply`"
    if name == TIMER_CHECKPOINT_FILE:
        return f"{restore}, or create {name} with 40 zero bytes to deliver all of them again"
    return f"{restore}, or create {name} with the content {{}} to start without it"


def _missing(disk: Disk, root: Path) -> Iterator[tuple[str, str]]:
    """Yield each missing table that the other files require, and what would be lost without it."""
    config = root / tree.CONFIG
    if not _exists(disk, config, TOPICS.name):
        yield TOPICS.name, "its topics would be unknown to clients"
    if not _exists(disk, config, SUBSCRIPTION_GROUP.name) and _has_retry_topics(disk, config):
        yield SUBSCRIPTION_GROUP.name, "the settings of its consumer groups would be lost"
    if not any(_exists(disk, config, file.name) for file in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)):
        yield CONSUMER_OFFSET.name, "every consumer group starts over, and transactions are checked a second time"
    if not _exists(disk, config, DELAY_OFFSET.name) and _may_have_delayed(disk, root / tree.CONSUMEQUEUE):
        yield DELAY_OFFSET.name, "delayed messages are delivered a second time"
    timers = (TIMER_CHECKPOINT_FILE, TIMER_PROGRESS.name)
    if disk.list_directory(root / tree.CONSUMEQUEUE / names.TIMER_TOPIC) and not any(
        _exists(disk, config, name) for name in timers
    ):
        yield TIMER_CHECKPOINT_FILE, "timer and POP messages are delivered a second time"


def _may_have_delayed(disk: Disk, queues: Path) -> bool:
    return not disk.list_directory(queues) or bool(disk.list_directory(queues / names.SCHEDULE_TOPIC))


def _exists(disk: Disk, config: Path, name: str) -> bool:
    return any(disk.read_file(config / one) for one in (name, name + tree.BACKUP_SUFFIX))


def _has_retry_topics(disk: Disk, config: Path) -> bool:
    main = disk.read_file(config / TOPICS.name)
    backup = disk.read_file(config / (TOPICS.name + tree.BACKUP_SUFFIX))
    try:
        chosen = choose_config(main, backup, TOPICS.decode)
    except FormatError:
        return False  # the broker refuses a table that it cannot read
    return chosen is not None and any(topic.startswith(names.RETRY_PREFIX) for topic in chosen.value.topics)


def _has_messages(disk: Disk, paths: StorePaths) -> bool:
    """Return whether a segment starts with a record; a new one that no message was written to has zeros there."""
    for directory in paths.log_directories:
        for entry in disk.list_directory(directory):
            if entry.size_bytes and tree.parse_offset_file_name(entry.name) is not None:
                mapped = disk.open_file(directory / entry.name, writable=False)
                try:
                    if any(mapped.read(0, _FIRST_BYTES)):
                        return True
                finally:
                    mapped.close()
    return False


def _excused(disk: Disk, root: Path) -> frozenset[str]:
    """Return the tables that a broker may not have saved yet when it stopped."""
    entries = {entry.name for entry in disk.list_directory(root)}
    is_own = any(name.startswith("orbitlog.") for name in entries)
    if tree.ABORT in entries and is_own:
        return frozenset((*_OFFSETS, TOPICS.name, SUBSCRIPTION_GROUP.name, TIMER_CHECKPOINT_FILE))
    excused = _OFFSETS if tree.ABORT in entries or is_own else frozenset[str]()
    # `doctor repair` removes damaged timer files, all of them: no other file records which messages were delivered.
    return excused if entries & {tree.TIMER_WHEEL, tree.TIMER_LOG} else excused | {TIMER_CHECKPOINT_FILE}
