"""Cluster options: name servers, credentials, TLS and limits of sources and sinks that talk to brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orbitlog.client.connection.addresses import is_secured, parse_addresses
from orbitlog.errors import ClientError, FormatError
from orbitlog.formats.names import check_group
from orbitlog.pipeline.sources.broker_stores import OptionError

if TYPE_CHECKING:
    import ssl

    from orbitlog.access.credentials import Credentials
    from orbitlog.pipeline.sources.source_options import OptionReader

CONSUMER_GROUP_DEFAULT = "orbitlog-spark"
PULLS_IN_FLIGHT_DEFAULT = 8
PULLS_IN_FLIGHT_MAX = 256
BROKER_TIMEOUT_MS_DEFAULT = 60_000

CONNECTION_OPTIONS: Mapping[str, str] = {
    "nameServer": "name servers of a cluster, HOST:PORT separated by commas; rocketmqs:// for TLS",
    "accessKey": "access key, for brokers with access control",
    "secretKey": "secret key; Spark redacts it in plans and pages",
    "securityToken": "security token, if the account has one",
    "tls": "encrypt connections: true, ca (do not check host names) or none (do not verify servers)",
    "tlsCaFile": "PEM file with the CAs that replace those of the system",
    "tlsCertFile": "PEM file with the client's certificate",
    "tlsKeyFile": "PEM file with its private key",
    "tlsKeyPassword": "password of that key",
    "brokerTimeoutMs": "how long to retry while a broker does not answer (60000)",
}
PULL_OPTIONS: Mapping[str, str] = {
    "consumerGroup": "consumer group of pulls, for access control and broker statistics (orbitlog-spark)",
    "pullsInFlight": "concurrent pulls of a task (8)",
    "maxBytesPerSecondPerTask": "maximum rate at which a task pulls records",
    "sql": "an SQL92 expression over properties, evaluated by the broker",
}
_TLS_CHOICES = ("true", "false", "ca", "none")
_TLS_FILES = ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPassword")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of the connections; `check` is `true`, `ca` or `none`."""

    check: str
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """A cluster and how to connect to it; sent to workers, so it holds only plain values."""

    name_server: str
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: TlsOptions | None = None
    broker_timeout_s: float = BROKER_TIMEOUT_MS_DEFAULT / 1000
    consumer_group: str = CONSUMER_GROUP_DEFAULT
    pulls_in_flight: int = PULLS_IN_FLIGHT_DEFAULT
    bytes_per_second_max: int | None = None

    @property
    def name_servers(self) -> tuple[str, ...]:
        return parse_addresses(self.name_server)

    def credentials(self) -> Credentials | None:
        from orbitlog.access.credentials import Credentials

        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections, None without TLS; raise `ClientError` for an invalid file."""
        from orbitlog.client.connection.client_tls import Tls, tls_context

        given = self.tls
        if given is None:
            return tls_context(None, self.name_server)
        choice = Tls(
            given.ca_file,
            given.cert_file,
            given.key_file,
            given.key_password,
            check_host_name=given.check == "true",
            insecure=given.check == "none",
        )
        return tls_context(choice, self.name_server)

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON; `from_dict` is the inverse."""
        from dataclasses import asdict

        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClusterOptions:
        tls = values["tls"]
        return cls(**{**values, "tls": None if tls is None else TlsOptions(**tls)})


def parse_cluster_options(reader: OptionReader) -> ClusterOptions:
    """Parse the options of a cluster; raise `OptionError` if they are invalid or contradict each other."""
    address = reader.text("nameServer") or ""
    try:
        parse_addresses(address)
    except ClientError as error:
        raise OptionError(f"nameServer: {error}") from None
    if reader.has("accessKey") != reader.has("secretKey"):
        given, missing = ("accessKey", "secretKey") if reader.has("accessKey") else ("secretKey", "accessKey")
        raise OptionError(f"{given} is given without {missing}; give both, or neither")
    if reader.has("securityToken") and not reader.has("accessKey"):
        raise OptionError("securityToken is given without accessKey and secretKey; give all three")
    group = reader.text("consumerGroup") or CONSUMER_GROUP_DEFAULT
    try:
        check_group(group)
    except FormatError as error:
        raise OptionError(f"consumerGroup={group[:80]} is not a valid group name: {error.problem}") from None
    in_flight = reader.number("pullsInFlight") or PULLS_IN_FLIGHT_DEFAULT
    if in_flight > PULLS_IN_FLIGHT_MAX:
        raise OptionError(f"pullsInFlight={in_flight} is over the maximum of {PULLS_IN_FLIGHT_MAX}")
    return ClusterOptions(
        name_server=address,
        access_key=reader.text("accessKey"),
        secret_key=reader.text("secretKey"),
        security_token=reader.text("securityToken"),
        tls=_tls_options(reader, address),
        broker_timeout_s=(reader.number("brokerTimeoutMs") or BROKER_TIMEOUT_MS_DEFAULT) / 1000,
        consumer_group=group,
        pulls_in_flight=in_flight,
        bytes_per_second_max=reader.number("maxBytesPerSecondPerTask"),
    )


def _tls_options(reader: OptionReader, address: str) -> TlsOptions | None:
    choice = reader.one_of("tls", _TLS_CHOICES)
    files = [name for name in _TLS_FILES if reader.has(name)]
    is_on = is_secured(address) if choice is None else choice != "false"
    if choice == "false" and is_secured(address):
        raise OptionError("nameServer=rocketmqs:// and tls=false contradict each other; write rocketmq:// instead")
    if not is_on:
        if files:
            raise OptionError(f"{files[0]} is given without TLS; add tls=true")
        return None
    if reader.has("tlsCertFile") != reader.has("tlsKeyFile"):
        raise OptionError("tlsCertFile and tlsKeyFile must be given together")
    if choice == "none" and reader.has("tlsCaFile"):
        raise OptionError("tls=none verifies nothing, so tlsCaFile has no effect; remove one of them")
    return TlsOptions(
        choice or "true",
        reader.text("tlsCaFile"),
        reader.text("tlsCertFile"),
        reader.text("tlsKeyFile"),
        reader.text("tlsKeyPassword") or "",
    )
