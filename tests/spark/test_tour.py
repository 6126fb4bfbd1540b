"""The whole tour, as `make demo` runs it: its output is read for what matters."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq

from tests.spark.conftest import ORBITLOG

SHOWN = [
    "up", "sent", "consumed", "delayed", "transactions", "console", "dispatched", "key", "sql", "exported", "chart",
    "killed", "doctor", "spark", "checked", "access",
]  # fmt: skip
ORDERS = 40


def test_everything_is_shown_and_holds(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [*ORBITLOG, "demo", "--json", "--orders", str(ORDERS), "--keep", str(kept)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    shown = {each["name"]: each for each in report["shown"]}
    if shutil.which("etcd") is None:
        assert list(shown) == SHOWN and report["leftOut"] == ["the failover"]
    else:
        assert list(shown) == [*SHOWN, "failover"] and report["leftOut"] == []
        assert shown["failover"]["missing"] == 0 and shown["failover"]["acknowledged"] == 400
    assert report["holds"]
    first_lot, second_lot = 4 * (4 * ORDERS - 8 - 4), 4 * (4 * ORDERS // 4 - 2 - 1)
    assert shown["dispatched"]["messages"] >= second_lot
    assert shown["key"]["found"] == 4
    orders = first_lot + second_lot
    assert sum(row["orders"] for row in shown["sql"]["rows"]) == shown["exported"]["rowsRead"] == orders
    assert shown["doctor"]["different"] == shown["spark"]["different"] == []
    assert shown["doctor"]["files"] == shown["spark"]["files"]
    # Other programs can read the results.
    table = pq.read_table(report["places"]["table"], columns=["price"])
    assert table.num_rows == orders and table["price"].null_count == 0
    assert Path(report["places"]["chart"]).read_bytes().startswith(b"\x89PNG")
