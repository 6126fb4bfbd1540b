"""The power goes when a send that made its topic was just answered: the disk has both, the message and the topic."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.remoting.client import RemotingClient
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.faults.busy_disk import ROOT, SETTINGS, BusyDisk
from tests.support.broker_desk import Desk, at_desk, records

IMAGES = "images of a disk when a send that made its topic was answered"


def test_an_answered_send_has_its_topic_on_the_disk(tmp_path: Path, scale: int, checked: Counter[str]) -> None:
    disk, chance = BusyDisk(), Random(9000)
    answered: set[str] = set()
    found = CrashDisk()

    def look(topic: str) -> None:
        nonlocal found
        answered.add(topic)
        for _ in range(3 * scale):
            seed = chance.randrange(1 << 30)
            found = disk.crash(seed)
            table = ConfigDirectory(found, ROOT, COMPAT_5_5).load(TOPICS)
            missing = answered - set(table.topics if table is not None else ())
            assert not missing, f"image {seed}: {missing} was promised"
            checked.update([IMAGES])

    async def one(desk: Desk, topic: str) -> None:
        for body in (b"makes the topic", b"finds it"):
            assert (await desk.send(topic, body)).code == ResponseCode.SUCCESS
            look(topic)

    async def dead_letter(desk: Desk) -> None:
        sent = await desk.send("T0", b"nobody can use it")
        place = int(sent.ext_fields["msgId"][-16:], 16)
        back = await desk.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=place, group="G", delayLevel=0, maxReconsumeTimes=0
        )
        assert back.code == ResponseCode.SUCCESS, back.remark
        look("%DLQ%G")

    async def work() -> None:
        broker, client = Broker(BrokerSettings(SETTINGS), ROOT, disk=disk), RemotingClient()
        await broker.start()
        try:
            desk = Desk(broker, client, [])
            await asyncio.gather(*(one(desk, f"T{number}") for number in range(6)))
            await dead_letter(desk)
        finally:
            await client.close()
            await broker.stop()

    async def read(desk: Desk) -> None:
        for topic in sorted(answered - {"%DLQ%G"}):
            bodies = [message.body for message in records(await desk.pull(topic))]
            assert bodies[:2] == [b"makes the topic", b"finds it"], topic
        assert [message.body for message in records(await desk.pull("%DLQ%G"))] == [b"nobody can use it"]

    asyncio.run(work())
    assert len(answered) == 7
    for path, content in found.files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    at_desk(tmp_path / ROOT, read)
