"""Changes by the console: dry run with before and after, confirmation, audit, roles; none without --write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.console_users import UserFile
from orbitlog.console.web.change_table import CHANGES
from orbitlog.testing.running_broker import RunningBroker
from tests.integration.console.conftest import ORDERS, QUEUES, add_orders, options_of
from tests.support.console_changer import Changer
from tests.support.console_site import ConsoleSite

ROOT = "/clusters/shop"
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that these tests may change."""
    with RunningBroker(tmp_path_factory.mktemp("changed") / "store") as broker:
        add_orders(broker)
        yield broker


@pytest.fixture(scope="module")
def changer(own_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changer]:
    directory = tmp_path_factory.mktemp("changes")
    with ConsoleSite(options_of(own_broker, directory, may_write=True)) as site:
        yield Changer(site, directory)


def committed(broker: RunningBroker, group: str) -> list[int]:
    return [entry.committed for entry in broker.client.admin.progress(group, "Orders")]


def test_topic_is_created_changed_and_deleted(changer: Changer, own_broker: RunningBroker) -> None:
    broker = own_broker.client.admin.brokers().popitem()[1]
    plan = changer.plan("PUT", "/topics/Fresh", readQueues=3, writeQueues=3)
    assert plan["action"] == "create topic" and plan["lines"][0]["before"] is None
    assert "Fresh" not in own_broker.client.admin.topic_configs(broker)
    assert changer.apply("PUT", "/topics/Fresh", plan, readQueues=3, writeQueues=3).json["done"] is True
    assert own_broker.client.admin.topic_configs(broker)["Fresh"].read_queue_count == 3
    plan = changer.plan("PUT", "/topics/Fresh", writeQueues=2)
    assert [(line["before"], line["after"]) for line in plan["lines"]] == [("3", "2")]
    assert "fewer queues" in plan["warnings"][0]
    changer.both("PUT", "/topics/Fresh", writeQueues=2)
    assert own_broker.client.admin.topic_configs(broker)["Fresh"].write_queue_count == 2
    plan = changer.plan("DELETE", "/topics/Fresh")
    assert plan["confirm"] == "Fresh"
    assert changer.apply("DELETE", "/topics/Fresh", plan, confirm="fresh").status == 400
    assert "Fresh" in own_broker.client.admin.topic_configs(broker)
    assert changer.apply("DELETE", "/topics/Fresh", plan).json["done"] is True
    assert "Fresh" not in own_broker.client.admin.topic_configs(broker)
    lines = [(entry["action"], entry["result"]) for entry in changer.audit if entry.get("target") == "Fresh"]
    assert lines[-2:] == [("delete topic", "started"), ("delete topic", "done")]
    assert changer.audit[-1]["user"] == "local admin" and changer.audit[-1]["role"] == "admin"


def test_group_is_moved_as_planned_and_only_once(changer: Changer, own_broker: RunningBroker) -> None:
    changer.both("PUT", "/groups/mover")
    own_broker.client.admin.reset_offsets("mover", "Orders", 2)
    fields = {"topic": "Orders", "to": "earliest"}
    plan = changer.plan("POST", "/groups/mover/moves", **fields)
    assert f"replays {2 * QUEUES} messages" in plan["sentence"]
    assert {(line["before"], line["after"]) for line in plan["lines"]} == {("2", "0")}
    assert committed(own_broker, "mover") == [2] * QUEUES
    reply = changer.apply("POST", "/groups/mover/moves", plan, **fields)
    assert reply.status == 200 and reply.json["done"] is True
    assert committed(own_broker, "mover") == [0] * QUEUES
    again = changer.apply("POST", "/groups/mover/moves", plan, **fields)
    assert again.status == 409 and again.json["isEmpty"] is True
    one = changer.both("POST", "/groups/mover/moves", topic="Orders", to="offset", offset=1, queue=3)
    assert [line["result"] for line in one["lines"]] == ["committed offset is 1"]
    assert committed(own_broker, "mover") == [0, 0, 0, 1]


def test_a_plan_of_another_state_is_refused_with_the_new_plan(changer: Changer, own_broker: RunningBroker) -> None:
    own_broker.client.admin.reset_offsets("billing", "Orders", 2)
    fields = {"topic": "Orders", "to": "offset", "offset": 0}
    plan = changer.plan("POST", "/groups/billing/moves", **fields)
    own_broker.client.admin.reset_offsets("billing", "Orders", 1)
    reply = changer.apply("POST", "/groups/billing/moves", plan, **fields)
    assert reply.status == 409
    assert {line["before"] for line in reply.json["lines"]} == {"1"}
    assert committed(own_broker, "billing") == [1] * QUEUES
    own_broker.client.admin.reset_offsets("billing", "Orders", 2)


def test_group_is_switched_off_and_deleted(changer: Changer, own_broker: RunningBroker) -> None:
    broker = own_broker.client.admin.brokers().popitem()[1]
    changer.both("PUT", "/groups/short-lived", retryTimesMax=3)
    plan = changer.plan("PUT", "/groups/short-lived", consume="no")
    assert [(line["before"], line["after"]) for line in plan["lines"]] == [("on", "off")]
    changer.both("PUT", "/groups/short-lived", consume="no")
    config = own_broker.client.admin.groups(broker)["short-lived"]
    assert (config.consume_enabled, config.retry_times_max) == (False, 3)
    changer.both("DELETE", "/groups/short-lived", forgetOffsets=True)
    assert "short-lived" not in own_broker.client.admin.groups(broker)


def test_message_is_sent_once_for_one_plan(changer: Changer, own_broker: RunningBroker) -> None:
    own_broker.client.admin.create_topic("Sent", 1)
    fields = {"body": "<b>hello</b>", "tags": "new", "keys": "a b", "properties": "colour=red\nsize=7"}
    plan = changer.plan("POST", "/topics/Sent/messages", **fields)
    shown = {line["what"]: line["after"] for line in plan["lines"]}
    assert shown["property colour"] == "red" and shown["property KEYS"] == "a b"
    reply = changer.apply("POST", "/topics/Sent/messages", plan, **fields)
    assert reply.json["done"] is True and "offset 0" in reply.json["lines"][0]["result"]
    assert changer.apply("POST", "/topics/Sent/messages", plan, **fields).status == 409
    listing = changer.site.api(f"{ROOT}/topics/Sent/messages")
    assert [row["preview"] for row in listing["items"]] == ["<b>hello</b>"]
    message = listing["items"][0]["offsetMsgId"]
    copy = changer.both("POST", f"/messages/{message}/copies")
    assert "offset 1" in copy["lines"][0]["result"]
    bad = changer.site.change("POST", f"{ROOT}/topics/Sent/messages?plan=true", changer.csrf, {"body": 1})
    assert bad.status == 400 and "body" in bad.json["detail"]


def test_message_is_delivered_to_a_connected_member(changer: Changer, own_broker: RunningBroker) -> None:
    message = changer.site.api(f"{ROOT}/topics/Orders/messages?limit=1")["items"][0]["offsetMsgId"]
    reply = changer.site.change(
        "POST", f"{ROOT}/messages/{message}/deliveries?plan=true", changer.csrf, {"group": "billing"}
    )
    assert reply.status == 409 and "no connected member" in reply.json["detail"]


def test_setting_of_a_broker_is_changed_until_its_restart(changer: Changer, own_broker: RunningBroker) -> None:
    path = f"/brokers/{own_broker.broker_address}/settings"
    plan = changer.plan("PUT", path, key="fileReservedTime", value="71")
    assert plan["lines"] == [{"what": "fileReservedTime", "before": "72", "after": "71"}]
    assert changer.both("PUT", path, key="fileReservedTime", value="71")["done"] is True
    changer.both("PUT", path, key="fileReservedTime", value="72")
    unknown = changer.site.change("PUT", f"{ROOT}{path}?plan=true", changer.csrf, {"key": "fileReserved", "value": "1"})
    assert unknown.status == 404 and "fileReservedTime" in unknown.json["detail"]


def test_pages_lead_from_fields_to_plan_to_result(changer: Changer, own_broker: RunningBroker) -> None:
    own_broker.client.admin.reset_offsets("billing", "Orders", 2)
    path = f"{ROOT}/groups/billing/move"
    assert f"{ROOT}/groups/billing/move" in changer.site.get(f"{ROOT}/groups/billing").text
    form = changer.site.get(f"{path}?topic=Orders").text
    assert 'value="Orders"' in form and "Show the plan" in form
    fields = {"csrf": changer.csrf, "topic": "Orders", "to": "latest"}
    assert changer.site.post(path, {**fields, "csrf": "x" * 43}).status == 403
    planned = changer.site.post(path, {**fields, "step": "plan"})
    assert f"skips {ORDERS - 2 * QUEUES} unread messages" in planned.text and "Move group: billing" in planned.text
    plan_id = planned.text.split('name="planId" value="')[1].split('"')[0]
    done = changer.site.post(path, {**fields, "step": "apply", "planId": plan_id})
    assert done.status == 200 and "Done: move group billing" in done.text
    assert sum(committed(own_broker, "billing")) == ORDERS
    own_broker.client.admin.reset_offsets("billing", "Orders", 2)


def paths(broker: RunningBroker) -> list[tuple[str, str, str]]:
    values = {"cluster": "shop", "topic": "Orders", "group": "billing", "message": "0" * 32, "store": "store"}
    values |= {"address": broker.broker_address, "broker": "broker-a", "id": "0"}
    return [(kind.method, kind.path.format_map(values), kind.page.format_map(values)) for kind in CHANGES]


def test_changes_do_not_exist_in_a_read_only_console(site: ConsoleSite, own_broker: RunningBroker) -> None:
    for method, path, page in paths(own_broker):
        reply = site.change(method, f"{path}?plan=true", "", {})
        assert reply.status in (404, 405), (method, path)
        assert site.get(page).status == 404, page
    assert "move" not in site.api("/openapi.json")["paths"]
    assert "/move" not in site.get(f"{ROOT}/groups/billing").text


@pytest.fixture(scope="module")
def roles_site(own_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    directory = tmp_path_factory.mktemp("roles")
    users = UserFile(directory)
    for role in (Role.VIEWER, Role.OPERATOR):
        users.put(role.word, role, PASSWORD)
    with ConsoleSite(options_of(own_broker, directory, may_write=True)) as site:
        yield site


@pytest.mark.parametrize("role", [Role.NONE, Role.VIEWER, Role.OPERATOR])
def test_every_change_needs_its_role(roles_site: ConsoleSite, own_broker: RunningBroker, role: Role) -> None:
    roles_site.cookie, csrf = "", ""
    if role is not Role.NONE:
        assert roles_site.post("/sign-in", {"name": role.word, "password": PASSWORD}).status == 303
        csrf = roles_site.csrf_token()
    for kind, (method, path, page) in zip(CHANGES, paths(own_broker), strict=True):
        reply, form = roles_site.change(method, f"{path}?plan=true", csrf, {}), roles_site.get(page)
        if role is Role.NONE:
            assert (reply.status, form.status) == (401, 303), path
        elif role < kind.role:
            assert (reply.status, form.status) == (403, 403), path
        else:
            assert reply.status not in (401, 403) and form.status == 200, path
            assert roles_site.change(method, f"{path}?plan=true", "", {}).status == 403, path
            assert roles_site.change(method, f"{path}?plan=true", "x" * 43, {}).status == 403, path


def test_visitors_without_the_printed_address_only_read(own_broker: RunningBroker, tmp_path: Path) -> None:
    with ConsoleSite(options_of(own_broker, tmp_path, may_write=True)) as site:
        assert site.get(f"{ROOT}/overview").status == 200
        for method, path, page in paths(own_broker):
            assert site.change(method, f"{path}?plan=true", "", {}).status == 403, path
            assert site.get(page).status == 403, page
