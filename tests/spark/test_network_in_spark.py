"""The guide of topics in Spark, over the network, inside a real Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitlog.testing.running_broker import RunningBroker

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "spark.md"
ORDERS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("store")) as running:
        with running.connect() as mq:
            for number in range(ORDERS):
                body = json.dumps({"customer": f"c{number % 3}", "amount": number})
                mq.send("Orders", body, tags="paid" if number % 2 else "open", keys=[f"order-{number}"])
        yield running


def test_every_example_of_the_guide_runs(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python spark\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    names: dict[str, Any] = {"address": broker.address, "lake": str(tmp_path)}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert spark.read.parquet(f"{tmp_path}/orders").count() == ORDERS
    assert [(row.customer, row.orders) for row in names["dashboard"].collect()] == [("c0", 20), ("c1", 20), ("c2", 20)]
    source = spark.read.format("rocketmq").option("nameServer", broker.address)
    paid = source.option("subscribe", "PaidOrders").load().collect()
    assert sorted(row["keys"] for row in paid) == sorted(f"order-{number}" for number in range(1, ORDERS, 2))
    assert {row["tags"] for row in paid} == {"checked"}
    written = source.option("subscribe", "FromSpark").load().collect()
    assert [(bytes(row["body"]), row["keys"]) for row in written] == [(b"one", "k1")]
    assert [row["keys"] for row in names["failed"].collect()] == ["k2"]
