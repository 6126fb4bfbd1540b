"""Clients in Go, JavaScript, C++ and Python with accounts, at Apache's brokers and at Orbitlog, of either generation.

Each sends and consumes with its usual credentials; with a wrong secret, or without a permission, nothing is stored. The
Python client is a binding of the C++ one: the driver of C++ uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.access.credentials import Credentials
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import start_driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.secured_systems import ROLES, make_accounts, running
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG

pytestmark = pytest.mark.interop
COUNT = 40


def words_of(credentials: Credentials) -> dict[str, str]:
    return {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}


SYSTEMS = [("1.0", APACHE_497), ("1.0", ORBITLOG), ("2.0", APACHE_550), ("2.0", ORBITLOG)]


@pytest.mark.parametrize(("generation", "kind"), SYSTEMS)
@pytest.mark.parametrize("language", ["go", "node", "cpp"])
def test_client_sends_and_consumes_with_its_account(
    language: str, generation: str, kind: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    driver = start_driver(language, tmp_path / "driver", packages_of)
    try:
        with running(kind, generation, tmp_path, packages_of) as system:
            make_accounts(system, generation)
            client = Client(driver, system)
            for role in ("denied", "wrong secret", "stranger"):
                producer = None
                with pytest.raises((Refused, AssertionError)):
                    producer = client.producer(group=f"refused_{role[:3]}", **words_of(ROLES[role]))
                    sent = client.send(producer, "Mine", count=1, body="refused")
                    assert {one["status"] for one in sent} == {"SEND_OK"}
            producer = client.producer(group="signed_producers", **words_of(ROLES["writer"]))
            sent = client.send(producer, "Mine", count=COUNT, body="one", keys="key-{}")
            assert {one["status"] for one in sent} == {"SEND_OK"}
            found = client.push("Mine", "mine", **words_of(ROLES["reader"])).wait_for(COUNT)
            assert {one["body"] for one in found} == {f"one {number}" for number in range(COUNT)}
            client.close()
    finally:
        driver.close()
