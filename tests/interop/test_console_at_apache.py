"""The console at Apache's brokers of both versions and at Orbitlog: pages, the figures of mqadmin, changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import orbitlog
from orbitlog.console.console_options import ClusterChoice, ConsoleOptions
from orbitlog.console.session.console_roles import Role
from orbitlog.console.web.endpoint_table import ENDPOINTS
from orbitlog.errors import BrokerRefused
from orbitlog.formats.tables.group_config import GroupConfig
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.matrix import JAVA_497, JAVA_550
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG, System, wanted_kinds
from tests.support.console_changer import Changer
from tests.support.console_site import ConsoleSite

pytestmark = pytest.mark.interop

ROOT = "/clusters/shop"
MESSAGES, QUEUES, CONSUMED = 22, 2, 3


class Looked:
    """A console over one system with a topic and a group, and Apache's admin tool at the same system."""

    def __init__(self, client: Client, site: ConsoleSite, directory: Path) -> None:
        self.client = client
        self.site = site
        self.changer = Changer(site, directory)
        self.topic, self.group = f"Looked_{client.mark}", f"lookers_{client.mark}"
        with orbitlog.connect(client.system.name_server_address) as mq:
            mq.admin.create_topic(self.topic, QUEUES)
            for number in range(MESSAGES):
                mq.send(self.topic, f"body {number}", keys=[f"k{number}"], tags="T")
            mq.admin.create_group(GroupConfig(self.group))
            mq.admin.create_topic(f"%RETRY%{self.group}", 1)  # mqadmin finds the brokers of a group by this topic
            client.eventually(lambda: self._reset(mq), "the offsets are reset")

    def _reset(self, mq: orbitlog.BlockingRocketMQ) -> bool:
        try:
            mq.admin.reset_offsets(self.group, self.topic, CONSUMED)
        except BrokerRefused as error:
            assert "NoSuchElementException" in str(error)  # in its first second 4.9.7 has no statistics
            return False
        return True

    def committed(self) -> list[int]:
        answer = self.site.api(f"{ROOT}/groups/{self.group}")
        return [row["committed"] for row in answer["queues"] if row["topic"] == self.topic]


@pytest.fixture(params=wanted_kinds((APACHE_497, APACHE_550, ORBITLOG)))
def looked(
    request: pytest.FixtureRequest,
    system_of: Callable[[str], System],
    driver_of: Callable[[str], Driver],
    tmp_path: Path,
) -> Iterator[Looked]:
    system = system_of(request.param)
    client = Client(driver_of(JAVA_497 if request.param == APACHE_497 else JAVA_550), system)
    options = ConsoleOptions(
        data_directory=tmp_path,
        port=0,
        clusters=(ClusterChoice("shop", system.name_server_address),),
        may_write=True,
        requests_per_second=1e6,
        request_burst=1_000_000,
    )
    with ConsoleSite(options) as site:
        yield Looked(client, site, tmp_path)
    client.close()


def test_every_page_is_served_with_the_figures_that_mqadmin_prints(looked: Looked) -> None:
    site = looked.site
    message = site.api(f"{ROOT}/topics/{looked.topic}/messages?limit=1")["items"][0]["offsetMsgId"]
    values = {"cluster": "shop", "topic": looked.topic, "group": looked.group, "message": message}
    values["address"] = looked.client.system.broker_address
    for endpoint in ENDPOINTS:
        if endpoint.is_store or endpoint.role is not Role.VIEWER:
            continue
        path = endpoint.path.format_map(values)
        assert site.get(f"/api/v1{path}").status == 200, path
        if endpoint.template is not None:
            assert site.get(path).status == 200, path
    printed = looked.client.mqadmin(f"topicStatus -t {looked.topic}")
    theirs = {
        (int(at), int(low), int(high)) for at, low, high in re.findall(r"(?m)^\S+ +(\d+) +(\d+) +(\d+) ", printed)
    }
    queues = site.api(f"{ROOT}/topics/{looked.topic}")["queues"]
    assert {(row["queueId"], row["minOffset"], row["maxOffset"]) for row in queues} == theirs and theirs
    lag = site.api(f"{ROOT}/groups/{looked.group}")["lag"]
    assert lag == MESSAGES - QUEUES * CONSUMED
    progress = f"consumerProgress -g {looked.group}"
    looked.client.eventually(lambda: f"Diff Total: {lag}" in looked.client.mqadmin(progress), "the same lag")
    overview = site.api(f"{ROOT}/overview")
    assert overview["brokersAnswering"] == overview["brokers"] == 1
    version = site.api(f"{ROOT}/brokers")["items"][0]["version"]
    assert version in looked.client.mqadmin("clusterList")


def test_changes_have_the_effect_that_mqadmin_sees(looked: Looked) -> None:
    changer, topic = looked.changer, f"Made_{looked.client.mark}"
    assert changer.both("PUT", f"/topics/{topic}", readQueues=3, writeQueues=3)["done"] is True
    assert topic in looked.client.mqadmin("topicList")
    move: dict[str, Any] = {"topic": looked.topic, "to": "earliest"}
    assert looked.committed() == [CONSUMED] * QUEUES
    assert changer.both("POST", f"/groups/{looked.group}/moves", **move)["done"] is True
    assert looked.committed() == [0] * QUEUES
    sent = changer.both("POST", f"/topics/{topic}/messages", body="sent by the console", tags="T")
    assert sent["done"] is True

    def previews() -> list[str]:
        return [row["preview"] for row in looked.site.api(f"{ROOT}/topics/{topic}/messages")["items"]]

    looked.client.eventually(lambda: previews() == ["sent by the console"], "the message to be listed")
    assert changer.both("DELETE", f"/topics/{topic}")["done"] is True
    looked.client.eventually(lambda: topic not in looked.client.mqadmin("topicList"), "the topic to be deleted")
