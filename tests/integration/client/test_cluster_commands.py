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
    assert isinstance(objects(cluster, "group", "list"), list)
    run(cluster, "topic", "delete", "Daily", "--yes")
    assert "Daily" not in {each["topic"] for each in objects(cluster, "topic", "list")}


def test_cluster_command_errors_are_one_sentence(cluster: str) -> None:
    assert "no broker serves topic Nowhere" in run(cluster, "topic", "show", "Nowhere", exit_code=1)
    assert "is none of earliest, latest, an offset" in run(cluster, "tail", "Daily", "--from", "then", exit_code=2)
    nobody = run("127.0.0.1:1", "topic", "list", exit_code=1)
    assert "127.0.0.1:1 cannot be connected to" in nobody and "Traceback" not in nobody
    assert "`orbitlog up` starts one" in nobody
