"""Topic handlers: create, change, delete and list topics, and report the offsets of their queues.

Mirrors the topic part of `AdminBrokerProcessor`. A change is saved before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from orbitlog.broker.admin.name_checks import checked_stored_topic, checked_topic, known_topic
from orbitlog.broker.admin.queue_statistics import QueueStatistics
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import TOPIC_PUT_NUMS
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats import names
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.loop_slices import in_slices, sliced
from orbitlog.remoting.whole_tables import WholeTables
from orbitlog.settings.limits import CONFIG_BYTES, LIST_ENTRIES, QUEUES_PER_TOPIC
from orbitlog.storefiles.store_contents import unsupported_attributes
from orbitlog.wire.admin_headers import CreateTopicRequest, GetTopicConfigRequest
from orbitlog.wire.bodies.body_json import encode_body, request_list_steps, write_body
from orbitlog.wire.bodies.list_bodies import TopicList
from orbitlog.wire.bodies.registration_body import TopicWrapper
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.header_patterns import ACCOUNT_FIELD
from orbitlog.wire.nameserver_headers import TopicRequest

if TYPE_CHECKING:
    from orbitlog.access.account_quotas import AccountQuotas

log = logging.getLogger(__name__)

QUEUES_MAX = 65_535
_DISPATCH_LOOKS = 100
_DISPATCH_LOOK_S = 0.02
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicHandlers:
    """Serves the requests of operators about topics; `table` lists the codes."""

    def __init__(
        self,
        state: BrokerState,
        save: Callable[[], Awaitable[None]],
        forget: Callable[[Collection[str]], Awaitable[None]],
        quotas: AccountQuotas | None = None,
    ) -> None:
        self._state = state
        self._quotas = quotas
        self._save = save
        self._forget = forget
        self._tables = WholeTables()

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_all,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.configs,
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    async def update(self, connection: Connection, request: Command) -> Answer:
        """Create a topic or change it."""
        header = CreateTopicRequest.from_ext_fields(request.ext_fields)
        before = self._state.topics.find(header.topic)
        config = TopicConfig(
            header.topic,
            header.read_queue_count,
            header.write_queue_count,
            header.permission,
            header.filter_type or _FILTER_TYPES[0],
            header.sys_flag or 0,
            header.ordered,
            _changed_attributes(dict(before.attributes) if before else {}, header.attributes or ""),
        )
        self._check(config)
        self._admit_new(request, () if before else (config.topic,))
        self._state.topics.put(config)
        await self._save()
        log.info(
            "topic %s %s by %s: %d queues to read, %d to write, permission %d",
            config.topic,
            "changed" if before else "made",
            connection.peer,
            config.read_queue_count,
            config.write_queue_count,
            config.permission,
        )
        return response_to(request, ResponseCode.SUCCESS)

    async def update_all(self, connection: Connection, request: Command) -> Answer:
        """Create or change several topics: all of them or, if one is invalid, none."""
        configs = await in_slices(self._checked_steps(request.body))
        new = {config.topic for config in configs}.difference(self._state.topics.table)
        self._state.topics.admit(len(self._state.topics.table) + len(new))
        self._admit_new(request, new)
        for config in configs:
            self._state.topics.put(config)
        await self._save()
        log.info("%d topics created or changed by %s", len(configs), connection.peer)
        return response_to(request, ResponseCode.SUCCESS)

    def _checked_steps(self, body: bytes) -> Generator[int, None, list[TopicConfig]]:
        admit = partial(self._state.limits.refuse_over, LIST_ENTRIES)
        try:
            configs = yield from request_list_steps(TopicConfig, body, ("topics", "topicConfigList"), admit)
        except FormatError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        for part in sliced(configs):
            for config in part:
                self._check(config)
            yield len(part)
        return configs

    def _admit_new(self, request: Command, new: Collection[str]) -> None:
        """Raise `RequestRefused` if new topics exceed the quota of the account that creates them."""
        if self._quotas is not None:
            topics = self._state.topics
            self._quotas.admit_topics(
                request.ext_fields.get(ACCOUNT_FIELD), new, lambda name: topics.find(name) is not None
            )

    def _check(self, config: TopicConfig) -> None:
        checked_topic(config.topic)
        self._state.limits.refuse_over(CONFIG_BYTES, len(encode_body(config)))
        if self._state.topics.is_system(config.topic, self._state.settings):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"The topic[{config.topic}] is conflict with system topic."
            )
        counts = config.read_queue_count, config.write_queue_count
        if not all(0 <= count <= QUEUES_MAX for count in counts):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"number of queues out of range 0 to {QUEUES_MAX}")
        self._state.limits.refuse_over(QUEUES_PER_TOPIC, max(counts))
        if not 0 <= config.permission <= 15 or config.filter_type not in _FILTER_TYPES:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "invalid perm or topicFilterType")
        is_mixed = config.attributes.get("message.type") == "MIXED"
        if is_mixed and not self._state.settings[keys.MIXED_TYPE]:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "MIXED message type is not supported.")
        if unsupported := unsupported_attributes(config.attributes):
            # The next start would refuse the store, and a Java broker expects queues of another kind.
            value = config.attributes[unsupported[0]][:40]
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"{unsupported[0]}={value} is not supported")

    async def delete(self, connection: Connection, request: Command) -> Answer:
        """Delete a topic, its POP retry topics and the groups' offsets in them; succeed if it does not exist."""
        topic = checked_stored_topic(TopicRequest.from_ext_fields(request.ext_fields).topic)
        state = self._state
        if state.topics.is_system(topic, state.settings):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the system topic {topic} cannot be deleted")
        deleted = [topic, *self._pop_retry_topics(topic)]
        for name in deleted:
            state.offsets.forget_topic(name)
            state.statistics.forget_topic(name)
        await self._forget(deleted)
        # A list: every topic is deleted, not only those up to the first that exists.
        if any([state.topics.delete(name) for name in deleted]):
            await self._save()
            log.info("topic %s deleted by %s", ", ".join(deleted), connection.peer)
        await self._drop_queues(lambda name: name in deleted)
        return response_to(request, ResponseCode.SUCCESS)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Return the POP retry topics to delete with a topic: a topic re-created later must not deliver from them."""
        state = self._state
        if not state.settings[keys.CLEAR_RETRY_TOPICS]:
            return []
        groups = state.offsets.groups_of(topic)
        found = [names.pop_retry_topic(group, topic, is_v2=is_v2) for group in groups for is_v2 in (True, False)]
        return [name for name in found if state.topics.find(name) is not None]

    async def clean(self, connection: Connection, request: Command) -> Answer:
        """Remove the queues of topics that do not exist any more."""
        log.info("removal of queues without topic requested by %s", connection.peer)
        await self._drop_queues(
            lambda name: (
                not (name.startswith(names.LMQ_PREFIX) or names.is_system_topic(name) or self._state.topics.find(name))
            )
        )
        return response_to(request, ResponseCode.SUCCESS)

    async def _drop_queues(self, is_deleted: Callable[[str], bool]) -> None:
        """Remove queues after everything sent so far is dispatched; a store that lags for long keeps them."""
        store = self._state.store
        for _ in range(_DISPATCH_LOOKS):
            if store.dispatched_to >= store.written_to:
                break
            await asyncio.sleep(_DISPATCH_LOOK_S)
        gone = store.delete_topics(is_deleted)
        if gone:
            log.info("%d queues removed: %s", len(gone), ", ".join(f"{topic} {number}" for topic, number in gone[:20]))

    # Reading

    async def configs(self, _: Connection, request: Command) -> Answer:
        def copy() -> Callable[[], TopicWrapper]:
            table = self._state.topics.snapshot()
            return lambda: TopicWrapper(topics=table.topics, data_version=table.data_version)

        count = len(self._state.topics.table)
        answer = await self._tables.answer(request, count, copy)
        answer.ext_fields["totalTopicNum"] = str(count)  # as `totalGroupNum` of the group table
        return answer

    def config(self, _: Connection, request: Command) -> Answer:
        config = known_topic(self._state.topics, GetTopicConfigRequest.from_ext_fields(request.ext_fields).topic)
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(config))

    async def stats(self, _: Connection, request: Command) -> Answer:
        """Return both offsets of each queue and the topic's write rate."""
        state = self._state
        config = known_topic(self._state.topics, TopicRequest.from_ext_fields(request.ext_fields).topic)
        counter = state.statistics.find(TOPIC_PUT_NUMS, config.topic)
        put_tps = counter.windows(state.now_ms())[0].tps if counter else 0.0
        body = await in_slices(QueueStatistics(state).topic_steps(config, put_tps))
        return response_to(request, ResponseCode.SUCCESS, body=write_body(dict(body)))

    def system_topics(self, _: Connection, request: Command) -> Answer:
        state = self._state
        own = (topic for topic in state.topics.table if state.topics.is_system(topic, state.settings))
        topics = tuple(dict.fromkeys((*own, *sorted(names.SYSTEM_TOPICS))))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(TopicList(topics=topics)))


def _changed_attributes(attributes: dict[str, str], changes: str) -> dict[str, str]:
    """Apply `+key=value,-key`."""
    for change in filter(None, changes.split(",")):
        sign, rest = change[0], change[1:]
        key, _, value = rest.partition("=")
        if sign == "+" and key:
            attributes[key] = value
        elif sign == "-" and key:
            attributes.pop(key, None)
        else:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"invalid attribute {change[:40]!r}: expected +key=value or -key"
            )
    return attributes
