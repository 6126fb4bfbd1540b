"""Metric table: every family that brokers and name servers export, in the order of their pages.

The first part has the names, types, labels and buckets of Apache's broker 5.5 as its Prometheus endpoint shows them;
dashboards for it work unchanged. The second part is Orbitlog's own, prefix `orbitlog_`.
"""

from __future__ import annotations

from orbitlog.observe.metric import COUNTER, GAUGE, HISTOGRAM, INFO, Metric

_STORE = 'storage_type="local",storage_medium="disk"'
_LAG = ("consumer_group", "topic", "is_retry", "is_system")
_IN = ("topic", "message_type", "is_system")
_OUT = ("topic", "consumer_group", "is_system")
_SIZES = (1024.0, 4096.0, 524288.0, 1048576.0, 2097152.0, 4194304.0)
_RPC_MS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
_FINISH_S = (5.0, 60.0, 600.0, 3600.0, 43200.0, 86400.0)
_DELAY_S = (60.0, 600.0, 3600.0, 43200.0, 86400.0, 259200.0)
_CREATE_MS = (10.0, 100.0, 1000.0, 3000.0, 5000.0)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
TIMER_BOUNDS_S = (5, 60, 300, 900, 3600, 14400, 28800, 86400)


def _counter(name: str, help_text: str, *labels: str, fixed: str = "") -> Metric:
    return Metric(name, COUNTER, help_text, labels, fixed=fixed)


def _gauge(name: str, help_text: str, *labels: str, fixed: str = "") -> Metric:
    return Metric(name, GAUGE, help_text, labels, fixed=fixed)


def _histogram(name: str, help_text: str, buckets: tuple[float, ...], *labels: str, fixed: str = "") -> Metric:
    return Metric(name, HISTOGRAM, help_text, labels, buckets, fixed)


# Apache's names: messages

MESSAGES_IN = _counter("rocketmq_messages_in_total", "Messages stored.", *_IN)
THROUGHPUT_IN = _counter("rocketmq_throughput_in_total", "Bytes of the records of stored messages.", *_IN)
MESSAGE_SIZE = _histogram("rocketmq_message_size", "Record bytes of a message; of a batch the average.", _SIZES, *_IN)
MESSAGES_OUT = _counter("rocketmq_messages_out_total", "Messages delivered to consumers.", *_OUT)
THROUGHPUT_OUT = _counter("rocketmq_throughput_out_total", "Bytes delivered to consumers.", *_OUT)
SEND_TO_DLQ = _counter(
    "rocketmq_send_to_dlq_messages_total", "Dead letters stored.", "consumer_group", "topic", "is_system"
)

# Apache's names: consumer groups

LAG_MESSAGES = _gauge("rocketmq_consumer_lag_messages", "Messages that a group has not committed.", *_LAG)
LAG_LATENCY = _gauge(
    "rocketmq_consumer_lag_latency_milliseconds", "Age of the first message that is not committed.", *_LAG
)
INFLIGHT_MESSAGES = _gauge("rocketmq_consumer_inflight_messages", "Messages delivered and not committed.", *_LAG)
READY_MESSAGES = _gauge("rocketmq_consumer_ready_messages", "Messages that were not delivered yet.", *_LAG)
QUEUEING_LATENCY = _gauge(
    "rocketmq_consumer_queueing_latency_milliseconds", "Age of the first message that was not delivered.", *_LAG
)

# Apache's names: clients and requests

PRODUCER_CONNECTIONS = _gauge(
    "rocketmq_producer_connections", "Connected producers.", "language", "version", "protocol_type"
)
CONSUMER_CONNECTIONS = _gauge(
    "rocketmq_consumer_connections",
    "Connected consumers.",
    *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)
TOPIC_NUMBER = _gauge("rocketmq_topic_number", "Topics, system topics included.")
GROUP_NUMBER = _gauge("rocketmq_consumer_group_number", "Consumer groups, system groups included.")
BROKER_PERMISSION = _gauge("rocketmq_broker_permission", "brokerPermission: 4 = may be read, 2 = may be written.")
PROCESSOR_WATERMARK = _gauge(
    "rocketmq_processor_watermark", "Requests of a kind that wait for an answer, without long polls.", "processor"
)
RPC_LATENCY = _histogram(
    "rocketmq_rpc_latency_milliseconds",
    "Milliseconds from the start of a request to its response.",
    _RPC_MS,
    *("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
)
TOPIC_CREATE_TIME = _histogram(
    "rocketmq_topic_create_execution_time_milliseconds",
    "Milliseconds that the creation of a topic took.",
    _CREATE_MS,
    *("invocation_status", "is_system"),
)
GROUP_CREATE_TIME = _histogram(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "Milliseconds that the creation of a consumer group took.",
    _CREATE_MS,
    "invocation_status",
)

# Apache's names: transactions

COMMIT_MESSAGES = _counter("rocketmq_commit_messages_total", "Transactions committed.", "topic")
ROLLBACK_MESSAGES = _counter("rocketmq_rollback_messages_total", "Transactions rolled back.", "topic")
HALF_MESSAGES = _gauge("rocketmq_half_messages", "Half messages stored and not ended since the start.", "topic")
FINISH_LATENCY = _histogram(
    "rocketmq_finish_message_latency_milliseconds",
    "Seconds, as with Apache's broker, from the birth of a half message to its commit.",
    _FINISH_S,
    "topic",
)

# Apache's names: store, timers, POP

STORAGE_SIZE = _gauge("rocketmq_storage_size_bytes", "Used bytes of the file system of the store.", fixed=_STORE)
FLUSH_BEHIND = _gauge("rocketmq_storage_flush_behind_bytes", "Bytes written and not flushed.", fixed=_STORE)
DISPATCH_BEHIND = _gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes written and not dispatched.", fixed=_STORE)
RESERVE_TIME = _gauge("rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest message.", fixed=_STORE)
TIMER_ENQUEUE_LAG = _gauge("rocketmq_timer_enqueue_lag", "Timer messages that are not loaded yet.", fixed=_STORE)
TIMER_ENQUEUE_LATENCY = _gauge(
    "rocketmq_timer_enqueue_latency_milliseconds", "Age of the first timer message that is not loaded.", fixed=_STORE
)
TIMER_DEQUEUE_LAG = _gauge("rocketmq_timer_dequeue_lag", "Timer messages that are overdue.", fixed=_STORE)
TIMER_DEQUEUE_LATENCY = _gauge(
    "rocketmq_timer_dequeue_latency_milliseconds", "Lateness of the first overdue timer message.", fixed=_STORE
)
TIMING_MESSAGES = _gauge("rocketmq_timing_messages", "Timer messages that wait, by topic.", "topic", fixed=_STORE)
TIMER_ENQUEUE = _counter("rocketmq_timer_enqueue_total", "Timer messages loaded.", "topic", fixed=_STORE)
TIMER_DEQUEUE = _counter("rocketmq_timer_dequeue_total", "Timer messages delivered.", "topic", fixed=_STORE)
TIMER_SNAPSHOT = _gauge(
    "rocketmq_timer_message_snapshot",
    "Timer messages that are due between the previous bound and this one.",
    "timer_bound_s",
    fixed=_STORE,
)
DELAY_LATENCY = _histogram(
    "rocketmq_delay_message_latency_seconds", "Delay of timer messages.", _DELAY_S, "topic", fixed=_STORE
)
POP_OFFSET_BUFFER = _gauge("rocketmq_pop_offset_buffer_size", "Always 0: acknowledgements are applied at once.")
POP_CHECKPOINT_BUFFER = _gauge("rocketmq_pop_checkpoint_buffer_size", "Always 0: messages in flight need no buffer.")
POP_REVIVE_LAG = _gauge("rocketmq_pop_revive_lag_milliseconds", "Messages in flight that are overdue.", "queue_id")
POP_REVIVE_LATENCY = _gauge(
    "rocketmq_pop_revive_latency_milliseconds", "Lateness of the first overdue message in flight.", "queue_id"
)
TARGET_INFO = Metric("target_info", INFO, "The exporting process.")

# Orbitlog's own: groups

GROUP_LAG = _gauge(
    "orbitlog_group_lag_messages",
    "Messages that a group has not committed, whether or not it has members.",
    *("consumer_group", "topic", "online"),
)
GROUP_LAG_SECONDS = _gauge(
    "orbitlog_group_lag_seconds",
    "Age of the first message that is not committed.",
    *("consumer_group", "topic", "online"),
)
QUEUE_LAG = _gauge(
    "orbitlog_queue_lag_messages",
    "Messages of a queue that a group has not committed (metricsQueueLag).",
    *("consumer_group", "topic", "queue_id"),
)
RETENTION_LEFT = _gauge(
    "orbitlog_retention_seconds_left",
    "Seconds until the first unread message of a topic is older than fileReservedTime; below 0 it may be deleted.",
    "topic",
)
DEAD_LETTERS = _gauge("orbitlog_dead_letters", "Dead letters that are stored.", "consumer_group")

# Orbitlog's own: conditions

CONDITION = _gauge(
    "orbitlog_condition",
    "1 while a condition lasts: the same as in the log and at /healthz.",
    *("condition", "subject"),
)
CONDITION_BEGAN = _counter("orbitlog_condition_began_total", "How often a condition has begun.", "condition")

# Orbitlog's own: requests and limits

SEND_SECONDS = _histogram("orbitlog_send_seconds", "Seconds from a send to its response.", _SECONDS)
SENDS_REFUSED = _counter("orbitlog_sends_refused_total", "Sends that were not stored.", "reason")
LIMITS_REACHED = _counter("orbitlog_limit_reached_total", "How often a limit was reached.", "setting")
ACCESS_REFUSED = _counter("orbitlog_access_refused_total", "Requests that access control refused.")
HELD_REQUESTS = _gauge("orbitlog_held_requests", "Long polls that wait for messages.", "kind")
CONNECTIONS = _gauge("orbitlog_connections", "Open connections.")
BYTES_IN_WORK = _gauge("orbitlog_bytes_in_work", "Bytes held by requests in flight.")
LOOP_LAG = _histogram("orbitlog_loop_lag_seconds", "Lateness of a timer of 100 ms in the event loop.", _SECONDS)

# Orbitlog's own: store and replication

FLUSH_SECONDS = _histogram("orbitlog_flush_seconds", "Seconds that one flush of the log takes.", _SECONDS)
GROUP_COMMIT_SIZE = _histogram(
    "orbitlog_group_commit_requests", "Requests answered after one flush (SYNC_FLUSH).", _COUNTS
)
DISPATCH_LAG = _gauge("orbitlog_dispatch_lag_bytes", "Bytes of the log that no queue has units for yet.")
LOG_MIN_OFFSET = _gauge("orbitlog_log_min_offset", "First physical offset of the log.")
LOG_MAX_OFFSET = _gauge("orbitlog_log_max_offset", "Physical offset of the next message.")
LOG_FLUSHED_OFFSET = _gauge("orbitlog_log_flushed_offset", "Physical offset up to which the log is flushed.")
DISK_USED_RATIO = _gauge("orbitlog_disk_used_ratio", "Used share of the file system of the store.")
DISK_REFUSES = _gauge("orbitlog_disk_refuses_sends", "1 while a full disk refuses sends.")
READ_ONLY = _gauge("orbitlog_store_read_only", "1 after a failed sync: the store takes no messages.")
DAMAGE = _gauge("orbitlog_store_damaged_ranges", "Unreadable ranges of the log.")
REPLICAS = _gauge("orbitlog_replicas", "Connected slaves.")
REPLICA_LAG = _gauge("orbitlog_replica_lag_bytes", "Bytes of the log that the slave with most lag lacks.")

# Orbitlog's own: name server, process

NAME_SERVER_BROKERS = _gauge("orbitlog_name_server_brokers", "Registered brokers.")
NAME_SERVER_TOPICS = _gauge("orbitlog_name_server_topics", "Topics with a route.")
NAME_SERVER_CONNECTIONS = _gauge("orbitlog_name_server_connections", "Open connections of the name server.")
NAME_SERVER_LIMITS = _counter(
    "orbitlog_name_server_limit_reached_total", "How often a limit of the name server was reached.", "setting"
)
NAME_SERVER_REQUESTS = _counter(
    "orbitlog_name_server_requests_total", "Requests to the name server.", "request_code", "result"
)
SERIES_DROPPED = _counter(
    "orbitlog_series_dropped_total",
    "Series left out because a family has too many (metricsOtelCardinalityLimit).",
    "metric",
)
EXPORTS = _counter("orbitlog_metrics_exports_total", "Exports of metrics over OTLP or into a log.", "result")
BUILD_INFO = Metric("orbitlog_build_info", INFO, "Version of the server.", ("version", "compat", "python"))
RESIDENT_BYTES = _gauge("process_resident_memory_bytes", "Resident memory of the process.")
CPU_SECONDS = _counter("process_cpu_seconds_total", "CPU time of the process.")
OPEN_FDS = _gauge("process_open_fds", "Open file descriptors.")
MAX_FDS = _gauge("process_max_fds", "Maximum of open file descriptors.")
START_TIME = _gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.")

ALL: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))
