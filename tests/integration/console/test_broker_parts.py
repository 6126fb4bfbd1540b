"""Parts that a broker may have, as the console reads them: slaves, a master, users."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from orbitlog.client.admin.administration import administer
from orbitlog.console.views.broker_parts import read_replication, read_users
from tests.support.broker_desk import Desk
from tests.support.replica_pair import Pair, run_pair
from tests.support.secured_broker import ROOT, secured


def test_slaves_of_a_master_and_the_master_of_a_slave_are_reported(tmp_path: Path) -> None:
    async def with_slave(pair: Pair) -> None:
        async with pair.slave() as slave:
            await pair.master.send()
            await pair.copied(slave)
            async with administer(pair.name_server) as admin:
                source = SimpleNamespace(admin=admin)
                master = await read_replication(source, pair.master.address)  # type: ignore[arg-type]
                assert master is not None and len(master.slaves) == 1 and master.master is None
                own = await read_replication(source, slave.address)  # type: ignore[arg-type]
                assert own is not None and own.master and own.is_connected

    run_pair(tmp_path / "pair", with_slave)


def test_users_of_a_secured_broker_are_shown_to_those_who_may_read_them(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        for credentials, expected in ((ROOT, ["root-user"]), (None, None)):
            async with administer(desk.address, credentials=credentials) as admin:
                users = await read_users(SimpleNamespace(admin=admin), desk.address)  # type: ignore[arg-type]
                assert (users and [row.user for row in users]) == expected

    secured(tmp_path, work)
