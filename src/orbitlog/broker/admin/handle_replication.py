"""Replication handlers: the slaves that follow this master, and its HA address. Mirrors `haStatus` of mqadmin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.table_saver import copy_of
from orbitlog.formats.derived.timer_checkpoint import TimerCheckpoint, encode_timer_checkpoint_fields
from orbitlog.formats.records.timer_message import PRECISION_MS
from orbitlog.formats.tables.loose_json import Json
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

if TYPE_CHECKING:
    from orbitlog.broker.admin.admin_table import AdminNeeds
    from orbitlog.replication.master_link import LinkStatus
    from orbitlog.replication.slave_hub import SlaveStatus

_NO_CLIENT: Json = {
    "lastReadTimestamp": 0,
    "lastWriteTimestamp": 0,
    "masterFlushOffset": 0,
    "maxOffset": 0,
    "transferredByteInSecond": 0,
}


class ReplicationHandlers:
    """Serves GET_BROKER_HA_STATUS, EXCHANGE_BROKER_HA_INFO and GET_TIMER_CHECK_POINT."""

    def __init__(self, state: BrokerState, needs: AdminNeeds) -> None:
        self._state = state
        self._master = needs.master
        self._slave = needs.slave
        self._timed = needs.timed

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.addresses,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
        }

    def status(self, _: Connection, request: Command) -> Answer:
        """Return the connected slaves and their lag."""
        lag_max = self._state.settings[ha_keys.HA_LAG_BYTES]
        slaves = self._master.slaves
        connections: list[Json] = [
            {
                "addr": slave.peer,
                "diff": slave.lag_bytes,
                "inSync": _is_in_sync(slave, lag_max),
                "slaveAckOffset": slave.acked_to,
                "transferFromWhere": slave.sent_to,
                "transferredByteInSecond": slave.bytes_per_second,
            }
            for slave in slaves
        ]
        body: Json = {
            "haClientRuntimeInfo": _NO_CLIENT if self._slave is None else self._client_info(self._slave.link),
            "haConnectionInfo": connections,
            "inSyncSlaveNums": sum(_is_in_sync(slave, lag_max) for slave in slaves),
            "master": self._slave is None,
            "masterCommitLogMaxOffset": self._state.store.written_to,
        }
        return response_to(request, ResponseCode.SUCCESS, body=write_body(body))

    def _client_info(self, link: LinkStatus) -> Json:
        """Return the state of a slave's connection; its times are converted to those of the wall clock."""
        now_ms, now_s = self._state.now_ms(), asyncio.get_running_loop().time()
        return {
            "activated": link.is_connected,
            "lastReadTimestamp": int(now_ms - (now_s - link.read_s) * 1000) if link.is_connected else 0,
            "lastWriteTimestamp": int(now_ms - (now_s - link.written_s) * 1000) if link.is_connected else 0,
            "masterAddr": link.master,
            "masterFlushOffset": 0,
            "maxOffset": self._state.store.received_to,
            "transferredByteInSecond": link.bytes_per_second,
        }

    def timer_checkpoint(self, _: Connection, request: Command) -> Answer:
        """Return the progress of timer delivery, from which a slave continues if it becomes a master."""
        progress = copy_of(self._timed)
        checkpoint = TimerCheckpoint(
            # Whole seconds, as slots of Java's wheel: a message later in this second is pending.
            last_read_time_ms=progress.done_to_ms - progress.done_to_ms % PRECISION_MS,
            last_queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
        )
        return response_to(request, ResponseCode.SUCCESS, body=encode_timer_checkpoint_fields(checkpoint))

    def addresses(self, connection: Connection, request: Command) -> Answer:
        """Return where slaves connect; a master ignores the address of another master."""
        state = self._state
        address = state.address_for(connection)
        host = state.settings[ha_keys.HA_ADDRESS] or address.rpartition(":")[0]
        fields = {"masterAddress": address, "masterFlushOffset": str(state.store.flushed_to)}
        if self._master.port:
            fields["masterHaAddress"] = f"{host}:{self._master.port}"
        return response_to(request, ResponseCode.SUCCESS, ext_fields=fields)


def _is_in_sync(slave: SlaveStatus, lag_bytes_max: int) -> bool:
    return not slave.is_observer and slave.lag_bytes < lag_bytes_max
