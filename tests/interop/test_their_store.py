"""Stores that real brokers write, read by our code: other sizes and content than the golden stores have."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitlog.formats.compat import Compat
from orbitlog.formats.derived.checkpoint import decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.store_files import StoreFiles
from orbitlog.storefiles.store_inference import infer_compat, infer_geometry
from tests.interop import our_reading
from tests.interop.harness.cluster import running_cluster
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject

pytestmark = pytest.mark.interop

SMALL = StoreGeometry(segment_bytes=256 * 1024, queue_file_bytes=2000, index_layout=IndexLayout(64, 200))
MIDDLE = StoreGeometry(segment_bytes=1 << 20, queue_file_bytes=4020, index_layout=IndexLayout(1009, 3001))
SMALL_SETTINGS = {"enablePropertyFilter": "true", "maxMessageSize": 128 * 1024, "mappedFileSizeTimerLog": 5200}
LIGHT_SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true", "messageDelayLevel": "1s 2s 3s 4s 90m"}
COMMON_KINDS = ("plain", "keys", "unicode", "batch", "ordered", "large", "delayed", "transactions")
PREFIX = "Interop"
BURST = 400


@dataclass(frozen=True)
class Scenario:
    """A broker, its settings, what it is sent, and whether it is killed."""

    name: str
    version: str
    geometry: StoreGeometry
    settings: dict[str, object]
    words: tuple[str, ...]
    is_killed: bool = False


SCENARIOS = (
    Scenario("clean-4.9.7", "4.9.7", SMALL, SMALL_SETTINGS, (*COMMON_KINDS, "longtopic", "consume", "rounds=40")),
    Scenario(
        "clean-5.5.0", "5.5.0", SMALL, SMALL_SETTINGS, (*COMMON_KINDS, "longtopic", "timer", "consume", "rounds=40")
    ),
    Scenario("killed-4.9.7", "4.9.7", SMALL, SMALL_SETTINGS, (*COMMON_KINDS, "rounds=12"), is_killed=True),
    Scenario("killed-5.5.0", "5.5.0", SMALL, SMALL_SETTINGS, (*COMMON_KINDS, "timer", "rounds=12"), is_killed=True),
    Scenario("default-sizes-4.9.7", "4.9.7", StoreGeometry(), {}, (*COMMON_KINDS, "rounds=25")),
    Scenario("default-sizes-5.5.0", "5.5.0", StoreGeometry(), {}, (*COMMON_KINDS, "rounds=25")),
    Scenario("light-queues-4.9.7", "4.9.7", MIDDLE, LIGHT_SETTINGS, ("light", "keys", "delayed", "rounds=60")),
    Scenario("light-queues-5.5.0", "5.5.0", MIDDLE, LIGHT_SETTINGS, ("light", "keys", "delayed", "rounds=60")),
)


@dataclass(frozen=True)
class TheirStore:
    """A store after its broker ended, what was acknowledged, and what the broker served while it ran."""

    scenario: Scenario
    compat: Compat
    files: StoreFiles
    acknowledged: list[JsonObject]
    served: list[JsonObject]
    messages: list[Message]

    @property
    def rules(self) -> DeriveRules:
        return our_reading.rules_of(self.compat, self.scenario.settings)


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda scenario: scenario.name)
def theirs(
    request: pytest.FixtureRequest,
    packages_of: Callable[[str], ApachePackages],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TheirStore]:
    scenario: Scenario = request.param
    packages = packages_of(scenario.version)
    directory = tmp_path_factory.mktemp(scenario.name)
    root = directory / "store"
    settings = our_reading.broker_settings(scenario.geometry, **scenario.settings)
    with running_cluster(packages, directory, root, settings) as cluster:
        answers = cluster.send(PREFIX, *scenario.words)
        topics = {answer["topic"] for answer in answers if answer["answer"] == "sent"}
        # Two of the five write queues of "Wide" can be read.
        queues = [(topic, queue_id) for topic in sorted(topics) for queue_id in range(readable_queues(topic))]
        served = cluster.read([("queue", *queue) for queue in queues])
        if scenario.is_killed:
            answers += cluster.send_until_killed(PREFIX, BURST)
    files = our_reading.look_at(root)
    messages = our_reading.read_log(files, scenario.geometry)
    acknowledged = [answer for answer in answers if answer["answer"] == "sent"]
    yield TheirStore(scenario, our_reading.compat_of(packages), files, acknowledged, served, messages)


def readable_queues(topic: str) -> int:
    return {"Plain": 4, "Ordered": 3, "Batch": 2, "Tx": 2, "Single": 1, "Wide": 2}.get(topic.removeprefix(PREFIX), 4)


def test_geometry_and_version_are_inferred(theirs: TheirStore) -> None:
    inferred = infer_geometry(theirs.files, StoreSettings())
    wanted = theirs.scenario.geometry
    assert (inferred.segment_bytes, inferred.queue_file_bytes) == (wanted.segment_bytes, wanted.queue_file_bytes)
    assert inferred.index_layout == wanted.index_layout
    assert infer_compat(theirs.files, StoreSettings()) == theirs.compat


def test_every_acknowledged_message_is_there(theirs: TheirStore) -> None:
    by_offset = {message.physical_offset: message for message in theirs.messages}
    by_unique_key: dict[str, list[Message]] = {}
    for message in theirs.messages:
        by_unique_key.setdefault(message.properties.get(props.UNIQ_KEY, ""), []).append(message)
    for answer in theirs.acknowledged:
        assert answer["status"] == "SEND_OK"
        # The answer to a half message names no offset.
        if answer["offsetMsgId"] is None:
            message = by_unique_key[answer["msgId"]][0]
        else:
            message = by_offset[parse_offset_message_id(answer["offsetMsgId"]).physical_offset]
        assert_is_acknowledged(our_reading.as_client_prints(message, theirs.compat), message.properties, answer)
    assert len(theirs.acknowledged) > 100


def assert_is_acknowledged(printed: JsonObject, properties: dict[str, str], answer: JsonObject) -> None:
    waits = answer["kind"] in ("delayed", "timer", "transaction")
    topic = properties.get(props.REAL_TOPIC) if waits else printed["topic"]
    queue_id = int(properties.get(props.REAL_QUEUE_ID, "-1")) if waits else printed["queueId"]
    told = {
        **printed,
        "topic": topic,
        "queueId": queue_id,
        "offsetMsgId": answer["offsetMsgId"] and printed["offsetMsgId"],
    }
    for name in ("topic", "queueId", "queueOffset", "msgId", "offsetMsgId", "keys", "tags", "bodySha256"):
        assert told[name] == answer[name], (name, answer, printed)


def test_every_field_is_what_the_client_saw(theirs: TheirStore) -> None:
    by_offset = {message.physical_offset: message for message in theirs.messages}
    assert our_reading.assert_served(by_offset, theirs.served, theirs.compat) > 80


def test_plain_python_derives_the_broker_s_files(theirs: TheirStore) -> None:
    made = our_reading.derive_in_python(theirs.messages, theirs.rules, theirs.scenario.geometry)
    compare_derived(theirs, made)


def test_kernels_derive_the_broker_s_files(theirs: TheirStore) -> None:
    made = our_reading.derive_by_kernels(theirs.files, theirs.rules, theirs.scenario.geometry)
    compare_derived(theirs, made)


def compare_derived(theirs: TheirStore, made: our_reading.Derived) -> None:
    """A clean broker derived everything; a killed one perhaps not the last few records, but nothing else."""
    written = our_reading.derived_on_disk(theirs.files)
    assert written.unit_count > 100
    missing = our_reading.units_missing_on_disk(made, written) if theirs.scenario.is_killed else 0
    if missing:
        assert missing < 50
        indexed = (
            our_reading.derive_in_python(theirs.messages[:count], theirs.rules, theirs.scenario.geometry).indexes
            for count in range(len(theirs.messages), len(theirs.messages) - missing - 2, -1)
        )
        same = (
            not list(our_reading.differences(our_reading.Derived({}, files), our_reading.Derived({}, written.indexes)))
            for files in indexed
        )
        assert any(same), "the index is that of no point in the log"
    else:
        found = list(our_reading.differences(made, written))
        is_amid_a_key = theirs.scenario.is_killed and our_reading.lacks_one_key(made, written)
        assert not found or is_amid_a_key, "\n".join(found)


def test_every_dump_runs(theirs: TheirStore) -> None:
    root = theirs.files.root
    more = [f"--set={key}={value}" for key, value in theirs.scenario.settings.items() if key == "messageDelayLevel"]
    for kind in (*our_reading.DUMPS, *(our_reading.DUMPS_5X if theirs.compat.config_has_5x_fields else ())):
        rows = our_reading.dump(kind, root, *(more if kind in ("commitlog", "consumequeue", "index") else ()))
        if kind == "commitlog":
            assert [row["commitLogOffset"] for row in rows] == [message.physical_offset for message in theirs.messages]


def test_config_files_are_written_back_byte_for_byte(theirs: TheirStore) -> None:
    compared = []
    for file in theirs.files.config_files:
        content = file.path.read_bytes()
        if content:
            codec = config_codec(file.path.name)
            assert codec.encode(codec.decode(content), theirs.compat) == content, file.path.name
            compared.append(file.path.name)
    assert {"topics.json", "subscriptionGroup.json"} <= set(compared)
    if "consume" in theirs.scenario.words:
        assert {"consumerOffset.json", "consumerFilter.json", "delayOffset.json"} <= set(compared)


def test_the_way_it_ended_shows(theirs: TheirStore) -> None:
    assert (theirs.files.abort is not None) == theirs.scenario.is_killed
    assert theirs.files.checkpoint is not None
    checkpoint = decode_checkpoint(theirs.files.checkpoint.path.read_bytes())
    assert checkpoint.physic_msg_timestamp_ms <= theirs.messages[-1].store_timestamp_ms


def test_lock_without_a_holder(theirs: TheirStore) -> None:
    assert theirs.files.lock is not None
    with Path(theirs.files.lock.path).open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
