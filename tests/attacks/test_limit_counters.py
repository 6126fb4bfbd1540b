"""Every limit is a documented setting, and the broker reports how often it was reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.settings import limits
from orbitlog.settings.limits import BROKER_LIMITS, NAMESERVER_LIMITS
from orbitlog.settings.setting import Setting
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.codes import RequestCode
from tests.support.raw_peer import RawPeer

SETTINGS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


@pytest.mark.parametrize("key", sorted({limit.key for limit in (*BROKER_LIMITS, *NAMESERVER_LIMITS)}))
def test_limit_is_documented(key: str) -> None:
    assert f"| `{key}` |" in SETTINGS_PAGE.read_text()


def test_every_limit_of_the_module_is_in_the_table_of_a_server() -> None:
    defined = {value.key for value in vars(limits).values() if isinstance(value, Setting)}
    assert defined == {limit.key for limit in (*BROKER_LIMITS, *NAMESERVER_LIMITS)}


@pytest.mark.parametrize("limit", {each.key: each for each in (*BROKER_LIMITS, *NAMESERVER_LIMITS)}.values())
def test_row_of_a_limit_states_its_default_and_its_effect(limit: Setting[int]) -> None:
    (row, *_) = [line for line in SETTINGS_PAGE.read_text().splitlines() if line.startswith(f"| `{limit.key}` |")]
    assert str(limit.default) in row.replace(",", "") and limit.help.split("(")[0].strip()[:40] in row


def test_runtime_info_lists_a_counter_for_every_limit(start_target: Callable[..., RunningBroker]) -> None:
    with RawPeer(start_target().broker_address) as peer:
        numbers = orjson.loads(peer.ask(28).body)["table"]
    for limit in BROKER_LIMITS:
        assert int(numbers[f"limitReached_{limit.key}"]) >= 0


def test_name_server_config_lists_a_counter_for_every_limit(start_target: Callable[..., RunningBroker]) -> None:
    target = start_target()
    with RawPeer(target.address) as peer:
        before = settings_of(peer)
        assert {f"limitReached_{limit.key}" for limit in NAMESERVER_LIMITS} <= before.keys()
        assert peer.ask(105, {"topic": "T"}, bytes(5_000)).code != 0
        after = settings_of(peer)
    key = "limitReached_plainBodyBytesMax"
    assert int(after[key]) == int(before[key]) + 1
    shown = CliRunner(env={"NAMESRV_ADDR": target.address}).invoke(cli, ["mqadmin", "getNamesrvConfig"])
    assert key in shown.output


def settings_of(peer: RawPeer) -> dict[str, str]:
    """Return what GET_NAMESRV_CONFIG answers."""
    lines = peer.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)
