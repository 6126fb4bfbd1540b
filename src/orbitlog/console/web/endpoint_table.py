"""The table of endpoints: every function of the API, and the page of each."""

from __future__ import annotations

from orbitlog.console.console_call import Call
from orbitlog.console.session.console_roles import Role
from orbitlog.console.views import (
    broker_view,
    group_view,
    history_view,
    journey_view,
    message_view,
    overview_view,
    topic_statistics,
    topic_view,
)
from orbitlog.console.views.answers import Answer, ListQuery
from orbitlog.console.views.body_rights import list_within_rights, without_body
from orbitlog.console.views.message_filter import FilterQuery, MessageQuery
from orbitlog.console.web.endpoint import Endpoint
from orbitlog.console.web.job_endpoints import JOB_ENDPOINTS
from orbitlog.console.web.store_endpoints import STORE_ENDPOINTS
from orbitlog.console.web.waiting_endpoints import WAITING_ENDPOINTS


class ClusterRow(Answer, kw_only=True):
    """A configured cluster."""

    name: str
    address: str


class ClusterListing(Answer, kw_only=True):
    """The clusters of this console, and whether it may change them."""

    items: list[ClusterRow]
    writable: bool


async def list_clusters(call: Call) -> ClusterListing:
    rows = [ClusterRow(name=source.name, address=source.address) for source in call.console.clusters.values()]
    return ClusterListing(items=rows, writable=call.console.options.may_write)


async def show_overview(call: Call) -> overview_view.OverviewAnswer:
    return await overview_view.overview(call.cluster, call.console.options.stuck_after_seconds)


async def show_history(call: Call) -> history_view.HistoryAnswer:
    return await history_view.show_history(call.cluster, call.query)


async def show_heat(call: Call) -> history_view.HeatAnswer:
    return await history_view.show_heat(call.cluster, call.path["group"], call.query)


async def show_statistics(call: Call) -> topic_statistics.StatisticsAnswer:
    return await topic_statistics.show_statistics(call.cluster, call.path["topic"], call.query)


async def list_brokers(call: Call) -> broker_view.BrokerListing:
    return await broker_view.list_brokers(call.cluster)


async def show_broker(call: Call) -> broker_view.RuntimeAnswer:
    with_users = call.visitor.role is Role.ADMIN
    return await broker_view.show_broker(call.cluster, call.path["address"], with_users=with_users)


async def compare_settings(call: Call) -> broker_view.SettingsAnswer:
    return await broker_view.compare_settings(call.cluster)


async def list_topics(call: Call) -> topic_view.TopicListing:
    return await topic_view.list_topics(call.cluster, call.query)


async def show_topic(call: Call) -> topic_view.TopicAnswer:
    return await topic_view.show_topic(call.cluster, call.path["topic"])


async def list_groups(call: Call) -> group_view.GroupListing:
    return await group_view.list_groups(call.cluster, call.query, call.console.options.stuck_after_seconds)


async def show_group(call: Call) -> group_view.GroupAnswer:
    return await group_view.show_group(call.cluster, call.path["group"], call.console.options.stuck_after_seconds)


async def list_messages(call: Call) -> message_view.MessageListing:
    return await list_within_rights(
        call, lambda: message_view.list_messages(call.cluster, call.path["topic"], call.query)
    )


async def show_message(call: Call) -> journey_view.JourneyAnswer:
    answer = await journey_view.show_message(call.cluster, call.path["message"], call.query.topic)
    return answer if call.may_view_bodies else without_body(answer)


_CLUSTER = "/clusters/{cluster}"
CLUSTER_ENDPOINTS = (
    Endpoint("/clusters", "listClusters", "List the configured clusters.", ClusterListing, list_clusters),
    Endpoint(
        f"{_CLUSTER}/overview",
        "showOverview",
        "Show whether anything is wrong, and the main figures.",
        overview_view.OverviewAnswer,
        show_overview,
        template="overview.html",
        title="Overview",
        section="overview",
    ),
    Endpoint(
        f"{_CLUSTER}/history",
        "showHistory",
        "Show rates and lags of the last hour.",
        history_view.HistoryAnswer,
        show_history,
        query=history_view.RatesQuery,
    ),
    Endpoint(
        f"{_CLUSTER}/groups/{{group}}/heat",
        "showHeat",
        "Show the lag of each queue of a group over time.",
        history_view.HeatAnswer,
        show_heat,
        query=history_view.HistoryQuery,
    ),
    Endpoint(
        f"{_CLUSTER}/topics/{{topic}}/statistics",
        "showStatistics",
        "Count the messages of a topic over time, in buckets whose width follows from the span.",
        topic_statistics.StatisticsAnswer,
        show_statistics,
        query=topic_statistics.StatisticsQuery,
    ),
    Endpoint(
        f"{_CLUSTER}/brokers",
        "listBrokers",
        "List brokers and name servers.",
        broker_view.BrokerListing,
        list_brokers,
        template="brokers.html",
        title="Brokers",
        section="brokers",
    ),
    Endpoint(
        f"{_CLUSTER}/brokers/{{address}}",
        "showBroker",
        "Show all run-time numbers of one broker, by its address.",
        broker_view.RuntimeAnswer,
        show_broker,
        template="broker.html",
        title="Broker {address}",
        section="brokers",
    ),
    Endpoint(
        f"{_CLUSTER}/settings",
        "compareSettings",
        "Compare the settings of all masters.",
        broker_view.SettingsAnswer,
        compare_settings,
        template="settings.html",
        title="Settings",
        section="settings",
        is_live=False,
    ),
    Endpoint(
        f"{_CLUSTER}/topics",
        "listTopics",
        "List topics.",
        topic_view.TopicListing,
        list_topics,
        query=ListQuery,
        template="topics.html",
        title="Topics",
        section="topics",
    ),
    Endpoint(
        f"{_CLUSTER}/topics/{{topic}}",
        "showTopic",
        "Show queues, groups, route and settings of a topic.",
        topic_view.TopicAnswer,
        show_topic,
        template="topic.html",
        title="Topic {topic}",
        section="topics",
    ),
    Endpoint(
        f"{_CLUSTER}/groups",
        "listGroups",
        "List consumer groups, by lag.",
        group_view.GroupListing,
        list_groups,
        query=ListQuery,
        template="groups.html",
        title="Groups",
        section="groups",
    ),
    Endpoint(
        f"{_CLUSTER}/groups/{{group}}",
        "showGroup",
        "Show the progress of a group in every queue, its members and settings.",
        group_view.GroupAnswer,
        show_group,
        template="group.html",
        title="Group {group}",
        section="groups",
    ),
)
MESSAGE_ENDPOINTS = (
    Endpoint(
        f"{_CLUSTER}/topics/{{topic}}/messages",
        "listMessages",
        "Browse messages of a topic: by tag, key, property, text and time.",
        message_view.MessageListing,
        list_messages,
        query=MessageQuery,
        template="messages.html",
        title="Messages of {topic}",
        section="messages",
        is_live=False,
    ),
    Endpoint(
        f"{_CLUSTER}/messages/{{message}}",
        "showMessage",
        "Show one message and its journey, by its id.",
        journey_view.JourneyAnswer,
        show_message,
        query=journey_view.MessageIdQuery,
        template="message.html",
        title="Message {message}",
        section="messages",
        is_live=False,
    ),
    Endpoint(
        f"{_CLUSTER}/topics/{{topic}}/live",
        "showTail",
        "Show what a tail of the topic follows; the stream itself is at /tail.",
        topic_view.TopicAnswer,
        show_topic,
        query=FilterQuery,
        template="tail.html",
        title="Tail of {topic}",
        section="messages",
        is_live=False,
    ),
)
ENDPOINTS: tuple[Endpoint, ...] = (
    *CLUSTER_ENDPOINTS,
    *MESSAGE_ENDPOINTS,
    *WAITING_ENDPOINTS,
    *STORE_ENDPOINTS,
    *JOB_ENDPOINTS,
)
