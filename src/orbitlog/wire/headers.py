"""Header table: the request and the response header of each request code.

header = decode_request_header(request)           # by its code
header = SendMessageV2Request.from_ext_fields(request.ext_fields)     # if the code is known
answer = response_to(request, ResponseCode.SUCCESS, ext_fields=QueueOffsetResponse(queue_offset=7).to_ext_fields())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from orbitlog.wire import admin_headers as admin
from orbitlog.wire import consume_headers as consume
from orbitlog.wire import nameserver_headers as nameserver
from orbitlog.wire import pop_headers as pop
from orbitlog.wire import send_headers as send
from orbitlog.wire.codes import RequestCode as Code
from orbitlog.wire.command import Command
from orbitlog.wire.header_codec import Header, NoHeader


class Headers(NamedTuple):
    """The headers of one code."""

    request: type[Header] = NoHeader
    response: type[Header] = NoHeader


_Row = tuple[Iterable[Code], Headers]

_PRODUCERS: tuple[_Row, ...] = (
    ((Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE), Headers(send.SendMessageRequest, send.SendMessageResponse)),
    (
        (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
        Headers(send.SendMessageV2Request, send.SendMessageResponse),
    ),
    ((Code.END_TRANSACTION,), Headers(send.EndTransactionRequest)),
    ((Code.CHECK_TRANSACTION_STATE,), Headers(send.CheckTransactionRequest)),
    ((Code.PUSH_REPLY_MESSAGE_TO_CLIENT,), Headers(send.PushReplyRequest)),
    ((Code.RECALL_MESSAGE,), Headers(send.RecallMessageRequest, send.RecallMessageResponse)),
)

_CONSUMERS: tuple[_Row, ...] = (
    (
        (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE),
        Headers(consume.PullMessageRequest, consume.PullMessageResponse),
    ),
    ((Code.QUERY_MESSAGE,), Headers(consume.QueryMessageRequest, consume.QueryMessageResponse)),
    ((Code.QUERY_CONSUMER_OFFSET,), Headers(consume.QueryConsumerOffsetRequest, consume.QueueOffsetResponse)),
    ((Code.UPDATE_CONSUMER_OFFSET,), Headers(consume.UpdateConsumerOffsetRequest)),
    ((Code.SEARCH_OFFSET_BY_TIMESTAMP,), Headers(consume.SearchOffsetRequest, consume.QueueOffsetResponse)),
    ((Code.GET_MAX_OFFSET,), Headers(consume.GetMaxOffsetRequest, consume.QueueOffsetResponse)),
    ((Code.GET_MIN_OFFSET,), Headers(consume.TopicQueueRequest, consume.QueueOffsetResponse)),
    ((Code.GET_EARLIEST_MSG_STORETIME,), Headers(consume.TopicQueueRequest, consume.TimestampResponse)),
    ((Code.VIEW_MESSAGE_BY_ID,), Headers(consume.ViewMessageRequest)),
    ((Code.HEART_BEAT,), Headers(NoHeader, consume.HeartbeatResponse)),
    ((Code.UNREGISTER_CLIENT,), Headers(consume.UnregisterClientRequest)),
    ((Code.CONSUMER_SEND_MSG_BACK,), Headers(consume.SendBackRequest)),
    (
        (Code.GET_CONSUMER_LIST_BY_GROUP, Code.NOTIFY_CONSUMER_IDS_CHANGED, Code.GET_CONSUMER_CONNECTION_LIST),
        Headers(consume.ConsumerGroupRequest),
    ),
    ((Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.CHECK_CLIENT_CONFIG), Headers()),
    ((Code.RESET_CONSUMER_CLIENT_OFFSET,), Headers(consume.ResetConsumerRequest)),
    (
        (Code.GET_CONSUMER_STATUS_FROM_CLIENT, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
        Headers(consume.ConsumerStatusRequest),
    ),
    ((Code.GET_CONSUMER_RUNNING_INFO,), Headers(consume.ConsumerRunningInfoRequest)),
    ((Code.CONSUME_MESSAGE_DIRECTLY,), Headers(consume.ConsumeDirectlyRequest)),
)

_NAME_SERVER: tuple[_Row, ...] = (
    ((Code.PUT_KV_CONFIG,), Headers(nameserver.PutKvConfigRequest)),
    ((Code.GET_KV_CONFIG,), Headers(nameserver.KvConfigRequest, nameserver.KvConfigResponse)),
    ((Code.DELETE_KV_CONFIG,), Headers(nameserver.KvConfigRequest)),
    ((Code.GET_KVLIST_BY_NAMESPACE,), Headers(nameserver.NamespaceRequest)),
    ((Code.REGISTER_BROKER,), Headers(nameserver.RegisterBrokerRequest, nameserver.RegisterBrokerResponse)),
    ((Code.UNREGISTER_BROKER,), Headers(nameserver.UnregisterBrokerRequest)),
    ((Code.QUERY_DATA_VERSION,), Headers(nameserver.QueryDataVersionRequest, nameserver.QueryDataVersionResponse)),
    ((Code.BROKER_HEARTBEAT,), Headers(nameserver.BrokerHeartbeatRequest)),
    ((Code.GET_ROUTEINFO_BY_TOPIC,), Headers(nameserver.GetRouteInfoRequest)),
    ((Code.GET_TOPICS_BY_CLUSTER,), Headers(nameserver.ClusterRequest)),
    (
        (Code.WIPE_WRITE_PERM_OF_BROKER,),
        Headers(nameserver.BrokerNameRequest, nameserver.WipeWritePermissionResponse),
    ),
    ((Code.ADD_WRITE_PERM_OF_BROKER,), Headers(nameserver.BrokerNameRequest, nameserver.AddWritePermissionResponse)),
    ((Code.DELETE_TOPIC_IN_NAMESRV, Code.DELETE_TOPIC_IN_BROKER), Headers(nameserver.DeleteTopicRequest)),
    (
        (Code.REGISTER_TOPIC_IN_NAMESRV, Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO),
        Headers(nameserver.TopicRequest),
    ),
    ((Code.GET_BROKER_MEMBER_GROUP,), Headers(nameserver.BrokerMemberGroupRequest)),
    (
        (
            *(Code.GET_BROKER_CLUSTER_INFO, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
            *(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.UPDATE_NAMESRV_CONFIG, Code.GET_NAMESRV_CONFIG),
            *(Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        ),
        Headers(),
    ),
)

_ADMINISTRATION: tuple[_Row, ...] = (
    ((Code.UPDATE_AND_CREATE_TOPIC,), Headers(admin.CreateTopicRequest)),
    ((Code.GET_TOPIC_CONFIG,), Headers(admin.GetTopicConfigRequest)),
    ((Code.QUERY_TOPICS_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG), Headers(admin.GroupRequest)),
    ((Code.GET_PRODUCER_CONNECTION_LIST,), Headers(admin.ProducerGroupRequest)),
    ((Code.DELETE_SUBSCRIPTIONGROUP,), Headers(admin.DeleteGroupRequest)),
    ((Code.GET_CONSUME_STATS,), Headers(admin.ConsumeStatsRequest)),
    ((Code.GET_BROKER_CONSUME_STATS,), Headers(admin.BrokerConsumeStatsRequest)),
    ((Code.GET_BROKER_CONFIG,), Headers(NoHeader, admin.BrokerConfigResponse)),
    ((Code.QUERY_CONSUME_TIME_SPAN,), Headers(admin.TopicGroupRequest)),
    ((Code.QUERY_SUBSCRIPTION_BY_CONSUMER,), Headers(admin.QuerySubscriptionRequest)),
    ((Code.INVOKE_BROKER_TO_RESET_OFFSET,), Headers(admin.ResetOffsetRequest)),
    ((Code.VIEW_BROKER_STATS_DATA,), Headers(admin.BrokerStatsRequest)),
    ((Code.CLONE_GROUP_OFFSET,), Headers(admin.CloneGroupOffsetRequest)),
    ((Code.QUERY_CORRECTION_OFFSET,), Headers(admin.CorrectionOffsetRequest)),
    ((Code.QUERY_CONSUME_QUEUE,), Headers(admin.QueryConsumeQueueRequest)),
    ((Code.RESUME_CHECK_HALF_MESSAGE,), Headers(admin.ResumeHalfMessageRequest)),
    ((Code.UPDATE_AND_GET_GROUP_FORBIDDEN,), Headers(admin.GroupForbiddenRequest)),
    (
        (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_GET_USER),
        Headers(admin.UserRequest),
    ),
    ((Code.AUTH_LIST_USER,), Headers(admin.ListUsersRequest)),
    (
        (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL, Code.AUTH_GET_ACL),
        Headers(admin.AclRequest),
    ),
    ((Code.AUTH_LIST_ACL,), Headers(admin.ListAclsRequest)),
    (
        (
            *(Code.GET_ALL_TOPIC_CONFIG, Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO),
            *(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
            *(Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
            *(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_ALL_PRODUCER_INFO, Code.GET_ALL_CONSUMER_OFFSET),
            *(Code.GET_ALL_DELAY_OFFSET, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC),
            *(Code.DELETE_EXPIRED_COMMITLOG, Code.GET_ALL_MESSAGE_REQUEST_MODE),
        ),
        Headers(),
    ),
)

_POP: tuple[_Row, ...] = (
    ((Code.POP_MESSAGE,), Headers(pop.PopMessageRequest, pop.PopMessageResponse)),
    ((Code.PEEK_MESSAGE,), Headers(pop.PeekMessageRequest, pop.PopMessageResponse)),
    ((Code.ACK_MESSAGE,), Headers(pop.AckMessageRequest)),
    (
        (Code.CHANGE_MESSAGE_INVISIBLETIME,),
        Headers(pop.ChangeInvisibleTimeRequest, pop.ChangeInvisibleTimeResponse),
    ),
    ((Code.NOTIFICATION,), Headers(pop.NotificationRequest, pop.NotificationResponse)),
    ((Code.POLLING_INFO,), Headers(pop.PollingInfoRequest, pop.PollingInfoResponse)),
    ((Code.BATCH_ACK_MESSAGE, Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE), Headers()),
)

HEADERS: Mapping[int, Headers] = {
    int(code): headers
    for rows in (_PRODUCERS, _CONSUMERS, _NAME_SERVER, _ADMINISTRATION, _POP)
    for codes, headers in rows
    for code in codes
}


def decode_request_header(request: Command) -> Header:
    """Decode the header of a request; its code must be in the table."""
    return HEADERS[request.code].request.from_ext_fields(request.ext_fields)
