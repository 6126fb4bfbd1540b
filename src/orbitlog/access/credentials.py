"""Credentials: the access key and secret key with which a client, or a broker as a client, signs requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitlog.access.request_signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature_of
from orbitlog.wire.command import Command


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
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = signature_of(self.secret_key, fields, command.body)
