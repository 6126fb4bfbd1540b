"""The source over the network at a master and a slave: the slave serves while the master does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.testing.running_broker import RunningBroker
from tests.support.replica_pair import SLAVE
from tests.support.source_runs import Stream, read_batch

PLACE = "topic string, queueId int, queueOffset bigint"
COUNT = 50


class RunningSlave(RunningBroker):
    """A slave that is registered at the name server of its master."""

    def __init__(self, store: Path, master: RunningBroker) -> None:
        super().__init__(store, {"brokerName": "b", **SLAVE})
        self._master = master

    @property
    def address(self) -> str:
        return self._master.address

    async def _start_name_server(self) -> None:
        """Start none: it is the master's."""

    def has_copied(self) -> bool:
        copy, store = self._broker, self._master._broker
        assert copy is not None
        assert store is not None
        has_log = copy.state.store.dispatched_to == store.state.store.written_to
        return has_log and copy.state.topics.find("Orders") is not None


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


def send(master: RunningBroker, count: int) -> None:
    with master.connect() as mq:
        for number in range(count):
            mq.send("Orders", f"order {number}")


def test_slave_serves_while_the_master_is_down_and_what_it_lacks_is_not_lost(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "master", {"brokerName": "b"}) as master:
        send(master, COUNT)
        port = int(master.broker_address.rpartition(":")[2])
        given = {"nameServer": master.address, "subscribe": "Orders", "brokerTimeoutMs": "20000"}
        stream = Stream(TopicSource, given | {"startingOffsets": "earliest"}, PLACE)
        start = stream.reader.initialOffset()
        with RunningSlave(tmp_path / "slave", master) as slave:
            slave.wait_for(slave.has_copied, seconds=60)
            planned = stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
            master.stop_broker()
            assert stream.rows(start, planned).num_rows == COUNT
            rows = read_batch(TopicSource, given, PLACE).to_pylist()
            assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == COUNT
            slave.stop_broker()
            master.start_broker(port=port)
            send(master, 1)
            unseen = stream.reader.latestOffset(planned, stream.reader.getDefaultReadLimit())
            master.stop_broker()
            # A slave that is registered alone registers no topics: the queue is not deleted, and its end is not lost.
            slave.start_broker()
            impatient = Stream(TopicSource, given | {"brokerTimeoutMs": "500", "failOnDataLoss": "false"}, PLACE)
            with pytest.raises(BrokerUnavailable, match="no master named b is registered"):
                impatient.rows(planned, unseen)
            master.start_broker(port=port)
            assert stream.rows(planned, unseen).num_rows == 1
