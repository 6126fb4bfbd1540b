"""The table of verbs: flags as Apache's tool of 5.3 has them, where each is done, and which command of ours does it.

Nothing of the families is imported here: one verb needs one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.cli.mqadmin.verb_flags import HELP, NAME_SERVER, Flag


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb. `function` is `module:name`; `is_client`: it sends, and so needs the whole client."""

    name: str
    help: str
    function: str
    orbitlog_command: str
    own_flags: tuple[Flag, ...] = ()
    is_client: bool = False

    @property
    def flags(self) -> tuple[Flag, ...]:
        return (*self.own_flags, NAME_SERVER, HELP)


def _need(short: str, long: str, text: str) -> Flag:
    return Flag(short, long, text, required=True)


def _switch(short: str, long: str, text: str) -> Flag:
    return Flag(short, long, text, takes_value=False)


_TOPIC = _need("t", "topic", "the topic")
_GROUP = _need("g", "groupName", "the consumer group")
_BROKER = Flag("b", "brokerAddr", "a broker by its address")
_CLUSTER = Flag("c", "clusterName", "all masters of a cluster")
_BROKER_OR = Flag("b", "brokerAddr", "a broker by its address", one_of="where")
_OR_CLUSTER = Flag("c", "clusterName", "all masters of a cluster", one_of="where")
_ROUTE = Flag("c", "cluster", "cluster or parent topic by which the route is found")
_KEY = _need("k", "key", "the key")
_VALUE = _need("v", "value", "the value")
_NAMESPACE = _need("s", "namespace", "the namespace")
_BEGIN = Flag("b", "beginTimestamp", "from then on: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
_END = Flag("e", "endTimestamp", "until then: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
_CHARSET = Flag("c", "charsetName", "character set of bodies")
_TAGS = Flag("s", "subExpression", "only these tags: TagA || TagB")
_BODY = Flag("d", "printBody", "also print bodies: true or false")
_FORCE = Flag("f", "force", "also move forward: true or false")
_RESET = (
    _need("g", "group", "the consumer group"),
    _TOPIC,
    _need("s", "timestamp", "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS"),
    _FORCE,
)

_TOPICS = (
    Verb(
        "topicList",
        "List topics.",
        "orbitlog.cli.mqadmin.mq_topics:topic_list",
        "topic list",
        (_switch("c", "clusterModel", "with clusters and groups"),),
    ),
    Verb(
        "topicRoute",
        "Show where a topic is.",
        "orbitlog.cli.mqadmin.mq_topics:topic_route",
        "topic show --config",
        (_TOPIC, _switch("l", "list", "as a table")),
    ),
    Verb(
        "topicStatus",
        "Show both ends of each queue.",
        "orbitlog.cli.mqadmin.mq_topics:topic_status",
        "topic show",
        (_TOPIC, _ROUTE),
    ),
    Verb(
        "topicClusterList",
        "Show the clusters of a topic.",
        "orbitlog.cli.mqadmin.mq_topics:topic_cluster_list",
        "cluster list",
        (_TOPIC,),
    ),
    Verb(
        "updateTopic",
        "Make or change a topic.",
        "orbitlog.cli.mqadmin.mq_topics:update_topic",
        "topic create, topic update",
        (
            *(_BROKER_OR, _OR_CLUSTER, _TOPIC),
            Flag("a", "attributes", "attributes: +a=b,-c"),
            Flag("r", "readQueueNums", "queues to read from"),
            Flag("w", "writeQueueNums", "queues to write to"),
            Flag("p", "perm", "2 write, 4 read, 6 both"),
            Flag("o", "order", "an ordered topic: true or false"),
            Flag("u", "unit", "a unit topic: true or false"),
            Flag("s", "hasUnitSub", "has unit subscriptions: true or false"),
        ),
    ),
    Verb(
        "deleteTopic",
        "Delete a topic.",
        "orbitlog.cli.mqadmin.mq_topics:delete_topic",
        "topic delete",
        (_TOPIC, _need("c", "clusterName", "the cluster")),
    ),
    Verb(
        "updateTopicPerm",
        "Change the permission of a topic.",
        "orbitlog.cli.mqadmin.mq_topics:update_topic_perm",
        "topic update --permission",
        (_BROKER, _CLUSTER, _TOPIC, _need("p", "perm", "2 write, 4 read, 6 both")),
    ),
    Verb(
        "updateOrderConf",
        "Get, put or delete the order of an ordered topic's queues.",
        "orbitlog.cli.mqadmin.mq_topics:update_order_conf",
        "topic create --ordered",
        (_TOPIC, Flag("v", "orderConf", "broker-a:8;broker-b:8"), _need("m", "method", "put, get or delete")),
    ),
    Verb(
        "allocateMQ",
        "Show how members would share queues.",
        "orbitlog.cli.mqadmin.mq_topics:allocate_mq",
        "group show --members",
        (_TOPIC, _need("i", "ipList", "members, with commas between")),
    ),
    Verb(
        "statsAll",
        "Show how much goes in and out of topics.",
        "orbitlog.cli.mqadmin.mq_topics:stats_all",
        "cluster health",
        (_switch("a", "activeTopic", "only those in use"), Flag("t", "topic", "only this one")),
    ),
)
_GROUPS = (
    Verb(
        "updateSubGroup",
        "Make or change a consumer group.",
        "orbitlog.cli.mqadmin.mq_groups:update_sub_group",
        "group create, group update",
        (
            *(_BROKER, _CLUSTER, _GROUP),
            Flag("s", "consumeEnable", "may consume: true or false"),
            Flag("m", "consumeFromMinEnable", "may begin at the smallest offset: true or false"),
            Flag("d", "consumeBroadcastEnable", "may be broadcast to: true or false"),
            Flag("o", "consumeMessageOrderly", "consumes in order: true or false"),
            Flag("q", "retryQueueNums", "queues for retries"),
            Flag("r", "retryMaxTimes", "tries"),
            Flag("p", "groupRetryPolicy", "policy of retries, as JSON"),
            Flag("i", "brokerId", "reads from the broker with this id"),
            Flag("w", "whichBrokerWhenConsumeSlowly", "reads from this one when it is slow"),
            Flag("a", "notifyConsumerIdsChanged", "members are told of each other: true or false"),
            Flag("", "attributes", "attributes: +a=b,-c"),
        ),
    ),
    Verb(
        "deleteSubGroup",
        "Delete a consumer group.",
        "orbitlog.cli.mqadmin.mq_groups:delete_sub_group",
        "group delete",
        (_BROKER, _CLUSTER, _GROUP, Flag("r", "removeOffset", "also its offsets: true or false")),
    ),
    Verb(
        "getConsumerConfig",
        "Show what a group may do.",
        "orbitlog.cli.mqadmin.mq_groups:get_consumer_config",
        "group show --config",
        (_GROUP,),
    ),
    Verb(
        "setConsumeMode",
        "Have a group pull or pop.",
        "orbitlog.cli.mqadmin.mq_groups:set_consume_mode",
        "group update",
        (
            _BROKER,
            _CLUSTER,
            _need("t", "topicName", "the topic"),
            _GROUP,
            _need("m", "mode", "PULL or POP"),
            Flag("q", "popShareQueueNum", "queues shared"),
        ),
    ),
    Verb(
        "consumerProgress",
        "Show how far groups are.",
        "orbitlog.cli.mqadmin.mq_groups:consumer_progress",
        "offsets show",
        (
            Flag("g", "groupName", "one group"),
            Flag("t", "topicName", "one topic"),
            Flag("s", "showClientIP", "with members: true or false"),
            _ROUTE,
        ),
    ),
    Verb(
        "consumerStatus",
        "Show what the members of a group do.",
        "orbitlog.cli.mqadmin.mq_groups:consumer_status",
        "group show --members",
        (
            _need("g", "consumerGroup", "the consumer group"),
            Flag("i", "clientId", "one member"),
            _BROKER,
            _switch("s", "jstack", "with its threads"),
        ),
    ),
    Verb(
        "consumerConnection",
        "Show the members of a group.",
        "orbitlog.cli.mqadmin.mq_groups:consumer_connection",
        "group show --members",
        (_need("g", "consumerGroup", "the consumer group"), _BROKER),
    ),
    Verb(
        "producerConnection",
        "Show the producers of a group.",
        "orbitlog.cli.mqadmin.mq_groups:producer_connection",
        "cluster list",
        (_need("g", "producerGroup", "the producer group"), _TOPIC),
    ),
    Verb(
        "producer",
        "Show all producers of a broker.",
        "orbitlog.cli.mqadmin.mq_groups:producer",
        "cluster list",
        (_need("b", "broker", "a broker by its address"),),
    ),
)
_OFFSETS = (
    Verb(
        "resetOffsetByTime",
        "Move a group to a time.",
        "orbitlog.cli.mqadmin.mq_offsets:reset_offset_by_time",
        "offsets reset --to TIME",
        (
            *_RESET,
            Flag("b", "broker", "a broker by its address"),
            Flag("q", "queue", "one queue of it"),
            Flag("o", "offset", "to this offset of the queue"),
            _ROUTE,
        ),
    ),
    Verb(
        "resetOffsetByTimeOld",
        "Commit a time for a group without members.",
        "orbitlog.cli.mqadmin.mq_offsets:reset_offset_by_time_old",
        "offsets reset --to TIME",
        (*_RESET, _ROUTE),
    ),
    Verb(
        "skipAccumulatedMessage",
        "Move a group to the end.",
        "orbitlog.cli.mqadmin.mq_offsets:skip_accumulated_message",
        "offsets reset --to latest",
        (_RESET[0], _TOPIC, _FORCE, _ROUTE),
    ),
    Verb(
        "cloneGroupOffset",
        "Let one group be where another is.",
        "orbitlog.cli.mqadmin.mq_offsets:clone_group_offset",
        "offsets show, offsets reset",
        (
            _need("s", "srcGroup", "from this group"),
            _need("d", "destGroup", "to this group"),
            _TOPIC,
            Flag("o", "offline", "nobody is there: true or false"),
        ),
    ),
)
_MESSAGES = (
    Verb(
        "queryMsgById",
        "Show a message by its id.",
        "orbitlog.cli.mqadmin.mq_messages:query_msg_by_id",
        "message get ID",
        (
            *(_TOPIC, _need("i", "msgId", "ids, with commas between"), Flag("g", "consumerGroup", "a group")),
            *(
                Flag("d", "clientId", "a member"),
                Flag("s", "sendMessage", "send it again"),
                Flag("u", "unitName", "unit"),
            ),
            *(Flag("f", "bodyFormat", "also the body, in this character set"), _ROUTE),
        ),
    ),
    Verb(
        "queryMsgByKey",
        "Find messages by a key.",
        "orbitlog.cli.mqadmin.mq_messages:query_msg_by_key",
        "message find TOPIC KEY",
        (_TOPIC, _need("k", "msgKey", "the key"), _BEGIN, _END, Flag("m", "maxNum", "at most so many"), _ROUTE),
    ),
    Verb(
        "queryMsgByUniqueKey",
        "Show a message by its sender's id.",
        "orbitlog.cli.mqadmin.mq_messages:query_msg_by_unique_key",
        "message get ID --topic TOPIC",
        (
            *(_need("i", "msgId", "the id"), Flag("g", "consumerGroup", "a group"), Flag("d", "clientId", "a member")),
            *(_TOPIC, _switch("a", "showAll", "all with this id, at most 32"), _ROUTE),
        ),
    ),
    Verb(
        "queryMsgByOffset",
        "Show a message by its place.",
        "orbitlog.cli.mqadmin.mq_messages:query_msg_by_offset",
        "tail TOPIC --from OFFSET --queue N --limit 1",
        (
            *(_TOPIC, _need("b", "brokerName", "the broker"), _need("i", "queueId", "the queue")),
            *(_need("o", "offset", "the offset"), Flag("f", "bodyFormat", "also the body, in this character set")),
        ),
    ),
    Verb(
        "queryMsgTraceById",
        "Show the traces of a message.",
        "orbitlog.cli.mqadmin.mq_messages:query_msg_trace_by_id",
        "message trace ID",
        (
            _need("i", "msgId", "the id"),
            Flag("t", "traceTopic", "where traces are"),
            _BEGIN,
            _END,
            Flag("c", "maxNum", "at most so many"),
        ),
    ),
    Verb(
        "printMsg",
        "Print a topic.",
        "orbitlog.cli.mqadmin.mq_printing:print_msg",
        "tail TOPIC --from earliest --no-follow",
        (_TOPIC, _CHARSET, _TAGS, _BEGIN, _END, _BODY, Flag("l", "lmqParentTopic", "parent topic")),
    ),
    Verb(
        "printMsgByQueue",
        "Print a queue.",
        "orbitlog.cli.mqadmin.mq_printing:print_msg_by_queue",
        "tail TOPIC --from earliest --queue N --no-follow",
        (
            *(_TOPIC, _need("a", "brokerName", "the broker"), _need("i", "queueId", "the queue"), _CHARSET, _TAGS),
            *(_BEGIN, _END, Flag("p", "print msg", "print messages: true or false"), _BODY),
            Flag("f", "calculate", "count by tags: true or false"),
        ),
    ),
    Verb(
        "consumeMessage",
        "Read some messages.",
        "orbitlog.cli.mqadmin.mq_printing:consume_message",
        "tail TOPIC --from OFFSET --limit N",
        (
            *(_TOPIC, Flag("b", "brokerName", "the broker"), Flag("i", "queueId", "the queue")),
            *(Flag("o", "offset", "from this offset"), Flag("g", "consumerGroup", "under this group's name")),
            *(Flag("s", "beginTimestamp", _BEGIN.help), _END, Flag("c", "MessageNumber", "so many")),
        ),
    ),
    Verb(
        "queryCq",
        "Show units of a queue.",
        "orbitlog.cli.mqadmin.mq_messages:query_cq",
        "dump consumequeue FILE",
        (
            *(_TOPIC, _need("q", "queue", "the queue"), _need("i", "index", "the first unit")),
            *(Flag("c", "count", "so many"), Flag("b", "broker", "a broker by its address")),
            Flag("g", "consumer", "as this group would see them"),
        ),
    ),
)
_SENDING = (
    Verb(
        "sendMessage",
        "Send a message.",
        "orbitlog.cli.mqadmin.mq_sending:send_message",
        "send TOPIC BODY",
        (
            *(_TOPIC, _need("p", "body", "the body"), Flag("k", "key", "keys"), Flag("c", "tags", "a tag")),
            *(Flag("b", "broker", "the broker"), Flag("i", "qid", "the queue")),
            Flag("m", "msgTraceEnable", "with a trace: true or false"),
        ),
        is_client=True,
    ),
    Verb(
        "checkMsgSendRT",
        "Measure how long sends take.",
        "orbitlog.cli.mqadmin.mq_sending:check_msg_send_rt",
        "bench send --topic TOPIC",
        (_TOPIC, Flag("a", "amount", "so many"), Flag("s", "size", "bytes")),
        is_client=True,
    ),
    Verb(
        "clusterRT",
        "Measure how long sends take at each broker, again and again.",
        "orbitlog.cli.mqadmin.mq_sending:cluster_rt",
        "bench send",
        (
            *(Flag("a", "amount", "so many"), Flag("s", "size", "bytes"), Flag("c", "cluster", "one cluster")),
            *(Flag("p", "print log", "as lines of a log"), Flag("m", "machine room", "its name")),
            Flag("i", "interval", "seconds between rounds"),
        ),
        is_client=True,
    ),
    Verb(
        "sendMsgStatus",
        "Send to a broker's own topic.",
        "orbitlog.cli.mqadmin.mq_sending:send_msg_status",
        "bench send",
        (_need("b", "brokerName", "the broker"), Flag("s", "messageSize", "bytes"), Flag("c", "count", "so many")),
        is_client=True,
    ),
)
_BROKERS = (
    Verb(
        "clusterList",
        "List brokers.",
        "orbitlog.cli.mqadmin.mq_brokers:cluster_list",
        "cluster list, cluster health",
        (
            _switch("m", "moreStats", "with counts"),
            Flag("i", "interval", "again after so many seconds"),
            Flag("c", "clusterName", "one cluster"),
        ),
    ),
    Verb(
        "brokerStatus",
        "Show what a broker measures.",
        "orbitlog.cli.mqadmin.mq_brokers:broker_status",
        "cluster health",
        (_BROKER_OR, _OR_CLUSTER),
    ),
    Verb(
        "brokerConsumeStats",
        "Show how far all groups are at a broker.",
        "orbitlog.cli.mqadmin.mq_brokers:broker_consume_stats",
        "offsets show, cluster health",
        (
            _need("b", "brokerAddr", "a broker by its address"),
            Flag("t", "timeoutMillis", "wait so long"),
            Flag("l", "level", "only those so far behind"),
            Flag("o", "order", "ordered topics: true or false"),
        ),
    ),
    Verb(
        "getBrokerConfig",
        "Show the settings of brokers.",
        "orbitlog.cli.mqadmin.mq_brokers:get_broker_config",
        "config show",
        (_BROKER, _CLUSTER),
    ),
    Verb(
        "updateBrokerConfig",
        "Change a setting of brokers.",
        "orbitlog.cli.mqadmin.mq_brokers:update_broker_config",
        "config set",
        (_BROKER, _CLUSTER, Flag("a", "updateAllBroker", "also copies"), _KEY, _VALUE),
    ),
    Verb(
        "getNamesrvConfig",
        "Show the settings of name servers.",
        "orbitlog.cli.mqadmin.mq_brokers:get_namesrv_config",
        "config show",
    ),
    Verb(
        "updateNamesrvConfig",
        "Change a setting of name servers.",
        "orbitlog.cli.mqadmin.mq_brokers:update_namesrv_config",
        "config set",
        (_KEY, _VALUE),
    ),
    Verb(
        "wipeWritePerm",
        "Have nobody write to a broker.",
        "orbitlog.cli.mqadmin.mq_brokers:wipe_write_perm",
        "config set brokerPermission=4",
        (_need("b", "brokerName", "the broker"),),
    ),
    Verb(
        "addWritePerm",
        "Have a broker written to again.",
        "orbitlog.cli.mqadmin.mq_brokers:add_write_perm",
        "config set brokerPermission=6",
        (_need("b", "brokerName", "the broker"),),
    ),
    Verb(
        "updateKvConfig",
        "Set a value of the name servers.",
        "orbitlog.cli.mqadmin.mq_brokers:update_kv_config",
        "-",
        (_NAMESPACE, _KEY, _VALUE),
    ),
    Verb(
        "deleteKvConfig",
        "Delete a value of the name servers.",
        "orbitlog.cli.mqadmin.mq_brokers:delete_kv_config",
        "-",
        (_NAMESPACE, _KEY),
    ),
    Verb(
        "cleanExpiredCQ",
        "Remove queues whose messages have expired.",
        "orbitlog.cli.mqadmin.mq_brokers:clean_expired_cq",
        "-",
        (_BROKER, Flag("c", "cluster", "all masters of a cluster")),
    ),
    Verb(
        "cleanUnusedTopic",
        "Remove queues of topics that are gone.",
        "orbitlog.cli.mqadmin.mq_brokers:clean_unused_topic",
        "-",
        (_BROKER, Flag("c", "cluster", "all masters of a cluster")),
    ),
    Verb(
        "deleteExpiredCommitLog",
        "Delete expired files of the log now.",
        "orbitlog.cli.mqadmin.mq_brokers:delete_expired_commit_log",
        "-",
        (_BROKER, Flag("c", "cluster", "all masters of a cluster")),
    ),
)

VERBS = {verb.name: verb for verb in (*_TOPICS, *_GROUPS, *_OFFSETS, *_MESSAGES, *_SENDING, *_BROKERS)}


def find_verb(name: str) -> Verb | None:
    """Whatever its capitals, as the tool has it."""
    return next((verb for known, verb in VERBS.items() if known.lower() == name.lower()), None)
