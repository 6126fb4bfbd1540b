"""Apache's admin tool prints at our system what it prints at Apache's, but for differences that are meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.admin_script import STEPS, run_script, write_transcript
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import JAVA_497, JAVA_550, start_driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import APACHE_550, ORBITLOG, make_system

pytestmark = pytest.mark.interop

Transcripts = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Meant:
    """A difference that is meant: why, and what only one of the two prints, as patterns of whole lines."""

    why: str
    theirs: str = ""
    ours: str = ""


_SYSTEM_TOPICS = Meant(
    "topics of RocksDB tables, of acting masters, and of features that make their topic when they are used",
    theirs=r"(InteropCluster )?(RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC|rmq_sys_(REVIVE_LOG_InteropCluster"
    r"|SYNC_BROKER_MEMBER_interop-broker|wheel_timer))( CID_\w+)?",
)
_LINK = Meant("our answer does not send its reader to a web page", theirs=r"! See https?:/PATH/? for further details\.")
_COUNT = Meant(
    "the number of topics, see topicList",
    theirs=r"(wipe|add) write perm .* OK, \d+",
    ours=r"(wipe|add) write perm .* OK, \d+",
)
MEANT = {
    "updateTopic with a bad name": Meant(
        "the same code, in our words",
        theirs=r".*CODE: 29 DESC: The specified topic: bad/name, contains illegal characters.*",
        ours=r".*CODE: 29 DESC: .*bad/name.*",
    ),
    "topicList": _SYSTEM_TOPICS,
    "topicList of a cluster": _SYSTEM_TOPICS,
    "topicRoute of no topic": _LINK,
    "topicRoute of the deleted": _LINK,
    "consumerProgress of no group": _LINK,
    "consumerConnection of no group": _LINK,
    "brokerStatus": Meant(
        "what we do not measure, and paths, are not told; some keys also under the names that 4.x gave them",
        theirs=r"putLatency99|putLatency999|putMessageFailedTimes|commitLogDiskRatio_PATH",
        ours=r"brokerVersion|getTransferedTps",
    ),
    "clusterList": Meant(
        "the tool of 4.9 misses a key in the answer of 5.5.0, which ours has",
        theirs=r"! java\.lang\.NullPointerException.*",
    ),
    "getBrokerConfig": Meant(
        "settings of what we do not have are not listed; some are ours alone",
        theirs=r"\w+",
        ours=r"accessFile|user\w+Max|authenticationFailuresPerMinuteMax|compat|dispatchEngine|maxRetryQueueNums|serverConnectionsMax|vipChannelEnable",
    ),
    "getNamesrvConfig": Meant(
        "settings of what we do not have, paths and addresses are not told; access control of the name server is ours",
        theirs=r"\w+",
        ours=r"connectionsMax|user\w+Max|authenticationFailuresPerMinuteMax|aclEnable|auth(entication|orization)Enabled|initAuthenticationUser"
        r"|innerClientAuthenticationCredentials",
    ),
    "wipeWritePerm": _COUNT,
    "addWritePerm": _COUNT,
    "haStatus": Meant("there is no replication yet", theirs=r"#\w+", ours=r"! .*CODE: 3 .*|!.*HAStatus.*|!"),
}


@pytest.fixture(scope="module", params=[JAVA_550, JAVA_497])
def transcripts(
    request: pytest.FixtureRequest,
    packages_of: Callable[[str], ApachePackages],
    tmp_path_factory: pytest.TempPathFactory,
) -> Transcripts:
    """What the script prints at a fresh system of each kind; both at the same time, for it is mostly waiting."""
    tool: str = request.param
    packages_of("5.5.0"), packages_of(tool.removeprefix("java-"))
    directory = tmp_path_factory.mktemp("mqadmin")
    with ThreadPoolExecutor() as both:
        found = both.map(lambda kind: _transcript(tool, kind, directory / kind, packages_of), (APACHE_550, ORBITLOG))
        return dict(zip((APACHE_550, ORBITLOG), found, strict=True))


def _transcript(
    tool: str, kind: str, directory: Path, packages_of: Callable[[str], ApachePackages]
) -> dict[str, list[str]]:
    # The check of transactions would commit positions of a group of its own.
    system = make_system(kind, directory / "system", packages_of, {"transactionCheckInterval": 3_600_000})
    system.start()
    driver = start_driver(tool, directory / "driver", packages_of)
    try:
        printed = run_script(Client(driver, system))
    finally:
        driver.close()
        system.kill()
    write_transcript(printed, directory / "transcript.txt")
    return printed


@pytest.mark.parametrize("name", [step.name for step in STEPS if step.words])
def test_a_command_prints_what_it_prints_at_apache(name: str, transcripts: Transcripts) -> None:
    if name not in transcripts[ORBITLOG]:
        pytest.skip("the tool of 4.9 does not know it")
    theirs, ours = transcripts[APACHE_550][name], transcripts[ORBITLOG][name]
    meant = MEANT.get(name, Meant("nothing may differ"))
    only_theirs = [
        line for line in (Counter(theirs) - Counter(ours)).elements() if not re.fullmatch(meant.theirs, line)
    ]
    only_ours = [line for line in (Counter(ours) - Counter(theirs)).elements() if not re.fullmatch(meant.ours, line)]
    assert (only_theirs, only_ours) == ([], [])
    assert [line for line in theirs if line in ours] == [line for line in ours if line in theirs], "another order"


def test_every_difference_that_is_meant_is_one(transcripts: Transcripts) -> None:
    theirs, ours = transcripts[APACHE_550], transcripts[ORBITLOG]
    same = [name for name in MEANT if name in ours and name != "clusterList" and theirs[name] == ours[name]]
    assert same == [], "these are equal by now: take them off the list"
