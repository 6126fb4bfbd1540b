"""Stores of real brokers that Orbitlog does not support: refused in one sentence, unchanged, still served by Java."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import Ports
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerFailed
from tests.interop.harness.queue_reads import messages_of
from tests.interop.harness.raw_pops import RawPops
from tests.interop.harness.refusals import refused_sentence
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem

pytestmark = pytest.mark.interop

SMALL = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    # Java saves offsets every five seconds otherwise.
    "flushConsumerOffsetInterval": 1000,
}
DLEDGER = {"enableDLegerCommitLog": "true", "dLegerGroup": "R0", "dLegerSelfId": "n0"}
PLAIN_COUNT = 12
SETTLE_SECONDS = 3


@dataclass(frozen=True)
class Kind:
    """How a real broker makes a store that is not supported, and what the refusal names."""

    named: str
    """The directory or file that the sentence names, below the store."""
    settings: dict[str, object] = field(default_factory=dict)
    version: str = "5.5.0"
    topic_attribute: str = ""
    is_popped: bool = False
    is_converted: bool = False
    """The store is an ordinary one first, and then served with `settings`."""
    is_start_refused: bool = False
    """Java itself does not start with `settings`, but leaves files behind."""
    setting_refused: str = "storePathRootDir"
    """The key that the refusal of the whole broker.conf names."""


NOT_CONVERTED = ("RocksDB parts", "RocksDB POP", "BatchCQ", "compaction")
_SETTINGS_ROCKSDB = {"storeType": "defaultRocksDB"}
_SETTINGS_PARTS = {"timerRocksDBEnable": "true", "transRocksDBEnable": "true", "indexRocksDBEnable": "true"}
KINDS = {
    "RocksDB": Kind("consumequeue", _SETTINGS_ROCKSDB, setting_refused="storeType"),
    "RocksDB tables": Kind("config/rdb", {"configManagerVersion": "v2"}, setting_refused="configManagerVersion"),
    "RocksDB parts": Kind("rocksdbstore", _SETTINGS_PARTS, setting_refused="RocksDBEnable"),
    "RocksDB double write": Kind(
        "consumequeue",
        {"rocksdbCQDoubleWriteEnable": "true"},
        is_converted=True,
        is_start_refused=True,
        setting_refused="rocksdbCQDoubleWriteEnable",
    ),
    "RocksDB POP": Kind(
        "kvStore",
        {"popConsumerKVServiceEnable": "true", "popConsumerKVServiceInit": "true"},
        is_popped=True,
        setting_refused="popConsumerKVService",
    ),
    "DLedger 4.9.7": Kind("dledger-n0", DLEDGER, "4.9.7", setting_refused="enableDLegerCommitLog"),
    "DLedger 5.5.0": Kind("dledger-n0", DLEDGER, setting_refused="enableDLegerCommitLog"),
    "DLedger converted": Kind("dledger-n0", DLEDGER, is_converted=True, setting_refused="enableDLegerCommitLog"),
    "BatchCQ": Kind("batchconsumequeue", topic_attribute="+queue.type=BatchCQ"),
    "BatchCQ unused": Kind("config/topics.json", topic_attribute="+queue.type=BatchCQ"),
    "compaction": Kind("config/topics.json", topic_attribute="+cleanup.policy=COMPACTION"),
}


class JavaStore:
    """A store that a Java broker makes, and the messages that it acknowledged by topic."""

    def __init__(self, kind: Kind, directory: Path, packages: ApachePackages, driver: Driver) -> None:
        self.path = directory / "store"
        self._kind = kind
        self._driver = driver
        settings = dict(kind.settings)
        if "dLegerGroup" in settings:
            settings["dLegerPeers"] = f"n0-127.0.0.1:{Ports.find().broker}"
        self.system = ApacheSystem(packages, directory / "java", self.path, {**SMALL, **settings})
        self.acknowledged: dict[str, set[str]] = {}

    def serve(self, use: Callable[[Client], None], *, is_last: bool = False) -> None:
        """Serve the store until `use` returns, and stop cleanly (which takes long) unless no broker follows."""
        self.system.start()
        client = Client(self._driver, self.system)
        try:
            use(client)
        finally:
            client.close()
            self.system.kill() if is_last else self.system.stop()

    def fill(self, client: Client, *, is_odd_used: bool) -> None:
        """Send, consume, pop and send again, so that every part of the store has something in it."""
        producer = client.producer()
        topic = client.topic("Plain")
        self._send(client, producer, topic, keys="k{}")
        push = client.push(topic, client.group("plain"))
        push.wait_for(PLAIN_COUNT)
        push.close()
        if self._kind.topic_attribute:
            odd = f"Odd_{client.mark}"
            words = f"-c {self.system.cluster_name} -t {odd} -r 1 -w 1 -a {self._kind.topic_attribute}"
            assert "success" in client.mqadmin(f"updateTopic {words}")
            self.acknowledged[odd] = set()
            if is_odd_used:
                client.eventually(lambda: odd in client.mqadmin("topicList"), "the topic has a route")
                self._send(client, producer, odd, keys="k{}")
        if self._kind.is_popped:
            group = client.group("popped")
            client.mqadmin(f"updateSubGroup -b {self.system.broker_address} -g {group}")
            pops = RawPops(self.system.broker_address, self.system.broker_name, topic, group)
            client.eventually(lambda: pops.pop(4, 300_000) != [], "a message is popped")
        self._send(client, producer, topic)
        time.sleep(SETTLE_SECONDS)

    def _send(self, client: Client, producer: str, topic: str, **words: object) -> None:
        sent = client.send(producer, topic, count=PLAIN_COUNT, body="some", **words)
        self.acknowledged.setdefault(topic, set()).update(one["msgId"] for one in sent)

    def read(self, client: Client) -> None:
        """Assert that every acknowledged message is served, once."""
        for topic, wanted in self.acknowledged.items():
            client.eventually(lambda topic=topic: topic in client.mqadmin("topicList"), f"{topic} has a route")
            found = [one["properties"]["UNIQ_KEY"] for one in messages_of(client, topic)]
            assert len(found) == len(set(found)) and set(found) == wanted, topic


@pytest.mark.parametrize("name", KINDS)
def test_store_of_a_java_broker_is_refused_and_stays_whole(
    name: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    kind = KINDS[name]
    packages, driver = packages_of(kind.version), driver_of(f"java-{kind.version}")
    store = JavaStore(kind, tmp_path, packages, driver)
    special = dict(store.system.settings)
    try:
        if kind.is_converted:
            store.system.settings = dict(SMALL)
            store.serve(lambda client: store.fill(client, is_odd_used=True))
            store.system.settings = special
        if kind.is_start_refused:
            with pytest.raises(ServerFailed):
                store.system.start()
            store.system.kill()
        else:
            store.serve(lambda client: store.fill(client, is_odd_used=name != "BatchCQ unused"))
        path = str(store.path / kind.named)
        for command in ("broker", "up"):
            sentence = refused_sentence(store.path, [command, "--store", str(store.path), *_ports(command)])
            assert sentence.startswith(f"orbitlog: store not opened for writing: {path} "), sentence
            assert "; " in sentence, "it advises a next step"
        sentence = refused_sentence(store.path, ["broker", "-c", str(tmp_path / "java" / "broker.conf")])
        assert (kind.setting_refused if kind.settings else path) in sentence, sentence
        if name in NOT_CONVERTED:
            out = tmp_path / "converted"
            sentence = refused_sentence(store.path, ["doctor", "convert", str(store.path), "--out", str(out)])
            assert sentence.startswith(f"orbitlog: store not converted: {path} "), sentence
            assert list(tmp_path.glob("converted*")) == []
        if kind.is_start_refused:
            store.system.settings = dict(SMALL)
        store.serve(store.read, is_last=True)
    finally:
        store.system.kill()


def _ports(command: str) -> list[str]:
    return ["--port", "0"] if command == "broker" else ["--broker-port", "0", "--name-server-port", "0"]


PROTECTING = {
    "brokerRole": "SLAVE",
    "aclEnable": "true",
    "authorizationEnabled": "true",
    "enableControllerMode": "true",
    "enableDLegerCommitLog": "true",
    "storeType": "defaultRocksDB",
    "minInSyncReplicas": "2",
    "allAckInSyncStateSet": "true",
}


def test_plain_store_is_served_after_restarts_and_kills_but_not_with_protecting_settings(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    """5.5.0 creates RocksDB directories at every start; they are empty and no reason to refuse."""
    driver = driver_of("java-5.5.0")
    store = JavaStore(Kind(""), tmp_path, packages_of("5.5.0"), driver)
    ours = OrbitlogSystem(tmp_path / "ours", store.path, {**SMALL, "compat": "5.5"})
    try:
        for is_killed in (True, True, False):
            store.system.start()
            client = Client(driver, store.system)
            store.fill(client, is_odd_used=False)
            client.close()
            store.system.kill_broker() if is_killed else store.system.stop_broker()
        assert (store.path / "rocksdbstore").is_dir()
        conf = tmp_path / "java" / "broker.conf"
        for key, value in PROTECTING.items():
            sentence = refused_sentence(store.path, ["broker", "-c", str(conf), "--set", f"{key}={value}"])
            assert key in sentence, sentence
        ours.start()
        client = Client(driver, ours)
        store.read(client)
        client.close()
        ours.stop()
        store.serve(store.read, is_last=True)
    finally:
        ours.kill()
        store.system.kill()
