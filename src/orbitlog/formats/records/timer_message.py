"""Timer messages (5.x): their properties, and the handle that recalls one.

A sender gives TIMER_DELIVER_MS, TIMER_DELAY_MS or TIMER_DELAY_SEC. The broker stores the message in
rmq_sys_wheel_timer with TIMER_OUT_MS, the second in which its wheel turns it out. Mirrors Java
`HookUtils.transformTimerMessage`, `TimerMessageStore.doEnqueue` and `RecallMessageHandle`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from orbitlog.errors import BadField
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records.properties import REAL_TOPIC

DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_MS = "TIMER_DELAY_MS"
DELAY_SECONDS = "TIMER_DELAY_SEC"
OUT_MS = "TIMER_OUT_MS"
ENQUEUE_MS = "TIMER_ENQUEUE_MS"
DEQUEUE_MS = "TIMER_DEQUEUE_MS"
ROLL_TIMES = "TIMER_ROLL_TIMES"
DELETE_KEY = "TIMER_DEL_UNIQKEY"

PRECISION_MS = 1_000
ROLL_WINDOW_MS = 2 * 24 * 3600 * 1000
_DIGITS_MAX = 19
_HANDLE_VERSION = "v1"
_HANDLE_CHARACTERS_MAX = 1_024


def wants_timer(properties: Mapping[str, str]) -> bool:
    return DELIVER_MS in properties or DELAY_MS in properties or DELAY_SECONDS in properties


def due_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """Return when a message is to be delivered, seen from the moment at which it arrives."""
    if DELAY_SECONDS in properties:
        return now_ms + _number(properties, DELAY_SECONDS) * 1_000
    if DELAY_MS in properties:
        return now_ms + _number(properties, DELAY_MS)
    return _number(properties, DELIVER_MS)


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX and int(digits) <= LONG_MAX):
        raise BadField(f"{text[:40]!r} is not a number", field=f"property {name}")
    return int(text)


def out_ms(due: int) -> int:
    """Return the second of the wheel for a timestamp: the one before it."""
    return due - PRECISION_MS if due % PRECISION_MS == 0 else due // PRECISION_MS * PRECISION_MS


def wake_ms(due: int, stored_ms: int) -> int:
    """Return when to process a message next: when it is due, or before its record in the log expires."""
    left_ms = due - stored_ms
    if left_ms < ROLL_WINDOW_MS:
        return due
    # Slightly beyond the window: half of the delay now, so that the rest is not too short.
    return stored_ms + (ROLL_WINDOW_MS // 2 if left_ms - ROLL_WINDOW_MS < ROLL_WINDOW_MS // 3 else ROLL_WINDOW_MS)


def stored_out_ms(properties: Mapping[str, str]) -> int:
    """Return the second of the wheel that the broker recorded; raise a `BadField` if it is missing or invalid."""
    return _number(properties, OUT_MS)


def stored_due_ms(properties: Mapping[str, str], stored_ms: int) -> int:
    """Return the due timestamp of a stored timer message, with the sender's milliseconds if it has them."""
    out = stored_out_ms(properties)
    if DELIVER_MS in properties:
        exact = _number(properties, DELIVER_MS)
    elif wants_timer(properties) and ROLL_TIMES not in properties:
        exact = due_ms(properties, stored_ms)
    else:
        return out
    return exact if out <= exact <= out + 2 * PRECISION_MS else out


def delete_key(topic: str, unique_id: str) -> str:
    """Return the delete key with the topic, as 5.3 writes it, and 5.5 with `appendTopicForTimerDeleteKey`."""
    return f"{topic}+{unique_id}"


def recalled_key(properties: Mapping[str, str]) -> str | None:
    """Return the delete key, with its topic, of a stored message that recalls another; None for any other message.

    The topic is that of the recall itself: a sender may recall only messages of a topic to which it may send.
    """
    key = properties.get(DELETE_KEY)
    if key is None:
        return None
    own_topic = delete_key(properties.get(REAL_TOPIC, ""), "")
    return key if key.startswith(own_topic) else own_topic + key


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Handle with which a sender recalls a message before its delivery time."""

    topic: str
    broker_name: str
    timestamp_ms: int
    unique_id: str

    def __str__(self) -> str:
        text = f"{_HANDLE_VERSION} {self.topic} {self.broker_name} {self.timestamp_ms} {self.unique_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """Read a handle."""
    try:
        if len(text) > _HANDLE_CHARACTERS_MAX:
            raise ValueError("too long")
        padded = text + "=" * (-len(text) % 4)
        version, topic, broker_name, timestamp, unique_id = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
        )
    except (ValueError, binascii.Error):
        raise BadField(f"{text[:40]!r} is not a recall handle", field="recallHandle") from None
    if version != _HANDLE_VERSION or not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 18):
        raise BadField(f"{text[:40]!r} is a recall handle of another kind", field="recallHandle")
    return RecallHandle(topic, broker_name, int(timestamp), unique_id)
