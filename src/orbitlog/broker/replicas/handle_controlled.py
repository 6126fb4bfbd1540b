"""Controlled requests: what a member of a group of Apache's controller answers about the group."""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.broker.replicas.handle_replicas import GroupNode, ReplicaHandlers
from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.replication.controller.controlled_driver import ControlledDriver
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to


class ControlledHandlers(ReplicaHandlers):
    """Serves the requests about one member and its group; the controller elects."""

    def __init__(self, node: GroupNode, driver: ControlledDriver) -> None:
        super().__init__(node)
        self._driver = driver

    @property
    def table(self) -> Mapping[int, Handler]:
        return {**super().table, RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.role_changed}

    def role_changed(self, _: Connection, request: Command) -> Answer:
        """Ask the controller for the state: anyone could send this."""
        self._driver.role_notified()
        return response_to(request, ResponseCode.SUCCESS)

    def elect(self, _: Connection, request: Command) -> Answer:
        """Refuse: the controller elects."""
        raise RequestRefused(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            "the controller elects the master of this group: use mqadmin electMaster at the controller",
        )
