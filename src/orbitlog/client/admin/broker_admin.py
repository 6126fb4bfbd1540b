"""Administration of one broker by its address: settings, statistics, topics, groups, cleanup.

Mirrors the calls of Java `MQClientAPIImpl` that take a broker's address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import BrokerRefused, ClientError
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.codes import RequestCode

if TYPE_CHECKING:
    from orbitlog.formats.tables.group_config import GroupConfig, RequestMode
    from orbitlog.formats.tables.topic_config import TopicConfig
    from orbitlog.wire.bodies.client_bodies import BrokerStats, ProducerTable
    from orbitlog.wire.bodies.queue_bodies import ConsumeStats, ConsumeStatsList, QueueUnits, TopicStats

_SECONDS = 5.0
_LONG_SECONDS = 50.0
_ATTRIBUTES_MAX = 64


class BrokerAdmin:
    """Administration requests to single brokers."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    # Settings and statistics

    async def settings(self, address: str) -> dict[str, str]:
        """Return the current settings of the broker."""
        answer = await self._link.invoke(address, RequestCode.GET_BROKER_CONFIG, seconds=_SECONDS)
        return parse_settings(answer.body)

    async def change_settings(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker; raise `BrokerRefused` for those that need a restart."""
        body = encode_settings(settings)
        await self._link.invoke(address, RequestCode.UPDATE_BROKER_CONFIG, None, body, seconds=_SECONDS)

    async def runtime(self, address: str) -> dict[str, str]:
        """Return the run-time statistics of the broker."""
        from orbitlog.wire.bodies.list_bodies import KvTable

        answer = await self._link.invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO, seconds=_SECONDS)
        return dict(decode_body(KvTable, answer.body).table)

    async def statistic(self, address: str, name: str, key: str) -> BrokerStats | None:
        """Return one statistic over a minute, an hour and a day; None if the broker has no data yet."""
        from orbitlog.wire.admin_headers import BrokerStatsRequest
        from orbitlog.wire.bodies.client_bodies import BrokerStats

        header = BrokerStatsRequest(name=name, key=key)
        try:
            answer = await self._link.invoke(address, RequestCode.VIEW_BROKER_STATS_DATA, header, seconds=_SECONDS)
        except BrokerRefused:
            return None
        return decode_body(BrokerStats, answer.body)

    async def producers(self, address: str) -> ProducerTable:
        """Return the connected producers."""
        from orbitlog.wire.bodies.client_bodies import ProducerTable

        answer = await self._link.invoke(address, RequestCode.GET_ALL_PRODUCER_INFO, seconds=_SECONDS)
        return decode_body(ProducerTable, answer.body)

    async def consume_stats(self, address: str, *, ordered: bool = False, seconds: float = 50.0) -> ConsumeStatsList:
        """Return the progress of every group at this broker."""
        from orbitlog.wire.admin_headers import BrokerConsumeStatsRequest
        from orbitlog.wire.bodies.queue_bodies import ConsumeStatsList

        header = BrokerConsumeStatsRequest(ordered=ordered)
        answer = await self._link.invoke(address, RequestCode.GET_BROKER_CONSUME_STATS, header, seconds=seconds)
        return decode_body(ConsumeStatsList, answer.body)

    async def group_stats(self, address: str, group: str) -> ConsumeStats:
        """Return the progress of one group at this broker."""
        from orbitlog.wire.admin_headers import ConsumeStatsRequest
        from orbitlog.wire.bodies.queue_bodies import ConsumeStats

        header = ConsumeStatsRequest(group=group, topic=None)
        answer = await self._link.invoke(address, RequestCode.GET_CONSUME_STATS, header, seconds=_SECONDS * 3)
        return decode_body(ConsumeStats, answer.body)

    async def resume_check(self, address: str, topic: str, message_id: str) -> None:
        """Have a broker check a half message again that reached the maximum of checks; Orbitlog does not serve this."""
        from orbitlog.wire.admin_headers import ResumeHalfMessageRequest

        header = ResumeHalfMessageRequest(topic=topic, message_id=message_id)
        await self._link.invoke(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header, seconds=_SECONDS)

    # Topics

    async def put_topic(self, address: str, config: TopicConfig, attributes: str | None = None) -> None:
        """Create or change a topic; `attributes` are changes in the notation of 5.x, `+key=value,-key`."""
        from orbitlog.formats import names
        from orbitlog.wire.admin_headers import CreateTopicRequest

        header = CreateTopicRequest(
            topic=config.topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_count=config.read_queue_count,
            write_queue_count=config.write_queue_count,
            permission=config.permission,
            filter_type=config.filter_type,
            sys_flag=config.sys_flag,
            ordered=config.ordered,
            attributes=attributes,
        )
        await self._link.invoke(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, seconds=_SECONDS)

    async def delete_topic(self, address: str, topic: str) -> None:
        from orbitlog.wire.nameserver_headers import DeleteTopicRequest

        header = DeleteTopicRequest(topic=topic)
        await self._link.invoke(address, RequestCode.DELETE_TOPIC_IN_BROKER, header, seconds=_SECONDS)

    async def topic_stats(self, address: str, topic: str) -> TopicStats:
        """Return minimum and maximum offset of each queue of a topic at this broker, and its write rate."""
        from orbitlog.wire.bodies.queue_bodies import TopicStats
        from orbitlog.wire.nameserver_headers import TopicRequest

        header = TopicRequest(topic=topic)
        answer = await self._link.invoke(address, RequestCode.GET_TOPIC_STATS_INFO, header, seconds=_SECONDS)
        return decode_body(TopicStats, answer.body)

    async def groups_of_topic(self, address: str, topic: str) -> list[str]:
        """Return the groups that consume a topic."""
        from orbitlog.wire.bodies.list_bodies import GroupList
        from orbitlog.wire.nameserver_headers import TopicRequest

        header = TopicRequest(topic=topic)
        answer = await self._link.invoke(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, seconds=_SECONDS)
        return list(decode_body(GroupList, answer.body).groups)

    async def queue_units(  # noqa: PLR0917 - the fields of the request
        self, address: str, topic: str, queue_id: int, index: int, count: int, group: str | None = None
    ) -> QueueUnits:
        """Return ConsumeQueue units of a queue."""
        from orbitlog.wire.admin_headers import QueryConsumeQueueRequest
        from orbitlog.wire.bodies.queue_bodies import QueueUnits

        header = QueryConsumeQueueRequest(topic=topic, queue_id=queue_id, index=index, count=count, group=group)
        answer = await self._link.invoke(address, RequestCode.QUERY_CONSUME_QUEUE, header, seconds=_SECONDS)
        return decode_body(QueueUnits, answer.body)

    # Groups

    async def group(self, address: str, group: str) -> GroupConfig | None:
        """Return the configuration of one group.

        Requests all groups: a request for one may create it at 5.x brokers, and 4.9 brokers do not support it.
        """
        from orbitlog.formats.tables.group_config import GroupTable

        answer = await self._link.invoke(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, seconds=_SECONDS)
        return decode_body(GroupTable, answer.body).groups.get(group)

    async def put_group(self, address: str, config: GroupConfig) -> None:
        body = encode_body(config)
        await self._link.invoke(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body, seconds=_SECONDS)

    async def delete_group(self, address: str, group: str, *, forget_offsets: bool) -> None:
        from orbitlog.wire.admin_headers import DeleteGroupRequest

        header = DeleteGroupRequest(group=group, clean_offset=forget_offsets, remove_offset=forget_offsets)
        await self._link.invoke(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, seconds=_SECONDS)

    async def set_request_mode(self, address: str, mode: RequestMode) -> None:
        """Set whether a group consumes a topic by pull or by pop (5.x)."""
        await self._link.invoke(
            address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_body(mode), seconds=_SECONDS
        )

    # Cleanup

    async def clean_expired_queues(self, address: str) -> None:
        """Delete ConsumeQueue files whose messages have all expired."""
        await self._link.invoke(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, seconds=_LONG_SECONDS)

    async def clean_unused_topics(self, address: str) -> None:
        """Delete ConsumeQueues of deleted topics."""
        await self._link.invoke(address, RequestCode.CLEAN_UNUSED_TOPIC, seconds=_LONG_SECONDS)

    async def delete_expired_log(self, address: str) -> None:
        """Delete expired CommitLog files now, also outside the configured hour."""
        await self._link.invoke(address, RequestCode.DELETE_EXPIRED_COMMITLOG, seconds=_LONG_SECONDS)


def parse_settings(body: bytes) -> dict[str, str]:
    """Parse the `key=value` lines of brokers and name servers."""
    lines = body.decode("utf-8", "replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def encode_settings(settings: Mapping[str, str]) -> bytes:
    """Return `key=value` lines; raise `ClientError` for a value with a line break."""
    for key, value in settings.items():
        if not key or any(character in key + value for character in "\r\n") or "=" in key:
            raise ClientError(f"{key[:80]!r} is not a valid setting: key without `=`, value without line breaks")
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()


def parse_attributes(text: str) -> dict[str, str]:
    """Parse attribute changes: `+a=b,-c` as {"+a": "b", "-c": ""}."""
    changes: dict[str, str] = {}
    for part in text.split(",", _ATTRIBUTES_MAX):
        name, _, value = part.strip().partition("=")
        if not name.startswith(("+", "-")) or len(name) == 1 or name in changes:
            raise ClientError(f"{part[:80]!r} is not a valid attribute change; write +name=value or -name")
        changes[name] = value
    return changes
