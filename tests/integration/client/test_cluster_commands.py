"""The commands that talk to a running cluster, run as people run them."""

from __future__ import annotations

from tests.support.cluster_commands import objects, run


def test_cluster_commands_end_to_end(cluster: str) -> None:
    (made,) = objects(cluster, "topic", "create", "Daily", "--queues", "2")
    assert made == {"topic": "Daily", "brokerName": "broker-a", "queues": 2}
    sent = objects(cluster, "send", "Daily", "one", "-", "--key", "k1", "--tags", "t", text="two\nthree\n")
    assert [each["status"] for each in sent] == ["sent"] * 3
    assert "Daily" in {each["topic"] for each in objects(cluster, "topic", "list")}
    assert sum(each["messages"] for each in objects(cluster, "topic", "show", "Daily")) == 3
    seen = objects(cluster, "tail", "Daily", "--from", "first", "--limit", "3")
    assert {each["body"] for each in seen} == {"one", "two", "three"}
    found = objects(cluster, "message", "find", "Daily", "k1")
    assert {each["msgId"] for each in found} == {each["msgId"] for each in sent}
    (one,) = objects(cluster, "message", "get", sent[0]["offsetMsgId"])
    assert one["msgId"] == sent[0]["msgId"]
    assert [each["brokerName"] for each in objects(cluster, "cluster", "list")] == ["broker-a"]
    assert objects(cluster, "cluster", "health")[0]["problem"] is None
    run(cluster, "topic", "delete", "Daily", "--yes")
    assert "Daily" not in {each["topic"] for each in objects(cluster, "topic", "list")}


def test_lists_hide_system_names_unless_all_are_wanted(cluster: str) -> None:
    objects(cluster, "topic", "create", "Listed")
    objects(cluster, "group", "create", "listed-group")
    topics = [row["topic"] for row in objects(cluster, "topic", "list")]
    assert "Listed" in topics
    assert not {"TBW102", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"} & set(topics)
    every_topic = {row["topic"] for row in objects(cluster, "topic", "list", "--all")}
    assert {"TBW102", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", *topics} <= every_topic
    groups = [row["group"] for row in objects(cluster, "group", "list")]
    assert "listed-group" in groups and "TOOLS_CONSUMER" not in groups
    assert {"TOOLS_CONSUMER", *groups} <= {row["group"] for row in objects(cluster, "group", "list", "--all")}


def test_cluster_command_errors_are_one_sentence(cluster: str) -> None:
    assert "no broker serves topic Nowhere" in run(cluster, "topic", "show", "Nowhere", exit_code=1)
    assert "is not earliest, latest, an offset" in run(cluster, "tail", "Daily", "--from", "then", exit_code=2)
    nobody = run("127.0.0.1:1", "topic", "list", exit_code=1)
    assert "could not connect to 127.0.0.1:1" in nobody and "Traceback" not in nobody
    assert "start one with `orbitlog up`" in nobody
