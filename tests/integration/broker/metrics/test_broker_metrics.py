"""Metrics of a running broker, scraped over HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.testing.running_broker import RunningBroker
from tests.support.exposition_parser import ParsedFamily, parse_exposition

GROUP, IDLE_GROUP = "readers", "gone"


def url(broker: RunningBroker, path: str) -> str:
    assert broker._broker is not None and broker._broker.meters is not None
    host, port = broker._broker.meters.address
    return f"http://{host}:{port}{path}"


def scraped(broker: RunningBroker, accept: str = "") -> dict[str, ParsedFamily]:
    request = urllib.request.Request(url(broker, "/metrics"), headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as response:
        text = response.read().decode()
    return parse_exposition(text, is_open_metrics="openmetrics" in accept)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0",
        "metricsLabel": "zone:a",
        "defaultTopicQueueNums": "1",
    }
    with RunningBroker(tmp_path_factory.mktemp("metrics") / "store", settings) as running:
        for number in range(20):
            running.client.send("T", b"x" * (number + 1))
        running.client.send("T", b"later", delay=3600)
        for group in (GROUP, IDLE_GROUP):
            with running.client.consume("T", group=group, start_from="first") as consumer:
                for _ in range(5):
                    delivery = consumer.next(seconds=10)
                    assert delivery is not None
                    delivery.ack()
        yield running


def test_sends_and_deliveries_are_counted(broker: RunningBroker) -> None:
    families = scraped(broker)
    stored = families["rocketmq_messages_in_total"]
    assert stored.value(topic="T", message_type="normal", is_system="false", zone="a", node_id="broker-a") == 20
    assert stored.value(message_type="delay", is_system="true") == 1
    assert families["rocketmq_message_size"].value(topic="T", le="1024.0") == 20
    assert families["rocketmq_messages_out_total"].value(topic="T", consumer_group=GROUP) >= 5
    answered = families["rocketmq_rpc_latency_milliseconds"]
    sends = answered.value(request_code="send_message_v2", response_code="success", le="+Inf")
    assert sends == 21
    assert families["orbitlog_send_seconds"].value(le="+Inf") == 21
    assert families["orbitlog_log_max_offset"].value() > 0


def test_lag_of_a_group_without_members_is_visible(broker: RunningBroker) -> None:
    families = scraped(broker)
    lag = families["orbitlog_group_lag_messages"]
    assert lag.value(consumer_group=IDLE_GROUP, topic="T", online="false") == 15
    assert families["orbitlog_group_lag_seconds"].value(consumer_group=IDLE_GROUP, topic="T") > 0
    # Apache's family has groups with members only.
    assert "rocketmq_consumer_lag_messages" not in families


def test_lag_of_a_group_with_members_has_apaches_families(broker: RunningBroker) -> None:
    with broker.client.consume("T", group=GROUP, start_from="first") as consumer:
        assert consumer.next(seconds=10) is not None
        families = scraped(broker)
    for name in ("lag_messages", "inflight_messages", "ready_messages", "lag_latency_milliseconds"):
        assert f"rocketmq_consumer_{name}" in families
    assert families["rocketmq_consumer_lag_messages"].value(consumer_group=GROUP, topic="T") >= 14
    assert families["rocketmq_consumer_connections"].value(consumer_group=GROUP, consume_mode="push") == 1


def test_open_metrics_on_request(broker: RunningBroker) -> None:
    families = scraped(broker, "application/openmetrics-text; version=1.0.0")
    assert families["rocketmq_messages_in"].value(topic="T", message_type="normal") == 20


def test_health_pages_follow_the_registration(broker: RunningBroker) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        with urllib.request.urlopen(url(broker, path), timeout=10) as response:
            assert response.status == 200


def test_ready_page_names_what_is_missing(tmp_path: Path) -> None:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    with RunningBroker(tmp_path / "store", settings) as running:
        assert running._broker is not None
        running._broker.state.store.availability.note_full_disk("too full")
        running._broker._registration._known_to.clear()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url(running, "/readyz"), timeout=10)
        assert refused.value.code == 503
        body = refused.value.read().decode()
        refused.value.close()
        assert "disk is too full" in body and "no name server knows this broker" in body
        with urllib.request.urlopen(url(running, "/livez"), timeout=10) as alive:
            assert alive.status == 200
