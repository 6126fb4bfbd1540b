"""Send stop: makes a master refuse sends before another broker takes over, and undoes that.

Apache's brokers refuse sends until `startAcceptSendRequestTimeStamp`, which expires by itself. Orbitlog's broker
refuses them with `brokerPermission=4`.
"""

from __future__ import annotations

import logging

from orbitlog.broker.slave.fit_check import master_settings
from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

log = logging.getLogger(__name__)

_SECONDS = 3.0
_START_KEY = "startAcceptSendRequestTimeStamp"
_PERMISSION_KEY = "brokerPermission"
_READ_ONLY = "4"
_READ_WRITE = "6"


class SendStop:
    """Stops the sends to one master."""

    def __init__(self, client: RemotingClient, master: str) -> None:
        self._client = client
        self._master = master
        self._undo: tuple[str, str] | None = None

    async def stop(self, until_ms: int) -> None:
        """Refuse sends, at an Apache broker until a timestamp; raise `RemotingError` if the master does not agree."""
        permission = (await master_settings(self._client, self._master)).get(_PERMISSION_KEY, _READ_WRITE)
        refused = await self._change(_START_KEY, str(until_ms))
        if not refused:
            self._undo = _START_KEY, "0"
            return
        refused = await self._change(_PERMISSION_KEY, _READ_ONLY)
        if refused:
            raise RemotingError(f"master {self._master} does not stop sends: {refused}")
        self._undo = _PERMISSION_KEY, permission

    async def undo(self) -> None:
        """Accept sends as before; a failure is logged, because an Apache broker does so by itself."""
        undo, self._undo = self._undo, None
        if undo is None:
            return
        try:
            refused = await self._change(*undo)
        except RemotingError as error:
            refused = str(error)
        if refused:
            log.error("could not let master %s accept sends, set %s=%s there: %s", self._master, *undo, refused)

    async def _change(self, key: str, text: str) -> str:
        """Change a setting of the master; return why it refused."""
        command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}={text}\n".encode())
        answer = await self._client.invoke(self._master, command, _SECONDS)
        return "" if answer.code == ResponseCode.SUCCESS else f"{answer.remark} (code {answer.code})"
