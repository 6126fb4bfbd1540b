"""The verbs of `orbitlog mqadmin` at an Orbitlog cluster; tests/interop compares them with Apache's tool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.client.connection.connect import connect

TOPIC, GROUP = "VerbTopic", "verb_group"
Mqadmin = Callable[..., str]


@pytest.fixture
def mqadmin(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mqadmin:
    """Run a verb; words by blanks. Bodies and descriptions of members are written below the test's directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    address = cluster.removeprefix("rocketmq://")

    def run(line: str, *, complaint: bool = False) -> str:
        words = ["mqadmin", *line.split(" "), "-n", address]
        result = CliRunner().invoke(cli, words, prog_name="orbitlog")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.stderr
        assert bool(result.stderr) is complaint, result.stderr
        return result.stderr if complaint else result.stdout

    return run


@pytest.fixture(scope="module")
def filled(cluster: str) -> tuple[str, str]:
    """A topic with ten messages and a group that consumed them; the ids of one of them."""

    async def fill() -> tuple[str, str]:
        async with connect(cluster, trace=True) as mq:
            await mq.admin.create_topic(TOPIC, 2)
            queues = (await mq.admin.routes.refresh(TOPIC)).write_queues
            receipts = []
            for number in range(10):
                receipts.append(
                    await mq.send(TOPIC, f"body {number}", keys=[f"k{number}"], tags="T", queue=queues[number % 2])
                )
            async with mq.consume(TOPIC, group=GROUP, start_from="first") as consumer:
                for _ in range(10):
                    message = await consumer.next(60)
                    assert message is not None
                    await message.ack()
            return receipts[5].message_id, receipts[5].offset_message_id

    return asyncio.run(asyncio.wait_for(fill(), 120))


def test_topics(mqadmin: Mqadmin, filled: tuple[str, str]) -> None:
    assert TOPIC in mqadmin("topicList").splitlines()
    listed = mqadmin("topicList -c").splitlines()
    assert listed[0].split() == ["#Cluster", "Name", "#Topic", "#Consumer", "Group"]
    assert ["DefaultCluster", TOPIC, GROUP] in [line.split() for line in listed]
    status = mqadmin(f"topicStatus -t {TOPIC}").splitlines()
    assert status[0].startswith("#Broker Name                      #QID  #Min Offset           #Max Offset")
    assert [line.split()[:4] for line in status[1:3]] == [["broker-a", "0", "0", "5"], ["broker-a", "1", "0", "5"]]
    assert status[3:] == ["", "Topic Put TPS: " + status[4].rpartition(" ")[2]]
    assert '"brokerName":"broker-a"' in mqadmin(f"topicRoute -t {TOPIC}")
    assert mqadmin(f"topicRoute -l -t {TOPIC}").splitlines()[-1].split() == ["Total:", "1", "2", "2"]
    assert mqadmin(f"topicClusterList -t {TOPIC}") == "DefaultCluster\n"
    said = mqadmin("topicStatus -t NoSuchTopic", complaint=True)
    assert said.startswith("orbitlog: topicStatus failed: CODE: 17  DESC: No topic route info in name server")
    assert "NO_CONSUMER" not in mqadmin(f"statsAll -t {TOPIC}")


def test_a_topic_is_made_changed_and_deleted(mqadmin: Mqadmin) -> None:
    made = mqadmin("updateTopic -c DefaultCluster -t VerbMade -r 3 -w 3 -o true").splitlines()
    assert made[0].startswith("create topic to ") and made[0].endswith(" success.")
    assert made[1] == "set cluster orderConf. isOrder=true, orderConf=[broker-a:3]"
    assert made[2].startswith("TopicConfig [topicName=VerbMade, readQueueNums=3, writeQueueNums=3, perm=RW-,")
    assert mqadmin("updateOrderConf -t VerbMade -m get") == (
        "get orderConf success. topic=[VerbMade], orderConf=[broker-a:3] "
    )
    assert "from 6 to 4" in mqadmin("updateTopicPerm -c DefaultCluster -t VerbMade -p 4")
    assert "from cluster [DefaultCluster] success." in mqadmin("deleteTopic -c DefaultCluster -t VerbMade")
    assert "VerbMade" not in mqadmin("topicList").splitlines()
    assert "[error] Make sure" in mqadmin("deleteTopic -c NoSuchCluster -t VerbMade")


def test_groups_and_offsets(mqadmin: Mqadmin, filled: tuple[str, str]) -> None:
    progress = mqadmin(f"consumerProgress -g {GROUP} -t {TOPIC}").splitlines()
    assert progress[0].split()[:4] == ["#Topic", "#Broker", "Name", "#QID"]
    assert [line.split()[:6] for line in progress[1:3]] == [
        [TOPIC, "broker-a", "0", "5", "5", "0"],
        [TOPIC, "broker-a", "1", "5", "5", "0"],
    ]
    assert "Consume Diff Total: 0" in progress
    assert any(line.startswith(f"{GROUP} ") and "OFFLINE" in line for line in mqadmin("consumerProgress").splitlines())
    moved = mqadmin(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0").splitlines()
    assert moved[0].startswith(f"start reset consumer offset by specified, group[{GROUP}], topic[{TOPIC}], force[true]")
    assert moved[1].split() == ["#brokerName", "#queueId", "#offset"]
    assert "Consume Diff Total: 10" in mqadmin(f"consumerProgress -g {GROUP} -t {TOPIC}").splitlines()
    mqadmin(f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}")
    assert "Consume Diff Total: 0" in mqadmin(f"consumerProgress -g {GROUP} -t {TOPIC}").splitlines()
    assert "SubscriptionGroupConfig{groupName=verb_other," in mqadmin(
        "updateSubGroup -c DefaultCluster -g verb_other -r 5"
    )
    assert mqadmin(f"cloneGroupOffset -s {GROUP} -d verb_other -t {TOPIC}").startswith("clone group offset success.")
    assert "retryMaxTimes                           =  5" in mqadmin("getConsumerConfig -g verb_other").splitlines()
    assert "in cluster [DefaultCluster] success." in mqadmin("deleteSubGroup -c DefaultCluster -g verb_other")
    assert "CODE: 17" in mqadmin("consumerConnection -g no_such_group", complaint=True)


def test_members(mqadmin: Mqadmin, cluster: str, tmp_path: Path) -> None:
    async def live() -> None:
        async with connect(cluster) as mq:
            await mq.admin.create_topic("VerbLive", 1)
            await mq.send("VerbLive", "one")
            async with mq.consume("VerbLive", group="verb_live", start_from="first") as consumer:
                message = await consumer.next(60)
                assert message is not None
                await message.ack()
                shown = await asyncio.to_thread(mqadmin, "consumerConnection -g verb_live")
                assert shown.splitlines()[0].split() == ["#ClientId", "#ClientAddr", "#Language", "#Version"]
                assert mq.client_id in shown and "VerbLive             *" in shown
                status = await asyncio.to_thread(mqadmin, "consumerStatus -g verb_live")
                assert "Rebalance OK" in status
                path = tmp_path / status.splitlines()[1].split()[-1]
                assert "#Consumer Subscription#" in path.read_text()

    asyncio.run(asyncio.wait_for(live(), 120))


def test_messages(mqadmin: Mqadmin, filled: tuple[str, str], tmp_path: Path) -> None:
    unique_id, offset_id = filled
    shown = mqadmin(f"queryMsgById -t {TOPIC} -i {offset_id} -f UTF-8").splitlines()
    assert shown[0] == f"OffsetID:            {offset_id}"
    assert "Keys:                [k5]" in shown and "Message Body:        body 5" in shown
    path = next(line.split()[-1] for line in shown if line.startswith("Message Body Path:"))
    assert Path(path).read_bytes() == b"body 5" and path.startswith(str(tmp_path))
    assert any(line.startswith(f"MessageTrack [consumerGroup={GROUP}, trackType=NOT_ONLINE") for line in shown)
    assert "Queue Offset:        2" in mqadmin(f"queryMsgByUniqueKey -t {TOPIC} -i {unique_id}").splitlines()
    assert "Keys:                [k5]" in mqadmin(f"queryMsgByOffset -t {TOPIC} -b broker-a -i 1 -o 2").splitlines()
    found = mqadmin(f"queryMsgByKey -t {TOPIC} -k k5").splitlines()
    assert found[1].split() == [unique_id, "1", "2"]
    assert "CODE: 208" in mqadmin(f"queryMsgByKey -t {TOPIC} -k nobody", complaint=True)
    printed = mqadmin(f"printMsg -t {TOPIC}")
    assert printed.count("MSGID: ") == 10 and printed.count("BODY: body ") == 10
    assert mqadmin(f"printMsg -t {TOPIC} -d false -s None").count("no matched msg. status=NO_MATCHED_MSG") == 2
    assert mqadmin(f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -f true").split() == ["Tag:", "T", "Count:", "5"]
    some = mqadmin(f"consumeMessage -t {TOPIC} -b broker-a -i 0 -o 1 -c 2")
    assert some.splitlines()[0] == "The oldler 2 message will be provided" and some.count("MSGID: ") == 2
    assert mqadmin(f"consumeMessage -t {TOPIC} -i 0") == "Please set the brokerName before queueId!"
    assert mqadmin(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2").count("ConsumeQueueData{physicOffset=") == 2


def test_traces(mqadmin: Mqadmin, filled: tuple[str, str]) -> None:
    deadline = time.monotonic() + 60
    shown: list[str] = []
    # Traces are recorded in the background of sends and deliveries.
    while not any(line.startswith("Sub") for line in shown) and time.monotonic() < deadline:
        shown = mqadmin(f"queryMsgTraceById -i {filled[0]}").splitlines()
    assert [line.split()[0] for line in shown if line] == ["#Type", "Pub", "#Type", "Sub"]
    assert shown[1].split()[-1] == "success" and GROUP in shown[4]


def test_a_link_in_the_way_of_a_body_is_not_followed(mqadmin: Mqadmin, filled: tuple[str, str], tmp_path: Path) -> None:
    directory = tmp_path / "rocketmq" / "msgbodys"
    directory.mkdir(parents=True)
    (tmp_path / "precious").write_text("precious")
    (directory / filled[0]).symlink_to(tmp_path / "precious")
    words = ["mqadmin", "queryMsgById", "-t", TOPIC, "-i", filled[1]]
    result = CliRunner(env={"NAMESRV_ADDR": mqadmin("getNamesrvConfig").split("=" * 12)[1]}).invoke(cli, words)
    assert result.exit_code == 1
    assert (tmp_path / "precious").read_text() == "precious"


def test_sending(mqadmin: Mqadmin, filled: tuple[str, str]) -> None:
    mqadmin("updateTopic -c DefaultCluster -t VerbSent -r 1 -w 1")
    sent = mqadmin("sendMessage -t VerbSent -p hello -k key -c tag -b broker-a -i 0").splitlines()
    assert sent[0].split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#MsgId"]
    assert sent[1].split()[:3] == ["broker-a", "0", "SEND_OK"]
    measured = mqadmin("checkMsgSendRT -t VerbSent -a 3 -s 10").splitlines()
    assert [line.split()[:3] for line in measured[1:4]] == [["broker-a", "0", "true"]] * 3
    assert measured[4].startswith("Avg RT: ")
    assert mqadmin("sendMsgStatus -b broker-a -c 2").count("SendResult [sendStatus=SEND_OK") == 2
    assert mqadmin("sendMessage -t VerbSent -p x -i 0") == "Broker name must be set if the queue is chosen!"


def test_brokers_and_settings(mqadmin: Mqadmin) -> None:
    listed = mqadmin("clusterList").splitlines()
    assert listed[0].split()[-5:] == ["#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED"]
    assert listed[1].split()[:3] == ["DefaultCluster", "broker-a", "0"] and listed[1].endswith("true")
    address = listed[1].split()[3]
    assert mqadmin("clusterList -m").splitlines()[1].split()[:2] == ["DefaultCluster", "broker-a"]
    status = mqadmin(f"brokerStatus -b {address}")
    assert "brokerActive                    : true" in status.splitlines()
    assert mqadmin("brokerStatus -c DefaultCluster").startswith(f"{address:<24} ")
    settings = mqadmin(f"getBrokerConfig -b {address}")
    assert settings.startswith(f"============{address}============\n") and "brokerName" in settings
    key = "maxTransferCountOnMessageInMemory"
    assert mqadmin(f"updateBrokerConfig -b {address} -k {key} -v 32") == f"update broker config success, {address}\n"
    assert "CODE: 16" in mqadmin(f"updateBrokerConfig -b {address} -k brokerName -v other", complaint=True)
    assert "============" in mqadmin("getNamesrvConfig")
    assert "Diff Total: " in mqadmin(f"brokerConsumeStats -b {address}")
    assert " OK, " in mqadmin("wipeWritePerm -b broker-a")
    assert " OK, " in mqadmin("addWritePerm -b broker-a")
    mqadmin("updateKvConfig -s SPACE -k some.key -v value")
    mqadmin("deleteKvConfig -s SPACE -k some.key")
    for verb in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert mqadmin(f"{verb} -b {address}") == "success"


def test_shares(mqadmin: Mqadmin, filled: tuple[str, str]) -> None:
    assert '"10.0.0.1":[{"brokerName":"broker-a","queueId":' in mqadmin(f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2")
