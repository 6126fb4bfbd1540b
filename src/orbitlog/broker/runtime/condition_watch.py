"""Condition watch: reads conditions of a broker from state that exists anyway, once a second.

Conditions are a disk that is too full, a store that is read-only, limits and quotas that clients reach, lost replicas
and masters, lag of dispatch and flush, and a certificate that expires. Sends are not slowed down by it. Conditions that
other parts notice themselves, such as a lost name server, are reported there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.observe import conditions as kinds
from orbitlog.observe.conditions import ReachedCounters

if TYPE_CHECKING:
    from orbitlog.access.account_quotas import AccountQuotas
    from orbitlog.broker.runtime.master_role import MasterRole
    from orbitlog.broker.slave.slave_role import SlaveRole
    from orbitlog.observe.certificate_watch import CertificateWatch
    from orbitlog.observe.conditions import Conditions
    from orbitlog.remoting.tls.server_tls import ServerTls

# A slave that does not come back is expected for this time.
_EXPECTED_MS = 3_600_000
_SUSTAINED_MS = 30_000
# A master may be away for this time, as during its restart, before the slave reports it.
_MASTER_MS = 3_000
_DISPATCH_LAG_BYTES = 64 * 1024 * 1024
_FLUSH_LAG_BYTES = 256 * 1024 * 1024
_END_SHARE = 4
"""A lag has ended below this fraction of the bytes at which it begins: it would begin and end all the time."""


class ReplicaWatch:
    """Slaves that followed this master and do not any more, by address: a slave comes back from another port."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._expected: Counter[str] = Counter()
        self._missing_ms: dict[str, int] = {}
        self._more_ms: dict[str, int] = {}

    def check(self, now_ms: int, peers: list[str]) -> None:
        """Compare the connected slaves with those that were connected before."""
        present = Counter(peer.rpartition(":")[0] for peer in peers)
        self._expect(now_ms, present)
        for address, expected in list(self._expected.items()):
            missing = expected - present[address]
            if missing <= 0:
                self._missing_ms.pop(address, None)
                self._conditions.end(kinds.REPLICA_LOST, address)
            elif now_ms - self._missing_ms.setdefault(address, now_ms) >= _EXPECTED_MS:
                del self._missing_ms[address]
                self._expected[address] = present[address]
                self._conditions.end(kinds.REPLICA_LOST, address, "no longer expected")
            else:
                self._conditions.set(kinds.REPLICA_LOST, f"{missing} of {expected} disconnected", address)

    def _expect(self, now_ms: int, present: Counter[str]) -> None:
        """Expect as many slaves of an address as there are; more than one only after some time.

        The old connection of a slave that has restarted may last until the master notices its silence.
        """
        for address, count in present.items():
            self._expected[address] = self._expected[address] or 1
            if count <= self._expected[address]:
                self._more_ms.pop(address, None)
            elif now_ms - self._more_ms.setdefault(address, now_ms) >= _SUSTAINED_MS:
                self._expected[address] = count


class ConditionWatch:
    """Compares the state of one broker with the last look at it."""

    def __init__(
        self,
        state: BrokerState,
        *,
        master: MasterRole | None = None,
        slave: SlaveRole | None = None,
        tls: ServerTls | None = None,
        quotas: AccountQuotas | None = None,
    ) -> None:
        self._state = state
        self._master = master
        self._slave = slave
        self._quotas = quotas
        self._conditions = conditions = state.conditions
        self._limits = ReachedCounters(conditions, kinds.LIMIT_REACHED, state.limits.reached)
        self._quota_counts = ReachedCounters(conditions, kinds.QUOTA_REACHED, quotas.counters() if quotas else {})
        self._replicas = ReplicaWatch(conditions)
        self._connected_ms = self._started_ms = state.now_ms()
        self._certificate: CertificateWatch | None = None
        if tls is not None:
            from orbitlog.observe.certificate_watch import CertificateWatch  # imports ssl

            self._certificate = CertificateWatch(conditions, tls.options.files.certificate)

    def check(self) -> None:
        """Begin and end conditions that have changed since the last call."""
        now_ms = self._state.now_ms()
        self._check_store()
        self._limits.check(now_ms, self._state.limits.reached)
        if self._quotas is not None:
            self._quota_counts.check(now_ms, self._quotas.counters())
        self._check_replication(now_ms)
        if self._certificate is not None:
            self._certificate.check(now_ms)

    def _check_store(self) -> None:
        store, conditions = self._state.store, self._conditions
        availability = store.availability
        conditions.set(kinds.DISK_FULL, availability.full_disk)
        conditions.set(kinds.READ_ONLY, availability.failure)
        conditions.set(kinds.FENCED, availability.fence_reason)
        for condition, lag_bytes, begin_bytes in (
            (kinds.DISPATCH_LAG, store.written_to - store.dispatched_to, _DISPATCH_LAG_BYTES),
            (kinds.FLUSH_LAG, store.written_to - store.flushed_to, _FLUSH_LAG_BYTES),
        ):
            limit = begin_bytes // _END_SHARE if conditions.is_active(condition) else begin_bytes
            conditions.set(condition, f"{lag_bytes} bytes" if lag_bytes > limit else "")

    def _check_replication(self, now_ms: int) -> None:
        master, slave, conditions = self._master, self._slave, self._conditions
        if slave is not None:
            link = slave.link
            if link.is_connected:
                self._connected_ms = now_ms
            is_lost = now_ms - self._connected_ms >= _MASTER_MS
            conditions.set(kinds.MASTER_LOST, (link.problem or "not connected") if is_lost else "")
        elif master is not None:
            self._replicas.check(now_ms, [found.peer for found in master.slaves if not found.is_observer])
            conditions.set(kinds.TOO_FEW_REPLICAS, "" if master.has_enough_slaves else "too few slaves follow the log")
