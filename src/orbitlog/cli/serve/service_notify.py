"""Service notifications: reports to systemd that a server is ready, responsive and stopping (`sd_notify`).

systemd passes a socket in `NOTIFY_SOCKET` to services of `Type=notify`, and an interval in `WATCHDOG_USEC` if the unit
has `WatchdogSec`. The notification of the watchdog is sent by the event loop: if that hangs, systemd restarts the
service.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
_WATCHDOG_INTERVAL = "WATCHDOG_USEC"
_WATCHDOG_PROCESS = "WATCHDOG_PID"
_DIGITS_MAX = 15


class ServiceNotifier:
    """Sends notifications to the service manager that started this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment[NOTIFY_SOCKET]
        # An @ stands for the NUL byte of an abstract socket.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._watchdog_s = _watchdog_seconds(environment)
        self._timer: asyncio.TimerHandle | None = None

    def ready(self) -> None:
        """Report that the server is ready, and keep the watchdog informed from now on."""
        self._send("READY=1")
        if self._watchdog_s:
            self._beat()

    def stopping(self) -> None:
        """Report that the server stops."""
        if self._timer is not None:
            self._timer.cancel()
        self._send("STOPPING=1")

    def _beat(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._watchdog_s, self._beat)

    def _send(self, state: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            log.warning("could not notify the service manager of %s: %s", state, error)


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return half of the interval of the watchdog; 0 without one, and for that of another process."""
    interval = environment.get(_WATCHDOG_INTERVAL, "")
    process = environment.get(_WATCHDOG_PROCESS, "")
    if not (interval.isascii() and interval.isdigit() and len(interval) <= _DIGITS_MAX):
        return 0.0
    if process and process != str(os.getpid()):
        return 0.0
    return int(interval) / 2_000_000
