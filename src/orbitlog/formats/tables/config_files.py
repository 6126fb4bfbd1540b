"""Config files by name: how to read and write each, and whether a file or its backup is used.

`config_codec` finds the codec of a file by its name, with or without `.bak`; `choose_config` decides as Java
`ConfigManager.load` does, from bytes alone. Typed tables live in `topic_config`, `group_config` and `offset_tables`,
the one binary file in `timer_checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar, overload

from orbitlog.errors import BadField, FormatError
from orbitlog.formats.compat import Compat
from orbitlog.formats.derived.timer_checkpoint import (
    TIMER_CHECKPOINT_FILE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from orbitlog.formats.java import utf8_decode, utf8_encode
from orbitlog.formats.store_tree import BACKUP_SUFFIX
from orbitlog.formats.tables import group_config, offset_tables, pop_progress, timer_progress, topic_config
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.formats.tables.loose_json import Json, read_json

R = TypeVar("R", bound=JsonRecord)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ConfigValue = JsonRecord | TimerCheckpoint


@dataclass(frozen=True, slots=True)
class ConfigCodec:
    """One file of config/: its type, codec in both directions, and its JSON form."""

    file_name: str
    kind: type[ConfigValue]
    decode: Callable[[bytes], ConfigValue]
    encode: Callable[[ConfigValue, Compat], bytes]
    to_json: Callable[[bytes], Json]


def _json_codec(file: JsonFile[R]) -> ConfigCodec:
    def decode(data: bytes) -> ConfigValue:
        return file.decode(utf8_decode(data))

    def encode(value: ConfigValue, compat: Compat) -> bytes:
        assert isinstance(value, file.kind), f"{file.name} holds a {file.kind.__name__}"
        return utf8_encode(file.encode(value, compat))

    def to_json(data: bytes) -> Json:
        decode(data)
        return read_json(utf8_decode(data))

    return ConfigCodec(file.name, file.kind, decode, encode, to_json)


def _encode_timer_checkpoint(value: ConfigValue, _: Compat) -> bytes:
    assert isinstance(value, TimerCheckpoint)
    return encode_timer_checkpoint(value)


def _timer_checkpoint_json(data: bytes) -> Json:
    checkpoint = decode_timer_checkpoint(data)
    return {
        "lastReadTimeMs": checkpoint.last_read_time_ms,
        "lastTimerLogFlushPos": checkpoint.last_log_flush_position,
        "lastTimerQueueOffset": checkpoint.last_queue_offset,
        "masterTimerQueueOffset": checkpoint.master_queue_offset,
        "dataVersion": {
            "counter": checkpoint.version_counter,
            "stateVersion": checkpoint.state_version,
            "timestamp": checkpoint.version_timestamp_ms,
        },
    }


_CODECS = (
    _json_codec(topic_config.TOPICS),
    _json_codec(topic_config.TOPIC_QUEUE_MAPPING),
    _json_codec(topic_config.TIMER_METRICS),
    _json_codec(topic_config.TRANSACTION_METRICS),
    _json_codec(group_config.SUBSCRIPTION_GROUP),
    _json_codec(group_config.MESSAGE_REQUEST_MODE),
    _json_codec(group_config.CONSUMER_FILTER),
    _json_codec(offset_tables.CONSUMER_OFFSET),
    _json_codec(offset_tables.LMQ_CONSUMER_OFFSET),
    _json_codec(offset_tables.DELAY_OFFSET),
    _json_codec(offset_tables.CONSUMER_ORDER_INFO),
    _json_codec(timer_progress.TIMER_PROGRESS),
    _json_codec(pop_progress.POP_PROGRESS),
    ConfigCodec(
        TIMER_CHECKPOINT_FILE,
        TimerCheckpoint,
        decode_timer_checkpoint,
        _encode_timer_checkpoint,
        _timer_checkpoint_json,
    ),
)
CONFIG_CODECS = {codec.file_name: codec for codec in _CODECS}


def config_codec(file_name: str) -> ConfigCodec:
    """Return the codec of a file of config/ or of its backup."""
    codec = CONFIG_CODECS.get(file_name.removesuffix(BACKUP_SUFFIX))
    if codec is None:
        raise BadField(f"{file_name!r} is not one of {', '.join(sorted(CONFIG_CODECS))}", field="config file name")
    return codec


class ConfigSource(Enum):
    """Which of the two files was used."""

    MAIN = "main"
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class ChosenConfig(Generic[T_co]):
    source: ConfigSource
    value: T_co


@overload
def choose_config(main: bytes | None, backup: bytes | None) -> ChosenConfig[Json] | None: ...
@overload
def choose_config(main: bytes | None, backup: bytes | None, decode: Callable[[str], T]) -> ChosenConfig[T] | None: ...
def choose_config(
    main: bytes | None, backup: bytes | None, decode: Callable[[str], object] = read_json
) -> ChosenConfig[object] | None:
    """Read the file, or its backup if it is missing, empty or unreadable; return None if both are empty or missing.

    A backup that cannot be read is an error. So is a damaged file without a backup: Java would continue with
    an empty table and overwrite the damaged file with it.
    """
    problem: FormatError | None = None
    if main:
        try:
            return ChosenConfig(ConfigSource.MAIN, decode(utf8_decode(main)))
        except FormatError as error:
            problem = error
    if backup:
        return ChosenConfig(ConfigSource.BACKUP, decode(utf8_decode(backup)))
    if problem is not None:
        raise problem
    return None
