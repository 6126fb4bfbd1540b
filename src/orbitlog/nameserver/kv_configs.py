"""Key-value configs of a name server, saved to a file if one is set.

Operators use them to mark ordered topics. The file is Java's kvConfig.json, `{"configTable":{namespace:{key: value}}}`,
replaced by a rename, so that a crash leaves the old file or the new one. Mirrors Java `KVConfigManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats.tables.json_records import TEXT, TEXT_KEY, JsonRecord, java, json_record, map_of
from orbitlog.settings.atomic_file import replace_file
from orbitlog.settings.limits import NAMESERVER_KV_BYTES, NAMESERVER_KV_CONFIGS, Limits
from orbitlog.storefiles.confined.regular_files import read_regular_or_none
from orbitlog.wire.bodies.body_json import decode_body, encode_body

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

KEY_CHARACTERS_MAX = 512
VALUE_CHARACTERS_MAX = 64 * 1024
EMPTY_NAMESPACES_MAX = 100
_ENTRY_BYTES_MIN = 64


@json_record
class _KvFile(JsonRecord):
    table: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, metadata=java("configTable", map_of(TEXT_KEY, map_of(TEXT_KEY, TEXT)))
    )


class KvConfigs:
    """Values by namespace and key."""

    def __init__(self, path: Path | None = None, limits: Limits | None = None) -> None:
        self._path = path
        self._limits = limits or Limits()
        self._table: dict[str, dict[str, str]] = {}
        raw = None if path is None else read_regular_or_none(path)
        if raw is not None:
            stored = decode_body(_KvFile, raw, str(path))
            self._table = {namespace: dict(values) for namespace, values in stored.table.items()}
        sizes = [
            _entry_bytes(namespace, key, value)
            for namespace, values in self._table.items()
            for key, value in values.items()
        ]
        self._count, self._bytes = len(sizes), sum(sizes)

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; it is synced before the request is acknowledged. Raise an error if a limit is exceeded."""
        _check_name("namespace", namespace)
        _check_name("key", key)
        if len(value) > VALUE_CHARACTERS_MAX:
            raise LimitExceeded(field="value", limit=VALUE_CHARACTERS_MAX, got=len(value))
        earlier = self.get(namespace, key)
        count = self._count + (earlier is None)
        size = self._bytes + _entry_bytes(namespace, key, value)
        size -= 0 if earlier is None else _entry_bytes(namespace, key, earlier)
        if count > self._count or size > self._bytes:  # files of Java may exceed the limits; they can shrink
            self._limits.refuse_over(NAMESERVER_KV_CONFIGS, count)
            self._limits.refuse_over(NAMESERVER_KV_BYTES, size)
        self._table.setdefault(namespace, {})[key] = value
        self._count, self._bytes = count, size
        self._save()

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value; succeed also if it does not exist."""
        values = self._table.get(namespace, {})
        value = values.pop(key, None)
        if value is None:
            return
        if not values and sum(not others for others in self._table.values()) > EMPTY_NAMESPACES_MAX:
            del self._table[namespace]  # Java keeps all of them; their names would add up without a limit
        self._count -= 1
        self._bytes -= _entry_bytes(namespace, key, value)
        self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, encode_body(_KvFile(table=self._table)), keeps_mode=True)


def _entry_bytes(namespace: str, key: str, value: str) -> int:
    """Return the size of an entry in UTF-8, with a minimum: short entries cost more than their characters."""
    return max(len(f"{namespace}{key}{value}".encode()), _ENTRY_BYTES_MIN)


def _check_name(kind: str, name: str) -> None:
    if not name or not name.isprintable():
        raise BadField("is empty or has unprintable characters", field=kind)
    if len(name) > KEY_CHARACTERS_MAX:
        raise LimitExceeded(field=kind, limit=KEY_CHARACTERS_MAX, got=len(name))
