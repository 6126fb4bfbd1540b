"""Settings and numbers of a running broker, over a socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitlog.broker.runtime.broker_settings import BROKER_SETTINGS
from orbitlog.settings.runtime_keys import RUNTIME_KEYS
from orbitlog.settings.store_settings import SETTINGS
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk


@pytest.mark.parametrize(
    "text",
    [
        "storePathRootDir=/elsewhere",
        "bindAddress=0.0.0.0",
        "brokerIP1=10.0.0.1",
        "namesrvAddr=evil:9876",
        "rocketmqHome=$(touch x)",
        "filterServerNums=1",
        "aclEnable=true",
        "inSyncReplicas=2",
        "maxMessageSize=2048\nlistenPort=1",
    ],
)
def test_unsafe_settings_cannot_be_changed(tmp_path: Path, text: str) -> None:
    async def work(desk: Desk) -> None:
        before = desk.broker.state.settings.effective()
        answer = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert desk.broker.state.settings.effective() == before

    at_desk(tmp_path, work)


def test_changeable_settings_are_changed(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        changed = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=2048\nbrokerPermission=2\n")
        assert changed.code == ResponseCode.SUCCESS
        shown = await desk.ask(RequestCode.GET_BROKER_CONFIG)
        assert b"\nmaxMessageSize=2048\n" in shown.body and "counter" in shown.ext_fields["version"]
        assert (await desk.pull()).code == ResponseCode.NO_PERMISSION
        assert (await desk.send(body=b"x" * 2049)).code == ResponseCode.MESSAGE_ILLEGAL
        wrong = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=many")
        assert wrong.code == ResponseCode.INVALID_PARAMETER

    at_desk(tmp_path, work)


def test_no_runtime_setting_is_a_path_an_address_or_a_name() -> None:
    modes = {"defaultMessageRequestMode": "PULL"}  # one of two words
    for key in RUNTIME_KEYS:
        default = {**SETTINGS, **BROKER_SETTINGS}[key].default
        if key not in modes:
            assert all(isinstance(one, int) for one in (default if isinstance(default, tuple) else (default,))), key


def test_runtime_info_has_the_keys_that_tools_read(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.send()
        await desk.pull()
        numbers = json.loads((await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        for key in ("putTps", "getTransferedTps", "getTransferredTps", "getTotalTps"):
            assert len([float(part) for part in numbers[key].split(" ")]) == 3
        assert int(numbers["earliestMessageTimeStamp"]) > 0 and 0 < float(numbers["commitLogDiskRatio"]) < 1
        assert numbers["msgPutTotalTodayNow"] == numbers["msgGetTotalTodayNow"] == "1"
        put = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="Orders")
        assert json.loads(put.body)["statsMinute"]["sum"] == 1
        none = await desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="None")
        assert none.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)
