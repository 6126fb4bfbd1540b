"""Settings of a store, its file sizes and retention, under the names of Java's `broker.conf`.

`SETTINGS` is the one table, with parser, default and help of each. A value comes from a properties file or from
`key=value` on the command line. The last source wins, and every error names key, value and source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orbitlog.formats.compat import COMPAT_5_5, Compat, compat_named
from orbitlog.formats.delay_levels import STANDARD_LEVELS, DelayLevels, parse_delay_levels
from orbitlog.formats.derived.index_layout import ENTRY_COUNT_DEFAULT, SLOT_COUNT_DEFAULT, IndexLayout
from orbitlog.formats.derived.queue_entry import QUEUE_FILE_BYTES_DEFAULT, check_queue_file_bytes
from orbitlog.formats.store_tree import SEGMENT_BYTES_DEFAULT
from orbitlog.settings.properties_file import COMMAND_LINE, setting_sources
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.setting import InvalidValue, Setting, SettingError, T, parse_count, parse_truth

EXT_QUEUE_FILE_BYTES_DEFAULT = 48 * 1024 * 1024
_SEGMENT_BYTES_MIN = 1024
_VARIABLE = re.compile(r"\$\{[^}]*\}?|\$[A-Za-z_]\w*")
_QUOTES = ("'", '"')


def _segment_bytes(text: str) -> int:
    if parse_count(text) < _SEGMENT_BYTES_MIN:
        raise ValueError(f"is less than the {_SEGMENT_BYTES_MIN} bytes that a segment needs")
    return int(text)


def _queue_file_bytes(text: str) -> int:
    return check_queue_file_bytes(parse_count(text))


def _entry_count(text: str) -> int:
    if parse_count(text) < 2:
        raise ValueError("is less than 2; entry 0 of an index file is never used")
    return int(text)


def _hours(text: str) -> tuple[int, ...]:
    parts = text.split(";")
    if not all(part.isdecimal() and len(part) <= 2 and int(part) < 24 for part in parts):
        raise ValueError("is not an hour of the day from 00 to 23, or several with ; between")
    return tuple(map(int, parts))


def check_plain_path(text: str) -> None:
    """Raise `ValueError` for a path that is meant to be expanded or unquoted: Java takes every character literally."""
    if text.startswith("~"):
        raise InvalidValue("starts with ~, which Java does not expand", "write the full path")
    variable = _VARIABLE.search(text)
    if variable is not None:
        raise InvalidValue(f"contains {variable.group()}, which Java does not expand", "write the full path")
    if text[:1] in _QUOTES or text[-1:] in _QUOTES:
        raise InvalidValue("has quotation marks, which Java makes part of the name", "remove them")


def parse_plain_directory(text: str) -> str:
    check_plain_path(text)
    if text != text.strip():
        raise InvalidValue("has blanks at its end, which Java makes part of the name", "remove them")
    return text


def _directories(text: str) -> tuple[str, ...]:
    """Split a list of directories as Java does: at each comma, without one at the end, and without expansion."""
    if not text:
        return ()
    texts = text.rstrip(",").split(",")
    if not any(texts):
        raise ValueError("names no directory")
    for path in texts:
        if not path:
            raise InvalidValue("has an empty directory name between two commas", "remove one of them")
        if path != path.strip():
            raise InvalidValue(f"has blanks around {path.strip()}, which Java makes part of the name", "remove them")
        check_plain_path(path)
    return tuple(dict.fromkeys(texts))


def _directory(text: str) -> str:
    """Accept one directory; DLedger also spreads its data over several, which is not supported."""
    paths = _directories(text)
    if len(paths) > 1:
        raise ValueError("names several directories; copy the data files of DLedger into one and name that")
    return "".join(paths)


_POLICY = RetentionPolicy()

COMMITLOG_PATHS: Setting[tuple[str, ...]] = Setting(
    "storePathCommitLog",
    _directories,
    (),
    "directory of the CommitLog, or several with commas between; left out, `commitlog` below `storePathRootDir`",
)
READ_ONLY_PATHS: Setting[tuple[str, ...]] = Setting(
    "readOnlyCommitLogStorePaths",
    _directories,
    (),
    "directories whose segments belong to the log but that get no new ones; used if `storePathCommitLog` has a comma",
)
DLEDGER_PATH = Setting(
    "storePathDLedgerCommitLog",
    _directory,
    "",
    "directory of the data files of a DLedger log, for commands that read one; left out, `dledger-<id>/data` below"
    " `storePathRootDir`",
)
QUEUE_PATH = Setting(
    "storePathConsumeQueue",
    str,
    "",
    "not read: queues are in `consumequeue` below the root, as for 4.9 and 5.x",
)
INDEX_PATH = Setting("storePathIndex", str, "", "not read: the index is in `index` below the root, as for 4.9 and 5.x")
CHECKPOINT_PATH = Setting(
    "storeCheckpoint", str, "", "not read: the file is `checkpoint` below the root, as for 4.9 and 5.x"
)
ABORT_PATH = Setting("abortFile", str, "", "not read: the file is `abort` below the root, as for 4.9 and 5.x")
SEGMENT_BYTES = Setting(
    "mappedFileSizeCommitLog", _segment_bytes, SEGMENT_BYTES_DEFAULT, "bytes of a CommitLog segment"
)
QUEUE_FILE_BYTES = Setting(
    "mappedFileSizeConsumeQueue",
    _queue_file_bytes,
    QUEUE_FILE_BYTES_DEFAULT,
    "bytes of a ConsumeQueue file, a multiple of 20",
)
EXT_QUEUE_FILE_BYTES = Setting(
    "mappedFileSizeConsumeQueueExt",
    parse_count,
    EXT_QUEUE_FILE_BYTES_DEFAULT,
    "bytes of a file in consumequeue_ext",
)
SLOT_COUNT = Setting("maxHashSlotNum", parse_count, SLOT_COUNT_DEFAULT, "hash slots of an index file")
ENTRY_COUNT = Setting("maxIndexNum", _entry_count, ENTRY_COUNT_DEFAULT, "entries of an index file")
DELAY_LEVELS = Setting(
    "messageDelayLevel", parse_delay_levels, STANDARD_LEVELS, "the delay of each level, such as `1s 5s 10s`"
)
MULTI_DISPATCH = Setting(
    "enableMultiDispatch", parse_truth, False, "messages also enter the queues named in INNER_MULTI_DISPATCH"
)
LMQ = Setting(
    "enableLmq",
    parse_truth,
    False,
    "light queues `%LMQ%name` need no topic; offsets are in `lmqConsumerOffset.json`; needs `enableMultiDispatch`",
)
LMQ_QUEUES_MAX = Setting("maxLmqConsumeQueueNum", parse_count, 20_000, "maximum of light queues; of a 4.9 store")
APPEND_PROPERTY_CRC = Setting(
    "enabledAppendPropCRC",
    parse_truth,
    False,
    "every record ends with a checksum of all of it, `__CRC32#`; if not given, as in the last records of the store",
)
VERIFY_PROPERTY_CRC = Setting(
    "forceVerifyPropCRC",
    parse_truth,
    False,
    "records must have that checksum: they are appended with it, and those without are reported at the start",
)
COMPAT = Setting("compat", compat_named, COMPAT_5_5, "line of RocketMQ versions whose format is written: 4.9 or 5.5")

RESERVED_HOURS = Setting(
    "fileReservedTime",
    parse_count,
    _POLICY.reserved_hours,
    "hours that a segment is kept after its last write ([retention](../retention.md))",
)
DELETE_HOURS = Setting(
    "deleteWhen",
    _hours,
    _POLICY.delete_hours,
    "hours of the local day at which expired segments are deleted, such as `04;16`",
)
EXPIRED_PERCENT = Setting(
    "diskMaxUsedSpaceRatio",
    parse_count,
    _POLICY.expired_percent,
    "with more percent of the disk in use, expired segments are deleted at any hour; 10 to 95, else the nearest",
)
FORCED_PERCENT = Setting(
    "diskSpaceCleanForciblyRatio",
    parse_count,
    _POLICY.forced_percent,
    "with more percent in use, the oldest segments are deleted before their time; 30 to 85, else the nearest",
)
FULL_PERCENT = Setting(
    "diskSpaceWarningLevelRatio",
    parse_count,
    _POLICY.full_percent,
    "with more percent in use, messages are refused; 35 to 90, else the nearest",
)
DELETE_BY_FORCE = Setting(
    "cleanFileForciblyEnable",
    parse_truth,
    _POLICY.delete_by_force,
    "whether segments may be deleted before their time",
)
FILES_PER_STEP = Setting(
    "deleteFileBatchMax", parse_count, _POLICY.files_per_step, "maximum of segments deleted in one step"
)

_ALL: tuple[
    Setting[int]
    | Setting[bool]
    | Setting[tuple[int, ...]]
    | Setting[tuple[str, ...]]
    | Setting[str]
    | Setting[DelayLevels]
    | Setting[Compat],
    ...,
] = (
    COMMITLOG_PATHS,
    READ_ONLY_PATHS,
    DLEDGER_PATH,
    QUEUE_PATH,
    INDEX_PATH,
    CHECKPOINT_PATH,
    ABORT_PATH,
    SEGMENT_BYTES,
    QUEUE_FILE_BYTES,
    EXT_QUEUE_FILE_BYTES,
    SLOT_COUNT,
    ENTRY_COUNT,
    DELAY_LEVELS,
    MULTI_DISPATCH,
    LMQ,
    LMQ_QUEUES_MAX,
    APPEND_PROPERTY_CRC,
    VERIFY_PROPERTY_CRC,
    COMPAT,
    RESERVED_HOURS,
    DELETE_HOURS,
    EXPIRED_PERCENT,
    FORCED_PERCENT,
    FULL_PERCENT,
    DELETE_BY_FORCE,
    FILES_PER_STEP,
)
SETTINGS = {setting.key: setting for setting in _ALL}
LOG_PATH_SETTINGS = (COMMITLOG_PATHS.key, READ_ONLY_PATHS.key, DLEDGER_PATH.key)


@dataclass(frozen=True, slots=True)
class StoreGeometry:
    """File sizes of a store; every file of a kind has exactly this size."""

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    queue_file_bytes: int = QUEUE_FILE_BYTES_DEFAULT
    ext_queue_file_bytes: int = EXT_QUEUE_FILE_BYTES_DEFAULT
    index_layout: IndexLayout = field(default_factory=IndexLayout)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The given settings, already checked.

    `unknown` has keys that no broker reads, and a broker's keys given on the command line; `warnings` has sentences on
    unsupported settings that concern the files of a store.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def given(self, setting: Setting[T]) -> T | None:
        """Return the given value, or None."""
        text = self.texts.get(setting.key)
        return None if text is None else setting.parse(text)

    def value(self, setting: Setting[T]) -> T:
        """Return the given value, or Java's default."""
        text = self.texts.get(setting.key)
        return setting.default if text is None else setting.parse(text)

    @property
    def has_several_log_paths(self) -> bool:
        """Return whether Java spreads the log over directories: if there is a comma, even after a single directory."""
        return "," in self.texts.get(COMMITLOG_PATHS.key, "")

    @property
    def index_layout(self) -> IndexLayout | None:
        """The index layout, if either of its two settings was given."""
        if SLOT_COUNT.key in self.texts or ENTRY_COUNT.key in self.texts:
            return IndexLayout(self.value(SLOT_COUNT), self.value(ENTRY_COUNT))
        return None

    @property
    def retention(self) -> RetentionPolicy:
        return RetentionPolicy(
            reserved_hours=self.value(RESERVED_HOURS),
            delete_hours=self.value(DELETE_HOURS),
            expired_percent=self.value(EXPIRED_PERCENT),
            forced_percent=self.value(FORCED_PERCENT),
            full_percent=self.value(FULL_PERCENT),
            delete_by_force=self.value(DELETE_BY_FORCE),
            files_per_step=self.value(FILES_PER_STEP),
        )


def load_settings(config_path: Path | None, assignments: Iterable[str]) -> StoreSettings:
    """Read the properties file, if any, and then `key=value` texts, which win over it.

    Keys of a broker that do not concern the files of a store are skipped; raise a `SettingError` for a setting that
    names a directory which would not be read.
    """
    texts: dict[str, str] = {}
    others: dict[str, tuple[str, str]] = {}
    for source, pairs in setting_sources(config_path, {}, assignments):
        for key, text in pairs.items():
            if key in SETTINGS:
                check_setting(key, text, source)
                texts[key] = text
            else:
                others[key] = text, source
    return _reviewed(texts, others) if others else StoreSettings(texts)


def _reviewed(texts: Mapping[str, str], others: Mapping[str, tuple[str, str]]) -> StoreSettings:
    from orbitlog.settings.setting_review import SettingClass, review_for_store  # 500 keys, for files of a broker alone

    unknown: list[str] = []
    warnings: list[str] = []
    for key, (text, source) in others.items():
        kind, sentence, _ = review_for_store(key, text, source)
        if kind is SettingClass.SAFETY:
            raise SettingError(sentence, key=key)
        if kind is SettingClass.BEHAVIOUR:
            warnings.append(sentence)
        elif kind is SettingClass.UNKNOWN or source == COMMAND_LINE:
            unknown.append(key)
    return StoreSettings(texts, tuple(unknown), tuple(warnings))


def check_setting(key: str, text: str, source: str) -> None:
    """Raise a `SettingError` if the text is not a valid value of that setting."""
    SETTINGS[key].check(text, source)


def similar_keys(key: str) -> list[str]:
    """Return known keys that resemble an unknown one."""
    import difflib  # needed for mistyped keys only

    by_lower = {known.lower(): known for known in SETTINGS}
    return [by_lower[match] for match in difflib.get_close_matches(key.lower(), by_lower, n=2, cutoff=0.8)]
