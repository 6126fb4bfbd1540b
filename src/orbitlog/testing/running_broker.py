"""Test cluster: a name server and a broker in a thread of this process, on free ports.

Any RocketMQ client can connect to `address`. It starts in a fraction of a second, uses the given store directory, and
can be stopped, restarted and rewound while clients are connected.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from orbitlog.access.credentials import Credentials
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import load_broker_settings
from orbitlog.client.blocking import BlockingRocketMQ
from orbitlog.client.connection.client_tls import Tls, TlsChoice
from orbitlog.client.connection.connect import ClientContext, connect
from orbitlog.client.rocketmq import PRODUCER_GROUP
from orbitlog.errors import BrokerRefused, OrbitlogError, RequestTimeout
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import ConsumerStatus
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import ConsumerStatusRequest

R = TypeVar("R")

HOST = "127.0.0.1"
# Small files, so that a thousand tests do not fill a disk.
SETTINGS = {"mappedFileSizeCommitLog": str(8 * 1024 * 1024), "mappedFileSizeConsumeQueue": str(20 * 4096)}
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02
_EPOCH = datetime.fromtimestamp(0, UTC)


class RunningBroker:
    """A name server and a broker; use it in a `with` block, or call `start` and `stop`.

    `settings` are those of broker.conf: `{"defaultTopicQueueNums": "2"}`. A `secured` one serves TLS only, with access
    control on; `connect` then uses `tls` and `credentials`, which other clients need as well.
    """

    def __init__(self, store: Path, settings: Mapping[str, str] | None = None, *, secured: bool = False) -> None:
        self.store = store
        self.tls: Tls | None = None
        self.credentials: Credentials | None = None
        self._tls_texts: dict[str, str] = {}
        self._settings = {**SETTINGS, **(settings or {})}
        if secured:
            self._secure()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orbitlog broker", daemon=True)
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None
        self._name_server_port = 0
        self._broker_port = 0
        self._asking = ExitStack()
        self._admin: BlockingRocketMQ | None = None

    def _secure(self) -> None:
        from orbitlog.testing.secured_settings import CREDENTIALS, access_texts, secured_tls, tls_texts

        self.tls, self.credentials = secured_tls(), CREDENTIALS
        self._tls_texts = tls_texts()
        self._settings = {**self._tls_texts, **access_texts(), **self._settings}

    # Start and stop

    def start(self) -> RunningBroker:
        """Start both servers; return when clients can connect."""
        self._thread.start()
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._run(self._start_name_server())
            self.start_broker()
            undo.pop_all()
        return self

    def stop(self) -> None:
        """Shut both servers down cleanly and close the store."""
        self._asking.close()
        self.stop_broker()
        self.stop_name_server()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        self._loop.close()

    def __enter__(self) -> RunningBroker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_broker(self, *, port: int | None = None) -> None:
        """Start the broker at its previous port, or at `port` (0: any free port)."""
        self._run(self._start_broker(self._broker_port if port is None else port))

    def stop_broker(self) -> None:
        """Stop the broker but not the name server; clients lose their connections."""
        broker, self._broker = self._broker, None
        if broker is not None:
            self._run(broker.stop())

    def restart_broker(self, *, port: int | None = None) -> None:
        """Stop and start the broker with the same store."""
        self.stop_broker()
        self.start_broker(port=port)

    def start_name_server(self) -> None:
        """Start the name server at its previous port; the broker re-registers automatically."""
        self._run(self._start_name_server())

    def stop_name_server(self) -> None:
        name_server, self._name_server = self._name_server, None
        if name_server is not None:
            self._run(name_server.stop())

    async def _start_name_server(self) -> None:
        self._name_server = NameServer(
            NameServerSettings(bind_address=HOST, listen_port=self._name_server_port, tls=self._tls_texts)
        )
        await self._name_server.start()
        self._name_server_port = self._name_server.address[1]

    def _texts(self, port: int) -> dict[str, str]:
        return {
            **self._settings,
            keys.NAME_SERVERS.key: self.address,
            keys.BIND_ADDRESS.key: HOST,
            keys.LISTEN_PORT.key: str(port),
            keys.VIP_CHANNEL.key: "false",
        }

    async def _start_broker(self, port: int) -> None:
        settings = load_broker_settings(None, [f"{key}={text}" for key, text in self._texts(port).items()], {})
        self._broker = Broker(settings, self.store)
        await self._broker.start()
        self._broker_port = self._broker.address[1]

    def _run(self, coming: Awaitable[R]) -> R:
        async def awaited() -> R:
            return await coming

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    # For clients

    @property
    def address(self) -> str:
        """`host:port` of the name server, for any RocketMQ client."""
        return f"{HOST}:{self._name_server_port}"

    @property
    def broker_address(self) -> str:
        return f"{HOST}:{self._broker_port}"

    def connect(
        self,
        *,
        producer_group: str = PRODUCER_GROUP,
        credentials: Credentials | None = None,
        namespace: str = "",
        trace: bool = False,
        tls: TlsChoice | ssl.SSLContext | None = None,
        otel: bool | None = None,
    ) -> ClientContext:
        """Connect with the Orbitlog client: `with broker.connect() as mq:`, or `async with`.

        The options are those of `orbitlog.connect`. A secured broker adds its credentials and its CA if they are None.
        """
        return connect(
            f"rocketmq://{self.address}",
            producer_group=producer_group,
            credentials=self.credentials if credentials is None else credentials,
            namespace=namespace,
            trace=trace,
            tls=self.tls if tls is None else tls,
            otel=otel,
        )

    @property
    def client(self) -> BlockingRocketMQ:
        """A client for the test itself, connected at first use."""
        if self._admin is None:
            self._admin = self._asking.enter_context(self.connect())
        return self._admin

    # For tests

    def groups(self) -> list[str]:
        """Return all consumer groups except system groups."""
        groups = self.client.admin.groups(self.broker_address)
        return sorted(group for group in groups if group not in names.SYSTEM_GROUPS)

    def rewind(self, group: str | None = None, to: datetime = _EPOCH) -> None:
        """Reset the offsets of a group (None: of all groups) to the start, or to a timestamp."""
        for name in self.groups() if group is None else [group]:
            for topic in {queue.topic for queue in self._offsets(name)}:
                if not topic.startswith(names.RETRY_PREFIX):
                    self.client.admin.reset_offsets(name, topic, to)

    def lag(self, group: str) -> int:
        """Return the number of messages that a group has not finished, retries included, as reported by its members."""
        _refuse_in_a_loop("lag")
        positions: dict[MessageQueue, int] = {}
        offsets = self._offsets(group)
        for topic in {queue.topic for queue in offsets}:
            positions |= self._run(self._positions(group, topic))
        return sum(max(0, end - max(done, positions.get(queue, 0))) for queue, (done, end) in offsets.items())

    def wait_until_idle(self, *groups: str, seconds: float = 10.0) -> None:
        """Wait until these groups (none: all groups) have no lag; raise `RequestTimeout` after `seconds`."""
        _refuse_in_a_loop("wait_until_idle")
        deadline = time.monotonic() + seconds
        while lags := {group: lag for group in groups or self.groups() if (lag := self.lag(group))}:
            if time.monotonic() > deadline:
                summary = ", ".join(f"{group}: {lag}" for group, lag in lags.items())
                raise RequestTimeout(f"groups are not idle after {seconds:g} s; lag: {summary}")
            time.sleep(_POLL_SECONDS)

    def wait_for(self, happened: Callable[[], object], *, seconds: float = 10.0) -> None:
        """Wait until `happened()` is true; raise `RequestTimeout` after `seconds`."""
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline:
                raise RequestTimeout(f"the condition was not met within {seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def _offsets(self, group: str) -> dict[MessageQueue, tuple[int, int]]:
        try:
            progress = self.client.admin.progress(group)
        except BrokerRefused:
            return {}  # the group has not consumed yet
        return {entry.queue: (entry.committed, entry.end) for entry in progress}

    async def _positions(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Return the positions that members report; commits reach the broker seconds later."""
        context = None if self.tls is None else self.tls.context()
        remoting = RemotingClient(sign=None if self.credentials is None else self.credentials.sign, tls=context)
        try:
            header = ConsumerStatusRequest(topic=topic, group=group)
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            answer = await remoting.invoke(self.broker_address, Command(code, ext_fields=header.to_ext_fields()))
            if answer.code != ResponseCode.SUCCESS:
                return {}
            status = decode_body(ConsumerStatus, answer.body)
        except OrbitlogError:
            return {}
        finally:
            await remoting.close()
        return {queue: done for queues in status.clients.values() for queue, done in queues.items()}


def _refuse_in_a_loop(name: str) -> None:
    """Raise an error in an event loop: a member that runs in it could not report its position while it is blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise OrbitlogError(f"{name} would block the running event loop: await asyncio.to_thread(broker.{name}, …)")
