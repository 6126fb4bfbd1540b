"""The asyncio client of a cluster: producer, consumers, readers and administration over shared connections.

async with orbitlog.connect("rocketmq://127.0.0.1:9876") as mq:
    await mq.send("Orders", b"one", tags="new", keys=["42"])
    async for message in mq.consume("Orders", group="billing", tags="new || paid"):
        print(message.body)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.access.credentials import Credentials
from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.checked_input import bodies_list, time_limit
from orbitlog.client.connection.checked_input import user_properties as checked_properties
from orbitlog.client.connection.client_identity import UniqueIdMaker, make_client_id
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.namespaces import group_name, topic_name, wrapped
from orbitlog.client.connection.routes import REFRESH_SECONDS, Routes
from orbitlog.client.connection.server_requests import ServerRequests
from orbitlog.client.consumer.group_consumer import CLOSE_SECONDS, Consumer, ConsumerContext
from orbitlog.client.consumer.group_link import GroupLink, StartFrom, start_of
from orbitlog.client.consumer.member_assignment import CONSUME_SECONDS, ConsumeOptions, MemberAssignment
from orbitlog.client.consumer.queue_feed import Deliver
from orbitlog.client.consumer.received import Received
from orbitlog.client.consumer.subscriptions import make_subscription
from orbitlog.client.consumer.topic_reader import Reader
from orbitlog.client.producer.fast_producer import SEND_SECONDS
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import OutgoingBatch, OutgoingMessage, body_bytes, make_batch, make_outgoing
from orbitlog.client.producer.receipts import Receipt
from orbitlog.client.producer.request_reply import Reply, RequestReply
from orbitlog.client.producer.tracing import Tracer
from orbitlog.client.producer.transactions import Branch, Check, Outcome, Transactions
from orbitlog.client.telemetry.otel_choice import wants_otel
from orbitlog.errors import ClientClosed, ClientError, NoRoute, OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.heartbeat_bodies import ALL, HeartbeatData, ProducerData, SubscriptionData
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import UnregisterClientRequest
from orbitlog.wire.queue_shares import STRATEGIES

if TYPE_CHECKING:
    import ssl

    from orbitlog.client.telemetry.delivery_tracers import DeliveryTracer
    from orbitlog.client.telemetry.otel_spans import OtelSpans

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
PRODUCER_GROUP = "orbitlog-producers"
READER_GROUP = "orbitlog-readers"
_LEAVE_TURNS = 4


class RocketMQ:
    """A client of one cluster, created by `async with orbitlog.connect(...)` and closed when the block ends.

    Use one client per event loop and share it between tasks: all sends and consumers share its connections.

    Example:
        async with orbitlog.connect(address) as mq:
            print(await mq.send("Orders", "one"))
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        producer_group: str = PRODUCER_GROUP,
        credentials: Credentials | None = None,
        namespace: str = "",
        trace: bool = False,
        tls: ssl.SSLContext | None = None,
        otel: bool | None = None,
    ) -> None:
        self._namespace = namespace
        producer_group = wrapped(namespace, group_name(producer_group))
        self.client_id = make_client_id()
        self._link = ClusterLink(name_servers, self._serve_broker, credentials, tls)
        self._routes = Routes(self._link)
        self.admin = Administration(self._link, self._routes)
        self._tracer = Tracer(self._link, self._routes) if trace else None
        self._spans = self._make_spans() if wants_otel(otel) else None
        self._producer = self._make_producer(producer_group)
        self._transactions = Transactions(self._link, self._routes, self._producer, namespace)
        self._request_reply = RequestReply(self._link, self._routes, self._producer, self.client_id)
        self._server_requests = ServerRequests(
            self._consumer_of, ";".join(name_servers), self._transactions, self._request_reply
        )
        self._unique_ids = UniqueIdMaker()
        self._consumers: list[Consumer] = []
        self._readers: list[Reader] = []
        self._registered_at: dict[str, Connection] = {}
        self._loop_task = asyncio.get_running_loop().create_task(self._background_loop(), name="orbitlog client")
        self._is_closed = False

    def _make_spans(self) -> OtelSpans:
        try:
            from orbitlog.client.telemetry.otel_spans import OtelSpans
        except ImportError as error:
            raise ClientError(f"otel=True needs OpenTelemetry ({error}): pip install 'orbitlog[otel]'") from None
        return OtelSpans(self.client_id, self._namespace, self._routes.address_of)

    def _make_producer(self, group: str) -> Producer:
        if self._spans is None:
            return Producer(self._link, self._routes, group, self._tracer)
        from orbitlog.client.telemetry.traced_producer import TracedProducer

        return TracedProducer(self._link, self._routes, group, self._tracer, self._spans)

    def _delivery_tracer(self) -> DeliveryTracer | None:
        """Return what observes deliveries: RocketMQ's traces, OpenTelemetry, both or nothing."""
        if self._spans is None or self._tracer is None:
            return self._spans or self._tracer
        from orbitlog.client.telemetry.delivery_tracers import JoinedTracers

        return JoinedTracers((self._tracer, self._spans))

    def _serve_broker(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        # A method, because the link needs its handler before the parts that answer requests exist. No connection is
        # opened before the constructor returns, so no request can arrive too early.
        return self._server_requests(connection, request)

    # Producing

    async def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        delay_level: int | None = None,
        ordered_by: str | None = None,
        queue: MessageQueue | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers all attempts
    ) -> Receipt:
        """Send a message and wait for the broker's acknowledgement.

        `ordered_by`: messages with the same key go to the same queue; an orderly consumer receives them in the order
        sent. `delay` (seconds), `deliver_at` or `delay_level` (1 to 18) schedule the delivery. `timeout` covers all
        attempts, in seconds. Raise `ClientError` for invalid arguments, `NoRoute`, `BrokerRefused` or `RemotingError`.

        Example:
            receipt = await mq.send("Orders", "one", tags="new", keys=["42"], delay=0.1)
            print(receipt.status, receipt.message_id)
        """
        has_options = tags or keys or properties or deliver_at or queue
        has_defaults = timeout == SEND_SECONDS and delay is None and delay_level is None and ordered_by is None
        if has_defaults and not has_options:
            raw = body_bytes(body)
            return await self._producer.send_plain(wrapped(self._namespace, topic), raw, self._unique_ids.make())
        message = make_outgoing(
            wrapped(self._namespace, topic),
            body,
            self._unique_ids.make(),
            tags=tags,
            keys=keys,
            user_properties=properties,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
            ordered_by=ordered_by,
        )
        if queue is not None and queue.topic != message.topic:
            raise ClientError(f"queue of topic {queue.topic} given for a message of topic {message.topic}")
        return await self._producer.send(message, seconds=time_limit(timeout), ordered_by=ordered_by, queue=queue)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[bytes | str],
        *,
        tags: str | None = None,
        keys: Iterable[str | Iterable[str]] = (),
        properties: Mapping[str, str] | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers all attempts
    ) -> Receipt:
        """Send several messages in one request: all are stored, or none. Much faster than single sends.

        `keys` has one entry for each body; tags and properties apply to all messages.

        Example:
            await mq.send_batch("Orders", [f"order {number}" for number in range(100)], tags="new")
            await mq.send_batch("Orders", ["one", "two"], keys=["1", ["2", "second"]])
        """
        topic = wrapped(self._namespace, topic)
        all_bodies = bodies_list(bodies)
        unique_ids = self._unique_ids.make_many(len(all_bodies))

        def make(given: Mapping[str, str]) -> OutgoingBatch:
            return make_batch(topic, all_bodies, unique_ids, tags=tags, keys=keys, user_properties=given)

        return await self._producer.send_batch(
            topic,
            make,
            self._unique_ids.make(),
            count=len(all_bodies),
            given=checked_properties(properties),
            seconds=time_limit(timeout),
        )

    async def send_oneway(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Send without waiting for a response: fastest, but losses are not detected.

        Example:
            await mq.send_oneway("Metrics", "load 0.7")
        """
        await self._producer.send_oneway(self._make_message(topic, body, tags, keys, properties))

    async def send_in_transaction(
        self,
        topic: str,
        body: bytes | str,
        branch: Branch,
        *,
        check: Check | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers all attempts
    ) -> tuple[Receipt, Outcome]:
        """Send a half message, run `branch`, and commit if it returns True; False or an exception rolls back.

        `branch` gets the receipt of the half message. If it returns None, or this process dies, the broker checks
        the transaction later: `check` gets the message and returns the outcome. Return receipt and outcome.

        Example:
            receipt, outcome = await mq.send_in_transaction("Paid", "order 42", lambda receipt: True)
        """
        if check is not None:
            self._transactions.register_check(check)
        message = self._make_message(topic, body, tags, keys, properties)
        await self._register_with(message.topic)  # so that the broker can send transaction checks to this client
        return await self._transactions.send(message, branch, seconds=time_limit(timeout))

    async def check_transactions(self, check: Check, *topics: str) -> None:
        """Answer transaction checks for this producer group, also for transactions of earlier processes.

        For a restarted process: registers with the brokers of `topics` now instead of at the first send.
        `check` gets the message and returns True (commit), False (roll back) or None (check later).

        Example:
            await mq.check_transactions(lambda message: message.text == "order 42", "Paid")
        """
        if not topics:
            raise ClientError("check_transactions needs at least one topic")
        self._transactions.register_check(check)
        for topic in topics:
            await self._register_with(wrapped(self._namespace, topic_name(topic)))

    async def request(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers connect, send and wait
    ) -> Reply:
        """Send a request message and wait for the reply of its consumer; raise `RequestTimeout` if none arrives.

        Example:
            async def serve():
                async for message in mq.consume("Questions", group="oracle", start_from="first"):
                    await mq.reply(message, "42")

            serving = asyncio.create_task(serve())
            reply = await mq.request("Questions", "how much?", timeout=30)
            print(reply.text)
            serving.cancel()
        """
        message = self._make_message(topic, body, tags, keys, properties)
        return await self._request_reply.request(message, self._register_with, seconds=time_limit(timeout))

    async def reply(self, message: Received, body: bytes | str) -> None:
        """Reply to a consumed request; raise `ClientError` if the message does not expect a reply.

        Example:
            async for message in mq.consume("Orders", group="answering", start_from="first"):
                if "REPLY_TO_CLIENT" in message.properties:
                    await mq.reply(message, "seen")
                break
        """
        await self._request_reply.reply(message, body_bytes(body), self._unique_ids.make())

    def _make_message(
        self,
        topic: str,
        body: bytes | str,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
    ) -> OutgoingMessage:
        topic = wrapped(self._namespace, topic)
        return make_outgoing(topic, body, self._unique_ids.make(), tags=tags, keys=keys, user_properties=properties)

    # Consuming

    def consume(
        self,
        *topics: str,
        group: str,
        tags: str = ALL,
        sql: str | None = None,
        orderly: bool = False,
        broadcasting: bool = False,
        start_from: StartFrom | datetime | str = StartFrom.LAST,
        max_attempts: int | None = None,
        consume_timeout: float | None = CONSUME_SECONDS,
        strategy: str = "average",
        offsets_file: Path | str | None = None,
    ) -> ConsumerContext:
        """Join a consumer group: `async for` over it, `async with` it, or await it for a `Consumer`.

        `start_from` ("first", "last" or a datetime) applies to queues without a committed offset. After
        `max_attempts` failures (default 16; unlimited if `orderly`) a message goes to the group's dead letters.
        A message not settled within `consume_timeout` seconds is redelivered, unless `orderly`. `broadcasting`:
        every member gets every message, and keeps its offsets in `offsets_file`.

        Example:
            async for message in mq.consume("Orders", group="billing", tags="new || paid", start_from="first"):
                print(message.text)
                break
        """
        group = wrapped(self._namespace, group_name(group))
        if not topics:
            raise ClientError("consume needs at least one topic")
        if strategy not in STRATEGIES:
            raise ClientError(f"unknown strategy {strategy!r}; use one of {', '.join(STRATEGIES)}")
        if offsets_file is not None and not broadcasting:
            raise ClientError("offsets_file needs broadcasting=True: otherwise brokers keep the offsets")
        if max_attempts is not None and max_attempts < 0:
            raise ClientError(f"invalid max_attempts={max_attempts}: give 0 or more, or None for the default")
        version = time.time_ns() // 1_000_000
        wanted = [wrapped(self._namespace, topic_name(topic)) for topic in topics]
        subscriptions = [make_subscription(topic, tags, sql, version=version) for topic in wanted]
        options = ConsumeOptions(
            orderly=orderly,
            broadcasting=broadcasting,
            start_from=start_of(start_from),
            max_attempts=max_attempts,
            allocate=STRATEGIES[strategy],
            offsets_file=None if offsets_file is None else Path(offsets_file),
            namespace=self._namespace,
            consume_seconds=None if consume_timeout is None else time_limit(consume_timeout),
        )
        return ConsumerContext(lambda: self._join(group, subscriptions, options))

    async def _join(self, group: str, subscriptions: Sequence[SubscriptionData], options: ConsumeOptions) -> Consumer:
        self._check_open()
        if await self._is_member(group):
            raise ClientError(f"this client is already a member of {group}; a second member needs its own client")
        link = GroupLink(self._link, self._routes, group, self.client_id)
        for subscription in subscriptions:
            try:
                await self._routes.of(subscription.topic)
                if not subscription.is_tag:
                    await link.check(subscription)
            except NoRoute:
                log.warning(
                    "%s: no broker serves topic %s yet; consumption starts when one does", group, subscription.topic
                )
        await link.warn_of_mismatch(subscriptions)

        def make_assignment(deliver: Deliver) -> MemberAssignment:
            return MemberAssignment(
                link, self._routes, subscriptions, options, deliver, send_heartbeat=self._send_heartbeats
            )

        consumer = Consumer(
            link,
            options,
            make_assignment,
            on_close=self._forget_consumer,
            tracer=self._delivery_tracer(),
            spans=self._spans,
        )
        self._consumers.append(consumer)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(consumer.close)
            await consumer.start()
            undo.pop_all()
        return consumer

    async def read(
        self,
        topic: str,
        *,
        queues: Sequence[MessageQueue] | None = None,
        start: StartFrom | datetime | str | int = StartFrom.FIRST,
        tags: str = ALL,
        sql: str | None = None,
        group: str = READER_GROUP,
    ) -> Reader:
        """Read a topic without joining a group: no queue is shared, no offset committed. See `Reader`.

        `group` is only the name sent to the broker with each pull.

        Example:
            async with await mq.read("Orders", start="first") as reader:
                message = await reader.next(10)
        """
        self._check_open()
        topic = wrapped(self._namespace, topic_name(topic))
        subscription = make_subscription(topic, tags, sql, version=time.time_ns() // 1_000_000)
        link = GroupLink(self._link, self._routes, wrapped(self._namespace, group_name(group)), self.client_id)
        reader = Reader(link, self._routes, subscription, on_close=self._forget_reader, namespace=self._namespace)
        self._readers.append(reader)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(reader.close)
            await reader.assign(queues, start)
            undo.pop_all()
        return reader

    async def _is_member(self, group: str) -> bool:
        """Return whether this client is already a member of the group; wait for a member that is leaving.

        After `break`, an `async for` over `consume` leaves its group a few turns of the event loop later.
        """
        for _ in range(_LEAVE_TURNS):
            member = self._consumer_of(group)
            if member is None:
                return False
            if member.is_leaving:
                await member.close()
            else:
                await asyncio.sleep(0)
        return self._consumer_of(group) is not None

    def _consumer_of(self, group: str) -> Consumer | None:
        return next((consumer for consumer in self._consumers if consumer.group == group), None)

    def _forget_reader(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)

    async def _forget_consumer(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
            header = UnregisterClientRequest(client_id=self.client_id, consumer_group=consumer.group)
            await self._invoke_all(RequestCode.UNREGISTER_CLIENT, header)

    # Heartbeats

    async def _background_loop(self) -> None:
        moved = self._routes.moved
        while True:
            try:
                async with asyncio.timeout(min(HEARTBEAT_SECONDS, REFRESH_SECONDS)):
                    await moved.wait()
            except TimeoutError:
                pass
            is_moved = moved.is_set()
            moved.clear()
            try:
                if not is_moved:
                    await self._routes.refresh_all()
                await self._send_heartbeats()  # a new master asks for transactions only clients that it knows
            except OrbitlogError as error:
                log.warning("could not refresh routes or send heartbeats: %s", error)

    async def _register_with(self, topic: str) -> None:
        """Register this client with every broker of a topic, over the current connection."""
        route = await self._routes.of(topic, create=True)
        for broker_name in route.brokers:
            registered = self._registered_at.get(self._routes.address(broker_name) or "")
            if registered is None or registered.is_closed:
                await self._send_heartbeats()
                return

    async def _send_heartbeats(self) -> None:
        """Send a heartbeat to every broker in use; brokers that fail get the next one."""
        data = HeartbeatData(
            self.client_id,
            producers=(ProducerData(self._producer.group),),
            consumers=tuple(consumer.heartbeat_data() for consumer in self._consumers),
        )
        for address in await self._invoke_all(RequestCode.HEART_BEAT, None, encode_body(data)):
            self._registered_at[address] = await self._link.connection(address)

    async def _invoke_all(
        self, code: RequestCode, header: UnregisterClientRequest | None, body: bytes = b""
    ) -> list[str]:
        """Send a request to every broker in use concurrently; return the addresses that answered with success."""
        addresses = self._routes.all_addresses(masters_only=not self._consumers)
        requests = [self._link.invoke(address, code, header, body) for address in addresses]
        succeeded = []
        for address, response in zip(addresses, await asyncio.gather(*requests, return_exceptions=True), strict=True):
            if isinstance(response, OrbitlogError):
                log.warning("%s: %s", address, response)
            elif isinstance(response, BaseException):
                raise response
            else:
                succeeded.append(address)
        return succeeded

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    async def close(self) -> None:
        """Wait for sends in flight, commit offsets, leave groups, unregister. Takes seconds at most.

        Example:
            async with orbitlog.connect(address) as mq:
                await mq.send("Orders", "one")
                await mq.close()  # also done when the block ends
        """
        if self._is_closed:
            return
        # Order: readers, consumers and sends first; then their traces; then the unregistration, after which brokers
        # no longer know this client; the connections last.
        self._is_closed = True
        self._loop_task.cancel()
        await asyncio.gather(self._loop_task, return_exceptions=True)
        for reader in list(self._readers):
            await reader.close()
        closing = [consumer.close() for consumer in self._consumers]
        await asyncio.gather(self._producer.finish(CLOSE_SECONDS), *closing)
        if self._tracer is not None:
            await self._tracer.close()
        await self._server_requests.stop()
        header = UnregisterClientRequest(client_id=self.client_id, producer_group=self._producer.group)
        await self._invoke_all(RequestCode.UNREGISTER_CLIENT, header)
        await self._routes.close()
        await self._link.close()
