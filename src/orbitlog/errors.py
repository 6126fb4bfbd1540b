"""The one tree of errors.

    OrbitlogError
    ├── FormatError              bytes that are not what the format says
    │   ├── Truncated            the bytes end before the field does
    │   ├── BadMagic             the magic number is none that we know
    │   ├── BadField             a field holds a value that cannot be
    │   ├── LengthMismatch       the lengths inside a record do not add up to its size
    │   ├── ChecksumMismatch     the CRC stored is not the CRC of the bytes
    │   ├── Misplaced            a record says that it lies somewhere else
    │   └── LimitExceeded        a length, count or nesting from outside is over its limit
    ├── BadExpression            a filter expression that cannot be understood
    ├── StoreLayoutError         a directory or file that is not the store it was taken for
    ├── StoreError               a store that cannot do what was asked of it now
    │   ├── StoreLocked          another process is writing to it
    │   ├── StoreClosed          it was closed
    │   ├── StoreReadOnly        it takes no messages: opened so, or its disk failed
    │   ├── StoreFileGone        a file of it was removed while it was looked at
    │   ├── LeaseLost            dispatch of it belongs to another, or is not to be had
    │   └── DiskFull             no room for another byte; nothing was lost
    ├── WireError                bytes on a connection that are no frames: it can only be closed
    ├── RequestRefused           a request whose answer is a code and a sentence other than success
    │   └── BadRequest           a field of its header is missing or cannot be read
    ├── ClientError              what a producer, consumer or administrator asked for cannot be done
    │   ├── NoRoute              no broker serves the topic
    │   │   └── NoBroker         no broker at all has registered
    │   ├── BrokerRefused        a broker or name server answered with an error code
    │   └── ClientClosed         it was closed
    └── RemotingError            a peer that cannot be asked, or does not answer
        ├── ConnectFailed        nobody listens there, or not in time
        ├── ConnectionLost       the connection ended before the answer came
        └── RequestTimeout       no answer in time

A `FormatError` says which field, where, and what was found; whoever knows the file adds its name.
"""

from __future__ import annotations


class OrbitlogError(Exception):
    """Root of everything that Orbitlog raises on purpose.

    `retriable` if the same may work later; `advice` says what to do, where the error does not say it already.
    """

    retriable = False
    advice = ""


class FormatError(OrbitlogError):
    """Bytes that are not what the format says; `position` counts from the start of the buffer."""

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
    """The magic number is none that we know."""

    def __init__(self, *, field: str, got: int, position: int = 0) -> None:
        super().__init__(f"unknown magic 0x{got & 0xFFFFFFFF:08X}", field=field, position=position)
        self.got = got


class BadField(FormatError):
    """A field holds a value that cannot be."""


class LengthMismatch(FormatError):
    """The lengths inside a record do not add up to its size."""

    def __init__(self, *, field: str, stated: int, counted: int, position: int = 0) -> None:
        super().__init__(f"states {stated} bytes, its parts make {counted}", field=field, position=position)
        self.stated = stated
        self.counted = counted


class ChecksumMismatch(FormatError):
    """The CRC stored is not the CRC of the bytes."""

    def __init__(self, *, field: str, stored: int, computed: int, position: int = 0) -> None:
        super().__init__(f"CRC stored is {stored}, computed {computed}", field=field, position=position)
        self.stored = stored
        self.computed = computed


class Misplaced(FormatError):
    """A record says that it lies somewhere else."""

    def __init__(self, *, field: str, stated: int, actual: int, position: int = 0) -> None:
        super().__init__(f"says {stated}, lies at {actual}", field=field, position=position)
        self.stated = stated
        self.actual = actual


class LimitExceeded(FormatError):
    """A length, count or nesting from outside is over its limit."""

    def __init__(self, *, field: str, limit: int, got: int | str, position: int = 0) -> None:
        super().__init__(f"{got} is over the limit of {limit}", field=field, position=position)
        self.limit = limit


class BadExpression(OrbitlogError):
    """A filter expression that cannot be understood; `position` counts characters from its start."""

    def __init__(self, problem: str, expression: str, position: int = 0) -> None:
        near = expression[max(0, position - 20) : position + 20]
        super().__init__(f"filter expression at character {position}, near {near!r}: {problem}")
        self.problem = problem
        self.position = position


class StoreLayoutError(OrbitlogError):
    """A directory or file that is not the store it was taken for."""


class StoreError(OrbitlogError):
    """A store that cannot do what was asked of it now."""


class StoreLocked(StoreError):
    """Another process is writing to the store."""


class StoreClosed(StoreError):
    """The store was closed."""


class StoreReadOnly(StoreError):
    """The store takes no messages: opened so, or its disk failed."""


class StoreFileGone(StoreError):
    """A file was removed while it was looked at; readers look again, so that this means that it keeps happening."""


class LeaseLost(StoreError):
    """Dispatch belongs to another engine, or is not to be had: nothing may be written."""


class DiskFull(StoreError):
    """No room for another byte; nothing was lost, and the store goes on when there is room again."""


class WireError(OrbitlogError):
    """Bytes on a connection that are no frames: where the next frame starts is unknown, so it can only be closed."""


class RequestRefused(OrbitlogError):
    """A request that is answered with `code` and `remark`; raised by whoever handles it."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class BadRequest(RequestRefused):
    """A field of a request's header is missing or cannot be read."""

    def __init__(self, problem: str, *, field: str) -> None:
        super().__init__(1, problem)
        self.field = field


class ClientError(OrbitlogError):
    """What a producer, consumer or administrator asked for cannot be done."""


class NoRoute(ClientError):
    """No broker serves the topic, as far as the name servers know."""

    retriable = True
    advice = "create the topic, or set autoCreateTopicEnable=true at a broker"


class NoBroker(NoRoute):
    """No broker has registered with the name servers: they were started a moment ago, or these are not theirs."""

    advice = "start a broker with this name server as its namesrvAddr; one that runs registers every half minute"


class BrokerRefused(ClientError):
    """A broker or name server answered with an error `code` and its `remark`."""

    def __init__(self, code: int, remark: str, *, advice: str = "", retriable: bool = False) -> None:
        super().__init__(f"{remark.strip() or 'refused'} (code {code}){'; ' + advice if advice else ''}")
        self.code = code
        self.remark = remark
        self.advice = advice
        self.retriable = retriable


class ClientClosed(ClientError):
    """The client was closed."""

    advice = "make another one with orbitlog.connect"


class RemotingError(OrbitlogError):
    """A peer that cannot be asked, or does not answer."""

    retriable = True


class ConnectFailed(RemotingError):
    """Nobody listens at the address, or not in time."""

    advice = "see that a server runs at the address, and that it can be reached from here; nothing was sent"


class ConnectionLost(RemotingError):
    """The connection ended before the answer came."""

    advice = "ask again; what was asked for may have been done nevertheless"


class RequestTimeout(RemotingError):
    """No answer in time."""

    advice = "ask again, perhaps with a longer timeout; what was asked for may have been done nevertheless"
