"""The power goes when a run of sends that waited for the disk was just answered: the disk has all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.formats.names import HALF_TOPIC
from orbitlog.store.message_store import MessageStore
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.frames import FrameDecoder
from tests.faults.busy_disk import ROOT, SETTINGS, BusyDisk
from tests.support.broker_desk import until
from tests.support.hot_path import TOPIC, HotPath, batches, halves, sends

IMAGES = "images of a disk when sends that waited for it were answered"
QUEUES = 8
ROUNDS = 12
_LOOKED_AT = 300
KINDS = [sends, sends, sends, batches, halves]


class Looking:
    """A connection whose answers are taken at their word: the power goes when they are written."""

    def __init__(self, broker: Broker, disk: BusyDisk, chance: Random, checked: Counter[str]) -> None:
        self.path = HotPath(broker)
        self.path.transport.write = self._look  # type: ignore[method-assign]
        self._config = broker.state.store._config
        self._disk, self._chance, self._checked = disk, chance, checked
        self._promised: dict[int, int | None] = {}  # the numbers of messages by their places; batches have none
        self._decoder = FrameDecoder()
        self.answered_most = 0

    def _look(self, data: bytes) -> None:
        answers = self._decoder.receive_data(data)
        self.answered_most = max(self.answered_most, len(answers))
        for answer in answers:
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            ids = answer.ext_fields["msgId"].split(",")
            for message_id in ids:
                self._promised[int(message_id[-16:], 16)] = answer.opaque if len(ids) == 1 else None
        seed = self._chance.randrange(1 << 30)
        with MessageStore.open(ROOT, self._config, lambda: 1, self._disk.crash(seed)) as found:
            for place, number in list(self._promised.items())[-_LOOKED_AT:]:
                message = found.read_at(place)
                assert message is not None and message.topic in (TOPIC, HALF_TOPIC), f"image {seed}: {place} is lost"
                assert number is None or message.properties["UNIQ_KEY"] == f"7F000001{number:024X}", f"image {seed}"
        self._checked.update([IMAGES])


def test_answered_runs_are_on_the_disk(scale: int, checked: Counter[str]) -> None:
    disk, chance = BusyDisk(), Random(9100)

    async def work() -> None:
        settings = {**SETTINGS, "mappedFileSizeCommitLog": "65536", "syncFlushTimeout": "60000"}
        broker = Broker(BrokerSettings(settings), ROOT, disk=disk)
        await broker.start()
        try:
            broker.state.topics.find_or_create(TOPIC, QUEUES)
            clients = [Looking(broker, disk, chance, checked) for _ in range(2)]
            number = 1
            for _ in range(ROUNDS * scale):
                for client in clients:
                    kind = chance.choice(KINDS)
                    count = chance.randrange(1, 4 if kind is batches else 70)
                    client.path.feed(b"".join(kind(count, first=number)))
                    number += count
                    if chance.random() < 0.5:
                        await asyncio.sleep(0)
                if chance.random() < 0.7:
                    await until(lambda: not any(client.path.connection.unanswered for client in clients))
            await until(lambda: not any(client.path.connection.unanswered for client in clients))
            assert all(client.answered_most > 1 for client in clients), "runs are answered together"
            for client in clients:
                client.path.close()
        finally:
            await broker.stop()

    asyncio.run(work())
