"""Headers of requests to members of a replica group. The first mirrors Java `ElectMasterRequestHeader`."""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, integer, long, text

TABLES_FIELD = "orbitlogSavedTables"
"""The field that makes a request for a group's state (1006) one for the last change of a master's tables."""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ElectMasterRequest(Header):
    """Make a member the master (1002).

    `accepts_loss` is Orbitlog's own: elect it although it may lack acknowledged messages.
    """

    broker_name: str = text("brokerName")
    broker_id: int = long("brokerId")
    accepts_loss: bool = boolean("orbitlogAcceptLoss", default=False)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class TablesRequest(Header):
    """Ask a group's master for the last change of its tables (1006 with these fields, between Orbitlog brokers).

    `saved_number` is the last change that the slave has saved; the answer waits `wait_ms` for a later one.
    """

    member_id: int = long("orbitlogMember")
    epoch: int = integer("orbitlogEpoch")
    saved_number: int = long(TABLES_FIELD)
    wait_ms: int = integer("orbitlogWaitMs")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class TablesResponse(Header):
    """The number of the last change of the master's tables, and the end of its log."""

    number: int = long("orbitlogTables")
    log_end: int = long("orbitlogLogEnd")
