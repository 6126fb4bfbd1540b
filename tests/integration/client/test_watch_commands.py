"""`orbitlog exporter` and `orbitlog top` against a running broker."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.client.admin.administration import administer
from orbitlog.client.sampling.cluster_sampler import ClusterSampler, SamplerLimits
from orbitlog.testing.running_broker import RunningBroker
from tests.support.cluster_commands import PROGRAM, objects, run
from tests.support.exposition_parser import parse_exposition

GROUP, TOPICS = "readers", 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with RunningBroker(tmp_path_factory.mktemp("watch") / "store", {"defaultTopicQueueNums": "1"}) as broker:
        for number in range(TOPICS):
            for _ in range(number + 1):
                broker.client.send(f"T{number}", b"x")
        with broker.client.consume("T4", group=GROUP, start_from="first") as consumer:
            delivery = consumer.next(seconds=20)
            assert delivery is not None
            delivery.ack()
            yield broker.address.removeprefix("rocketmq://")


def test_exporter_serves_the_names_of_rocketmq_exporter_until_stopped(cluster: str) -> None:
    command = [str(PROGRAM), "exporter", "-n", cluster, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with urllib.request.urlopen(ready["metrics"], timeout=20) as response:
            found = parse_exposition(response.read().decode())
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert found["rocketmq_producer_offset"].value(topic="T4") == 5
    assert found["rocketmq_broker_tps"].value() >= 0
    assert found["rocketmq_group_count"].value(group=GROUP) == 1
    assert found["rocketmq_brokeruntime_msg_put_total_today_now"].value() == 15
    assert found["orbitlog_exporter_requests_failed_total"].value() == 0


def test_exporter_without_a_cluster_ends_with_one_sentence() -> None:
    problem = run("127.0.0.1:1", "exporter", "--port", "0", exit_code=1)
    assert problem.count("\n") == 1 and "127.0.0.1:1" in problem


@pytest.mark.parametrize("requests_max", [3, 30])
def test_rounds_have_a_bounded_number_of_requests_and_reach_every_detail(cluster: str, requests_max: int) -> None:
    async def rounds() -> None:
        async with administer(cluster) as admin:
            sampler = ClusterSampler(admin, SamplerLimits(requests_max=requests_max))
            before, topics, postponed = 0, set[str](), []
            for _ in range(40):
                sample = await sampler.sample()
                # One request to the name server, six for the tables of the only broker.
                assert sampler.counts.requests - before <= requests_max + 7
                before = sampler.counts.requests
                topics = {key.topic for key in sample.topics}
                postponed.append(sampler.counts.postponed)
            assert {f"T{number}" for number in range(TOPICS)} <= topics
            assert postponed[0] > 0
            assert sampler.counts.failed == 0

    asyncio.run(rounds())


def test_top_prints_one_view(cluster: str) -> None:
    lines = run(cluster, "top", "--once").splitlines()
    assert lines[0].startswith("orbitlog top")
    assert any(line.split()[:2] == ["broker-a", "master"] for line in lines)


def test_top_as_json_has_brokers_and_memory(cluster: str) -> None:
    views = objects(cluster, "top", "--count", "2", "--interval", "0.2")
    assert len(views) == 2
    [broker] = views[1]["brokers"]
    assert broker["inPerSecond"] == 0.0 and broker["diskPercent"] > 0
    if Path("/proc/self/statm").exists():
        assert broker["memoryBytes"] > 1 << 20
