"""Runtime values: parses the texts of GET_BROKER_RUNTIME_INFO, which brokers of all versions write for people."""

from __future__ import annotations

import re
from collections.abc import Mapping

RATES = {
    "put": ("putTps",),
    "getfound": ("getFoundTps",),
    "getmiss": ("getMissTps",),
    "gettotal": ("getTotalTps",),
    "gettransfered": ("getTransferredTps", "getTransferedTps"),
}
WINDOWS_S = (10, 60, 600)
_UNITS = {"B": 0, "KIB": 10, "MIB": 20, "GIB": 30, "TIB": 40, "PIB": 50, "EIB": 60}
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?(B|[KMGTPE]iB)\b", re.IGNORECASE)
_PUT_TIME = re.compile(r"\[([^\]\[]{1,16})\]:([0-9]{1,19})")


def number(text: str | None) -> float | None:
    """Return a value as a number; None if it is missing or not one."""
    if text is None or len(text) > 40:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def whole(text: str | None, default: int = 0) -> int:
    """Return a value as an integer."""
    value = number(text)
    return default if value is None else int(value)


def sizes_of(text: str) -> list[float]:
    """Return the sizes in a text such as `Total : 98.2 GiB, Free : 40.1 GiB.` in bytes."""
    return [float(amount) * (1 << _UNITS[unit.upper()]) for amount, unit in _SIZE.findall(text)]


def rates(runtime: Mapping[str, str], kind: str) -> list[float]:
    """Return the rates over 10, 60 and 600 seconds; fewer if the broker states fewer."""
    text = next((runtime[key] for key in RATES[kind] if key in runtime), "")
    values = [number(word) for word in text.split(" ")[: len(WINDOWS_S)]]
    return [value for value in values if value is not None]


def capacity(runtime: Mapping[str, str]) -> tuple[float, float] | None:
    """Return total and free bytes of the disk of the log."""
    sizes = sizes_of(runtime.get("commitLogDirCapacity", ""))
    return (sizes[0], sizes[1]) if len(sizes) == 2 else None


def unflushed_bytes(runtime: Mapping[str, str]) -> float | None:
    """Return the bytes that are written and not flushed; Apache's brokers state them with a unit or without."""
    text = runtime.get("remainHowManyDataToFlush", "")
    return next(iter(sizes_of(text)), number(text.split(" ")[0] or None))


def put_times(runtime: Mapping[str, str]) -> dict[str, int]:
    """Return the number of stored messages by the range of time that they took."""
    return {name: int(count) for name, count in _PUT_TIME.findall(runtime.get("putMessageDistributeTime", ""))}
