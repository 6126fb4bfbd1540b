"""`orbitlog.connect`: creates the asyncio client (`async with`) or the blocking client (`with`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from orbitlog.access.credentials import Credentials
from orbitlog.client.connection.addresses import parse_addresses
from orbitlog.client.connection.client_tls import TlsChoice, tls_context
from orbitlog.client.rocketmq import PRODUCER_GROUP, RocketMQ

if TYPE_CHECKING:
    import ssl

    from orbitlog.client.blocking import BlockingRocketMQ


class ClientContext:
    """Result of `connect`: enter it with `async with` for the asyncio client, or with `with` for the blocking one."""

    def __init__(
        self,
        name_servers: tuple[str, ...],
        producer_group: str,
        credentials: Credentials | None,
        namespace: str,
        *,
        trace: bool = False,
        tls: ssl.SSLContext | None = None,
        otel: bool | None = None,
    ) -> None:
        self._name_servers = name_servers
        self._producer_group = producer_group
        self._credentials = credentials
        self._namespace = namespace
        self._trace = trace
        self._tls = tls
        self._otel = otel
        self._client: RocketMQ | None = None
        self._blocking: BlockingRocketMQ | None = None

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"not connected: write `async with orbitlog.connect(…) as mq:`, then `mq.{name}`")

    def _open(self) -> RocketMQ:
        return RocketMQ(
            self._name_servers,
            producer_group=self._producer_group,
            credentials=self._credentials,
            namespace=self._namespace,
            trace=self._trace,
            tls=self._tls,
            otel=self._otel,
        )

    async def __aenter__(self) -> RocketMQ:
        self._client = self._open()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def __enter__(self) -> BlockingRocketMQ:
        from orbitlog.client.blocking import BlockingRocketMQ

        self._blocking = BlockingRocketMQ(self._open)
        return self._blocking

    def __exit__(self, *_: object) -> None:
        if self._blocking is not None:
            self._blocking.close()


def connect(
    address: str,
    *,
    producer_group: str = PRODUCER_GROUP,
    credentials: Credentials | None = None,
    namespace: str = "",
    trace: bool = False,
    tls: TlsChoice | ssl.SSLContext | None = None,
    otel: bool | None = None,
) -> ClientContext:
    """Create a client of the cluster whose name servers are at `address`, such as `rocketmq://127.0.0.1:9876`.

    Connections are opened at the first send, consume or query. `credentials` sign every request (access control);
    `namespace` is a prefix that isolates topics and groups. `trace` records sends and deliveries in
    RMQ_SYS_TRACE_TOPIC, for `orbitlog message trace` and Java's tools. `tls` (True, a `Tls` or an `ssl.SSLContext`), or
    the scheme `rocketmqs://`, encrypts all connections. `otel` makes spans of OpenTelemetry (extra `otel`); without it,
    they are made if the application has set a tracer provider. Raise `ClientError` for an invalid address or
    certificate file.

    Example:
        async with orbitlog.connect("rocketmq://127.0.0.1:9876") as mq:
            print(mq.client_id)
        with orbitlog.connect("rocketmq://127.0.0.1:9876") as mq:
            print(mq.admin)
    """
    addresses = parse_addresses(address)
    context = tls_context(tls, address)
    return ClientContext(addresses, producer_group, credentials, namespace, trace=trace, tls=context, otel=otel)
