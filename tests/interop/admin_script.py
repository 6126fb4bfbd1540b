"""A script of mqadmin commands over a small, known state, and what of their output must be the same everywhere.

Each step runs a command of Apache's admin tool and keeps its output as lines. Addresses, times, ids and rates differ
from run to run: `normalised` writes them as words, and sorts what is printed in the order of a hash table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.harness.clients import Client

COMMAND_SECONDS_MAX = 90
TOPIC, OTHER, ORDERED, GROUP, IDLE = "AdminTopic", "AdminOther", "AdminOrdered", "admin_group", "admin_idle"


@dataclass(frozen=True)
class Step:
    """One command. `keep` picks the part of its lines that is compared; `unordered` lines are sorted.

    `since_5`: the tool of 4.9 does not know it.
    """

    name: str
    words: str
    unordered: bool = False
    since_5: bool = False
    keep: Callable[[Sequence[str]], Sequence[str]] = lambda lines: lines


def keys_only(lines: Sequence[str]) -> list[str]:
    """The names of a list of `name : value` or `name = value`."""
    return [re.split(r"\s*[:=]", line, maxsplit=1)[0].strip() for line in lines]


def columns(*indexes: int) -> Callable[[Sequence[str]], Sequence[str]]:
    """Some columns of a table."""
    return lambda lines: [" ".join(part for at, part in enumerate(line.split()) if at in indexes) for line in lines]


# In this order: each leaves what the next ones see. {b} broker, {n} name server, {c} cluster, {name} the broker's name.
STEPS = (
    Step("updateTopic at a broker", f"updateTopic -b {{b}} -t {TOPIC} -r 4 -w 4"),
    Step("updateTopic at a cluster", f"updateTopic -c {{c}} -t {OTHER} -r 2 -w 2"),
    Step("updateTopic in order", f"updateTopic -c {{c}} -t {ORDERED} -r 3 -w 3 -o true"),
    Step("updateTopic again", f"updateTopic -b {{b}} -t {OTHER} -r 6 -w 5 -p 6"),
    Step("updateTopic with a bad name", "updateTopic -b {b} -t bad/name -r 1 -w 1"),
    Step("updateTopicPerm", f"updateTopicPerm -b {{b}} -t {OTHER} -p 4"),
    Step("updateTopicPerm back", f"updateTopicPerm -c {{c}} -t {OTHER} -p 6"),
    Step("updateSubGroup", f"updateSubGroup -b {{b}} -g {GROUP} -s true -m true -d false -r 5 -q 2", unordered=True),
    Step("updateSubGroup at a cluster", f"updateSubGroup -c {{c}} -g {IDLE}", unordered=True),
    Step("topicList", "topicList", unordered=True),
    Step("topicRoute", f"topicRoute -t {TOPIC}"),
    Step("topicRoute as a list", f"topicRoute -l -t {TOPIC}"),
    Step("topicRoute of no topic", "topicRoute -t NoSuchTopic"),
    Step("topicClusterList", f"topicClusterList -t {TOPIC}"),
    Step("updateOrderConf get", f"updateOrderConf -t {ORDERED} -m get"),
    Step("updateOrderConf put", f"updateOrderConf -t {OTHER} -m put -v {{name}}:5"),
    Step("updateOrderConf get the new", f"updateOrderConf -t {OTHER} -m get"),
    Step("updateOrderConf delete", f"updateOrderConf -t {OTHER} -m delete"),
    Step("updateKvConfig", "updateKvConfig -s SOME_NAMESPACE -k some.key -v some-value"),
    Step("deleteKvConfig", "deleteKvConfig -s SOME_NAMESPACE -k some.key"),
    Step("prepare: messages, a consumer, a producer", ""),
    Step("topicStatus", f"topicStatus -t {TOPIC}"),
    Step("topicStatus of an empty topic", f"topicStatus -t {ORDERED}"),
    Step("topicList of a cluster", "topicList -c {c}", unordered=True),
    Step("clusterList", "clusterList", keep=columns(0, 1, 2, 3)),
    Step("clusterList with counts", "clusterList -m"),
    Step("brokerStatus", "brokerStatus -b {b}", unordered=True, keep=keys_only),
    Step("getBrokerConfig", "getBrokerConfig -b {b}", unordered=True, keep=keys_only),
    Step("updateBrokerConfig", "updateBrokerConfig -b {b} -k maxTransferCountOnMessageInMemory -v 24"),
    Step("getNamesrvConfig", "getNamesrvConfig -n {n}", unordered=True, keep=keys_only),
    Step("producerConnection", f"producerConnection -g admin_producers -t {TOPIC}"),
    Step("producer", "producer -b {b}", unordered=True),
    Step("consumerConnection", f"consumerConnection -g {GROUP}"),
    Step("consumerStatus", f"consumerStatus -g {GROUP}", keep=lambda lines: lines[:3]),
    Step("consumerProgress", f"consumerProgress -g {GROUP}"),
    Step("consumerProgress with addresses", f"consumerProgress -g {GROUP} -s true"),
    Step("consumerProgress of all", "consumerProgress", unordered=True),
    Step("consumerProgress of no group", "consumerProgress -g no_such_group"),
    Step("consumerConnection of no group", "consumerConnection -g no_such_group"),
    Step("getConsumerConfig", f"getConsumerConfig -g {GROUP}", unordered=True),
    Step("brokerConsumeStats", "brokerConsumeStats -b {b}"),
    Step("statsAll", f"statsAll -t {TOPIC}"),
    Step("queryMsgById", "queryMsgById -i {offset_id} {of_topic}"),
    Step("queryMsgByKey", f"queryMsgByKey -t {TOPIC} -k key-3"),
    Step("queryMsgByKey that nobody set", f"queryMsgByKey -t {TOPIC} -k no-such-key"),
    Step("queryMsgByUniqueKey", f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}"),
    Step("queryMsgByOffset", f"queryMsgByOffset -t {TOPIC} -b {{name}} -i 1 -o 2"),
    Step("printMsg", f"printMsg -t {TOPIC} -d true", unordered=True),
    Step("printMsgByQueue", f"printMsgByQueue -t {TOPIC} -a {{name}} -i 1 -p true -d true"),
    Step("consumeMessage", f"consumeMessage -t {TOPIC} -b {{name}} -i 2 -o 0 -c 3"),
    Step("queryCq", f"queryCq -t {TOPIC} -q 1 -i 0 -c 3 -b {{b}}"),
    Step("sendMessage", f"sendMessage -t {OTHER} -p admin-body -k admin-key -c admin-tag -b {{name}} -i 1"),
    Step("checkMsgSendRT", f"checkMsgSendRT -t {OTHER} -a 3 -s 64", keep=columns(0, 1)),
    Step("sendMsgStatus", "sendMsgStatus -b {name} -s 64 -c 2", keep=lambda lines: lines[-2:]),
    Step("allocateMQ", f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2"),
    Step("wipeWritePerm", "wipeWritePerm -b {name}"),
    Step("topicRoute without write permission", f"topicRoute -t {TOPIC}"),
    Step("addWritePerm", "addWritePerm -b {name}"),
    Step("close: the consumer and the producer", ""),
    Step("consumerProgress offline", f"consumerProgress -g {GROUP}"),
    Step("resetOffsetByTime", f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0", unordered=True),
    Step("consumerProgress after the reset", f"consumerProgress -g {GROUP}"),
    Step("skipAccumulatedMessage", f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}", unordered=True),
    Step("consumerProgress after the skip", f"consumerProgress -g {GROUP}"),
    Step("cloneGroupOffset", f"cloneGroupOffset -s {GROUP} -d {IDLE} -t {TOPIC}"),
    Step("setConsumeMode", f"setConsumeMode -b {{b}} -t {TOPIC} -g {GROUP} -m PULL", since_5=True),
    Step("cleanExpiredCQ", "cleanExpiredCQ -b {b}"),
    Step("cleanUnusedTopic", "cleanUnusedTopic -b {b}"),
    Step("deleteExpiredCommitLog", "deleteExpiredCommitLog -b {b}"),
    Step("deleteSubGroup", f"deleteSubGroup -b {{b}} -g {IDLE}"),
    Step("deleteTopic", f"deleteTopic -c {{c}} -t {OTHER}"),
    Step("topicRoute of the deleted", f"topicRoute -t {OTHER}"),
    Step("haStatus", "haStatus -b {b}", keep=columns(0), since_5=True),
)


Tool = Callable[[Sequence[str]], tuple[str, str]]


def run_script(client: Client, tool: Tool | None = None) -> dict[str, list[str]]:
    """Run every step at a system that was just started; return what each printed, normalised.

    `tool` takes the words of a command and returns what it printed and what it complained of; None is Apache's own.
    """
    tool = tool or (lambda words: _apache_tool(client, words))
    system = client.system
    values = {"b": system.broker_address, "n": system.name_server_address, "c": system.cluster_name}
    values["name"] = system.broker_name
    is_5 = client.driver.name.startswith("java-5")
    values["of_topic"] = f"-t {TOPIC}" if is_5 else ""
    printed: dict[str, list[str]] = {}
    for step in STEPS:
        if step.name.startswith("prepare"):
            values.update(_prepare(client))
        elif step.name.startswith("close"):
            client.close()
            # Positions are committed one way.
            client.eventually(lambda: _is_offline(client), "the group is seen to be empty")
        elif is_5 or not step.since_5:
            printed[step.name] = _run(client, step, values, tool)
    return printed


def _apache_tool(client: Client, words: Sequence[str]) -> tuple[str, str]:
    arguments = {f"argument.{at}": word for at, word in enumerate(words)}
    answer = client.driver.call("mqadmin", seconds_max=COMMAND_SECONDS_MAX, **arguments)
    return str(answer["printed"]), str(answer["complained"])


def _run(client: Client, step: Step, values: dict[str, str], tool: Tool) -> list[str]:
    words = step.words.format(**values).split()
    if "-n" not in words:
        words += ["-n", values["n"]]
    printed, complained = tool(words)
    said = printed.splitlines() + [f"! {line}" for line in _complaint(complained)]
    lines = [normalised(line, client, values) for line in said]
    kept = [line for line in step.keep([line for line in lines if line]) if line]
    return sorted(kept) if step.unordered else kept


def _complaint(text: str) -> list[str]:
    """The exceptions of a stack trace, without where they came from."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if not line.startswith(("at ", "... ", "For more information"))]


def _prepare(client: Client) -> dict[str, str]:
    """Ten messages in known places, read by a group that stays."""
    producer = client.producer(group="admin_producers")
    sent = []
    for number in range(10):
        sent += client.send(
            producer, TOPIC, body=f"body {number}", keys=f"key-{number}", tags="T", queue=number % 4,
            broker=client.system.broker_name, **{"property.colour": "green"},
        )  # fmt: skip
    # A group that had a consumer has a retry topic, which the next one reads from its start.
    client.push(TOPIC, GROUP).close()
    push = client.push(TOPIC, GROUP, instance="admin_consumer")
    push.wait_for(10)
    # The positions are committed every five seconds, ten at first.
    client.eventually(lambda: "Diff Total: 0" in _progress(client), "all consumed and committed")
    client.eventually(lambda: _progress(client).count(f"%RETRY%{GROUP}") == 2, "its retry queues committed as well")
    # The producer is known by its heartbeat.
    client.eventually(lambda: "JAVA" in client.mqadmin(f"producerConnection -g admin_producers -t {TOPIC}"), "it")
    return {"offset_id": sent[5]["offsetMsgId"], "unique_id": sent[5]["msgId"]}


def _progress(client: Client) -> str:
    return client.mqadmin(f"consumerProgress -g {GROUP}")


def _is_offline(client: Client) -> bool:
    return " JAVA " not in client.mqadmin(f"consumerConnection -g {GROUP}")


# What differs from run to run, in the order of replacement.
_VARYING = (
    (re.compile(r"\b(\d{1,3}\.){3}\d{1,3}@[\w#.]+|\b[0-9a-f:]+@\w+#\d+"), "CLIENT"),
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ ,]\d\d:\d\d:\d\d([,.]\d{3})?"), "TIME"),
    (re.compile(r"\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"(\d{1,3}\.){3}\d{1,3}:\d+"), "ADDRESS"),
    (re.compile(r"\b(\d{1,3}\.){3}\d{1,3}\b"), "HOST"),
    (re.compile(r"(/[\w.-]+){2,}"), "PATH"),
    (re.compile(r"\b\d+\.\d+\b"), "RATE"),
    (re.compile(r"\b\d+(ms| ms)\b"), "N ms"),
)
_PROPERTIES = re.compile(r"roperties(: |=)\{([^{}]*)\}")


def normalised(line: str, client: Client, values: dict[str, str]) -> str:
    """Write what varies as words; blanks as one, but for the heads of tables: they say where columns begin."""
    line = line.replace(values["b"], "BROKER").replace(values["n"], "NAMESRV")
    for varying, word in _VARYING:
        line = varying.sub(word, line)
    line = line.rstrip() if line.startswith("#") else re.sub(r"\s+", " ", line).strip()
    # Java prints a hash table in an order that depends on how it was filled.
    return _PROPERTIES.sub(_sorted_properties, line)


def _sorted_properties(found: re.Match[str]) -> str:
    return f"roperties{found[1]}{{{', '.join(sorted(found[2].split(', ')))}}}"


def write_transcript(printed: dict[str, list[str]], path: Path) -> None:
    """For the reader who wants to see two transcripts side by side."""
    path.write_text("".join(f"== {name}\n" + "".join(f"{line}\n" for line in printed[name]) for name in printed))
