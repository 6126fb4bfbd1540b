"""Certificate expiry: the end of validity of the first certificate in a PEM file, read without a TLS library.

The `ssl` module shows the fields of certificates only for verified peers and for authorities.
"""

from __future__ import annotations

import calendar
import ssl
import time
from pathlib import Path

WARN_DAYS = 14
_DAY_S = 86_400
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def expiry_warning(path: str, now_s: int) -> str:
    """Return why a certificate needs to be replaced soon; empty if it does not, or if it cannot be read."""
    if not path:
        return ""
    try:
        expires_s = expiry_s(Path(path).read_text("ascii"))
    except (OSError, ValueError, IndexError):
        return ""  # files that are not valid are reported when they are loaded
    days = (expires_s - now_s) / _DAY_S
    if days > WARN_DAYS:
        return ""
    day = time.strftime("%Y-%m-%d", time.gmtime(expires_s))
    return f"it has expired on {day}" if days <= 0 else f"it expires on {day}, in {days:.1f} days"


def expiry_s(pem: str) -> int:
    """Return the end of validity in seconds since 1970; raise a `ValueError` or `IndexError` if it has none."""
    first = pem[pem.index(_BEGIN) : pem.index(_END) + len(_END)]
    certificate = _content(ssl.PEM_cert_to_DER_cert(first), 0)
    fields = _children(_content(certificate, 0))
    if fields[0][0] == _VERSION:
        fields = fields[1:]
    _, _, _, (tag, validity), *_ = fields  # serial number, algorithm, issuer, validity
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    tag, text = _children(validity)[1]
    layout = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return calendar.timegm(time.strptime(text.decode("ascii"), layout))


def _content(data: bytes, position: int) -> bytes:
    """Return the content of the element at a position."""
    start, end = _extent(data, position)
    return data[start:end]


def _children(data: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each element in a sequence."""
    found, position = [], 0
    while position < len(data):
        start, end = _extent(data, position)
        found.append((data[position], data[start:end]))
        position = end
    return found


def _extent(data: bytes, position: int) -> tuple[int, int]:
    """Return where the content of an element starts and ends; raise a `ValueError` if it is cut off."""
    length, start = data[position + 1], position + 2
    if length & 0x80:  # the number of bytes of the length
        start += length & 0x7F
        length = int.from_bytes(data[position + 2 : start], "big")
    if start + length > len(data):
        raise ValueError("truncated certificate")
    return start, start + length
