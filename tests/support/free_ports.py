"""Free ports for servers that a test starts: each is returned to one test only."""

from __future__ import annotations

import fcntl
import getpass
import socket
import tempfile
from pathlib import Path

# Below the range from which systems take ports for port 0 and for outgoing connections: a server that binds port 0,
# or a connection, could otherwise take the port before the test's server binds it. Apache's brokers in tests use
# ports below 30,000 (tests/interop/harness/cluster.py). Each port is the third of four that no other test gets: a
# broker also listens two below its port, and may listen one above it.
_FIRST, _COUNT, _STEP = 30_000, 680, 4
_COUNTER = Path(tempfile.gettempdir()) / f"orbitlog-test-ports-{getpass.getuser()}"


def free_port() -> int:
    """Return a port that is free on all addresses; processes share one counter, so that none gets it twice soon."""
    with _COUNTER.open("a+b") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        last = int(counter.read() or b"0")
        for number in range(last + 1, last + 1 + _COUNT):
            port = _FIRST + number % _COUNT * _STEP + 2
            if all(map(_is_free, range(port - 2, port + 2))):
                counter.truncate(0)
                counter.write(b"%d" % (number % _COUNT))
                return port
    raise OSError(f"no free port from {_FIRST} to {_FIRST + _COUNT * _STEP - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
