"""Every limit is a documented setting, and the broker reports how often it was reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from orbitlog.settings.limits import BROKER_LIMITS, NAMESERVER_LIMITS
from orbitlog.testing.running_broker import RunningBroker
from tests.support.raw_peer import RawPeer

SETTINGS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


@pytest.mark.parametrize("key", sorted({limit.key for limit in (*BROKER_LIMITS, *NAMESERVER_LIMITS)}))
def test_limit_is_documented(key: str) -> None:
    assert f"| `{key}` |" in SETTINGS_PAGE.read_text()


def test_runtime_info_lists_a_counter_for_every_limit(start_target: Callable[..., RunningBroker]) -> None:
    with RawPeer(start_target().broker_address) as peer:
        numbers = orjson.loads(peer.ask(28).body)["table"]
    for limit in BROKER_LIMITS:
        assert int(numbers[f"limitReached_{limit.key}"]) >= 0
