"""The sink's ids and members, a row at a time in plain Python: the reference of its kernels.

A query that continues after an upgrade repeats an epoch, and recognises its rows by these ids: they must never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from orbitlog.client.producer.outgoing import make_outgoing
from orbitlog.errors import ClientError
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.formats.records.properties import encode_properties
from orbitlog.pipeline.sink.write_identity import WriteIdentity

_HASH_BYTES = 12
NOT_COPIED = ("UNIQ_KEY", "TAGS", "KEYS", "WAIT", "DELAY")


@dataclass
class ReferenceRows:
    """Results for rows: ids and members of valid ones, positions of invalid ones, and the digest."""

    identity: WriteIdentity
    ids: list[str] = field(default_factory=list)
    members: list[bytes] = field(default_factory=list)
    invalid: list[int] = field(default_factory=list)
    _seen: dict[bytes, int] = field(default_factory=dict)
    _sum: int = 0
    _count: int = 0

    @property
    def digest(self) -> str:
        return f"{self._count}:{self._sum:016x}"

    def add(self, topic: str | None, rows: Sequence[Mapping[str, Any]]) -> None:
        for index, fields in enumerate(rows):
            try:
                self._add(topic, fields)
            except ClientError:
                self.invalid.append(index)

    def _add(self, topic: str | None, fields: Mapping[str, Any]) -> None:
        chosen = topic if topic is not None else fields.get("topic")
        if chosen is None or fields["body"] is None:
            raise ClientError("null")
        copied = {name: value for name, value in fields.get("properties") or () if name not in NOT_COPIED}
        if None in copied.values():
            raise ClientError("null")
        unique_id = self._next(chosen, fields)
        instant = fields.get("deliverTimestamp")
        message = make_outgoing(
            chosen,
            fields["body"],
            unique_id,
            tags=fields.get("tags"),
            keys=fields.get("keys") or (),
            user_properties=copied,
            deliver_at=None if instant is None else instant.replace(tzinfo=UTC),
            delay_level=fields.get("delayLevel"),
            ordered_by=fields.get("shardingKey"),
            flag=fields.get("flag") or 0,
        )
        self.ids.append(unique_id)
        member = BatchMember(message.body, encode_properties(message.properties), message.flag)
        self.members.append(encode_batch([member]))

    def _next(self, topic: str, fields: Mapping[str, Any]) -> str:
        content = self._hash(*(_stable(name, fields[name]) for name in sorted(fields)), topic.encode())
        number = self._seen.get(content, 0)
        self._seen[content] = number + 1
        raw = self._hash(content, b"%d" % number) if number else content
        self._count += 1
        self._sum = (self._sum + int.from_bytes(raw[:8], "big")) % 2**64
        return f"{raw[:10].hex()}00000000{raw[10:].hex()}".upper()

    def _hash(self, *parts: bytes) -> bytes:
        state = hashlib.blake2b(self.identity.text.encode(), digest_size=_HASH_BYTES)
        for part in parts:
            state.update(b"%d:" % len(part))
            state.update(part)
        return state.digest()


def _stable(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return repr((name, sorted(value) if name == "properties" and value else value)).encode(errors="surrogatepass")
