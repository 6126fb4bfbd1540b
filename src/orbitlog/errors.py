"""The one tree of errors.

    OrbitlogError
    ├── FormatError              bytes that violate the format
    │   ├── Truncated            the bytes end before the field does
    │   ├── BadMagic             an unknown magic number
    │   ├── BadField             a field holds an invalid value
    │   ├── LengthMismatch       the lengths inside a record do not add up to its size
    │   ├── ChecksumMismatch     the stored CRC differs from the CRC of the bytes
    │   ├── Misplaced            a record states another offset than its own
    │   └── LimitExceeded        a length, count or nesting depth exceeds its limit
    ├── BadExpression            an invalid filter expression
    ├── StoreLayoutError         a directory or file that is not a store of the expected layout
    │   └── StoreLinkError       a link or a special file in the place of a file or directory of a store
    ├── StoreError               a store that cannot serve the request now
    │   ├── StoreLocked          another process has it open for writing
    │   ├── StoreClosed          the store is closed
    │   ├── StoreReadOnly        it accepts no messages: opened read-only, or its disk failed
    │   ├── StoreFileGone        a store file was deleted while it was being read
    │   ├── ReplicaMismatch      bytes of a master do not continue the log of this slave
    │   ├── LeaseLost            the dispatch lease is held by another process, or unavailable
    │   └── DiskFull             no space left on the disk; no data was lost
    ├── WireError                malformed bytes on a connection, which must be closed
    ├── RequestRefused           a request to answer with an error code and a remark
    │   └── BadRequest           a header field is missing or invalid
    ├── ClientError              an invalid or impossible call of a producer, consumer or administrator
    │   ├── NoRoute              no broker serves the topic
    │   │   └── NoBroker         no broker has registered with the name servers
    │   ├── BrokerRefused        a broker or name server answered with an error code
    │   └── ClientClosed         the client is closed
    └── RemotingError            an unreachable or unresponsive peer
        ├── ConnectFailed        the connection was refused or timed out
        │   └── HandshakeFailed  TLS failed: a certificate, or a server without TLS
        ├── ConnectionLost       the connection was lost before the response arrived
        └── RequestTimeout       no response within the time limit

A `FormatError` names the field, its position and the invalid value; callers that know the file add its name.
"""

from __future__ import annotations


class OrbitlogError(Exception):
    """Base class of every error that Orbitlog raises on purpose.

    `retriable`: the same call may succeed later. `advice`: what a user can do, if the message does not contain it.

    Example:
        try:
            await mq.send("Orders", "one")
        except orbitlog.OrbitlogError as error:
            print(error, error.retriable, error.advice)
    """

    retriable = False
    advice = ""


class FormatError(OrbitlogError):
    """Bytes that violate the format; `position` counts from the start of the buffer."""

    def __init__(self, problem: str, *, field: str, position: int = 0) -> None:
        super().__init__(f"{field} at byte {position}: {problem}")
        self.problem = problem
        self.field = field
        self.position = position


class Truncated(FormatError):
    """The bytes end before the field does."""

    def __init__(self, *, field: str, needed: int, got: int, position: int = 0) -> None:
        super().__init__(f"needs {needed} bytes, only {max(got, 0)} are there", field=field, position=position)
        self.needed = needed
        self.got = got


class BadMagic(FormatError):
    """An unknown magic number."""

    def __init__(self, *, field: str, got: int, position: int = 0) -> None:
        super().__init__(f"unknown magic 0x{got & 0xFFFFFFFF:08X}", field=field, position=position)
        self.got = got


class BadField(FormatError):
    """A field holds an invalid value."""


class LengthMismatch(FormatError):
    """The lengths inside a record do not add up to its size."""

    def __init__(self, *, field: str, stated: int, counted: int, position: int = 0) -> None:
        super().__init__(f"states {stated} bytes, its parts make {counted}", field=field, position=position)
        self.stated = stated
        self.counted = counted


class ChecksumMismatch(FormatError):
    """The stored CRC differs from the CRC of the bytes."""

    def __init__(self, *, field: str, stored: int, computed: int, position: int = 0) -> None:
        super().__init__(f"CRC stored is {stored}, computed {computed}", field=field, position=position)
        self.stored = stored
        self.computed = computed


class Misplaced(FormatError):
    """A record states another offset than its own."""

    def __init__(self, *, field: str, stated: int, actual: int, position: int = 0) -> None:
        super().__init__(f"states {stated}, is stored at {actual}", field=field, position=position)
        self.stated = stated
        self.actual = actual


class LimitExceeded(FormatError):
    """A length, count or nesting depth exceeds its limit."""

    def __init__(self, *, field: str, limit: int, got: int | str, position: int = 0) -> None:
        super().__init__(f"{got} is over the limit of {limit}", field=field, position=position)
        self.limit = limit


class BadExpression(OrbitlogError):
    """An invalid filter expression; `position` counts characters from its start."""

    def __init__(self, problem: str, expression: str, position: int = 0) -> None:
        near = expression[max(0, position - 20) : position + 20]
        super().__init__(f"filter expression at character {position}, near {near!r}: {problem}")
        self.problem = problem
        self.position = position


class StoreLayoutError(OrbitlogError):
    """A directory or file that is not a store of the expected layout."""


class StoreLinkError(StoreLayoutError):
    """A link, pipe, socket or device in the place of a store's file or directory; it is not followed and not opened."""


class StoreError(OrbitlogError):
    """A store that cannot serve the request now."""


class StoreLocked(StoreError):
    """Another process has the store open for writing."""


class StoreClosed(StoreError):
    """The store is closed."""


class StoreReadOnly(StoreError):
    """The store accepts no messages: it was opened read-only, or its disk failed."""


class StoreFileGone(StoreError):
    """A store file was deleted while it was being read, and each retry found another one deleted."""


class ReplicaMismatch(StoreError):
    """Bytes of a master do not continue the log of this slave; nothing was overwritten."""


class LeaseLost(StoreError):
    """The dispatch lease is held by another engine, or unavailable: derived files must not be written."""


class DiskFull(StoreError):
    """No space left on the disk. No data was lost; the store resumes when space is available."""


class WireError(OrbitlogError):
    """Malformed bytes on a connection: the start of the next frame is unknown, so the connection must be closed."""


class RequestRefused(OrbitlogError):
    """A request to answer with `code` and `remark`; raised by request handlers."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class BadRequest(RequestRefused):
    """A field of the request header is missing or invalid."""

    def __init__(self, problem: str, *, field: str) -> None:
        super().__init__(1, problem)
        self.field = field


class ClientError(OrbitlogError):
    """An invalid or impossible call of a producer, consumer or administrator."""


class NoRoute(ClientError):
    """No broker serves the topic, according to the name servers."""

    retriable = True
    advice = "create the topic, or set autoCreateTopicEnable=true at a broker"


class NoBroker(NoRoute):
    """No broker has registered with these name servers: the brokers have just started, or use other name servers."""

    advice = "start a broker with this name server as its namesrvAddr; a running broker registers every 30 s"


class BrokerRefused(ClientError):
    """A broker or name server answered with an error `code` and its `remark`."""

    def __init__(
        self, code: int, remark: str, *, advice: str = "", retriable: bool = False, request_id: str = ""
    ) -> None:
        request = f", request {request_id}" if request_id else ""
        super().__init__(f"{remark.strip() or 'refused'} (code {code}{request}){'; ' + advice if advice else ''}")
        self.request_id = request_id
        """Id of the request in the log of an Orbitlog server; empty for others."""
        self.code = code
        self.remark = remark
        self.advice = advice
        self.retriable = retriable


class ClientClosed(ClientError):
    """The client is closed."""

    advice = "create another client with orbitlog.connect"


class RemotingError(OrbitlogError):
    """An unreachable or unresponsive peer."""

    retriable = True


class ConnectFailed(RemotingError):
    """The connection was refused or timed out."""

    advice = "check that a server runs at the address and is reachable from this host; nothing was sent"


class HandshakeFailed(ConnectFailed):
    """The TLS handshake failed: a certificate was rejected, or the server does not serve TLS."""

    retriable = False
    advice = "compare the certificates and TLS settings of both sides; nothing was sent"


class ConnectionLost(RemotingError):
    """The connection was lost before the response arrived."""

    advice = "retry; the request may have been carried out nevertheless"


class RequestTimeout(RemotingError):
    """No response within the time limit."""

    advice = "retry, perhaps with a longer timeout; the request may have been carried out nevertheless"
