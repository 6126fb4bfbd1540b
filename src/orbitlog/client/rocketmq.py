"""The client: one connection to a cluster, for sending and consuming.

async with orbitlog.connect("rocketmq://127.0.0.1:9876") as mq:
    await mq.send("Orders", b"one", tags="new", keys=["42"])
    async for message in mq.consume("Orders", group="billing", tags="new || paid"):
        print(message.body)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path

from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.checked_input import bodies_list, time_limit
from orbitlog.client.connection.client_identity import UniqueIdMaker, make_client_id
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.namespaces import group_name, topic_name, wrapped
from orbitlog.client.connection.routes import REFRESH_SECONDS, Routes
from orbitlog.client.connection.server_requests import BrokerQuestions
from orbitlog.client.connection.signature import Credentials
from orbitlog.client.consumer.group_consumer import CLOSE_SECONDS, Consumer, Joining
from orbitlog.client.consumer.group_link import GroupLink, StartFrom, start_of
from orbitlog.client.consumer.member_share import CONSUME_SECONDS, ConsumeOptions
from orbitlog.client.consumer.queue_reading import Reader
from orbitlog.client.consumer.received import Received
from orbitlog.client.consumer.subscriptions import make_subscription
from orbitlog.client.producer.fast_producer import SEND_SECONDS
from orbitlog.client.producer.outgoing import Outgoing, body_bytes, make_batch, make_outgoing
from orbitlog.client.producer.producer_sends import Sending
from orbitlog.client.producer.receipts import Receipt
from orbitlog.client.producer.request_reply import Asking, Reply
from orbitlog.client.producer.tracing import Tracer
from orbitlog.client.producer.transactional import Branch, Check, Outcome, Transactional
from orbitlog.errors import ClientClosed, ClientError, NoRoute, OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.remoting.connection import Connection
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.heartbeat_bodies import ALL, HeartbeatData, ProducerData, SubscriptionData
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.consume_headers import UnregisterClientRequest
from orbitlog.wire.queue_shares import STRATEGIES

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
PRODUCER_GROUP = "orbitlog-producers"
READER_GROUP = "orbitlog-readers"
_TURNS_TO_LEAVE = 4


class RocketMQ:
    """A client of one cluster. Made by `orbitlog.connect`, closed by leaving its block."""

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        producer_group: str = PRODUCER_GROUP,
        credentials: Credentials | None = None,
        namespace: str = "",
        trace: bool = False,
    ) -> None:
        self._namespace = namespace
        producer_group = wrapped(namespace, group_name(producer_group))
        self.client_id = make_client_id()
        self._questions = BrokerQuestions(self._consumer_of, ";".join(name_servers))
        self._link = ClusterLink(name_servers, self._questions, credentials)
        self._routes = Routes(self._link)
        self._sending = Sending(self._link, self._routes, producer_group)
        self._transactional = self._questions.transactional = Transactional(
            self._link, self._routes, self._sending, namespace
        )
        self._asking = self._questions.asking = Asking(self._link, self._routes, self._sending, self.client_id)
        self.admin = Administration(self._link, self._routes)
        self._tracer = self._sending.tracer = Tracer(self._link, self._routes) if trace else None
        self._unique_ids = UniqueIdMaker()
        self._consumers: list[Consumer] = []
        self._readers: list[Reader] = []
        self._greeted: dict[str, Connection] = {}
        self._loop_task = asyncio.get_running_loop().create_task(self._keep_up(), name="orbitlog client")
        self._is_closed = False

    # Sending

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
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers several tries
    ) -> Receipt:
        """Send a message and wait until a broker has it.

        `ordered_by`: messages with the same key go to the same queue, and are consumed in the order sent by an
        orderly consumer. `delay` (seconds), `deliver_at` or `delay_level` (1 to 18): delivered later.

        Example:
            receipt = await mq.send("Orders", "one", tags="new", keys=["42"], delay=0.1)
            print(receipt.status, receipt.message_id)
        """
        is_more_said = tags or keys or properties or deliver_at or queue
        is_usual = timeout == SEND_SECONDS and delay is None and delay_level is None and ordered_by is None
        if is_usual and not is_more_said:
            raw = body_bytes(body)
            return await self._sending.send_plain(wrapped(self._namespace, topic), raw, self._unique_ids.make())
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
            raise ClientError(f"the queue is one of topic {queue.topic}, the message is for {message.topic}")
        return await self._sending.send(message, seconds=time_limit(timeout), ordered_by=ordered_by, queue=queue)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[bytes | str],
        *,
        tags: str | None = None,
        keys: Iterable[str | Iterable[str]] = (),
        properties: Mapping[str, str] | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers several tries
    ) -> Receipt:
        """Send several messages in one request: all are stored, or none. Much faster than one by one.

        `keys` has one entry for each body; tags and properties are those of all.

        Example:
            await mq.send_batch("Orders", [f"order {number}" for number in range(100)], tags="new")
            await mq.send_batch("Orders", ["one", "two"], keys=["1", ["2", "second"]])
        """
        topic = wrapped(self._namespace, topic)
        all_bodies = bodies_list(bodies)
        unique_ids = self._unique_ids.make_many(len(all_bodies))
        batch = make_batch(topic, all_bodies, unique_ids, tags=tags, keys=keys, user_properties=properties)
        return await self._sending.send_batch(batch, self._unique_ids.make(), seconds=time_limit(timeout))

    async def send_oneway(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Send without waiting for an answer: fastest, and a loss goes unnoticed.

        Example:
            await mq.send_oneway("Metrics", "load 0.7")
        """
        await self._sending.send_oneway(self._plain(topic, body, tags, keys, properties))

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
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers several tries
    ) -> tuple[Receipt, Outcome]:
        """Send a message that counts only if `branch` returns True; False or an exception takes it back.

        `branch` gets the receipt of the half message. Where it returns None, or this process dies, the broker asks
        later: `check` gets the message and says how it ended.

        Example:
            receipt, outcome = await mq.send_in_transaction("Paid", "order 42", lambda receipt: True)
        """
        if check is not None:
            self._transactional.check = check
        message = make_outgoing(
            wrapped(self._namespace, topic),
            body,
            self._unique_ids.make(),
            tags=tags,
            keys=keys,
            user_properties=properties,
        )
        await self._introduce(message.topic)  # so that the broker knows whom to ask
        return await self._transactional.send(message, branch, seconds=time_limit(timeout))

    async def check_transactions(self, check: Check, *topics: str) -> None:
        """Answer brokers that ask how a transaction of this producer group ended, whoever began it.

        For a process that was started again: brokers of these topics learn of it at once, not when it first sends.
        `check` gets the message and returns True (it counts), False (it does not) or None (ask again later).

        Example:
            await mq.check_transactions(lambda message: message.text == "order 42", "Paid")
        """
        if not topics:
            raise ClientError("name the topics whose transactions are meant")
        self._transactional.check = check
        for topic in topics:
            await self._introduce(wrapped(self._namespace, topic_name(topic)))

    async def request(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109 - covers connecting, sending and waiting
    ) -> Reply:
        """Send a message and wait for the reply of whoever consumes it.

        Example:
            async def serve():
                async for message in mq.consume("Questions", group="oracle", start_from="first"):
                    await mq.reply(message, "42")

            serving = asyncio.create_task(serve())
            reply = await mq.request("Questions", "how much?", timeout=30)
            print(reply.text)
            serving.cancel()
        """
        message = self._plain(topic, body, tags, keys, properties)
        return await self._asking.ask(message, self._introduce, seconds=time_limit(timeout))

    async def reply(self, message: Received, body: bytes | str) -> None:
        """Reply to a request that was consumed.

        Example:
            async for message in mq.consume("Orders", group="answering", start_from="first"):
                if "REPLY_TO_CLIENT" in message.properties:
                    await mq.reply(message, "seen")
                break
        """
        await self._asking.reply(message, body_bytes(body), self._unique_ids.make())

    def _plain(
        self,
        topic: str,
        body: bytes | str,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
    ) -> Outgoing:
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
    ) -> Joining:
        """Join a consumer group: `async for` over it, `async with` it, or await it for a `Consumer`.

        A group that never consumed a queue begins at its end, or where `start_from` says: "first", "last", a time.
        What failed `max_attempts` times (16; in order: for ever) goes to the group's dead letters. A message without
        a word for `consume_timeout` seconds goes back to the broker, unless it is consumed in order. `broadcasting`:
        every member gets every message, and `offsets_file` is where this one keeps how far it is.

        Example:
            async for message in mq.consume("Orders", group="billing", tags="new || paid", start_from="first"):
                print(message.text)
                break
        """
        group = wrapped(self._namespace, group_name(group))
        if not topics:
            raise ClientError("name at least one topic to consume")
        if strategy not in STRATEGIES:
            raise ClientError(f"strategy {strategy!r} is none of {', '.join(STRATEGIES)}")
        if offsets_file is not None and not broadcasting:
            raise ClientError("offsets_file is for broadcasting: otherwise brokers keep the offsets")
        if max_attempts is not None and max_attempts < 0:
            raise ClientError(f"max_attempts={max_attempts}: give 0 or more, or None for as often as is usual")
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
        return Joining(lambda: self._join(group, subscriptions, options))

    async def _join(self, group: str, subscriptions: Sequence[SubscriptionData], options: ConsumeOptions) -> Consumer:
        self._refuse_when_closed()
        if await self._member_that_stays(group):
            raise ClientError(f"this client is a member of {group} already; a second member needs its own connection")
        link = GroupLink(self._link, self._routes, group, self.client_id)
        for subscription in subscriptions:
            try:
                await self._routes.of(subscription.topic)
                if not subscription.is_tag:
                    await link.check(subscription)
            except NoRoute:
                log.warning(
                    "%s: nobody serves topic %s yet; its messages come when somebody does", group, subscription.topic
                )
        await link.warn_of_others(subscriptions)
        consumer = Consumer(
            link,
            self._routes,
            subscriptions,
            options,
            announce=self._beat,
            forget=self._forget_consumer,
            tracer=self._tracer,
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
        """Read a topic without a group: nothing is shared, nothing is committed. `assign`, `seek`, `pause` it.

        `group` is the name that the broker is told; nobody joins it.

        Example:
            async with await mq.read("Orders", start="first") as reader:
                message = await reader.next(10)
        """
        self._refuse_when_closed()
        topic = wrapped(self._namespace, topic_name(topic))
        subscription = make_subscription(topic, tags, sql, version=time.time_ns() // 1_000_000)
        link = GroupLink(self._link, self._routes, wrapped(self._namespace, group_name(group)), self.client_id)
        reader = Reader(link, self._routes, subscription, forget=self._forget_reader, namespace=self._namespace)
        self._readers.append(reader)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(reader.close)
            await reader.assign(queues, start)
            undo.pop_all()
        return reader

    async def _member_that_stays(self, group: str) -> bool:
        """Tell whether this client is a member already; one that is leaving is waited for.

        An `async for` that was left by `break` leaves its group a few turns of the event loop later.
        """
        for _ in range(_TURNS_TO_LEAVE):
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
            await self._ask_all(RequestCode.UNREGISTER_CLIENT, header)

    # Keeping in touch

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(min(HEARTBEAT_SECONDS, REFRESH_SECONDS))
            try:
                await self._routes.refresh_all()
                await self._beat()
            except OrbitlogError as error:
                log.warning("out of touch with the cluster: %s", error)

    async def _introduce(self, topic: str) -> None:
        """Have every broker of a topic know this client, over the connection that is open now."""
        route = await self._routes.of(topic, create=True)
        for broker_name in route.brokers:
            greeted = self._greeted.get(self._routes.address(broker_name) or "")
            if greeted is None or greeted.is_closed:
                await self._beat()
                return

    async def _beat(self) -> None:
        """Tell every broker in use who we are; one that does not answer hears it the next time."""
        data = HeartbeatData(
            self.client_id,
            producers=(ProducerData(self._sending.group),),
            consumers=tuple(consumer.described() for consumer in self._consumers),
        )
        for address in await self._ask_all(RequestCode.HEART_BEAT, None, encode_body(data)):
            self._greeted[address] = await self._link.connection(address)

    async def _ask_all(self, code: RequestCode, header: UnregisterClientRequest | None, body: bytes = b"") -> list[str]:
        """Ask every broker in use at once; return the addresses of those that agreed."""
        addresses = self._routes.all_addresses(masters_only=not self._consumers)
        asked = [self._link.ask(address, code, header, body) for address in addresses]
        agreed = []
        for address, answer in zip(addresses, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, OrbitlogError):
                log.warning("%s: %s", address, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                agreed.append(address)
        return agreed

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    async def close(self) -> None:
        """Wait for sends on their way, give queues back, commit, say goodbye. Ends in seconds, whoever is gone.

        Example:
            async with orbitlog.connect(address) as mq:
                await mq.send("Orders", "one")
                await mq.close()  # leaving the block does it, too
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._loop_task.cancel()
        await asyncio.gather(self._loop_task, return_exceptions=True)
        for reader in list(self._readers):
            await reader.close()
        closing = [consumer.close() for consumer in self._consumers]
        await asyncio.gather(self._sending.finish(CLOSE_SECONDS), *closing)
        if self._tracer is not None:
            await self._tracer.close()
        await self._questions.stop()
        header = UnregisterClientRequest(client_id=self.client_id, producer_group=self._sending.group)
        await self._ask_all(RequestCode.UNREGISTER_CLIENT, header)
        await self._link.close()
