"""Groups as operators see them, over a socket."""

from __future__ import annotations

import json
from pathlib import Path

from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.broker_desk import Desk, at_desk


def test_groups_are_made_listed_and_deleted(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        body = write_body({"groupName": "Mine", "retryMaxTimes": 3})
        assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == ResponseCode.SUCCESS
        one = json.loads((await desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="Mine")).body)
        assert one["retryMaxTimes"] == 3
        table = json.loads((await desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert {"Mine", "TOOLS_CONSUMER"} <= set(table["subscriptionGroupTable"])
        await desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="Mine", cleanOffset="true")
        gone = await desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="Mine")
        assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        bad = await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"../x"}')
        assert bad.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, work)


def test_a_group_may_be_kept_from_a_topic(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.heartbeat()
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        await desk.ask(code, group="G", topic="Orders", readable="false")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.NO_PERMISSION
        await desk.ask(code, group="G", topic="Orders", readable="true")
        assert (await desk.pull(sys_flag=0, subscription=None)).code == ResponseCode.SUCCESS

    at_desk(tmp_path, work)
