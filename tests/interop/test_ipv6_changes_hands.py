"""A store whose broker is known by an IPv6 address goes from Apache's broker to ours and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.handover import LINES, SMALL, consumed, ids
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

COUNT = 20


class ApacheOnIpv6(ApacheSystem):
    @property
    def broker_address(self) -> str:
        return f"[::1]:{self.ports.broker}"


class Traveller:
    """A topic, its group and the ids of its messages, from broker to broker."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._topic = self._group = ""
        self._pending: set[str] = set()
        self._stored: list[tuple[str, str]] = []

    def turn(self, system: System) -> None:
        system.start()
        client = Client(self._driver, system)
        try:
            if not self._topic:
                self._topic, self._group = client.topic("Wide"), client.group("wide")
            assert consumed(client, self._topic, self._group, len(self._pending)) == self._pending
            for message_id, key in self._stored:
                printed = client.mqadmin(f"queryMsgByKey -t {self._topic} -k {key}")
                assert message_id in printed, printed
            sent = client.send(client.producer(), self._topic, count=COUNT, body="wide {}", keys=f"k{system.kind}-{{}}")
            self._pending = ids(sent)
            # 16 bytes of the address, 4 of the port, 8 of the physical offset.
            assert all(len(one["offsetMsgId"]) == 56 and one["offsetMsgId"].startswith("0" * 31 + "1") for one in sent)
            self._stored = [(one["msgId"], f"k{system.kind}-{number}") for number, one in enumerate(sent[:2])]
        finally:
            client.close()
            system.stop()


@pytest.mark.parametrize("advertised", ["::1", "[::1]"])
@pytest.mark.parametrize("version", LINES)
def test_store_of_a_broker_with_an_ipv6_address_continues_both_ways(
    version: str,
    advertised: str,
    tmp_path: Path,
    packages_of: Callable[[str], ApachePackages],
    driver_of: Callable[[str], Driver],
) -> None:
    store, settings = tmp_path / "store", {**SMALL, "brokerIP1": advertised}
    ours = OrbitlogSystem(tmp_path / "ours", store, {**settings, "compat": LINES[version]})
    theirs = ApacheOnIpv6(packages_of(version), tmp_path / "theirs", store, {**settings, "bindAddress": "::1"})
    traveller = Traveller(driver_of(f"java-{version}"))
    try:
        for system in (theirs, ours, theirs, ours):
            traveller.turn(system)
    finally:
        ours.kill()
        theirs.kill()
