"""Fast derive: tags code and key hashes of one record, without decoding its properties into a map.

The fast path of `derive` for live dispatch: three properties are searched in the raw bytes, and the hash of every key
continues that of its topic. Records of the schedule topic or with light queues need `derive`; a contract test compares
the two.
"""

from __future__ import annotations

from orbitlog.formats import names
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import index_key, key_hash, tags_index_key
from orbitlog.formats.java import ascii_hash, string_hash, utf8_decode
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props

_END = props.PROPERTY_END.encode()
_NAME_END = props.NAME_END.encode()
_LIGHT_QUEUES = props.INNER_MULTI_DISPATCH.encode()
_SPACE = props.KEY_SEPARATOR.encode()
# With the separator before it: names of other properties may end with the same letters.
_UNIQ_KEY, _KEYS, _TAGS = (_END + name.encode() + _NAME_END for name in (props.UNIQ_KEY, props.KEYS, props.TAGS))
_ROLLBACK = int(flags.TransactionType.ROLLBACK)

# Topics and tags come from clients, so the caches are bounded.
_TOPICS_MAX = 65_536
_TAGS_MAX = 8_192

NO_KEYS: list[int] = []


def _key_hash(before: int, key: bytes) -> int:
    """Hash `topic#key` as `key_hash` does, given the hash of `topic#`, unsigned."""
    if key.isascii():
        value = ascii_hash(key, before)
    else:
        decoded = utf8_decode(key)
        units = len(decoded.encode("utf-16-be", "surrogatepass")) // 2
        value = (before * pow(31, units, 2**32) + string_hash(decoded)) & 0xFFFFFFFF
    if value < 0x80000000:
        return value
    return 0x100000000 - value if value != 0x80000000 else 0


def _last_value(properties: bytes, mark: bytes, found: int) -> bytes:
    """Return the value of the last occurrence of a property that is not empty, searching back from `found`."""
    while found >= 0:
        start = found + len(mark)
        end = properties.find(_END, start)
        if end < 0:
            end = len(properties)
        if end > start:
            return properties[start:end]
        found = properties.rfind(mark, 0, found)
    return b""


class FastDerive:
    """Tags codes and key hashes by the rules of one store; caches the hashes of topics and tags."""

    def __init__(self, rules: DeriveRules) -> None:
        self._multi_dispatch = rules.multi_dispatch
        self._indexes_tags = rules.compat.indexes_tags
        self._topics: dict[str, int | None] = {}
        self._tags: dict[tuple[str, bytes], tuple[int, int]] = {}

    def derive(self, topic: str, sys_flag: int, properties_raw: bytes) -> tuple[int, list[int]] | None:
        """Return the tags code and the key hashes of a record; None if it needs `derive`."""
        try:
            before = self._topics[topic]
        except KeyError:
            before = self._learn_topic(topic)
        if before is None or (self._multi_dispatch and _LIGHT_QUEUES in properties_raw):
            return None
        properties = _END + properties_raw
        hashes: list[int] = []
        found = properties.rfind(_UNIQ_KEY)
        if found >= 0 and (value := _last_value(properties, _UNIQ_KEY, found)):
            hashes.append(_key_hash(before, value))
        found = properties.rfind(_KEYS)
        if found >= 0 and (value := _last_value(properties, _KEYS, found)):
            if _SPACE in value:
                hashes += [_key_hash(before, key) for key in value.split(_SPACE) if key]
            else:
                hashes.append(_key_hash(before, value))
        code = 0
        found = properties.rfind(_TAGS)
        if found >= 0 and (value := _last_value(properties, _TAGS, found)):
            try:
                code, tags_hash = self._tags[topic, value]
            except KeyError:
                code, tags_hash = self._learn_tags(topic, value)
            if self._indexes_tags:
                hashes.append(tags_hash)
        return code, hashes if sys_flag & flags.TRANSACTION_MASK != _ROLLBACK else NO_KEYS

    def _learn_topic(self, topic: str) -> int | None:
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        before = None if topic == names.SCHEDULE_TOPIC else string_hash(index_key(topic, "")) & 0xFFFFFFFF
        self._topics[topic] = before
        return before

    def _learn_tags(self, topic: str, tags: bytes) -> tuple[int, int]:
        if len(self._tags) >= _TAGS_MAX:
            self._tags.clear()
        text = utf8_decode(tags)
        self._tags[topic, tags] = string_hash(text), key_hash(tags_index_key(topic, text))
        return self._tags[topic, tags]
