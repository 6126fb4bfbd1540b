"""What commands that serve do before they serve."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitlog.cli.serve import cmd_broker, cmd_up
from orbitlog.cli.serve.serving import ServerLog, raise_open_files
from orbitlog.errors import StoreError
from orbitlog.settings.setting import SettingError
from orbitlog.testing.running_broker import RunningBroker

WANTED = 65_536


def test_a_server_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    fewer = allowed // 2
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (fewer, hard))
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


REFUSED = (
    "aclEnable=true",
    "authorizationEnabled=true",
    "storeType=defaultRocksDB",
    "enableDLegerCommitLog=true",
    "enableControllerMode=true",
    "brokerRole=SLAVE",
    "brokerId=1",
    "minInSyncReplicas=2",
    "fetchNamesrvAddrByAddressServer=true",
    "brokerIP1=192.0.2.77",
    "bindAddress=0.0.0.0",
    "bindAddress=::",
    "storePathCommitlog=/elsewhere",
    "authenticationEnable=true",
)
COMMANDS = (("broker",), ("up",), ("up", "--brokers", "2"))


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    top = logging.getLogger("orbitlog")
    before = (top.handlers[:], top.level, top.propagate)
    yield
    for handler in set(top.handlers) - set(before[0]):
        handler.close()
    top.handlers[:], top.level, top.propagate = before


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_refused_setting_ends_in_one_sentence_and_writes_nothing(
    command: tuple[str, ...], text: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    key, _, value = text.partition("=")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n{text}\n")
    from_file = run(*command, "--config", conf)
    from_option = run(*command, "--store", store, "--set", text)
    monkeypatch.setenv(f"ORBITLOG_SET_{key}", value)
    from_environment = run(*command, "--store", store)
    for ran in (from_file, from_option, from_environment):
        assert (ran.exit_code, len(ran.sentences), ran.stdout) == (2, 1, "")
        assert ran.stderr.startswith(f"orbitlog: {text} ")
    assert list(tmp_path.iterdir()) == [conf]


@pytest.mark.parametrize("text", ["aclEnable=true", "brokerRole=SLAVE"])
def test_refused_setting_refused_by_the_fixture(text: str, tmp_path: Path) -> None:
    key, _, value = text.partition("=")
    broker = RunningBroker(tmp_path / "store", {key: value})
    with pytest.raises(SettingError, match=f"{text} (from|needs)"):
        broker.start()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["broker", "up"])
def test_refused_store_leaves_the_directory_as_it_was(
    command: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        logging.getLogger("orbitlog.test").info("looking at the store")
        raise StoreError("the store is not understood")

    monkeypatch.setattr(cmd_broker, "Broker", refuse)
    monkeypatch.setattr(cmd_up, "open_broker_store", refuse)
    (tmp_path / "dledger-n0").mkdir()
    ports = ("--port", "0") if command == "broker" else ("--name-server-port", "0", "--broker-port", "0")
    ran = run(command, "--store", tmp_path, *ports)
    assert (ran.exit_code, ran.sentences) == (1, ["orbitlog: the store is not understood"])
    assert [path.name for path in tmp_path.rglob("*")] == ["dledger-n0"]


def test_server_log_holds_records_until_it_is_opened(tmp_path: Path) -> None:
    server_log = ServerLog(tmp_path / "logs", "broker")
    log = logging.getLogger("orbitlog.test")
    log.info("before")
    assert not list(tmp_path.iterdir())
    server_log.open()
    log.info("after")
    server_log.open()
    lines = (tmp_path / "logs" / "broker.log").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["before", "after"]


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "config"])
def test_config_without_store_beside_javas_default_store_refused(
    name: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    (tmp_path / "store" / name).mkdir(parents=True)
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\n")
    ran = run("broker", "-c", conf)
    assert (ran.exit_code, len(ran.sentences)) == (2, 1)
    assert "storePathRootDir is missing" in ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.conf", "store"]


@pytest.mark.parametrize("text", ["store", "${user.home}/store", "$HOME/store", "'/data/store'"])
def test_config_with_a_store_path_that_means_another_directory_refused(
    text: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={text}\n")
    ran = run("broker", "-c", conf)
    assert (ran.exit_code, len(ran.sentences)) == (2, 1)
    assert "storePathRootDir=" in ran.stderr and [path.name for path in tmp_path.iterdir()] == ["broker.conf"]
