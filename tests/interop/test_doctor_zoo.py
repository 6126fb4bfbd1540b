"""Every kind of damage of the zoo, repaired by the doctor: Apache's brokers serve each message that was readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats import names
from orbitlog.formats.records.message import Message
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_inference import infer_geometry
from orbitlog.testing.golden import GoldenStore
from tests.interop import our_reading
from tests.interop.harness.judge import Judge, JudgedStore
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject
from tests.support.damage_zoo import ZOO

pytestmark = pytest.mark.interop

GOLDEN_OF = {"4.9.7": "golden_497", "5.5.0": "golden_550_crash"}
# The queues of a closed store are used as they are; those of a killed broker are rebuilt.
WAS_KILLED = {"4.9.7": False, "5.5.0": True}
MESSAGES_MIN = 200


@pytest.fixture(scope="module")
def judge_of(
    packages_of: Callable[[str], ApachePackages], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Judge]]:
    made: dict[str, Judge] = {}

    def get(version: str) -> Judge:
        if version not in made:
            made[version] = Judge(packages_of(version), tmp_path_factory.mktemp(f"judge-{version}"))
        return made[version]

    yield get
    for judge in made.values():
        judge.close()


def queued_messages(root: Path) -> dict[int, Message]:
    """Messages that the log as it is gives, by physical offset; none that only prepare or end a transaction."""
    store = find_store_files(root)
    walk = LogWalk(store.segments, infer_geometry(store, StoreSettings()).segment_bytes)
    return {one.physical_offset: one for one, _ in walk.records() if one.transaction_type.enters_queue}


def still_readable(root: Path, before: dict[int, Message]) -> dict[int, Message]:
    """What a damaged log gives, each message in the queue and at the offset that it had: a wrong one is no excuse.

    Properties are wanted as they are found, for nothing tells what they were. A log of which nothing can be read, for
    all its files have wrong names, is wanted whole.
    """
    wanted = {
        at: found._replace(topic=before[at].topic, queue_id=before[at].queue_id, queue_offset=before[at].queue_offset)
        for at, found in queued_messages(root).items()
        if at in before and found.body == before[at].body
    }
    return wanted or before


def may_be_pulled(topic: str) -> bool:
    return not (names.is_system_topic(topic) or topic.startswith("%"))


@pytest.mark.parametrize("version", GOLDEN_OF)
def test_an_undamaged_store_is_served_without_a_complaint(
    version: str, request: pytest.FixtureRequest, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    """What is expected of a mended store holds for one that nobody damaged: what errors() leaves out is no more."""
    golden: GoldenStore = request.getfixturevalue(GOLDEN_OF[version])
    wanted = queued_messages(golden.store)
    root = golden.copy_to(tmp_path / "store").store
    judge = judge_of(version)
    with serving(judge, root, version) as broker:
        assert_all_served(wanted, broker, judge.packages)
        assert_all_found_by_key(wanted, broker)
        assert broker.errors() == []


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("version", GOLDEN_OF)
def test_an_apache_broker_serves_every_message_that_could_be_read(
    name: str,
    version: str,
    request: pytest.FixtureRequest,
    judge_of: Callable[[str], Judge],
    tmp_path: Path,
) -> None:
    golden: GoldenStore = request.getfixturevalue(GOLDEN_OF[version])
    before = queued_messages(golden.store)
    root = golden.copy_to(tmp_path / "store").store
    ZOO[name][0](root)
    wanted = still_readable(root, before)
    assert len(wanted) >= MESSAGES_MIN

    mended = apply_repair(root, accept_lost_segments=True)
    assert mended.is_sound and not mended.problems
    judge = judge_of(version)
    with serving(judge, root, version) as broker:
        assert_all_served(wanted, broker, judge.packages)
        assert_all_found_by_key(wanted, broker)
        assert broker.errors() == []


def serving(judge: Judge, root: Path, version: str) -> AbstractContextManager[JudgedStore]:
    """Let a broker open a store, closed or killed as the golden store of its version was."""
    (root / "abort").unlink(missing_ok=True)
    if WAS_KILLED[version]:
        (root / "abort").touch()
    found = find_store_files(root)
    more = {"mappedFileSizeTimerLog": found.timer_log[0].size_bytes} if found.timer_log else {}
    settings = our_reading.broker_settings(infer_geometry(found, StoreSettings()), **more)
    return judge.serving(root, settings)


def assert_all_served(wanted: dict[int, Message], broker: JudgedStore, packages: ApachePackages) -> None:
    """Each message stands in its queue at its place, with every field and byte that it had."""
    compat = our_reading.compat_of(packages)
    missing, different = [], []
    for topic, queue_id in sorted({(one.topic, one.queue_id) for one in wanted.values()}):
        is_pulled = may_be_pulled(topic)
        answer = broker.pulled(topic, queue_id) if is_pulled else broker.stored(topic, queue_id)
        # Units that lead before the log may be left, and are passed over.
        first = min(one.queue_offset for one in wanted.values() if (one.topic, one.queue_id) == (topic, queue_id))
        gaps = [gap for gap in answer["gaps"] if int(gap.split()[0]) >= first]
        assert gaps == [], (topic, queue_id, gaps)
        served: dict[int, JsonObject] = {one["commitLogOffset"]: one for one in answer["messages"]}
        for at, message in wanted.items():
            if (message.topic, message.queue_id) != (topic, queue_id):
                continue
            if at not in served:
                missing.append((topic, queue_id, message.queue_offset, at))
                continue
            printed = our_reading.as_client_prints(message, compat)
            # The store's own decoder knows no ids of clients.
            skipped = () if is_pulled else ("msgId", "offsetMsgId")
            different += [
                (at, field, printed[field], value)
                for field, value in served[at].items()
                if field not in skipped and printed[field] != value
            ]
    assert (missing, different) == ([], []), (len(missing), missing[:10], different[:10])


def assert_all_found_by_key(wanted: dict[int, Message], broker: JudgedStore) -> None:
    """The index leads from each message's own id to the message."""
    keyed = {
        at: (one.topic, one.properties["UNIQ_KEY"])
        for at, one in wanted.items()
        if may_be_pulled(one.topic) and "UNIQ_KEY" in one.properties
    }
    found = broker.found_by_key(list(keyed.values()))
    lost = [(at, *asked) for (at, asked), places in zip(keyed.items(), found, strict=True) if at not in places]
    assert lost == [] and len(keyed) >= MESSAGES_MIN, (len(keyed), len(lost), lost[:10])
