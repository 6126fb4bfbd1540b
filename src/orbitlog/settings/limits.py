"""Limits: how much work and memory peers may cost a server, as settings, with a counter of how often each was reached.

One table for broker and name server. A limit has a default that honest clients do not reach. Code that enforces it
calls `Limits.reach`, or `Limits.refuse_over` for a request that exceeds it. GET_BROKER_RUNTIME_INFO lists the counters.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.errors import RequestRefused
from orbitlog.settings.setting import Setting, number_between

_INVALID_PARAMETER = 29


def _limit(key: str, default: int, help_text: str, *, low: int = 1) -> Setting[int]:
    return Setting(key, number_between(low), default, f"{help_text} (Orbitlog's own key)")


# Both servers

CONNECTIONS_PER_ADDRESS = _limit(
    "connectionsPerAddressMax", 8_000, "open connections of one client address; more are closed at once"
)
FIRST_FRAME_SECONDS = _limit(
    "firstFrameTimeoutSeconds", 30, "seconds until a new connection must have sent one whole frame"
)
MEMORY_BYTES = _limit(
    "connectionMemoryBytesMax",
    512 * 1024 * 1024,
    "bytes of requests in work, long polls, unfinished frames and unsent responses of all connections; past it, work"
    " pauses, and the connections that keep most are closed",
    low=1024 * 1024,
)
MEMORY_PER_ADDRESS = _limit(
    "connectionMemoryPerAddressMax",
    384 * 1024 * 1024,
    "the same bytes of the connections of one client address; past it, those with most are paused or closed",
    low=1024 * 1024,
)
MEMORY_PER_CONNECTION = _limit(
    "connectionMemoryPerConnectionMax",
    64 * 1024 * 1024,
    "the same bytes of one connection; past it, the connection is paused, or closed if it does not read responses",
    low=64 * 1024,
)
DESCRIPTOR_RESERVE = _limit(
    "descriptorReserve",
    128,
    "file descriptors that connections leave to the store; past it, new connections are closed",
)
TLS_HANDSHAKES_PER_ADDRESS = _limit(
    "tlsHandshakesPerAddressMax",
    1_000,
    "connections of one client address whose TLS handshake is not finished; more are closed",
)
TLS_HANDSHAKE_PERCENT = Setting(
    "tlsHandshakePercentMax",
    number_between(1, 100),
    50,
    "percent of the server's processor time that TLS handshakes may take; more of them wait (Orbitlog's own key)",
)
METRICS_CONNECTIONS = _limit(
    "metricsConnectionsMax",
    32,
    "connections to the port of metrics and health; past it, the oldest of the address with most of them is closed",
    low=4,
)
LONG_REQUESTS = _limit(
    "longRequestsMax", 8, "requests with long lists, registrations and statistics in work at a time; others wait"
)
LONG_REQUESTS_PER_ADDRESS = _limit("longRequestsPerAddressMax", 4, "those of one client address; its others wait")
REQUEST_TURN_MICROS = _limit(
    "requestTurnMicros",
    1_000,
    "microseconds of one turn of the event loop for requests of all connections that need a handler; past it, they"
    " wait, and the client address that used least time is next; a wait of a second counts",
    low=100,
)
PLAIN_HEADER_BYTES = _limit(
    "plainHeaderBytesMax", 64 * 1024, "bytes of a request header without message properties or lists", low=4096
)
LARGE_HEADER_BYTES = _limit(
    "largeHeaderBytesMax", 256 * 1024, "bytes of any other request header; a longer one closes the connection", low=4096
)
PLAIN_BODY_BYTES = _limit("plainBodyBytesMax", 4 * 1024, "bytes of a request body if its code has none", low=4096)
CLIENT_BODY_BYTES = _limit(
    "clientBodyBytesMax", 256 * 1024, "bytes of a heartbeat, a client check or a queue lock request", low=4096
)
LIST_BODY_BYTES = _limit(
    "listBodyBytesMax", 1024 * 1024, "bytes of a list of topics, groups, settings or acknowledgements", low=4096
)
RESPONSE_BODY_BYTES = _limit(
    "responseBodyBytesMax", 4 * 1024 * 1024, "bytes of a client's response to a request of the server", low=4096
)
REGISTRATION_BODY_BYTES = _limit(
    "registrationBodyBytesMax", 16 * 1024 * 1024, "bytes of a broker registration", low=4096
)

# The broker

HELD_REQUESTS = _limit(
    "heldRequestsMax",
    600_000,
    "long polls (pulls, pops, notifications) that wait for messages; past it, the newest of the connection with most"
    " of them is answered without messages",
)

HELD_PER_CONNECTION = _limit(
    "heldRequestsPerConnectionMax", 16_384, "long polls of one connection; more are answered at once"
)
HELD_PER_QUEUE = _limit(
    "heldRequestsPerQueueMax", 20_000, "long polls that wait for one queue or POP topic; more are answered at once"
)
SUBSCRIPTION_CHARACTERS = _limit(
    "subscriptionCharactersMax", 32 * 1024, "characters of a subscription in a pull, a pop or a heartbeat"
)
HEARTBEAT_GROUPS = _limit("heartbeatGroupsMax", 1_000, "producer and consumer groups in one heartbeat")
HEARTBEAT_SUBSCRIPTIONS = _limit("heartbeatSubscriptionsMax", 2_000, "subscriptions in one heartbeat")
HEARTBEAT_SQL_CHARACTERS = _limit(
    "heartbeatSqlCharactersMax", 32 * 1024, "characters of all SQL92 expressions in one heartbeat"
)
SQL_FILTERS = _limit(
    "sqlFiltersMax",
    5_000,
    "SQL92 subscriptions of all groups in consumerFilter.json; past it, those without a consumer are dropped, then none"
    " is added; only a Java broker that takes the store over uses them",
)
CLIENT_GROUPS = _limit("clientGroupsMax", 10_000, "producer and consumer groups of one connection")
QUEUE_OFFSETS = _limit(
    "queueOffsetsMax",
    2_000_000,
    "queue offsets of all groups, committed or pulled; no more queues are added, and commits to them are refused",
)
REQUEST_MODES = _limit(
    "requestModesMax", 10_000, "pairs of a topic and a group of which an operator set whether it pulls or pops"
)
CLIENT_ID_CHARACTERS = _limit("clientIdCharactersMax", 1_024, "characters of a client id")
LOCK_QUEUES = _limit("lockQueuesMax", 4_096, "queues in one lock request")
QUEUE_LOCKS = _limit("queueLocksMax", 500_000, "queue locks of all groups; past it, no queue is locked that was free")
ACK_RECEIPTS = _limit("batchAckReceiptsMax", 1_024, "receipts in one batch acknowledgement")
ACK_BITS_BYTES = _limit("batchAckBitsBytesMax", 16 * 1024, "bytes of bits, one a message, in one batch acknowledgement")
STATS_TOPICS = _limit("consumeStatsTopicsMax", 1_000, "topics or groups that one statistics request lists")
STATS_QUEUES = _limit("consumeStatsQueuesMax", 100_000, "queues of the topics that one statistics request lists")
LIST_ENTRIES = _limit(
    "listEntriesMax", 10_000, "topics or groups in one request that creates or changes a list of them"
)
CONFIG_BYTES = _limit("configBytesMax", 16 * 1024, "bytes of one topic or group with its attributes, as JSON")
BATCH_MESSAGES = _limit("batchMessagesMax", 32_768, "messages in one batch")
SPLIT_BATCH_MESSAGES = _limit(
    "splitBatchMessagesMax",
    4_096,
    "messages in a batch that is stored message by message: with an empty body, a client with IPv6, light queues, or"
    " enabledAppendPropCRC",
)
KEY_QUERY_ENTRIES = _limit(
    "keyQueryEntriesMax", 50_000, "index entries that one query by key looks at; past it, the result is incomplete"
)
KEY_QUERY_RECORDS = _limit(
    "keyQueryRecordsMax", 4_000, "messages that one query by key reads; past it, the result is incomplete"
)
KEY_QUERY_BYTES = _limit(
    "keyQueryBytesMax", 64 * 1024 * 1024, "bytes that one query by key reads; past it, the result is incomplete"
)
TOPICS = _limit("topicsMax", 120_000, "topics, with retry and dead letter topics of groups; no more are created")
GROUPS = _limit("groupsMax", 50_000, "consumer groups; no more are created")
QUEUES_PER_TOPIC = _limit("queuesPerTopicMax", 65_535, "queues of one topic, to read or to write")

HA_CONNECTIONS = _limit(
    "haConnectionsMax",
    32,
    "connections of slaves; past it, the oldest that never reported is closed, or the new one",
)

# The name server

NAMESERVER_BROKERS = _limit("brokersMax", 10_000, "brokers that may be registered")
NAMESERVER_BROKERS_PER_CONNECTION = _limit(
    "brokersPerConnectionMax", 64, "brokers that may register over one connection"
)
NAMESERVER_TOPICS = _limit(
    "registeredTopicsMax", 1_000_000, "topics of all brokers together; a topic counts for each broker that serves it"
)
NAMESERVER_TOPICS_PER_CONNECTION = _limit(
    "registeredTopicsPerConnectionMax", 200_000, "topics of all brokers that register over one connection"
)
NAMESERVER_INFLATED_BYTES = _limit(
    "registrationInflatedBytesMax", 32 * 1024 * 1024, "bytes of a registration after decompression"
)

NAMESERVER_KV_CONFIGS = _limit("kvConfigsMax", 20_000, "key-value configs of all namespaces")
NAMESERVER_KV_BYTES = _limit(
    "kvConfigBytesMax",
    4 * 1024 * 1024,
    "bytes of key-value configs with their names; each change rewrites all of them",
    low=64 * 1024,
)

HEARTBEAT_TIMEOUT_MS = _limit(
    "heartbeatTimeoutMillisMax",
    600_000,
    "longest silence, in milliseconds, that a broker may ask for before it is removed",
)

SHARED_LIMITS: tuple[Setting[int], ...] = (
    CONNECTIONS_PER_ADDRESS,
    FIRST_FRAME_SECONDS,
    MEMORY_BYTES,
    MEMORY_PER_ADDRESS,
    MEMORY_PER_CONNECTION,
    DESCRIPTOR_RESERVE,
    TLS_HANDSHAKES_PER_ADDRESS,
    TLS_HANDSHAKE_PERCENT,
    METRICS_CONNECTIONS,
    LONG_REQUESTS,
    LONG_REQUESTS_PER_ADDRESS,
    REQUEST_TURN_MICROS,
    PLAIN_HEADER_BYTES,
    LARGE_HEADER_BYTES,
    PLAIN_BODY_BYTES,
    CLIENT_BODY_BYTES,
    LIST_BODY_BYTES,
    RESPONSE_BODY_BYTES,
    REGISTRATION_BODY_BYTES,
)
BROKER_LIMITS: tuple[Setting[int], ...] = (
    *SHARED_LIMITS,
    HELD_REQUESTS,
    HELD_PER_CONNECTION,
    HELD_PER_QUEUE,
    SUBSCRIPTION_CHARACTERS,
    HEARTBEAT_GROUPS,
    HEARTBEAT_SUBSCRIPTIONS,
    HEARTBEAT_SQL_CHARACTERS,
    SQL_FILTERS,
    CLIENT_GROUPS,
    QUEUE_OFFSETS,
    REQUEST_MODES,
    CLIENT_ID_CHARACTERS,
    LOCK_QUEUES,
    QUEUE_LOCKS,
    ACK_RECEIPTS,
    ACK_BITS_BYTES,
    STATS_TOPICS,
    STATS_QUEUES,
    LIST_ENTRIES,
    CONFIG_BYTES,
    BATCH_MESSAGES,
    SPLIT_BATCH_MESSAGES,
    KEY_QUERY_ENTRIES,
    KEY_QUERY_RECORDS,
    KEY_QUERY_BYTES,
    TOPICS,
    GROUPS,
    QUEUES_PER_TOPIC,
    HA_CONNECTIONS,
)
NAMESERVER_LIMITS: tuple[Setting[int], ...] = (
    *SHARED_LIMITS,
    QUEUES_PER_TOPIC,
    NAMESERVER_BROKERS,
    NAMESERVER_BROKERS_PER_CONNECTION,
    NAMESERVER_TOPICS,
    NAMESERVER_TOPICS_PER_CONNECTION,
    NAMESERVER_INFLATED_BYTES,
    NAMESERVER_KV_CONFIGS,
    NAMESERVER_KV_BYTES,
    HEARTBEAT_TIMEOUT_MS,
)
_DEFAULTS = {limit.key: limit.default for limit in (*BROKER_LIMITS, *NAMESERVER_LIMITS)}


class Limits:
    """The limits of one server, and how often each was reached since its start."""

    def __init__(self, values: Mapping[str, int] | None = None) -> None:
        self._values = {**_DEFAULTS, **(values or {})}
        self.reached = dict.fromkeys(_DEFAULTS, 0)

    def __getitem__(self, limit: Setting[int]) -> int:
        return self._values[limit.key]

    def reach(self, limit: Setting[int]) -> None:
        """Count that a limit was reached."""
        self.reached[limit.key] += 1

    def refuse_over(self, limit: Setting[int], count: int) -> None:
        """Raise `RequestRefused` and count it if a request exceeds a limit."""
        if count > self._values[limit.key]:
            self.reach(limit)
            raise RequestRefused(
                _INVALID_PARAMETER, f"{count} exceeds the maximum of {self._values[limit.key]} ({limit.key})"
            )
