"""Keys of `broker.conf`: the table of Java keys against the configuration classes of real brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from orbitlog.settings.java_keys import ABSENT, COMPUTED, JAVA_KEYS, JAVA_VERSIONS
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
READ_BY_STARTUP = {"rmqAddressServerDomain", "rmqAddressServerSubGroup"}
PROCESSORS = 41  # a number that no default is


def keys_of(packages: ApachePackages) -> dict[str, list[tuple[str, str]]]:
    """Return type and default of every key, of each setter that reads it."""
    classes = (*CLASSES, *(CLASSES_SINCE_5 if packages.is_5x else ()))
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
    found = keys_of(packages_of(JAVA_VERSIONS[number]))
    listed = {key for key, java in JAVA_KEYS.items() if java.defaults[number] != ABSENT}
    assert listed - READ_BY_STARTUP == found.keys()
    for key, setters in found.items():
        java = JAVA_KEYS[key]
        assert java.type in {java_type for java_type, _ in setters}, key
        if java.defaults[number] != COMPUTED:
            assert {default for _, default in setters} == {java.defaults[number]}, key
