"""Op messages: which half messages are ended. Mirrors Java `TransactionalMessageServiceImpl.fillOpRemoveMap`.

Half and op topic together say what is pending: every half message that no op message names, by its own queue offset or
by that of its first copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from orbitlog.formats.records import properties as props

OP_SEPARATOR = ","
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
_DIGITS_MAX = 19


def ended_queue_offsets(body: bytes) -> Iterator[int]:
    """Read `12` as 4.x writes it, or `12,13,` as 5.x does; items that are not numbers are ignored."""
    for part in body.decode(errors="replace").split(OP_SEPARATOR):
        if part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX:
            yield int(part)


def is_pending(queue_offset: int, properties: Mapping[str, str], ended: Collection[int]) -> bool:
    """Return whether a half message is still pending."""
    first = properties.get(PREPARED_QUEUE_OFFSET, "")
    return queue_offset not in ended and not (first.isdecimal() and int(first[:_DIGITS_MAX]) in ended)


def check_count(properties: Mapping[str, str]) -> int:
    """Return how often its producer was asked."""
    text = properties.get(CHECK_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0


def transaction_id(properties: Mapping[str, str]) -> str:
    return properties.get(props.TRANSACTION_ID) or properties.get(props.UNIQ_KEY, "")
