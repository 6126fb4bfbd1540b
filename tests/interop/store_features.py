"""Ways to use an Apache broker, each for a store of its own: what `test_sound_stores` makes stores with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tests.interop.harness.broker_bench import BenchClient
from tests.interop.harness.drivers import Refused

BOTH = ("4.9.7", "5.5.0")
ONLY_5X = ("5.5.0",)
# Small files, so that few messages fill several.
SMALL = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 100,
    "mappedFileSizeTimerLog": 52 * 100,
    "mappedFileSizeConsumeQueueExt": 1000,
}
Use = Callable[[BenchClient], None]


@dataclass(frozen=True)
class Feature:
    """A way to use a broker: its settings, what clients do, and the versions that know it."""

    name: str
    use: Use
    settings: Mapping[str, object] = field(default_factory=dict)
    versions: tuple[str, ...] = BOTH


def nothing(client: BenchClient) -> None:
    """Stop right after the start."""


def topics_without_messages(client: BenchClient) -> None:
    client.topic("Empty", queues=3)
    client.topic("EmptyToo", queues=1)


def plain(client: BenchClient) -> None:
    client.send(client.producer(), client.topic("Plain", queues=2), count=30, bytes=200)


def several_files(client: BenchClient) -> None:
    """Enough for several segments, queue files and index files."""
    client.send(client.producer(), client.topic("Many", queues=2), count=400, bytesMax=900, keys="k{}", tags="A,B")


def keys_and_tags(client: BenchClient) -> None:
    client.send(client.producer(), client.topic("Keyed"), count=20, keys="a b{}", tags="A,B,C", body="keyed")


def delays(client: BenchClient) -> None:
    topic, producer = client.topic("Delayed"), client.producer()
    for level in (1, 2, 18):
        client.send(producer, topic, count=3, body="later", delayLevel=level)
    time.sleep(3)


def timers(client: BenchClient) -> None:
    topic, producer = client.topic("Timed"), client.producer()
    client.send(producer, topic, count=5, body="soon", **{"system.TIMER_DELAY_SEC": 1})
    client.send(producer, topic, count=5, body="tomorrow", **{"system.TIMER_DELAY_SEC": 86400})
    time.sleep(4)


def many_timers(client: BenchClient) -> None:
    topic, producer = client.topic("Timed"), client.producer()
    client.send(producer, topic, count=250, body="soon", **{"system.TIMER_DELAY_SEC": 2})
    time.sleep(6)


def transactions(first: str) -> Use:
    def use(client: BenchClient) -> None:
        topic, producer = client.topic("Tx", queues=2), client.producer("transactionalProducer")
        client.send(producer, topic, verb="sendInTransaction", count=5, body="half", first=first, keys="t{}")
        time.sleep(1)  # ends are sent one way

    return use


def transactions_given_up(client: BenchClient) -> None:
    """Pending ones are asked about until the broker gives up and moves them to TRANS_CHECK_MAX_TIME_TOPIC."""
    transactions("UNKNOW")(client)
    time.sleep(12)


def popped(client: BenchClient) -> None:
    """Some acknowledged, some out."""
    topic, group, producer = client.topic("Popped", queues=1), client.group("pops"), client.producer()
    client.send(producer, topic, count=8, body="one")
    at = {"producer": producer, "topic": topic, "group": group, "broker": client.system.broker_name}
    at["brokerAddress"] = client.system.broker_address
    found = client.call("pop", max=6, invisibleMs=600_000, **at)["messages"]
    for one in found[:2]:
        client.call("ackPopped", queue=one["queueId"], offset=one["queueOffset"], receipt=one["receipt"], **at)
    client.call("pop", max=1, invisibleMs=1_000, **at)
    time.sleep(4)


def retries_and_dead_letters(client: BenchClient) -> None:
    topic = client.topic("Refused", queues=1)
    client.send(client.producer(), topic, count=4, body="no", keys="r{}")
    push = client.push(topic, client.group("refusing"), refuse=9, maxReconsumeTimes=1, retryLevel=1)
    push.wait(lambda: len(push.messages) >= 8, 60, "each refused twice")
    time.sleep(1)
    push.close()


def batches(client: BenchClient) -> None:
    client.send(client.producer(), client.topic("Batched"), verb="batch", count=9, body="member", keys="m{}")


def ordered(client: BenchClient) -> None:
    topic = client.topic("Ordered", queues=3, order=True)
    client.send(client.producer(), topic, count=12, body="step", shards=3)
    push = client.push(topic, client.group("inorder"), orderly=True)
    push.wait_for(12)
    push.close()


def _delete(client: BenchClient, topic: str) -> None:
    printed = client.mqadmin(f"deleteTopic -c {client.system.cluster_name} -t {topic}")
    assert "success" in printed, printed


def deleted_topic(client: BenchClient) -> None:
    gone, kept, producer = client.topic("Gone"), client.topic("Kept"), client.producer()
    client.send(producer, gone, count=10, body="gone", keys="g{}")
    client.send(producer, kept, count=10, body="kept")
    _delete(client, gone)
    client.send(producer, kept, count=10, body="kept")


def only_topic_deleted(client: BenchClient) -> None:
    topic = client.topic("Gone")
    client.send(client.producer(), topic, count=10, body="gone", keys="g{}")
    _delete(client, topic)


def consumed_topic_deleted(client: BenchClient) -> None:
    """The group's offsets and its retry topic stay."""
    topic = client.topic("Gone", queues=1)
    client.send(client.producer(), topic, count=10, body="gone")
    push = client.push(topic, client.group("ofgone"))
    push.wait_for(10)
    push.close()
    _delete(client, topic)


def topic_deleted_and_created_again(lives: tuple[int, ...], *, keys: bool = True) -> Use:
    def use(client: BenchClient) -> None:
        producer = client.producer()
        words = {"keys": "k{}"} if keys else {}
        for number, count in enumerate(lives):
            topic = client.topic("Twice", queues=1)
            if count:
                client.send(producer, topic, count=count, body=f"life {number}", **words)
            if number < len(lives) - 1:
                _delete(client, topic)

    return use


def consumed_topic_created_again(client: BenchClient) -> None:
    topic, producer = client.topic("Twice", queues=1), client.producer()
    client.send(producer, topic, count=10, body="old")
    push = client.push(topic, client.group("twice"))
    push.wait_for(10)
    push.close()
    _wait_for_offsets(client, topic)
    _delete(client, topic)
    client.topic("Twice", queues=1)
    client.send(producer, topic, count=3, body="new")


def many_queues(client: BenchClient) -> None:
    topic, producer = client.topic("Wide", queues=64), client.producer()
    client.send(producer, topic, count=100, body="wide")


def fewer_queues_later(client: BenchClient) -> None:
    """Messages of six queues exist, and routes hide them from clients."""
    topic = client.topic("Narrowed", queues=8)
    client.send(client.producer(), topic, count=16, body="wide")
    client.topic("Narrowed", queues=2)


def fewer_queues_after_consumption(client: BenchClient) -> None:
    topic = client.topic("Narrowed", queues=4)
    client.send(client.producer(), topic, count=16, body="wide")
    push = client.push(topic, client.group("narrowed"))
    push.wait_for(16)
    push.close()
    _wait_for_offsets(client, topic)
    client.topic("Narrowed", queues=2)


def pending_and_a_topic_deleted(client: BenchClient) -> None:
    transactions("UNKNOW")(client)
    deleted_topic(client)


def compressed(client: BenchClient) -> None:
    client.send(client.producer(), client.topic("Large"), count=6, bytes=9000, compressible=True, keys="l{}")


def sql_filter(client: BenchClient) -> None:
    topic = client.topic("Sql", queues=1)
    push = client.push(topic, client.group("sql"), sql="a between 2 and 7")
    client.send(client.producer(), topic, count=20, body="sql", **{"property.a": "{}"})
    push.wait_for(6)
    push.close()


def traces(client: BenchClient) -> None:
    topic = client.topic("Traced", queues=1)
    push = client.push(topic, client.group("traced"), trace=True)
    client.send(client.producer(), topic, count=5, body="traced", keys="t{}")
    push.wait_for(5)
    time.sleep(6)
    push.close()


def light_queues(client: BenchClient) -> None:
    topic, producer = client.topic("Light", queues=1), client.producer()
    client.send(producer, topic, count=6, body="light", **{"system.INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    client.send(producer, topic, count=6, body="plain")
    push = client.push(topic, client.group("light"))
    push.wait_for(12)
    push.close()


def _attributed(client: BenchClient, topic: str, attributes: str) -> str:
    name = f"{topic}_{client.mark}"
    printed = client.mqadmin(f"updateTopic -b {client.system.broker_address} -t {name} -r 1 -w 1 -a {attributes}")
    assert "success" in printed, printed
    with suppress(Refused):  # the route is known by then; the client cannot pull from an empty batch queue
        client.wait_for_route(name)
    return name


def batch_queue_topic(client: BenchClient) -> None:
    topic, producer = _attributed(client, "BatchCq", "+queue.type=BatchCQ"), client.producer()
    client.send(producer, topic, count=4, body="one", keys="k{}")
    with suppress(Refused):  # the broker takes it as one record; our driver expects an id for each member
        client.send(producer, topic, verb="batch", count=5, body="member")
    client.send(producer, topic, count=4, body="one", keys="k{}")
    client.send(producer, client.topic("Plain"), count=4, body="one")


def empty_batch_queue_topic(client: BenchClient) -> None:
    _attributed(client, "BatchCq", "+queue.type=BatchCQ")
    plain(client)


def compaction_topic(client: BenchClient) -> None:
    topic = _attributed(client, "Compacted", "+cleanup.policy=COMPACTION")
    client.send(client.producer(), topic, count=30, body="state", keys="k")
    time.sleep(3)


def groups_without_messages(client: BenchClient) -> None:
    """A consumer of a topic to which nothing was sent."""
    push = client.push(client.topic("Waiting"), client.group("waiting"))
    time.sleep(2)
    push.close()


def _wait_for_offsets(client: BenchClient, topic: str) -> None:
    """Brokers write offsets down every five seconds, the first time after ten."""
    path = client.system.store / "config" / "consumerOffset.json"
    client.eventually(lambda: path.exists() and topic in path.read_text(), "offsets on the disk")


def broadcasting(client: BenchClient) -> None:
    topic = client.topic("Broadcast", queues=1)
    client.send(client.producer(), topic, count=3, body="all")
    push = client.push(topic, client.group("broadcast"), broadcasting=True)
    push.wait_for(3)
    push.close()


def expired_segments(client: BenchClient) -> None:
    """Retention has removed the first segments, and the queue files of them."""
    several_files(client)
    for command in ("deleteExpiredCommitLog", "cleanExpiredCQ"):
        client.mqadmin(f"{command} -b {client.system.broker_address}")
    time.sleep(3)


def everything(client: BenchClient) -> None:
    uses = [keys_and_tags, delays, transactions("COMMIT_MESSAGE"), transactions("UNKNOW"), batches, ordered, compressed]
    uses += [retries_and_dead_letters, many_queues, several_files]
    for use in uses:
        use(client)


_EXT = {"enableConsumeQueueExt": "true", "enablePropertyFilter": "true", "enableCalcFilterBitMap": "true"}
_TX = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "transactionCheckMax": 2}
FEATURES = (
    Feature("nothing", nothing),
    Feature("topics-without-messages", topics_without_messages),
    Feature("groups-without-messages", groups_without_messages),
    Feature("plain", plain),
    Feature("several-files", several_files),
    Feature("keys-and-tags", keys_and_tags),
    Feature("delays", delays),
    Feature("timers", timers, versions=ONLY_5X),
    Feature("many-timers", many_timers, versions=ONLY_5X),
    Feature("no-wheel", plain, {"timerWheelEnable": "false"}, ONLY_5X),
    Feature("committed", transactions("COMMIT_MESSAGE")),
    Feature("rolled-back", transactions("ROLLBACK_MESSAGE")),
    Feature("pending", transactions("UNKNOW")),
    Feature("given-up", transactions_given_up, _TX),
    Feature("popped", popped, versions=ONLY_5X),
    Feature("popped-kv", popped, {"popConsumerKVServiceEnable": "true", "popConsumerKVServiceInit": "true"}, ONLY_5X),
    Feature("popped-retry-v2", popped, {"enableRetryTopicV2": "true"}, ONLY_5X),
    Feature("retries-and-dead-letters", retries_and_dead_letters),
    Feature("batches", batches),
    Feature("ordered", ordered),
    Feature("deleted-topic", deleted_topic),
    Feature("only-topic-deleted", only_topic_deleted),
    Feature("consumed-topic-deleted", consumed_topic_deleted),
    Feature("created-again", topic_deleted_and_created_again((5, 3))),
    Feature("created-again-empty", topic_deleted_and_created_again((5, 0))),
    Feature("created-again-shorter", topic_deleted_and_created_again((5, 1))),
    Feature("created-again-once-each", topic_deleted_and_created_again((1, 1, 1))),
    Feature("created-again-longer", topic_deleted_and_created_again((3, 30, 40), keys=False)),
    Feature("consumed-topic-created-again", consumed_topic_created_again),
    Feature("many-queues", many_queues),
    Feature("fewer-queues-later", fewer_queues_later),
    Feature("fewer-queues-after-consumption", fewer_queues_after_consumption),
    Feature("pending-and-a-topic-deleted", pending_and_a_topic_deleted),
    Feature("extension-queues", sql_filter, _EXT),
    Feature("extension-queues-and-files", several_files, _EXT),
    Feature("compressed", compressed),
    Feature("sql-filter", sql_filter, {"enablePropertyFilter": "true"}),
    Feature("traces", traces, {"traceTopicEnable": "true"}),
    Feature("light-queues", light_queues, {"enableLmq": "true", "enableMultiDispatch": "true"}),
    Feature("batch-queue-topic", batch_queue_topic, versions=ONLY_5X),
    Feature("empty-batch-queue-topic", empty_batch_queue_topic, versions=ONLY_5X),
    Feature("compaction-topic", compaction_topic, {"compactionScheduleInternal": 1000}, ONLY_5X),
    Feature("broadcasting", broadcasting),
    Feature("expired-segments", expired_segments, {"fileReservedTime": 0, "deleteWhen": "04"}),
    Feature("sync-flush", several_files, {"flushDiskType": "SYNC_FLUSH"}),
    Feature("no-index", keys_and_tags, {"messageIndexEnable": "false"}),
    Feature("property-crc", keys_and_tags, {"enabledAppendPropCRC": "true"}, ONLY_5X),
    Feature("everything", everything, {"enablePropertyFilter": "true"}),
)
