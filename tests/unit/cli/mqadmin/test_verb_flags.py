"""`orbitlog mqadmin`: words as Apache's tool reads them, lines as Java prints them, and the table of verbs."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from orbitlog.cli.mqadmin import java_print
from orbitlog.cli.mqadmin.unsupported_verbs import UNSUPPORTED
from orbitlog.cli.mqadmin.verb_flags import BadFlags, parse_flags, usage
from orbitlog.cli.mqadmin.verb_table import VERBS, find_verb
from orbitlog.formats.message_queue import MessageQueue

# What `mqadmin` of 5.3.3 lists, of every family.
APACHE_VERBS = """
updateTopic updateTopicList deleteTopic updateSubGroup updateSubGroupList setConsumeMode deleteSubGroup
updateBrokerConfig updateTopicPerm topicRoute topicStatus topicClusterList addBroker removeBroker
resetMasterFlushOffset brokerStatus queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryMsgTraceById
printMsg printMsgByQueue sendMsgStatus brokerConsumeStats producerConnection consumerConnection consumerProgress
consumerStatus cloneGroupOffset producer clusterList topicList updateKvConfig deleteKvConfig wipeWritePerm addWritePerm
resetOffsetByTime skipAccumulatedMessage updateOrderConf cleanExpiredCQ deleteExpiredCommitLog cleanUnusedTopic
startMonitoring statsAll allocateMQ checkMsgSendRT clusterRT getNamesrvConfig updateNamesrvConfig getBrokerConfig
getConsumerConfig queryCq sendMessage consumeMessage updateStaticTopic remappingStaticTopic exportMetadata exportConfigs
exportMetrics exportMetadataInRocksDB exportPopRecord haStatus getSyncStateSet getBrokerEpoch getControllerMetaData
getControllerConfig updateControllerConfig electMaster cleanBrokerMetadata dumpCompactionLog getColdDataFlowCtrInfo
updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode createUser updateUser
deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl getAcl listAcl copyAcl rocksDBConfigToJson
checkRocksdbCqWriteProgress
""".split()

GROUP_TWICE = "The option 'c' was specified but an option from this group has already been selected: 'b'"
FLAGS = VERBS["updateTopic"].flags


@pytest.mark.parametrize(
    "words",
    [
        "-b a:1 -t Orders -n n:1",
        "-ba:1 -tOrders -nn:1",
        "-b=a:1 -t=Orders -n=n:1",
        "--brokerAddr a:1 --topic Orders --namesrvAddr n:1",
        "--brokerAddr=a:1 --topic=Orders --namesrvAddr=n:1",
        "-brokerAddr a:1 -topic Orders -namesrvAddr n:1",
        "--brokerA a:1 --topi Orders --namesrv n:1",
        "nobody's -t Orders words -b a:1 -n n:1 -t Second",
    ],
)
def test_words_are_read_as_apache_reads_them(words: str) -> None:
    assert dict(parse_flags(words.split(), FLAGS)) == {"b": "a:1", "t": "Orders", "n": "n:1"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("-b a:1", "Missing required option: t"),
        ("-t T", "Missing required option: [-b a broker by its address, -c all masters of a cluster]"),
        ("", "Missing required options: t, [-b a broker by its address, -c all masters of a cluster]"),
        ("-t", "Missing argument for option: t"),
        ("-t -b a:1", "Missing argument for option: t"),
        ("-t T -b a:1 -z", "Unrecognized option: -z"),
        ("-t T -b a:1 --nonsense", "Unrecognized option: --nonsense"),
        (
            "-t T -b a:1 -c C",
            "The option 'c' was specified but an option from this group has already been selected: 'b'",
        ),
    ],
)
def test_words_that_cannot_be_read(words: str, sentence: str) -> None:
    with pytest.raises(BadFlags) as caught:
        parse_flags(words.split(), FLAGS)
    assert str(caught.value) == sentence


def test_numbers_and_truths_are_javas() -> None:
    given = parse_flags("-t T -b a:1 -r -1 -w many -o TRUE -u yes".split(), FLAGS)
    assert (given.number("r", 8), given.number("p", 6)) == (-1, 6)
    assert (given.truth("o"), given.truth("u"), given.truth("s", True)) == (True, False, True)
    with pytest.raises(ValueError, match='For input string: "many"'):
        given.number("w", 8)


def test_help_needs_no_other_flag_and_names_all_of_them() -> None:
    assert "h" in parse_flags(["-h"], FLAGS)
    text = usage("updateTopic", "Make or change a topic.", FLAGS)
    assert text.startswith("usage: orbitlog mqadmin updateTopic [-a <arg>] -b <arg> -c <arg> [-h] [-n <arg>]")
    assert all(f"--{flag.long}" in text for flag in FLAGS)


# The table


def test_every_verb_of_apaches_tool_is_offered_or_states_why_not() -> None:
    assert set(APACHE_VERBS) <= VERBS.keys() | UNSUPPORTED.keys()
    assert VERBS.keys() & UNSUPPORTED.keys() == set()
    assert len(VERBS) >= 45


@pytest.mark.parametrize("name", VERBS)
def test_verb_is_done_where_the_table_states(name: str) -> None:
    verb = VERBS[name]
    module, _, function = verb.function.partition(":")
    assert inspect.iscoroutinefunction(getattr(importlib.import_module(module), function))
    shorts = [flag.short for flag in verb.flags if flag.short]
    assert len(shorts) == len(set(shorts))
    assert find_verb(name.upper()) is verb


@pytest.mark.parametrize("name", VERBS)
def test_the_command_of_ours_that_is_named_exists(run: Any, name: str) -> None:
    for ours in VERBS[name].orbitlog_command.split(", "):
        if ours != "-":
            words = [
                word for word in ours.split(" ") if word.islower() and not word.startswith("-") and "=" not in word
            ]
            assert run(*words[:2], "--help").exit_code == 0 or run(*words[:1], "--help").exit_code == 0


def test_what_is_not_offered_names_the_nearest(run: Any) -> None:
    for name, reason in UNSUPPORTED.items():
        assert "`" in reason or "consumerStatus" in reason or "stop the broker's process" in reason, name
    ran = run("mqadmin", "getcontrollermetadata", "-a", "a:1")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "use Apache's mqadmin" in ran.stderr
    assert "did you mean topicStatus?" in run("mqadmin", "topicStatsu").stderr


def test_lists_and_helps(run: Any) -> None:
    listed = run("mqadmin")
    assert listed.exit_code == 0
    assert all(f"   {name:<24} " in listed.stdout for name in VERBS)
    assert run("mqadmin", "help", "topicStatus").stdout == run("mqadmin", "topicStatus", "-h").stdout
    assert "usage: orbitlog mqadmin topicStatus" in run("mqadmin", "topicStatus", "-h").stdout


def test_flags_that_make_no_sense_end_with_1_as_apaches_do() -> None:
    from click.testing import CliRunner

    from orbitlog.cli.main import cli

    ran = CliRunner().invoke(cli, ["mqadmin", "topicStatus", "-x"])
    assert (ran.exit_code, ran.stderr) == (1, "Unrecognized option: -x\n")
    assert ran.stdout.startswith("usage: orbitlog mqadmin topicStatus")


def test_a_cluster_that_is_not_there_ends_with_0_as_at_apache_or_with_1_if_wanted(run: Any) -> None:
    ran = run("mqadmin", "topicList", "-n", "127.0.0.1:1")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr.startswith("orbitlog: topicList failed: could not connect to 127.0.0.1:1")
    assert run("mqadmin", "--strict", "topicList", "-n", "127.0.0.1:1").exit_code == 1


# Java's way of printing


@pytest.mark.parametrize(
    ("ordinal", "text"),
    [
        (194, "V3_9_1_SNAPSHOT"),
        (195, "V3_9_1"),
        (213, "V4_0_0"),
        (407, "V4_9_7"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (512, "V5_5_0_SNAPSHOT"),
        (513, "V5_5_0"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (9999, "HIGHER_VERSION"),
        (0, "V3"),
    ],
)
def test_versions_by_number(ordinal: int, text: str) -> None:
    assert java_print.version_text(ordinal) == text


def test_values_are_written_as_java_writes_them() -> None:
    assert java_print.java_text(None) == "null"
    assert java_print.java_text({"a": True, "b": None}) == "{a=true, b=null}"
    assert java_print.java_text([1, "x"]) == "[1, x]"
    assert java_print.printf("%-6s|%4d|%s", True, 7, {}) == "true  |   7|{}"
    assert [java_print.permission_text(number) for number in (0, 2, 4, 6, 7)] == ["---", "-W-", "R--", "RW-", "RWX"]
    assert java_print.front("abc", 2) == "ab"


def test_hash_tables_are_listed_in_javas_order() -> None:
    """As mqadmin of 5.5.0 printed them."""
    names = "UNIQ_KEY CLUSTER WAIT colour TAGS KEYS TRACE_ON MSG_REGION MIN_OFFSET MAX_OFFSET".split()
    assert java_print.in_hash_order(names, 128) == (
        "MSG_REGION UNIQ_KEY CLUSTER MIN_OFFSET TAGS KEYS WAIT TRACE_ON colour MAX_OFFSET".split()
    )
    queues = [MessageQueue("AdminTopic", "interop-broker", number) for number in range(4)]
    assert [queue.queue_id for queue in java_print.queues_in_hash_order(queues)] == [0, 2, 1, 3]
    assert java_print.in_hash_order(["10.0.0.1", "10.0.0.2"]) == ["10.0.0.2", "10.0.0.1"]


def test_times() -> None:
    timestamp_ms = java_print.parse_time_ms("2026-01-31#12:00:05:250")
    assert java_print.human_time(timestamp_ms) == "2026-01-31 12:00:05,250"
    assert java_print.second_time(timestamp_ms) == "2026-01-31 12:00:05"
    assert java_print.parse_time_ms(str(timestamp_ms)) == timestamp_ms
    with pytest.raises(ValueError):
        java_print.parse_time_ms("yesterday")
