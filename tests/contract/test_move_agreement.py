"""`doctor move --to orbitlog` and the start of the broker agree: what one calls refused, the other refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.broker.runtime.broker_access import check_access
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_opening import open_broker_store, take_broker_state
from orbitlog.broker.runtime.broker_settings import BrokerSettings, load_broker_settings
from orbitlog.broker.runtime.listen_address import with_listen_address
from orbitlog.cli.doctor.move_settings import GivenSettings, offset_rows, orbitlog_setting_rows
from orbitlog.cli.main import WrongUse
from orbitlog.cli.serve.serving import read_broker_settings
from orbitlog.doctor.move.move_rows import MoveRow, MoveSeverity
from orbitlog.doctor.move.store_move import ORBITLOG, MoveWish, survey_move
from orbitlog.errors import OrbitlogError
from orbitlog.settings.setting import SettingError
from orbitlog.settings.setting_classes import BEHAVIOUR, SAFETY
from tests.support.quiet_events import QUIET
from tests.support.store_kinds import HARMLESS, KINDS, STORED_MS, fingerprint, make_store, put


def _cut_last_segment(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()
    (root / "orbitlog.state").unlink()


def _without_log(root: Path) -> None:
    for segment in (root / "commitlog").iterdir():
        segment.unlink()


def _garbage(name: str) -> Callable[[Path], None]:
    return lambda root: put(root / "config" / name, b"{garbage")


def _first_segment_short(root: Path) -> None:
    os.truncate(min((root / "commitlog").iterdir()), 1000)


def _empty_log(root: Path) -> None:
    for segment in (root / "commitlog").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))
    (root / "orbitlog.state").unlink()


STATES: dict[str, Callable[[Path], None]] = {
    **KINDS,
    **HARMLESS,
    "as it is": lambda root: None,
    "without state": lambda root: (root / "orbitlog.state").unlink(),
    "not stopped cleanly": lambda root: put(root / "abort", b""),
    "last segment missing": _cut_last_segment,
    "middle segment missing": lambda root: sorted((root / "commitlog").iterdir())[1].unlink(),
    "log missing": _without_log,
    "log of zeros": _empty_log,
    "segment of another size": _first_segment_short,
    "queue file of another size": lambda root: os.truncate(root / "consumequeue/T/0/00000000000000000000", 180),
    "queues missing": lambda root: [path.unlink() for path in (root / "consumequeue").rglob("0*") if path.is_file()],
    "offsets in the other table only": lambda root: (root / "config/consumerOffset.json").rename(
        root / "config/lmqConsumerOffset.json"
    ),
    "the same offsets in both tables": lambda root: put(
        root / "config/lmqConsumerOffset.json", b'{"offsetTable":{"T@g":{0:3,1:2}}}'
    ),
    "offsets ahead in the other table": lambda root: put(
        root / "config/lmqConsumerOffset.json", b'{"offsetTable":{"T@g":{0:9,1:2}}}'
    ),
    **{
        f"unreadable {name}": _garbage(name)
        for name in (
            "topics.json",
            "consumerOffset.json",
            "subscriptionGroup.json",
            "consumerFilter.json",
            "lmqConsumerOffset.json",
        )
    },
}


def _refusals(rows: list[MoveRow]) -> list[MoveRow]:
    return [row for row in rows if row.severity is MoveSeverity.REFUSED]


def _opens(settings: BrokerSettings, root: Path) -> str | None:
    """Open a store as the broker does; return the error's sentence, None if it was opened."""
    try:
        opened = open_broker_store(settings, root, now_ms=lambda: STORED_MS)
        take_broker_state(settings, root, opened, QUIET, now_ms=lambda: STORED_MS)
    except OrbitlogError as error:
        return str(error)
    opened.store.close()
    return None


@pytest.mark.parametrize("state", STATES)
def test_move_and_opening_agree_on_a_store(state: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    STATES[state](root)
    before = fingerprint(root)
    rows = survey_move(root, MoveWish(ORBITLOG), BrokerSettings().store)
    rows += offset_rows(root, _given([]))
    assert fingerprint(root) == before
    error = _opens(BrokerSettings(), root)
    refusals = _refusals(rows)
    assert bool(refusals) == (error is not None), (error, refusals)
    # The broker names one reason; it is among those of the report.
    assert (
        error is None
        or any(row.path is not None and row.path in error for row in refusals)
        or any(row.sentence.removesuffix(".") in error for row in refusals)
    )


@pytest.mark.parametrize("given", ["mappedFileSizeCommitLog=8192", "mappedFileSizeConsumeQueue=400"])
@pytest.mark.parametrize("is_quick", [False, True])
def test_move_and_opening_agree_on_sizes_that_files_do_not_have(given: str, is_quick: bool, tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    settings = load_broker_settings(None, [given], {})
    rows = survey_move(root, MoveWish(ORBITLOG, is_quick=is_quick), settings.store)
    error = _opens(settings, root)
    assert error is not None
    assert [row.sentence for row in _refusals(rows)] == [error]


def _given(texts: list[str]) -> GivenSettings:
    return GivenSettings.read(None, tuple(texts))


VALUES = {"boolean": "true", "int": "7", "long": "7", "double": "7", "string": "other"}


@pytest.mark.parametrize("key", [*SAFETY, *BEHAVIOUR])
def test_move_and_start_agree_on_a_setting(key: str, tmp_path: Path) -> None:
    from orbitlog.settings.java_keys import JAVA_KEYS

    for value in (VALUES[JAVA_KEYS[key].type], JAVA_KEYS[key].defaults[-1].strip("~-"), "false", "1000"):
        rows = list(orbitlog_setting_rows(tmp_path, _given([f"{key}={value}"])))
        try:
            load_broker_settings(None, [f"{key}={value}"], {})
            sentence = None
        except SettingError as error:
            sentence = str(error)
        assert bool(_refusals(rows)) == (sentence is not None)
        for row in _refusals(rows):
            assert sentence is not None
            assert row.setting == key
            assert row.sentence in sentence


@pytest.mark.parametrize(
    "texts",
    [
        ["brokerRole=SLAVE"],
        ["brokerId=1"],
        ["maxMessageSize=20971520"],
        ["brokerIP1=192.0.2.77"],
        ["brokerIP1=192.0.2.77", "bindAddress=0.0.0.0"],
        ["brokerIP1=192.0.2.77", "bindAddress=0.0.0.0", "allowAnonymous=clients"],
        ["bindAddress=0.0.0.0", "authenticationEnabled=true"],
        ["namesrvAddr=192.0.2.1:9876"],
        ["namesrvAddr=192.0.2.1:9876", "bindAddress=127.0.0.1"],
        ["fetchNamesrvAddrByAddressServer=true"],
        ["fetchNamesrvAddrByAddressServer=true", "namesrvAddr=127.0.0.1:9876"],
        ["storePathComitLog=/x"],
        ["brokerIP1=127.0.0.1"],
    ],
)
def test_move_and_start_agree_on_settings_together(texts: list[str], tmp_path: Path) -> None:
    rows = list(orbitlog_setting_rows(tmp_path, _given(texts)))
    try:
        check_access(with_listen_address(load_broker_settings(None, texts, {})))
        is_started = True
    except SettingError:
        is_started = False
    assert bool(_refusals(rows)) == (not is_started)


ACL_HOME = "rocketmqHome={home}"
SERVER_FILES = ["tls.server.certPath={home}/server.pem", "tls.server.keyPath={home}/server.key"]
TOGETHER = {
    "role without id": ["brokerRole=SLAVE"],
    "role and id": ["brokerRole=SLAVE", "brokerId=1"],
    "id of a master": ["brokerRole=SYNC_MASTER", "brokerId=0"],
    "accounts without home": ["aclEnable=true"],
    "accounts without file": ["aclEnable=true", ACL_HOME],
    "accounts": ["aclEnable=true", "rocketmqHome={home}/with"],
    "invalid accounts": ["aclEnable=true", "rocketmqHome={home}/without"],
    "policies without users": ["authorizationEnabled=true"],
    "users and policies": ["authenticationEnabled=true", "authorizationEnabled=true"],
    "unreadable users": ["authenticationEnabled=true", "accessFile={home}/open.json"],
    "invalid users": ["authenticationEnabled=true", "accessFile={home}/garbage.json"],
    "TLS without certificate": ["tls.server.mode=enforcing"],
    "TLS for tests": ["tls.server.mode=enforcing", "tls.test.mode.enable=true"],
    "certificate without key": ["tls.server.certPath={home}/server.pem"],
    "certificate that is missing": SERVER_FILES,
    "test mode and certificate": ["tls.test.mode.enable=true", *SERVER_FILES],
    "client certificates without CA": ["tls.server.need.client.auth=require", "tls.test.mode.enable=true"],
    "principals without certificates": ["tlsPrincipalFrom=subjectCN"],
    "file of TLS that is missing": ["tls.config.file={home}/tls.properties"],
    "file of TLS with an unknown key": ["tls.config.file={home}/odd.properties"],
    "two switches": ["tls.enable=true", "useTLS=false"],
    "CA that is missing": ["tls.enable=true", "tls.client.trustCertPath={home}/ca.pem"],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    place = tmp_path / "home"
    account = b"accounts:\n- accessKey: writer1\n  secretKey: secret-of-writer\n  admin: true\n"
    put(place / "with/conf/plain_acl.yml", account)
    put(place / "without/conf/plain_acl.yml", b"accounts: 7\n")
    for name, content, mode in (("open.json", b"{}", 0o644), ("garbage.json", b"{garbage", 0o600)):
        put(place / name, content)
        (place / name).chmod(mode)
    (place / "with/conf/plain_acl.yml").chmod(0o600)
    (place / "without/conf/plain_acl.yml").chmod(0o600)
    put(place / "odd.properties", b"tls.unknown=1\n")
    return place


def _starts(texts: list[str], root: Path) -> str | None:
    """Build the broker as the command does; return the error's sentence, None if it would listen."""
    try:
        broker = Broker(read_broker_settings(None, texts, {}), root, now_ms=lambda: STORED_MS)
    except (WrongUse, OrbitlogError) as error:
        return str(error)
    broker.state.store.close()
    return None


@pytest.mark.parametrize("case", TOGETHER)
def test_move_and_start_agree_on_access_tls_and_role(case: str, tmp_path: Path, home: Path) -> None:
    texts = [text.format(home=home) for text in TOGETHER[case]]
    rows = _refusals(list(orbitlog_setting_rows(tmp_path / "store", _given(texts))))
    assert not (tmp_path / "store").exists()
    sentence = _starts(texts, tmp_path / "store")
    assert bool(rows) == (sentence is not None), (sentence, rows)
    assert sentence is None or any(row.sentence in sentence for row in rows)
    assert (tmp_path / "store").exists() == (sentence is None)


def test_move_and_start_refuse_users_of_a_java_broker_until_they_are_created(tmp_path: Path, home: Path) -> None:
    texts, root = ["authenticationEnabled=true"], tmp_path / "store"
    make_store(root)
    put(root / "config/users/000004.log", b"of RocksDB")
    (row,) = _refusals(list(orbitlog_setting_rows(root, _given(texts))))
    sentence = _starts(texts, root)
    assert sentence is not None
    assert row.sentence in sentence and "config/users" in sentence and "orbitlog access user add" in sentence
    put(root / "config/access.json", b'{"users":[],"acls":[]}')
    (root / "config/access.json").chmod(0o600)
    assert _refusals(list(orbitlog_setting_rows(root, _given(texts)))) == []
    assert _starts(texts, root) is None
