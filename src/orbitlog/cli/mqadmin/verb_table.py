"""Verb table: the flags of Apache's tool 5.3, the function of each verb, and the equivalent Orbitlog command.

Imports no verb module: running one verb imports only its own.
"""

from __future__ import annotations

from orbitlog.cli.mqadmin.access_verbs import ACCESS_VERBS
from orbitlog.cli.mqadmin.replica_verbs import REPLICA_VERBS
from orbitlog.cli.mqadmin.verb_flags import Flag
from orbitlog.cli.mqadmin.verb_record import BROKER_OR, OR_CLUSTER, Verb
from orbitlog.cli.mqadmin.verb_record import need as _need
from orbitlog.cli.mqadmin.verb_record import switch as _switch

_TOPIC = _need("t", "topic", "the topic")
_GROUP = _need("g", "groupName", "the consumer group")
_BROKER = Flag("b", "brokerAddr", "a broker by its address")
_CLUSTER = Flag("c", "clusterName", "all masters of a cluster")
_ROUTE = Flag("c", "cluster", "cluster or parent topic for the route lookup")
_KEY = _need("k", "key", "the key")
_VALUE = _need("v", "value", "the value")
_NAMESPACE = _need("s", "namespace", "the namespace")
_BEGIN = Flag("b", "beginTimestamp", "start time: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
_END = Flag("e", "endTimestamp", "end time: milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
_CHARSET = Flag("c", "charsetName", "character set of bodies")
_TAGS = Flag("s", "subExpression", "only these tags: TagA || TagB")
_BODY = Flag("d", "printBody", "also print bodies: true or false")
_FORCE = Flag("f", "force", "also reset forward: true or false")
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
        "Show the route of a topic.",
        "orbitlog.cli.mqadmin.mq_topics:topic_route",
        "topic show --config",
        (_TOPIC, _switch("l", "list", "as a table")),
    ),
    Verb(
        "topicStatus",
        "Show the minimum and maximum offset of each queue.",
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
        "Create or change a topic.",
        "orbitlog.cli.mqadmin.mq_topics:update_topic",
        "topic create, topic update",
        (
            *(BROKER_OR, OR_CLUSTER, _TOPIC),
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
        "Get, put or delete the queue order of an ordered topic.",
        "orbitlog.cli.mqadmin.mq_topics:update_order_conf",
        "topic create --ordered",
        (_TOPIC, Flag("v", "orderConf", "broker-a:8;broker-b:8"), _need("m", "method", "put, get or delete")),
    ),
    Verb(
        "allocateMQ",
        "Show how members would divide the queues.",
        "orbitlog.cli.mqadmin.mq_topics:allocate_mq",
        "group show --members",
        (_TOPIC, _need("i", "ipList", "members, separated by commas")),
    ),
    Verb(
        "statsAll",
        "Show send and consume rates of topics.",
        "orbitlog.cli.mqadmin.mq_topics:stats_all",
        "cluster health",
        (_switch("a", "activeTopic", "only active topics"), Flag("t", "topic", "only this topic")),
    ),
)
_GROUPS = (
    Verb(
        "updateSubGroup",
        "Create or change a consumer group.",
        "orbitlog.cli.mqadmin.mq_groups:update_sub_group",
        "group create, group update",
        (
            *(_BROKER, _CLUSTER, _GROUP),
            Flag("s", "consumeEnable", "may consume: true or false"),
            Flag("m", "consumeFromMinEnable", "may start at the minimum offset: true or false"),
            Flag("d", "consumeBroadcastEnable", "may consume by broadcast: true or false"),
            Flag("o", "consumeMessageOrderly", "consumes in order: true or false"),
            Flag("q", "retryQueueNums", "number of retry queues"),
            Flag("r", "retryMaxTimes", "maximum retries"),
            Flag("p", "groupRetryPolicy", "retry policy as JSON"),
            Flag("i", "brokerId", "read from the broker with this id"),
            Flag("w", "whichBrokerWhenConsumeSlowly", "read from the broker with this id when consumption is slow"),
            Flag("a", "notifyConsumerIdsChanged", "notify members of changes: true or false"),
            Flag("", "attributes", "attributes: +a=b,-c"),
        ),
    ),
    Verb(
        "deleteSubGroup",
        "Delete a consumer group.",
        "orbitlog.cli.mqadmin.mq_groups:delete_sub_group",
        "group delete",
        (_BROKER, _CLUSTER, _GROUP, Flag("r", "removeOffset", "also delete its offsets: true or false")),
    ),
    Verb(
        "getConsumerConfig",
        "Show the configuration of a group.",
        "orbitlog.cli.mqadmin.mq_groups:get_consumer_config",
        "group show --config",
        (_GROUP,),
    ),
    Verb(
        "setConsumeMode",
        "Set the consume mode of a group: pull or pop.",
        "orbitlog.cli.mqadmin.mq_groups:set_consume_mode",
        "group update",
        (
            _BROKER,
            _CLUSTER,
            _need("t", "topicName", "the topic"),
            _GROUP,
            _need("m", "mode", "PULL or POP"),
            Flag("q", "popShareQueueNum", "number of shared queues"),
        ),
    ),
    Verb(
        "consumerProgress",
        "Show the progress of groups.",
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
        "Show the status of the members of a group.",
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
        "Reset the offsets of a group to a time.",
        "orbitlog.cli.mqadmin.mq_offsets:reset_offset_by_time",
        "offsets reset --to TIME",
        (
            *_RESET,
            Flag("b", "broker", "a broker by its address"),
            Flag("q", "queue", "one queue of the broker"),
            Flag("o", "offset", "new offset of the queue"),
            _ROUTE,
        ),
    ),
    Verb(
        "resetOffsetByTimeOld",
        "Commit the offsets at a time for a group without members.",
        "orbitlog.cli.mqadmin.mq_offsets:reset_offset_by_time_old",
        "offsets reset --to TIME",
        (*_RESET, _ROUTE),
    ),
    Verb(
        "skipAccumulatedMessage",
        "Reset the offsets of a group to the end.",
        "orbitlog.cli.mqadmin.mq_offsets:skip_accumulated_message",
        "offsets reset --to latest",
        (_RESET[0], _TOPIC, _FORCE, _ROUTE),
    ),
    Verb(
        "cloneGroupOffset",
        "Copy the offsets of one group to another.",
        "orbitlog.cli.mqadmin.mq_offsets:clone_group_offset",
        "offsets show, offsets reset",
        (
            _need("s", "srcGroup", "source group"),
            _need("d", "destGroup", "target group"),
            _TOPIC,
            Flag("o", "offline", "the group is offline: true or false"),
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
            *(_TOPIC, _need("i", "msgId", "ids, separated by commas"), Flag("g", "consumerGroup", "a group")),
            *(
                Flag("d", "clientId", "a member"),
                Flag("s", "sendMessage", "resend it"),
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
        (
            _TOPIC,
            _need("k", "msgKey", "the key"),
            _BEGIN,
            _END,
            Flag("m", "maxNum", "maximum number of messages"),
            _ROUTE,
        ),
    ),
    Verb(
        "queryMsgByUniqueKey",
        "Show a message by its producer's unique id.",
        "orbitlog.cli.mqadmin.mq_messages:query_msg_by_unique_key",
        "message get ID --topic TOPIC",
        (
            *(_need("i", "msgId", "the id"), Flag("g", "consumerGroup", "a group"), Flag("d", "clientId", "a member")),
            *(_TOPIC, _switch("a", "showAll", "all with this id, at most 32"), _ROUTE),
        ),
    ),
    Verb(
        "queryMsgByOffset",
        "Show a message by its queue offset.",
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
            Flag("t", "traceTopic", "topic of the traces"),
            _BEGIN,
            _END,
            Flag("c", "maxNum", "maximum number of records"),
        ),
    ),
    Verb(
        "printMsg",
        "Print the messages of a topic.",
        "orbitlog.cli.mqadmin.mq_printing:print_msg",
        "tail TOPIC --from earliest --no-follow",
        (_TOPIC, _CHARSET, _TAGS, _BEGIN, _END, _BODY, Flag("l", "lmqParentTopic", "parent topic")),
    ),
    Verb(
        "printMsgByQueue",
        "Print the messages of a queue.",
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
            *(Flag("o", "offset", "first offset"), Flag("g", "consumerGroup", "consumer group")),
            *(Flag("s", "beginTimestamp", _BEGIN.help), _END, Flag("c", "MessageNumber", "number of messages")),
        ),
    ),
    Verb(
        "queryCq",
        "Show units of a queue.",
        "orbitlog.cli.mqadmin.mq_messages:query_cq",
        "dump consumequeue FILE",
        (
            *(_TOPIC, _need("q", "queue", "the queue"), _need("i", "index", "the first unit")),
            *(Flag("c", "count", "number of units"), Flag("b", "broker", "a broker by its address")),
            Flag("g", "consumer", "filter for this group"),
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
        "Measure the latency of sends.",
        "orbitlog.cli.mqadmin.mq_sending:check_msg_send_rt",
        "bench send --topic TOPIC",
        (_TOPIC, Flag("a", "amount", "number of messages"), Flag("s", "size", "body size in bytes")),
        is_client=True,
    ),
    Verb(
        "clusterRT",
        "Measure the latency of sends at each broker repeatedly.",
        "orbitlog.cli.mqadmin.mq_sending:cluster_rt",
        "bench send",
        (
            *(Flag("a", "amount", "messages per round"), Flag("s", "size", "body size in bytes")),
            Flag("c", "cluster", "one cluster"),
            *(Flag("p", "print log", "print log lines"), Flag("m", "machine room", "name of the machine room")),
            Flag("i", "interval", "seconds between rounds"),
        ),
        is_client=True,
    ),
    Verb(
        "sendMsgStatus",
        "Send to the topic of a broker.",
        "orbitlog.cli.mqadmin.mq_sending:send_msg_status",
        "bench send",
        (
            _need("b", "brokerName", "the broker"),
            Flag("s", "messageSize", "body size in bytes"),
            Flag("c", "count", "number of messages"),
        ),
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
            _switch("m", "moreStats", "with message counts"),
            Flag("i", "interval", "repeat after this many seconds"),
            Flag("c", "clusterName", "one cluster"),
        ),
    ),
    Verb(
        "brokerStatus",
        "Show the runtime statistics of a broker.",
        "orbitlog.cli.mqadmin.mq_brokers:broker_status",
        "cluster health",
        (BROKER_OR, OR_CLUSTER),
    ),
    Verb(
        "brokerConsumeStats",
        "Show the progress of all groups at a broker.",
        "orbitlog.cli.mqadmin.mq_brokers:broker_consume_stats",
        "offsets show, cluster health",
        (
            _need("b", "brokerAddr", "a broker by its address"),
            Flag("t", "timeoutMillis", "timeout in milliseconds"),
            Flag("l", "level", "minimum lag"),
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
        (_BROKER, _CLUSTER, Flag("a", "updateAllBroker", "also replicas"), _KEY, _VALUE),
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
        "Remove the write permission of a broker.",
        "orbitlog.cli.mqadmin.mq_brokers:wipe_write_perm",
        "config set brokerPermission=4",
        (_need("b", "brokerName", "the broker"),),
    ),
    Verb(
        "addWritePerm",
        "Restore the write permission of a broker.",
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
        "Delete queues whose messages have expired.",
        "orbitlog.cli.mqadmin.mq_brokers:clean_expired_cq",
        "-",
        (_BROKER, Flag("c", "cluster", "all masters of a cluster")),
    ),
    Verb(
        "cleanUnusedTopic",
        "Delete queues of deleted topics.",
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

_ALL = (*_TOPICS, *_GROUPS, *_OFFSETS, *_MESSAGES, *_SENDING, *_BROKERS, *ACCESS_VERBS, *REPLICA_VERBS)
VERBS = {verb.name: verb for verb in _ALL}


def find_verb(name: str) -> Verb | None:
    """Return a verb by name, without case as in Apache's tool."""
    return next((verb for verb_name, verb in VERBS.items() if verb_name.lower() == name.lower()), None)
