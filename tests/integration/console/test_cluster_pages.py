"""Pages and API of the console over a real broker: same figures, every page renders, missing servers are named."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from orbitlog.console.console_options import ClusterChoice
from orbitlog.console.session.console_roles import Role
from orbitlog.console.web.endpoint_table import ENDPOINTS
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import CONSUMED, ORDERS, options_of
from tests.support.console_site import ConsoleSite

ROOT = "/clusters/shop"


def filled(path: str, broker: RunningBroker) -> str:
    for name, value in (
        ("cluster", "shop"),
        ("address", broker.broker_address),
        ("topic", "Orders"),
        ("group", "billing"),
    ):
        path = path.replace(f"{{{name}}}", value)
    return path


def test_every_page_and_its_json_are_served(site: ConsoleSite, busy_broker: RunningBroker) -> None:
    message = site.api(f"{ROOT}/topics/Orders/messages?limit=1")["items"][0]["offsetMsgId"]
    for endpoint in ENDPOINTS:
        if endpoint.is_store or endpoint.role is not Role.VIEWER:
            continue  # tests of store pages and changes cover these
        path = filled(endpoint.path, busy_broker).replace("{message}", message)
        assert site.get(f"/api/v1{path}").status == 200, path
        if endpoint.template is not None:
            page = site.get(path)
            assert page.status == 200, path
            assert page.text.count("<h1>") == 1, path


def test_progress_of_a_group_equals_the_admin_client(site: ConsoleSite, busy_broker: RunningBroker) -> None:
    expected = {
        (entry.queue.topic, entry.queue.queue_id): (entry.committed, entry.end)
        for entry in busy_broker.client.admin.progress("billing")
    }
    answer = site.api(f"{ROOT}/groups/billing")
    assert {(row["topic"], row["queueId"]): (row["committed"], row["end"]) for row in answer["queues"]} == expected
    assert answer["lag"] == sum(end - committed for committed, end in expected.values()) == ORDERS - CONSUMED
    assert answer["problems"] == []


def test_topic_counts_its_messages_and_names_its_groups(site: ConsoleSite) -> None:
    answer = site.api(f"{ROOT}/topics/Orders")
    assert answer["messages"] == ORDERS
    assert answer["groups"] == ["billing"]
    assert sum(row["messages"] for row in answer["queues"]) == ORDERS
    row = next(row for row in site.api(f"{ROOT}/topics")["items"] if row["topic"] == "Orders")
    assert (row["messages"], row["queues"], row["groups"]) == (ORDERS, 4, 1)


def test_system_topics_are_hidden_until_asked_for(site: ConsoleSite) -> None:
    hidden = {row["topic"] for row in site.api(f"{ROOT}/topics")["items"]}
    shown = {row["topic"] for row in site.api(f"{ROOT}/topics?system=true&limit=500")["items"]}
    assert not any(topic.startswith(("%RETRY%", "rmq_sys_", "SCHEDULE")) for topic in hidden)
    assert "SCHEDULE_TOPIC_XXXX" in shown
    by_kind = site.api(f"{ROOT}/topics?q=kind:system&limit=500")["items"]
    assert {row["kind"] for row in by_kind} == {"system"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/clusters/other/overview", 404),
        (f"{ROOT}/topics/nothing", 404),
        (f"{ROOT}/groups/nothing", 404),
        (f"{ROOT}/brokers/10.0.0.1:1", 404),
        (f"{ROOT}/topics?sort=size", 400),
        (f"{ROOT}/topics?limit=0", 400),
        (f"{ROOT}/topics?limit=many", 400),
        (f"{ROOT}/topics?after=x", 400),
        (f"{ROOT}/topics?colour=red", 400),
        (f"{ROOT}/groups?q=lag:>many", 400),
        ("/nowhere", 404),
    ],
)
def test_wrong_questions_are_answered_with_a_sentence(site: ConsoleSite, path: str, status: int) -> None:
    page, answer = site.get(path), site.get(f"/api/v1{path}")
    assert (page.status, answer.status) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status and answer.json["detail"]
    assert 'role="alert"' in page.text


def test_refresh_of_a_page_returns_its_live_part_only(site: ConsoleSite) -> None:
    part = site.get(f"{ROOT}/groups/billing", **{"HX-Request": "true"}).text
    assert "Progress" in part and "<html" not in part and "<nav" not in part


def test_openapi_document_describes_every_endpoint(site: ConsoleSite) -> None:
    document = site.api("/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert len(document["paths"]) == len(ENDPOINTS)
    text = site.get("/api/v1/openapi.json").text
    for name in set(re.findall(r'"#/components/schemas/(\w+)"', text)):
        assert name in document["components"]["schemas"], name


def test_a_cluster_without_its_broker_is_a_problem_and_its_figures_unknown(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store") as broker:
        options = options_of(broker, tmp_path / "data")
        with ConsoleSite(options) as site:
            assert site.api(f"{ROOT}/overview")["healthy"] is True
            broker.stop_broker()
            site.server.console.clusters["shop"]._watched_until = 0.0  # the next page takes a fresh sample
            answer = site.api(f"{ROOT}/overview")
            assert answer["healthy"] is False
            assert answer["findings"][0]["severity"] == "problem"
            assert answer["inPerSecond"] is None
            assert "no broker is registered" in answer["findings"][0]["sentence"]
            assert "unknown" in site.get(f"{ROOT}/overview").text
            for page in ("later", "transactions"):
                part = site.api(f"{ROOT}/{page}")
                assert part["problems"] and part["complete"] is False, page
                assert "is unknown" in site.get(f"{ROOT}/{page}").text, page


def test_a_name_server_that_was_never_reached_leaves_nothing_known(tmp_path: Path, busy_broker: RunningBroker) -> None:
    nowhere = (ClusterChoice("shop", "127.0.0.1:1"),)
    with ConsoleSite(options_of(busy_broker, tmp_path, clusters=nowhere)) as site:
        answer = site.api(f"{ROOT}/overview")
        assert (answer["healthy"], answer["lag"], answer["inPerSecond"]) == (False, None, None)
        assert site.api(f"{ROOT}/topics")["complete"] is False


def test_messages_of_a_topic_are_counted_in_buckets_of_fitting_width(site: ConsoleSite) -> None:
    day = site.api(f"{ROOT}/topics/Orders/statistics?hours=24")
    assert (day["total"], day["bucketMs"], day["complete"]) == (ORDERS, 60 * 60_000, True)
    hour = site.api(f"{ROOT}/topics/Orders/statistics?hours=1")
    assert (hour["total"], hour["bucketMs"]) == (ORDERS, 2 * 60_000)
    assert len(hour["items"]) <= 48
    assert site.get(f"/api/v1{ROOT}/topics/Orders/statistics?hours=0").status == 400


def test_heat_map_has_the_lag_of_each_queue_once_the_group_was_shown(
    site: ConsoleSite, busy_broker: RunningBroker
) -> None:
    site.api(f"{ROOT}/groups/billing/heat")
    source = site.server.console.clusters["shop"]
    source.history._points.clear()
    busy_broker.wait_for(lambda: site.api(f"{ROOT}/groups/billing/heat")["rows"], seconds=60)
    rows = site.api(f"{ROOT}/groups/billing/heat")["rows"]
    assert sum(row["lags"][-1] for row in rows) == ORDERS - CONSUMED
    assert {row["name"].split()[0] for row in rows} == {"Orders"}
    groups = {row["name"]: row["lags"][-1] for row in site.api(f"{ROOT}/history")["groups"]}
    assert groups["billing"] == ORDERS - CONSUMED


def test_statistics_choose_the_span_that_the_oldest_message_needs(site: ConsoleSite) -> None:
    answer = site.api(f"{ROOT}/topics/Orders/statistics")
    assert (answer["hours"], answer["total"]) == (1.0, ORDERS)


def test_queues_of_a_topic_state_since_when_they_keep_messages(site: ConsoleSite) -> None:
    queues = site.api(f"{ROOT}/topics/Orders")["queues"]
    assert all(0 < row["oldest"] <= row["lastWrite"] for row in queues)


def test_overview_counts_the_topics_that_the_list_shows(site: ConsoleSite) -> None:
    assert site.api(f"{ROOT}/overview")["topics"] == site.api(f"{ROOT}/topics")["total"]


def test_group_is_stuck_only_if_its_members_commit_nothing(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"defaultTopicQueueNums": "1"}) as broker:
        options = options_of(broker, tmp_path / "data", stuck_after_seconds=12.0)
        with ConsoleSite(options) as site:
            broker.client.admin.create_topic("Waits", 1)
            for number in range(200):
                broker.client.send("Waits", f"{number}")

            def states() -> tuple[str, set[str]]:
                findings = site.api(f"{ROOT}/overview")["findings"]
                sentences = {found["sentence"].partition(":")[0] for found in findings}
                return site.api(f"{ROOT}/groups/slow")["state"], sentences

            with broker.client.consume("Waits", group="slow", start_from="first") as consumer:

                def is_behind() -> bool:
                    """Consume a message, much more slowly than they wait; return whether the overview reports it."""
                    delivery = consumer.next(seconds=5)
                    assert delivery is not None
                    delivery.ack()
                    time.sleep(0.5)
                    state, sentences = states()
                    assert state == "running" and "group slow is stuck" not in sentences
                    return "group slow lags" in sentences

                broker.wait_for(is_behind, seconds=90)
                # From here on the member consumes nothing.
                broker.wait_for(lambda: states() == ("stuck", {"group slow is stuck"}), seconds=90)
                [row] = [row for row in site.api(f"{ROOT}/groups")["items"] if row["group"] == "slow"]
                assert row["behindMs"] >= 12_000


def test_broker_page_has_its_rates_over_time(site: ConsoleSite) -> None:
    [broker] = site.api(f"{ROOT}/brokers")["items"]
    points = site.api(f"{ROOT}/history?broker={broker['name']}")["points"]
    assert points and all(point["lag"] is None for point in points)
    assert any(point["inPerSecond"] is not None for point in points)
    assert all(point["inPerSecond"] is None for point in site.api(f"{ROOT}/history?broker=other")["points"])
