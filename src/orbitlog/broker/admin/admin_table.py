"""Admin table: request codes of operators and their tools; the handlers are imported with the first such request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.remoting.connection import Handler
from orbitlog.wire.codes import RequestCode as Code

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl
    from orbitlog.broker.delayed.timed_delivery import TimedDelivery
    from orbitlog.broker.runtime.master_role import MasterRole
    from orbitlog.broker.slave.slave_role import SlaveRole

ADMIN_CODES = (
    *(Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.DELETE_TOPIC_IN_BROKER),
    *(Code.CLEAN_UNUSED_TOPIC, Code.GET_ALL_TOPIC_CONFIG, Code.GET_TOPIC_CONFIG, Code.GET_TOPIC_STATS_INFO),
    *(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
    *(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Code.DELETE_SUBSCRIPTIONGROUP),
    *(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.UPDATE_AND_GET_GROUP_FORBIDDEN),
    *(Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_PRODUCER_CONNECTION_LIST, Code.GET_ALL_PRODUCER_INFO),
    *(Code.QUERY_TOPICS_BY_CONSUMER, Code.QUERY_SUBSCRIPTION_BY_CONSUMER, Code.GET_CONSUME_STATS),
    *(Code.GET_BROKER_CONSUME_STATS, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_TIME_SPAN),
    *(Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET, Code.QUERY_CORRECTION_OFFSET),
    *(Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.QUERY_CONSUME_QUEUE, Code.GET_BROKER_RUNTIME_INFO),
    *(Code.GET_BROKER_CONFIG, Code.UPDATE_BROKER_CONFIG, Code.VIEW_BROKER_STATS_DATA),
    *(Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG, Code.GET_CONSUMER_RUNNING_INFO),
    *(Code.CONSUME_MESSAGE_DIRECTLY, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    *(Code.GET_BROKER_HA_STATUS, Code.EXCHANGE_BROKER_HA_INFO, Code.GET_TIMER_CHECK_POINT),
)

USER_CODES = tuple(code for code in Code if Code.AUTH_CREATE_USER <= code <= Code.AUTH_LIST_ACL)

PLAIN_ACCOUNT_CODES = (
    *(Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.GET_BROKER_CLUSTER_ACL_INFO),
    *(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Code.GET_BROKER_CLUSTER_ACL_CONFIG),
)


@dataclass(frozen=True, slots=True)
class AdminNeeds:
    """Calls into the broker that these handlers need besides its state."""

    publish_topics: Callable[[], Awaitable[None]]
    """Returns when changed topics are saved and registered with the name servers."""
    save_groups: Callable[[], Awaitable[None]]
    """Returns when changed groups are saved."""
    forget_topics: Callable[[Collection[str]], Awaitable[None]]
    """Removes deleted topics from the tables of POP and of static topics; returns when the latter is saved."""
    delete_expired: Callable[[], Awaitable[None]]
    wake_queue: Callable[[str, int], None]
    delayed: DelayedDelivery
    master: MasterRole
    timed: TimedDelivery
    slave: SlaveRole | None = None
    """None for a master."""
    access: AccessControl | None = None


def account_table(state: BrokerState, access: AccessControl | None) -> dict[int, Handler]:
    """Return the handlers of users, policies and accounts by code, as `LazyHandlers`; none without access control."""
    if access is None:
        return {}

    def build() -> Mapping[int, Handler]:
        from orbitlog.broker.admin.handle_plain_accounts import PlainAccountHandlers
        from orbitlog.broker.admin.handle_users import UserHandlers

        return {**UserHandlers(access).table, **PlainAccountHandlers(state, access).table}

    return LazyHandlers((*USER_CODES, *PLAIN_ACCOUNT_CODES), build).table


def admin_table(state: BrokerState, needs: AdminNeeds) -> dict[int, Handler]:
    """Return the handlers by code, as `LazyHandlers`."""

    def build() -> dict[int, Handler]:
        from orbitlog.broker.admin.handle_groups import GroupHandlers
        from orbitlog.broker.admin.handle_progress import ProgressHandlers
        from orbitlog.broker.admin.handle_relay import RelayHandlers
        from orbitlog.broker.admin.handle_replication import ReplicationHandlers
        from orbitlog.broker.admin.handle_runtime import RuntimeHandlers
        from orbitlog.broker.admin.handle_topics import TopicHandlers

        quotas = None if needs.access is None else needs.access.quotas
        numbers = dict if needs.access is None else needs.access.numbers
        return {
            **TopicHandlers(state, needs.publish_topics, needs.forget_topics, quotas).table,
            **GroupHandlers(state, needs.save_groups).table,
            **ProgressHandlers(state, needs.delayed, needs.wake_queue).table,
            **RuntimeHandlers(state, needs.delayed.delivered_to, needs.delete_expired, numbers).table,
            **RelayHandlers(state).table,
            **ReplicationHandlers(state, needs).table,
        }

    return {**LazyHandlers(ADMIN_CODES, build).table, **account_table(state, needs.access)}
