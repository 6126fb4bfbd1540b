"""Metric table of rocketmq-exporter: its families, for clusters of any version. All of them are gauges.

The names are those of dashboards for RocketMQ 4.x, with their uneven spelling.
"""

from __future__ import annotations

from orbitlog.observe.metric import COUNTER, GAUGE, Metric

_BROKER = ("cluster", "brokerIP", "broker")
_TOPIC = ("cluster", "broker", "topic")
_GROUP = ("cluster", "broker", "topic", "group")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_CLIENT = ("clientAddr", "clientId", "group", "topic")
RUNTIME_LABELS = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")


def _gauge(name: str, help_text: str, labels: tuple[str, ...]) -> Metric:
    return Metric(f"rocketmq_{name}", GAUGE, help_text, labels)


# Brokers

BROKER_TPS = _gauge("broker_tps", "Messages stored per second, over a minute.", _BROKER)
BROKER_QPS = _gauge("broker_qps", "Messages delivered per second, over a minute.", _BROKER)
COMMITLOG_DIFF = _gauge("broker_commitlog_diff", "Bytes of the log that a slave lacks.", _BROKER)

# Topics and producers

PRODUCER_TPS = _gauge("producer_tps", "Messages stored per second, over a minute.", _TOPIC)
PRODUCER_SIZE = _gauge("producer_message_size", "Bytes stored per second, over a minute.", _TOPIC)
PRODUCER_OFFSET = _gauge("producer_offset", "Sum of the maximum queue offsets.", _TOPIC)
RETRY_OFFSET = _gauge("topic_retry_offset", "Sum of the maximum queue offsets of a retry topic.", _TOPIC)
DLQ_OFFSET = _gauge(
    "topic_dlq_offset", "Sum of the maximum queue offsets of dead letters.", ("cluster", "broker", "group")
)
PRODUCER_COUNT = _gauge("producer_count", "Connected producers of a group.", ("cluster", "broker", "group"))

# Groups and their members

CONSUMER_TPS = _gauge("consumer_tps", "Messages delivered per second, over a minute.", _GROUP)
CONSUMER_SIZE = _gauge("consumer_message_size", "Bytes delivered per second, over a minute.", _GROUP)
CONSUMER_OFFSET = _gauge("consumer_offset", "Sum of the maximum offsets of the queues that a group consumes.", _GROUP)
CONSUME_TPS = _gauge("group_consume_tps", "Messages per second, as the broker reports them for the group.", _GROUP)
CONSUME_TOTAL_OFFSET = _gauge("group_consume_total_offset", "Sum of the committed offsets.", _GROUP)
SEND_BACK_NUMS = _gauge("send_back_nums", "Messages that consumers sent back, over a minute.", _GROUP)
STORE_TIME_LATENCY = _gauge(
    "group_get_latency_by_storetime", "Milliseconds since the last consumed message was stored, with lag.", _GROUP
)
GROUP_DIFF = _gauge("group_diff", "Messages that a group has not committed.", _DIFF)
GROUP_RETRY_DIFF = _gauge("group_retrydiff", "Messages to retry that a group has not committed.", _DIFF)
GROUP_DLQ_DIFF = _gauge("group_dlqdiff", "Dead letters that a group has not committed.", _DIFF)
GROUP_COUNT = _gauge("group_count", "Members of a group.", ("caddr", "localaddr", "group"))

# Clients

CLIENT_FAILED = _gauge("client_consume_fail_msg_count", "Failed messages of the last hour.", _CLIENT)
CLIENT_FAILED_TPS = _gauge("client_consume_fail_msg_tps", "Failed messages per second.", _CLIENT)
CLIENT_OK_TPS = _gauge("client_consume_ok_msg_tps", "Consumed messages per second.", _CLIENT)
CLIENT_CONSUME_RT = _gauge("client_consume_rt", "Milliseconds that a message takes to be consumed.", _CLIENT)
CLIENT_PULL_RT = _gauge("client_consumer_pull_rt", "Milliseconds that a pull takes.", _CLIENT)
CLIENT_PULL_TPS = _gauge("client_consumer_pull_tps", "Pulled messages per second.", _CLIENT)

# Runtime information of brokers: the name after `rocketmq_brokeruntime_`, and the key of the broker's response.

_PLAIN_KEYS = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
}
_DERIVED = (
    *(
        f"{kind}_tps{window}"
        for kind in ("put", "getfound", "getmiss", "gettotal", "gettransfered")
        for window in (10, 60, 600)
    ),
    *("commitlogdir_capacity_total", "commitlogdir_capacity_free", "remain_howmanydata_toflush"),
)
PUT_TIMES = {
    "0ms": "<=0ms",
    "0to10ms": "0~10ms",
    "10to50ms": "10~50ms",
    "50to100ms": "50~100ms",
    "100to200ms": "100~200ms",
    "200to500ms": "200~500ms",
    "500to1s": "500ms~1s",
    "1to2s": "1~2s",
    "2to3s": "2~3s",
    "3to4s": "3~4s",
    "4to5s": "4~5s",
    "5to10s": "5~10s",
    "10stomore": "10s~",
}
"""Ranges of `putMessageDistributeTime`, by the end of their metric's name."""


def _runtime(name: str, key: str) -> Metric:
    return _gauge(f"brokeruntime_{name}", f"{key} of the broker's runtime information.", RUNTIME_LABELS)


RUNTIME_KEYS = {key: _runtime(name, key) for name, key in _PLAIN_KEYS.items()}
"""Families whose value is a number of the response, by its key."""
RUNTIME_DERIVED = {name: _runtime(name, name) for name in _DERIVED}
RUNTIME_PUT_TIMES = {
    text: _gauge(f"brokeruntime_pmdt_{name}", f"Messages that took {text} to store.", RUNTIME_LABELS)
    for name, text in PUT_TIMES.items()
}

# Orbitlog's own: the exporter

REQUESTS = Metric("orbitlog_exporter_requests_total", COUNTER, "Administration requests sent.")
FAILED = Metric("orbitlog_exporter_requests_failed_total", COUNTER, "Administration requests that failed.")
POSTPONED = Metric(
    "orbitlog_exporter_postponed", GAUGE, "Topics, groups and clients that wait for a later round (--max-requests)."
)
ROUND_SECONDS = Metric("orbitlog_exporter_round_seconds", GAUGE, "Duration of the last round.")
SAMPLED_TIME = Metric("orbitlog_exporter_last_round_timestamp_seconds", GAUGE, "End of the last round.")

EXPORTER_METRICS: tuple[Metric, ...] = (
    *(value for value in globals().values() if isinstance(value, Metric)),
    *RUNTIME_KEYS.values(),
    *RUNTIME_DERIVED.values(),
    *RUNTIME_PUT_TIMES.values(),
)
