"""What differs between Apache RocketMQ 4.9 and 5.5 in the bytes they keep: one table, chosen by `compat`.

Everything else in the formats is common to both. Nothing outside this module asks for a version by name;
it asks the chosen `Compat` for the rule. docs/compatibility.md is drawn from `RULES`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from orbitlog.errors import BadField


@dataclass(frozen=True, slots=True)
class Compat:
    """The rules of one line of versions."""

    name: str
    indexes_tags: bool
    checkpoint_fields: tuple[str, ...]
    long_topics: bool
    trailing_property_separator: bool
    property_map_capacity: int
    plain_send_keeps_wait: bool
    single_send_adds_region: bool
    batch_members_get_batch_properties: bool
    half_message_has_transaction_id: bool
    commit_keeps_real_topic: bool
    transaction_ops_are_batched: bool
    int_keys_on_own_line: bool
    config_has_5x_fields: bool
    abort_holds_process_id: bool
    searches_time_by_file: bool


RULES = {
    "indexes_tags": "the IndexFile also gets a key `topic#T#tags` for each record with tags",
    "checkpoint_fields": "i64 fields of the checkpoint file in use, in order",
    "long_topics": "a topic of more than 127 characters is stored with the V2 magic instead of being refused",
    "trailing_property_separator": "the property string ends with 0x02",
    "property_map_capacity": "capacity of the HashMap that decides the order of re-encoded properties",
    "plain_send_keeps_wait": "`WAIT` stays in the stored properties of a plain single send",
    "single_send_adds_region": "`MSG_REGION` and `TRACE_ON` are stored with every single send",
    "batch_members_get_batch_properties": "batch-level properties (`CLUSTER`, …) are appended to each batch member",
    "half_message_has_transaction_id": "half messages carry `__transactionId__`",
    "commit_keeps_real_topic": "a committed message still carries `REAL_TOPIC` and `REAL_QID`",
    "transaction_ops_are_batched": "one op message lists several half messages (`12,13,`)",
    "int_keys_on_own_line": "pretty JSON puts each entry of a map with integer keys on its own line",
    "config_has_5x_fields": "config/*.json carry `attributes`, `stateVersion` and the other fields of 5.x",
    "abort_holds_process_id": "the abort file holds the decimal process id instead of being empty",
    "searches_time_by_file": "an offset by time is the nearest message in a queue file chosen by its modification time",
}

_CHECKPOINT_4_9 = ("physic_msg_timestamp_ms", "logics_msg_timestamp_ms", "index_msg_timestamp_ms")

COMPAT_4_9 = Compat(
    name="4.9",
    indexes_tags=False,
    checkpoint_fields=_CHECKPOINT_4_9,
    long_topics=False,
    trailing_property_separator=False,
    property_map_capacity=16,
    plain_send_keeps_wait=False,
    single_send_adds_region=False,
    batch_members_get_batch_properties=True,
    half_message_has_transaction_id=False,
    commit_keeps_real_topic=True,
    transaction_ops_are_batched=False,
    int_keys_on_own_line=False,
    config_has_5x_fields=False,
    abort_holds_process_id=False,
    searches_time_by_file=True,
)
COMPAT_5_5 = Compat(
    name="5.5",
    indexes_tags=True,
    checkpoint_fields=(
        *_CHECKPOINT_4_9,
        "master_flushed_physical_offset",
        "confirm_physical_offset",
        "logics_physical_offset",
    ),
    long_topics=True,
    trailing_property_separator=True,
    property_map_capacity=128,
    plain_send_keeps_wait=True,
    single_send_adds_region=True,
    batch_members_get_batch_properties=False,
    half_message_has_transaction_id=True,
    commit_keeps_real_topic=False,
    transaction_ops_are_batched=True,
    int_keys_on_own_line=True,
    config_has_5x_fields=True,
    abort_holds_process_id=True,
    searches_time_by_file=False,
)
COMPATS = {compat.name: compat for compat in (COMPAT_4_9, COMPAT_5_5)}

assert set(RULES) == {field.name for field in fields(Compat)} - {"name"}


def compat_named(name: str) -> Compat:
    """Return the rules called `name`."""
    if name not in COMPATS:
        raise BadField(f"{name!r} is unknown; use one of {', '.join(COMPATS)}", field="compat")
    return COMPATS[name]
