"""The broker that tests start, and the fixtures that hand it out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbitlog.errors import ConnectFailed, OrbitlogError, RemotingError, RequestTimeout
from orbitlog.testing.broker_process import BrokerProcess
from orbitlog.testing.pytest_plugin import MakeBroker
from orbitlog.testing.running_broker import RunningBroker

SECONDS_MAX = 20


def test_each_test_has_a_broker_of_its_own(orbitlog_broker: RunningBroker, make_orbitlog_broker: MakeBroker) -> None:
    other = make_orbitlog_broker(defaultTopicQueueNums=1, brokerName="other")
    with orbitlog_broker.connect() as mq, other.connect() as elsewhere:
        mq.send("Orders", "one")
        assert "Orders" in mq.admin.topics() and "Orders" not in elsewhere.admin.topics()
        elsewhere.send("Orders", "two")
        assert elsewhere.admin.brokers().keys() == {"other"}
        assert len(elsewhere.admin.topic_offsets("Orders")) == 1


def test_what_was_consumed_is_consumed_again(orbitlog_broker: RunningBroker) -> None:
    with orbitlog_broker.connect() as mq:
        mq.send("Orders", "one")
        for _ in range(2):
            with mq.consume("Orders", group="readers", start_from="first") as consumer:
                message = consumer.next(SECONDS_MAX)
                assert message is not None and message.text == "one"
                assert orbitlog_broker.lag("readers") == 1
                with pytest.raises(RequestTimeout, match=r"lag: readers: 1"):
                    orbitlog_broker.wait_until_idle(seconds=0.1)
                message.ack()
                orbitlog_broker.wait_until_idle()
            orbitlog_broker.rewind()


def test_a_broker_is_stopped_and_comes_back_with_its_messages(orbitlog_broker: RunningBroker) -> None:
    with orbitlog_broker.connect() as mq:
        mq.send("Orders", "one")
        orbitlog_broker.stop_broker()
        with pytest.raises(ConnectFailed):
            mq.send("Orders", "lost", timeout=0.2)
        orbitlog_broker.start_broker(port=0)
        mq.send("Orders", "two")
        with mq.consume("Orders", group="readers", start_from="first") as consumer:
            taken = {consumer.next(SECONDS_MAX).text, consumer.next(SECONDS_MAX).text}  # type: ignore[union-attr]
    assert taken == {"one", "two"}


def test_a_broker_that_is_a_process_is_killed_and_comes_back(orbitlog_broker_process: BrokerProcess) -> None:
    broker = orbitlog_broker_process
    with broker.connect() as mq:
        mq.send("Orders", "one")
        killed = broker.process_id
        broker.kill_broker()
        with pytest.raises(RemotingError):
            mq.send("Orders", "lost", timeout=0.2)
        broker.start_broker()
        assert broker.process_id not in (killed, None)
        mq.send("Orders", "two", timeout=SECONDS_MAX)
        with mq.consume("Orders", group="readers", start_from="first") as consumer:
            for _ in range(2):
                consumer.next(SECONDS_MAX).ack()  # type: ignore[union-attr]
            broker.wait_until_idle(seconds=SECONDS_MAX)


def test_process_that_does_not_start_states_why(make_orbitlog_broker: MakeBroker) -> None:
    with pytest.raises(OrbitlogError, match=r"did not start(.|\n)*flushDiskType"):
        make_orbitlog_broker(in_process=False, flushDiskType="SOMETIMES")


def test_pytest_loads_nothing_for_those_who_do_not_ask() -> None:
    program = (
        "import sys, pytest, orbitlog.testing.pytest_plugin;"
        "print(*sorted(name for name in sys.modules if name.startswith(('orbitlog', 'numpy', 'asyncio.base'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["orbitlog", "orbitlog.testing", "orbitlog.testing.pytest_plugin"]


def test_fixture_is_available_in_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "def test_theirs(orbitlog_broker):\n"
        "    with orbitlog_broker.connect() as mq:\n"
        "        assert mq.send('Orders', 'one').status == 'sent'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
