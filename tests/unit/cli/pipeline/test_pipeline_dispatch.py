from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig


def test_without_a_broker_it_reports_it_and_starts_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, StoreConfig(dispatch_engine="spark"), lambda: 0).close()
    ended = CliRunner().invoke(cli, ["pipeline", "dispatch", str(tmp_path)])
    assert ended.exit_code == 1
    assert (
        ended.stderr
        == f"orbitlog: no broker has {tmp_path} open; a broker dispatches the rest when it opens the store\n"
    )
