"""Group requests of operators, over a socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk


def test_groups_are_created_listed_and_deleted(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        body = write_body({"groupName": "Mine", "retryMaxTimes": 3})
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == ResponseCode.SUCCESS
        one = json.loads((await desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="Mine")).body)
        assert one["retryMaxTimes"] == 3
        answer = await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = json.loads(answer.body)
        assert {"Mine", "TOOLS_CONSUMER"} <= set(table["subscriptionGroupTable"])
        assert answer.ext_fields == {"totalGroupNum": str(len(table["subscriptionGroupTable"]))}
        await desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="Mine", cleanOffset="true")
        assert desk.broker.state.groups.find("Mine") is None
        bad = await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"../x"}')
        assert bad.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, work)


@pytest.mark.parametrize("auto_create", [True, False])
def test_config_of_a_missing_group_with_auto_creation_is_the_default(tmp_path: Path, auto_create: bool) -> None:
    async def work(desk: Desk) -> None:
        answer = await desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="New")
        if auto_create:
            assert json.loads(answer.body)["retryMaxTimes"] == 16
        else:
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert desk.broker.state.groups.find("New") is None, "a query creates no group"

    at_desk(tmp_path, work, autoCreateSubscriptionGroup=str(auto_create).lower())


def test_forbidden_group_cannot_read_the_topic(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        await desk.ask(code, group="G", topic="Orders", readable="false")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.NO_PERMISSION
        await desk.ask(code, group="G", topic="Orders", readable="true")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work)
