"""State of a running console: its clusters, stores, sessions, users, limits and audit log."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from orbitlog.console.changes.plan_ledger import PlanLedger
from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.session.console_audit import ConsoleAudit
from orbitlog.console.session.console_sessions import OneTimeToken, Sessions
from orbitlog.console.session.console_users import UserFile
from orbitlog.console.session.request_limits import FailedSignIns, RequestRate
from orbitlog.console.sources.cluster_source import ClusterSource, wall_clock_ms
from orbitlog.console.work.background_jobs import BackgroundJobs
from orbitlog.errors import ClientError
from orbitlog.settings.listen_exposure import is_exposed


class Console:
    """Everything that pages and API share."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.clusters = {choice.name: ClusterSource(choice) for choice in options.clusters}
        self.users = UserFile(options.data_directory)
        self.sessions = Sessions(time.monotonic)
        self.failed_sign_ins = FailedSignIns(time.monotonic)
        self.rate = RequestRate(options.requests_per_second, options.request_burst, time.monotonic)
        self.audit = ConsoleAudit(options.data_directory, wall_clock_ms)
        self.one_time_token = OneTimeToken()
        self.plans = PlanLedger(time.monotonic)
        self.jobs = BackgroundJobs(wall_clock_ms)
        self._running = AsyncExitStack()
        self._is_exposed = is_exposed(options.host)
        if self._is_exposed and not self.users.users():
            raise ClientError(
                f"the console would be open to every machine that reaches {options.host or 'this host'}: add a user"
                " with `orbitlog console user add NAME --role admin`, or listen on 127.0.0.1"
            )

    @property
    def takes_token(self) -> bool:
        """Return whether the one-time token signs an admin in: on loopback, without users."""
        return not self._is_exposed and not self.users.users()

    @property
    def is_open(self) -> bool:
        """Return whether visitors may read without signing in: on loopback, without users and without an identity.

        With credentials or a client certificate, every account of this machine could use those of the operator.
        """
        return self.takes_token and not any(choice.has_identity for choice in self.options.clusters)

    @property
    def now_ms(self) -> int:
        return wall_clock_ms()

    async def start(self) -> None:
        for source in self.clusters.values():
            self._running.push_async_callback(source.close)
            await source.start()
        self._running.push_async_callback(self.jobs.close)  # before the connections that jobs use

    async def close(self) -> None:
        await self._running.aclose()
