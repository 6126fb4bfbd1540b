"""Slave of a replica group: when it takes over the progress of its master, and what it reports."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from orbitlog.broker.replicas.broker_group import GroupSlave, _CopiedTerm
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.replication.group_headers import TablesRequest, TablesResponse

MASTER, EPOCH, LOG_END = "master:1", 7, 900


class Master:
    """A master whose last change of tables is 4; it notes what was asked and copied, in order."""

    def __init__(self, member: SimpleNamespace) -> None:
        self.events: list[str] = []
        self.member = member
        self.after_fetch = lambda: None

    async def invoke(self, address: str, request: Command, _: float) -> Command:
        assert address == MASTER
        asked = TablesRequest.from_ext_fields(request.ext_fields)
        self.events.append(f"asked with {asked.saved_number}")
        answer = TablesResponse(number=4, log_end=LOG_END)
        return Command(ResponseCode.SUCCESS, ext_fields=answer.to_ext_fields())

    async def copy_definitions(self, _: str) -> None:
        self.events.append("definitions")

    async def fetch_progress(self, _: str) -> str:
        self.events.append("fetched")
        asyncio.get_running_loop().call_soon(self.after_fetch)
        return "progress"

    async def take_progress(self, progress: str) -> None:
        self.events.append(f"took {progress} at {self.member.log.confirmed_to}")

    async def save_all(self) -> None:
        self.events.append("saved")


def slave_of(master: Master) -> GroupSlave:
    slave = GroupSlave.__new__(GroupSlave)  # without the connections and tables of a broker
    fakes: dict[str, Any] = {
        "_client": master,
        "_tables": master,
        "_driver": SimpleNamespace(member=master.member),
        "_find_master": lambda: MASTER,
        "_saved_number": 3,
    }
    vars(slave).update(fakes)
    return slave


def member_at(confirmed_to: int) -> SimpleNamespace:
    return SimpleNamespace(
        context=SimpleNamespace(member_id=2),
        log=SimpleNamespace(confirmed_to=confirmed_to),
        following=SimpleNamespace(epoch=EPOCH),
    )


def test_progress_waits_until_the_log_that_it_refers_to_is_confirmed() -> None:
    async def run() -> None:
        member = member_at(LOG_END - 1)
        master = Master(member)
        master.after_fetch = lambda: setattr(member.log, "confirmed_to", LOG_END)
        await slave_of(master)._copy_changed(_CopiedTerm(MASTER, EPOCH))
        # The end of the log is asked for after the progress was read.
        expected = ["asked with 3", "definitions", "fetched", "asked with 3", f"took progress at {LOG_END}", "saved"]
        assert master.events == expected

    asyncio.run(run())


def test_copy_of_a_master_that_is_not_followed_any_more_is_not_reported() -> None:
    async def run() -> None:
        member = member_at(0)
        master = Master(member)
        master.after_fetch = lambda: setattr(member.following, "epoch", EPOCH + 1)
        slave = slave_of(master)
        await slave._copy_changed(_CopiedTerm(MASTER, EPOCH))
        assert "saved" not in master.events
        assert slave._saved_number == 3

    asyncio.run(run())
