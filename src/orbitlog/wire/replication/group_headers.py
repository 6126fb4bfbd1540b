"""Headers of requests to members of a replica group. Mirrors Java `ElectMasterRequestHeader`."""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, long, text


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ElectMasterRequest(Header):
    """Make a member the master (1002).

    `accepts_loss` is Orbitlog's own: elect it although it may lack acknowledged messages.
    """

    broker_name: str = text("brokerName")
    broker_id: int = long("brokerId")
    accepts_loss: bool = boolean("orbitlogAcceptLoss", default=False)
