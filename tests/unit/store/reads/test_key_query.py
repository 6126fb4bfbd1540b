"""Messages by key: the real key is compared, however a message's properties are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.hosts import Host
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.properties import decode_properties
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.storefiles.store_config import StoreConfig

# One slot: every key collides with every other, so only the comparison distinguishes them.
CONFIG = StoreConfig(StoreGeometry(segment_bytes=16384, queue_file_bytes=400, index_layout=IndexLayout(1, 500)))
WRITTEN = [
    b"KEYS\x01a\x02",
    b"KEYS\x01a",
    b"TAGS\x01t\x02KEYS\x01a\x02WAIT\x01true\x02",
    b"KEYS\x01a b\x02",
    b"KEYS\x01b a\x02",
    b"KEYS\x01ab\x02",
    b"KEYS\x01ba\x02",
    b"MYKEYS\x01a\x02KEYS\x01b\x02",
    b"KEYS\x01a\x02KEYS\x01b\x02",
    b"KEYS\x01b\x02KEYS\x01a\x02",
    b"NOTE\x01KEYS\x01a\x02KEYS\x01b\x02",
    b"NOTE\x01KEYS\x01a\x02",
    b"UNIQ_KEY\x01a\x02KEYS\x01b\x02",
    b"UNIQ_KEY\x01b\x02KEYS\x01a\x02",
    "KEYS\x01ä\x02".encode(),
    b"KEYS\x01\xff\x02",
    b"TAGS\x01a\x02",
]


@pytest.mark.parametrize("key", ["a", "b", "ab", "ä", "a b", "a\x02KEYS\x01b", "�", "t", " "])
def test_only_messages_with_that_very_key(key: str, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, lambda: 1_700_000_000_000) as store:
        for properties in WRITTEN:
            store.append(make_message("T", properties, properties=properties))
        store.dispatch_once()
        found = store.query(KeyQuery("T", key))
        wanted = [raw for raw in WRITTEN if key in _keys_of(raw)]
        assert [message.body for message in found.messages] == wanted[::-1]
        assert found.records == [encode_message(message) for message in found.messages]


def _keys_of(raw: bytes) -> list[str]:
    properties = decode_properties(raw)
    return [*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY", "")]


@pytest.mark.parametrize("topic", ["T", "%RETRY%" + "g" * 150], ids=["short", "long"])
@pytest.mark.parametrize("host", [None, Host(bytes(15) + b"\x01", 10911)], ids=["IPv4", "IPv6"])
def test_any_kind_of_record_is_found_and_a_damaged_one_is_not(topic: str, host: Host | None, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, lambda: 1_700_000_000_000) as store:
        placed = [
            store.append(make_message(topic, b"body %d" % number, properties={"KEYS": "a"}, born_host=host))
            for number in range(3)
        ]
        store.append(make_message("U", b"another topic", properties={"KEYS": "a"}))
        store.dispatch_once()
        assert [message.body for message in store.query(KeyQuery(topic, "a")).messages] == [
            b"body 2",
            b"body 1",
            b"body 0",
        ]
        store._log.segments.file(0).write(placed[1].physical_offset + (100 if host else 88), b"B")
        found = store.query(KeyQuery(topic, "a"))
        assert [message.body for message in found.messages] == [b"body 2", b"body 0"]
        assert found.newest_timestamp_ms == 1_700_000_000_000
