"""Replication handlers: the slaves that follow this master, and its HA address. Mirrors `haStatus` of mqadmin."""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.master_role import MasterRole
from orbitlog.formats.tables.loose_json import Json
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

_NO_CLIENT: Json = {
    "lastReadTimestamp": 0,
    "lastWriteTimestamp": 0,
    "masterFlushOffset": 0,
    "maxOffset": 0,
    "transferredByteInSecond": 0,
}


class ReplicationHandlers:
    """Serves GET_BROKER_HA_STATUS and EXCHANGE_BROKER_HA_INFO."""

    def __init__(self, state: BrokerState, master: MasterRole) -> None:
        self._state = state
        self._master = master

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.addresses,
        }

    def status(self, _: Connection, request: Command) -> Answer:
        """Return the connected slaves and their lag."""
        lag_max = self._state.settings[ha_keys.HA_LAG_BYTES]
        slaves = self._master.slaves
        connections: list[Json] = [
            {
                "addr": slave.peer,
                "diff": slave.lag_bytes,
                "inSync": slave.lag_bytes < lag_max,
                "slaveAckOffset": slave.acked_to,
                "transferFromWhere": slave.sent_to,
                "transferredByteInSecond": slave.bytes_per_second,
            }
            for slave in slaves
        ]
        body: Json = {
            "haClientRuntimeInfo": _NO_CLIENT,
            "haConnectionInfo": connections,
            "inSyncSlaveNums": sum(slave.lag_bytes < lag_max for slave in slaves),
            "master": True,
            "masterCommitLogMaxOffset": self._state.store.written_to,
        }
        return response_to(request, ResponseCode.SUCCESS, body=write_body(body))

    def addresses(self, connection: Connection, request: Command) -> Answer:
        """Return where slaves connect; a master ignores the address of another master."""
        state = self._state
        address = state.address_for(connection)
        host = state.settings[ha_keys.HA_ADDRESS] or address.rpartition(":")[0]
        fields = {"masterAddress": address, "masterFlushOffset": str(state.store.flushed_to)}
        if self._master.port:
            fields["masterHaAddress"] = f"{host}:{self._master.port}"
        return response_to(request, ResponseCode.SUCCESS, ext_fields=fields)
