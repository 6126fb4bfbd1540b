"""Families of the exporter from a sample."""

from __future__ import annotations

from orbitlog.client.connection.running_info import ConsumeStatus
from orbitlog.client.sampling.cluster_sampler import SamplerCounts
from orbitlog.client.sampling.exporter_families import ExporterFamilies
from orbitlog.client.sampling.sampled_numbers import (
    BrokerSample,
    ClientKey,
    ClientSample,
    ClusterSample,
    GroupKey,
    GroupRates,
    Progress,
    TopicKey,
    TopicSample,
)
from orbitlog.observe.exporter_table import EXPORTER_METRICS
from orbitlog.observe.exposition import PROMETHEUS, Exposition
from orbitlog.wire.bodies.client_bodies import ClientConnection, ConsumerConnection
from tests.support.exposition_parser import ParsedFamily, parse_exposition

RUNTIME = {
    "brokerVersionDesc": "V4_9_7",
    "brokerVersion": "407",
    "bootTimestamp": "17",
    "putTps": "3.0 2.0 1.0",
    "commitLogMaxOffset": "1000",
    "putMessageDistributeTime": "[<=0ms]:7 [0~10ms]:3 ",
}


def full_sample() -> ClusterSample:
    status = ConsumeStatus(1.5, 2.5, 3.5, 4.5, 0.5, 6)
    return ClusterSample(
        10_000,
        [
            BrokerSample("c", "a", 0, "127.0.0.1:1", RUNTIME, 5.0, 6.0),
            BrokerSample("c", "a", 1, "127.0.0.1:2", {"commitLogMaxOffset": "900"}),
        ],
        {
            GroupKey("c", "a", "T", "g"): Progress(50, 40, 1.0, 4_000),
            GroupKey("c", "a", "%RETRY%g", "g"): Progress(3, 1),
            GroupKey("c", "a", "%DLQ%g", "g"): Progress(2, 2),
        },
        {("c", "a", "producers"): 2},
        {
            TopicKey("c", "a", "T"): TopicSample(50, 1.25, None),
            TopicKey("c", "a", "%RETRY%g"): TopicSample(3, 0.0, 0.0),
            TopicKey("c", "a", "%DLQ%g"): TopicSample(2, 0.0, 0.0),
        },
        {GroupKey("c", "a", "T", "g"): GroupRates(7.0, 70.0, 1)},
        {"g": ConsumerConnection((ClientConnection("id", "127.0.0.1:9"),), message_model="CLUSTERING")},
        {ClientKey("g", "id"): ClientSample("127.0.0.1:9", {"T": status})},
    )


def page(sample: ClusterSample | None) -> dict[str, ParsedFamily]:
    families = ExporterFamilies(SamplerCounts(requests=12))
    families.sample = sample
    return parse_exposition("".join(Exposition((families.read,), "", 1000).steps(PROMETHEUS)))


def test_all_families_are_those_of_the_table() -> None:
    found = page(full_sample())
    declared = {metric.name: metric for metric in EXPORTER_METRICS}
    assert found.keys() <= declared.keys()
    for name, family in found.items():
        assert family.label_names == set(declared[name].labels), name


def test_values_have_the_names_of_rocketmq_exporter() -> None:
    found = page(full_sample())
    assert found["rocketmq_broker_tps"].value(cluster="c", brokerIP="127.0.0.1:1", broker="a") == 5
    assert found["rocketmq_broker_commitlog_diff"].value(brokerIP="127.0.0.1:2") == 100
    assert found["rocketmq_producer_offset"].value(topic="T") == 50
    assert found["rocketmq_topic_retry_offset"].value(topic="%RETRY%g") == 3
    assert found["rocketmq_topic_dlq_offset"].value(group="g") == 2
    assert found["rocketmq_group_diff"].value(group="g", topic="T", countOfOnlineConsumers="1", msgModel="1") == 10
    assert found["rocketmq_group_retrydiff"].value(group="g") == 2
    assert found["rocketmq_group_dlqdiff"].value(group="g") == 0
    assert found["rocketmq_group_count"].value(caddr="127.0.0.1:9", localaddr="id", group="g") == 1
    assert found["rocketmq_group_get_latency_by_storetime"].value(topic="T", group="g") == 6000
    assert found["rocketmq_consumer_tps"].value(topic="T", group="g") == 7
    assert found["rocketmq_client_consume_ok_msg_tps"].value(clientId="id", topic="T") == 4.5
    assert found["rocketmq_brokeruntime_put_tps60"].value(des="V4_9_7", boottime="17", broker_version="407") == 2
    assert found["rocketmq_brokeruntime_pmdt_0to10ms"].value() == 3
    assert found["rocketmq_producer_count"].value(group="producers") == 2
    assert "rocketmq_producer_message_size" not in found  # the broker has no data yet


def test_only_the_exporter_itself_is_shown_before_the_first_round() -> None:
    found = page(None)
    assert found["orbitlog_exporter_requests_total"].value() == 12
    assert all(name.startswith("orbitlog_exporter_") for name in found)
