"""Checks of request headers: the host against DNS rebinding, the origin against cross-site requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from orbitlog.settings.listen_exposure import is_ip_address

_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
_SAFE_METHODS = frozenset(("GET", "HEAD"))


def host_name(host: str) -> str | None:
    """Return the name in a Host header, without port and brackets; None if it is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname


def is_known_host(host: str, public_url: str) -> bool:
    """Return whether a Host header names this console.

    Known are loopback names, the public URL, and addresses: a page of another site reaches the console under a name
    that its owner controls, never under a literal address.
    """
    name = host_name(host)
    if name is None:
        return False
    if name in _LOOPBACK_NAMES or (public_url and name == urlsplit(public_url).hostname):
        return True
    return is_ip_address(name)


def is_safe_method(method: str) -> bool:
    return method in _SAFE_METHODS


def is_same_origin(headers: Mapping[str, str], public_url: str) -> bool:
    """Return whether a changing request comes from a page of this console.

    Browsers send `Sec-Fetch-Site` or `Origin`; without both the request is refused.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    if origin is None or origin == "null":
        return False
    given = urlsplit(origin)
    if public_url and origin.rstrip("/") == _origin_of(public_url):
        return True
    return given.scheme in ("http", "https") and given.netloc == headers.get("host")


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
