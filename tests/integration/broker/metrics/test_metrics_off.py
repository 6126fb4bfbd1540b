"""A broker without metrics loads nothing of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_broker_without_metrics_loads_nothing_of_them(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
async def run():
    broker = Broker(BrokerSettings({{"listenPort": "0", "vipChannelEnable": "false"}}), Path({str(tmp_path)!r}))
    await broker.start()
    await broker.stop()
asyncio.run(run())
print(*sorted(name for name in sys.modules if name.startswith(("orbitlog.observe", "orbitlog.broker.metrics"))))
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["orbitlog.observe", "orbitlog.observe.conditions", "orbitlog.observe.metrics_settings"]
