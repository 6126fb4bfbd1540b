"""Names in a client certificate: which user it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAME_CHARACTERS_MAX = 255


def certificate_name(certificate: Mapping[str, Any] | None, source: str) -> str:
    """Return the common name of the subject, or the first subject alternative name; empty without one.

    `certificate` is verified, in the form of `SSLObject.getpeercert`. A subject with two common names has none: which
    of them a CA has checked is not known.
    """
    if not certificate:
        return ""
    if source == "san":
        names = [value for _, value in certificate.get("subjectAltName", ())][:1]
    else:
        names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    if len(names) != 1 or "\0" in names[0] or len(names[0]) > _NAME_CHARACTERS_MAX:
        return ""
    return str(names[0])
