"""Keys of `broker.conf` and `namesrv.conf`: the tables of Java keys against the classes of real servers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Set

import pytest

from orbitlog.nameserver.namesrv_keys import NAMESRV_KEYS
from orbitlog.settings.java_keys import ABSENT, COMPUTED, JAVA_KEYS, JAVA_VERSIONS, JavaKey
from tests.interop.harness.packages import ApachePackages

pytestmark = pytest.mark.interop

SECONDS_MAX = 120
CLASSES = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
)
CLASSES_SINCE_5 = (
    "org.apache.rocketmq.auth.config.AuthConfig",
    "org.apache.rocketmq.tieredstore.MessageStoreConfig",
)
NAME_SERVER_CLASSES = ("org.apache.rocketmq.common.namesrv.NamesrvConfig", *CLASSES[1:3])
READ_BY_STARTUP = {"rmqAddressServerDomain", "rmqAddressServerSubGroup"}
PROCESSORS = 41  # a number that no default is


def keys_of(packages: ApachePackages, classes: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Return type and default of every key, of each setter that reads it."""
    machine = (f"-XX:ActiveProcessorCount={PROCESSORS}", "-Duser.home=/elsewhere")
    command = [str(packages.java), *machine, "-cp", packages.class_path, "SettingKeys", *classes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    keys: dict[str, list[tuple[str, str]]] = {}
    for line in done.stdout.splitlines():
        fields = line.split("\t")
        if len(fields) == 4 and fields[0] in classes:  # brokers of 5.x log to the same stream
            keys.setdefault(fields[1], []).append((fields[2].lower(), fields[3]))
    return keys


@pytest.mark.parametrize("number", range(len(JAVA_VERSIONS)), ids=JAVA_VERSIONS)
def test_java_keys_are_those_of_the_classes(number: int, packages_of: Callable[[str], ApachePackages]) -> None:
    packages = packages_of(JAVA_VERSIONS[number])
    found = keys_of(packages, (*CLASSES, *(CLASSES_SINCE_5 if packages.is_5x else ())))
    _compare(JAVA_KEYS, found, number, READ_BY_STARTUP)


@pytest.mark.parametrize("number", range(len(JAVA_VERSIONS)), ids=JAVA_VERSIONS)
def test_name_server_keys_are_those_of_the_classes(number: int, packages_of: Callable[[str], ApachePackages]) -> None:
    found = keys_of(packages_of(JAVA_VERSIONS[number]), NAME_SERVER_CLASSES)
    _compare(NAMESRV_KEYS, found, number)


def _compare(
    table: Mapping[str, JavaKey], found: dict[str, list[tuple[str, str]]], number: int, others: Set[str] = frozenset()
) -> None:
    listed = {key for key, java in table.items() if java.defaults[number] != ABSENT}
    assert listed - others == found.keys()
    for key, setters in found.items():
        java = table[key]
        assert java.type in {java_type for java_type, _ in setters}, key
        if java.defaults[number] != COMPUTED:
            assert {default for _, default in setters} == {java.defaults[number]}, key
