"""Request signatures for brokers with access control: HMAC-SHA1 over all header fields and the body.

Mirrors Java `AclClientRPCHook` and `AclUtils.combineRequestContent`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from orbitlog.wire.command import Command

_ACCESS_KEY = "AccessKey"
_SIGNATURE = "Signature"
_SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret key for brokers with access control; the secret is never part of `repr`.

    Example:
        credentials = orbitlog.Credentials("access-key", "secret-key")
        async with orbitlog.connect(address, credentials=credentials) as mq:
            await mq.send("Orders", "one")
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: Command) -> None:
        """Add access key, security token and signature to the header fields of a request."""
        fields = command.ext_fields
        fields[_ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[_SECURITY_TOKEN] = self.security_token
        content = "".join(fields[name] for name in sorted(fields) if name != _SIGNATURE).encode() + command.body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        fields[_SIGNATURE] = base64.b64encode(digest).decode()
