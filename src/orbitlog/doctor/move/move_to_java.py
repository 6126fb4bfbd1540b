"""What Apache's broker needs or changes if it is given a store that Orbitlog used: sizes, versions, settings, names.

Facts about Java's broker: `MappedFileQueue.load` refuses a file of another size; `IndexFile` maps a file with its own
slot count and misreads it; 4.9 does not know V2 records; a topic of another queue type stops the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orbitlog.doctor.move.move_rows import MoveRow, changes, note, refused
from orbitlog.doctor.move.move_state import offset_count
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.settings import store_settings as keys
from orbitlog.settings.java_keys import ABSENT, JAVA_KEYS, JAVA_VERSIONS
from orbitlog.settings.setting_classes import ORBITLOG_KEYS, PLACE_KEYS, SAFETY, STORE_KEYS
from orbitlog.settings.setting_review import SettingClass, review_setting
from orbitlog.settings.store_settings import LOG_PATH_SETTINGS, StoreSettings
from orbitlog.store.log.property_crc_mode import find_records_without_crc
from orbitlog.storefiles.config_reading import known_topics
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import sampled_compat
from orbitlog.storefiles.offset_files import OffsetsFile, offsets_file
from orbitlog.storefiles.store_contents import unsupported_attributes
from orbitlog.storefiles.store_files import StoreFiles
from orbitlog.storefiles.store_inference import common_size

TIMER_LOG_SETTING = "mappedFileSizeTimerLog"
_VERIFY_CRC = "forceVerifyPropCRC"
_NAMED_MAX = 3
_SEGMENTS_READ_BY_JAVA = 3
_OWN_FILES = "orbitlog*"
LMQ_SETTING = "enableLmq"


def java_rows(
    store: StoreFiles, settings: StoreSettings, texts: Mapping[str, str], version: str | None
) -> Iterator[MoveRow]:
    """Yield what Java's broker of that version, None for the one that the files show, does with the store."""
    version = version or sampled_compat(store, StoreSettings()).name
    yield from _size_rows(store, settings, texts, version)
    yield from _version_rows(store, version)
    yield from _topic_rows(store, texts)
    yield from _crc_rows(store, texts, version)
    yield from _setting_rows(texts, version)
    own = sorted({*store.root.glob(_OWN_FILES), *(store.root / tree.CONFIG).glob(_OWN_FILES)})
    if own:
        shown = ", ".join(str(path.relative_to(store.root)) for path in own)
        yield note("files of Orbitlog", f"Java's broker ignores {shown}; they may stay", path=store.root)


def _size_rows(store: StoreFiles, settings: StoreSettings, texts: Mapping[str, str], version: str) -> Iterator[MoveRow]:
    places = StoreSettings({key: text for key, text in settings.texts.items() if key in LOG_PATH_SETTINGS})
    geometry = robust_geometry(store, places)
    sizes = [
        (keys.SEGMENT_BYTES.key, bool(store.segments), geometry.segment_bytes, "CommitLog segments have"),
        (keys.QUEUE_FILE_BYTES.key, any(store.queues.values()), geometry.queue_file_bytes, "ConsumeQueue files have"),
        (TIMER_LOG_SETTING, bool(store.timer_log), common_size(store.timer_log), "timer log files have"),
    ]
    for key, has_files, size_bytes, subject in sizes:
        if has_files and size_bytes and _is_read(key, version) and (used := _java_value(key, texts)) != size_bytes:
            yield refused(
                "file size",
                f"{subject} {size_bytes} bytes, and Java's broker does not load them with {key}={used}",
                setting=key,
                next_step=f"add {key}={size_bytes} to broker.conf",
            )
    if store.index_files:
        layout = geometry.index_layout
        for key, count, unit in (
            (keys.SLOT_COUNT.key, layout.slot_count, "hash slots"),
            (keys.ENTRY_COUNT.key, layout.entry_count, "entries"),
        ):
            if (used := _java_value(key, texts)) != count:
                yield changes(
                    "file size",
                    f"index files have {count} {unit}: with {key}={used} Java's broker would misread and damage them",
                    setting=key,
                    next_step=f"add {key}={count} to broker.conf",
                )


def _java_value(key: str, texts: Mapping[str, str]) -> int:
    """Return the number that Java uses: an invalid one is ignored."""
    try:
        return int(texts.get(key, ""))
    except ValueError:
        return int(JAVA_KEYS[key].defaults[-1])


def _is_read(key: str, version: str) -> bool:
    return JAVA_KEYS[key].defaults[_version_number(version)] != ABSENT


def _version_number(version: str) -> int:
    return next(number for number, name in enumerate(JAVA_VERSIONS) if name.startswith(version))


def _version_rows(store: StoreFiles, version: str) -> Iterator[MoveRow]:
    if version != "4.9":
        return
    long_topics = sorted({topic for topic, _ in store.queues if len(topic) > names.TOPIC_CHARACTERS_MAX})
    if long_topics:
        yield changes(
            "V2 records",
            f"{len(long_topics)} topics have names of more than {names.TOPIC_CHARACTERS_MAX} characters"
            f" ({long_topics[0][:40]}…), stored as V2 records: Java 4.9 does not know them and deletes the log from"
            " the first one that it meets at its start",
            path=store.root / tree.CONSUMEQUEUE / long_topics[0],
            next_step="move to Java 5.5",
        )


def _topic_rows(store: StoreFiles, texts: Mapping[str, str]) -> Iterator[MoveRow]:
    table = known_topics(store.root)
    with_queues = {topic for (topic, _), files in store.queues.items() if files}
    for topic, config in table.topics.items() if table is not None else ():
        if "queue.type" in unsupported_attributes(config.attributes) and topic in with_queues:
            yield refused(
                "queue type",
                f"{TOPICS.name} gives topic {topic} the queue.type {config.attributes['queue.type']}, but it has"
                " ordinary queue files: Java's broker does not start",
                path=store.root / tree.CONSUMEQUEUE / topic,
                next_step="move that directory away; Java's broker derives the queue from the log",
            )
    second_form = sorted(topic for topic in with_queues if names.is_pop_retry_v2(topic))
    if second_form and texts.get("enableRetryTopicV2", "").lower() != "true":
        yield changes(
            "POP retry topics",
            f"{len(second_form)} retry topics have the form %RETRY%group+topic ({', '.join(second_form[:_NAMED_MAX])}):"
            " Java's broker delivers their messages only with enableRetryTopicV2=true",
            setting="enableRetryTopicV2",
            next_step="add enableRetryTopicV2=true to broker.conf",
        )


def _crc_rows(store: StoreFiles, texts: Mapping[str, str], version: str) -> Iterator[MoveRow]:
    if texts.get(_VERIFY_CRC, "").lower() != "true" or not _is_read(_VERIFY_CRC, version):
        return
    lacking = find_records_without_crc(store.segments[-_SEGMENTS_READ_BY_JAVA:])
    if lacking.count:
        yield changes(
            "property CRC",
            f"{_VERIFY_CRC}=true, but {lacking.count} records, the first at physical offset"
            f" {lacking.first_physical_offset}, have no property CRC: Java's broker deletes the log from there on",
            setting=_VERIFY_CRC,
            next_step=f"set {_VERIFY_CRC}=false until retention has removed these records",
        )


def java_offset_rows(store: StoreFiles, lmq_enabled: bool) -> Iterator[MoveRow]:
    """Yield a row if the committed offsets are in the table that Java's broker does not read with this setting."""
    read: OffsetsFile = CONSUMER_OFFSET
    other: OffsetsFile = LMQ_CONSUMER_OFFSET
    if lmq_enabled:
        read, other = other, read
    count = offset_count(store, other)
    if count and (not offset_count(store, read) or offsets_file(store.root) is other):
        setting, opposite = str(lmq_enabled).lower(), str(not lmq_enabled).lower()
        yield changes(
            "consumer offsets",
            f"{count} consumer offsets are in {other.name}, which was saved last, but with {LMQ_SETTING}={setting}"
            f" Java's broker reads {read.name} only: groups would start over",
            path=store.root / tree.CONFIG / other.name,
            next_step=f"set {LMQ_SETTING}={opposite}",
        )


def _setting_rows(texts: Mapping[str, str], version: str) -> Iterator[MoveRow]:
    yield from _default_rows(texts, version)
    for key, text in texts.items():
        if key in ORBITLOG_KEYS:
            yield note("setting", f"{key} is a key of Orbitlog, and Java's broker ignores it", setting=key)
        elif key in JAVA_KEYS and not _is_read(key, version):
            yield changes("setting", f"{key}={text}: Java {version} does not have this key and ignores it", setting=key)
        elif key in STORE_KEYS & SAFETY.keys() and key not in PLACE_KEYS:
            kind, *_ = review_setting(key, text, "broker.conf")
            if kind is SettingClass.SAFETY:
                yield changes(
                    "setting",
                    f"{key}={text} is not supported by Orbitlog, so what it stored was stored without it",
                    setting=key,
                    next_step=f"remove {key}, or convert the store with Apache's tools after the move",
                )


def _default_rows(texts: Mapping[str, str], version: str) -> Iterator[MoveRow]:
    """Yield settings that are left out and have another default in Java's broker."""
    if "brokerName" not in texts:
        yield changes(
            "default",
            "brokerName is not given: Java's broker is named after its host, Orbitlog's is broker-a",
            setting="brokerName",
            next_step="add brokerName=broker-a, or the name that clients know",
        )
    if "bindAddress" not in texts and _is_read("bindAddress", version):
        yield (note if texts.get("brokerIP1") else changes)(
            "listen address",
            "bindAddress is not given: Java's broker listens on every address of the machine, Orbitlog on brokerIP1 or"
            " 127.0.0.1",
            setting="bindAddress",
            next_step="add bindAddress with the address to listen on, 0.0.0.0 for all",
        )
    for key, meaning in _OTHER_DEFAULTS.items():
        if key not in texts and _is_read(key, version):
            yield note("default", f"{key} is not given: {meaning}", setting=key)


_OTHER_DEFAULTS = {
    "timerMaxDelaySec": "Java's broker refuses timer messages for more than three days ahead, Orbitlog does not",
    "recallMessageEnable": "Java's broker does not recall timer messages, Orbitlog does",
}
