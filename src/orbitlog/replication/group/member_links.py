"""Member links: HA connections of a group member on the AutoSwitch wire, as master and as slave.

A link passes frames to the member's driver and writes what it is given. It knows neither roles nor epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from orbitlog.errors import StoreError, WireError
from orbitlog.replication.log_transport import TRANSFERS_PER_READ_MAX, TURN_BYTES, open_transport
from orbitlog.wire.replication.epoch_frames import (
    EpochReport,
    EpochTransfer,
    Handshake,
    HandshakeAnswer,
    MasterFrameDecoder,
    SlaveFrameDecoder,
    TransferHead,
    encode_epoch_report,
    encode_epoch_transfer_head,
    encode_handshake,
    encode_handshake_answer,
)

Frame = Handshake | HandshakeAnswer | EpochReport | EpochTransfer


class LinkEvents(Protocol):
    """Calls of a link into the driver of its member."""

    def link_opened(self, link: MemberLink) -> None: ...
    def frame_received(self, link: MemberLink, frame: Frame) -> None: ...
    def frames_done(self, link: MemberLink) -> None: ...
    def link_lost(self, link: MemberLink, reason: str) -> None: ...


class MemberLink(asyncio.Protocol):
    """One connection; `number` is negative if this member opened it."""

    def __init__(self, number: int, events: LinkEvents, body_bytes_max: int) -> None:
        self.number = number
        self._events = events
        self._decoder: MasterFrameDecoder | SlaveFrameDecoder = (
            MasterFrameDecoder(body_bytes_max) if number < 0 else SlaveFrameDecoder()
        )
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.read_s = self.written_s = self._loop.time()
        self.is_paused = False
        self.has_sent_a_frame = False
        self._has_reported = False
        self.peer = ""
        self.stated_confirm = -1
        """Confirm offset that was sent last."""
        self._report = -1
        self._is_report_due = False
        self._is_closed = False
        self.resumed: Callable[[], None] = _nothing
        """Called when the transport takes bytes again."""

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.peer = open_transport(transport)
        if self._is_closed:
            self._transport.abort()
            return
        self._events.link_opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost: {error}" if error else "the peer closed the connection")

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self.resumed()

    def data_received(self, data: bytes) -> None:
        self.read_s = self._loop.time()
        try:
            for frame in self._counted_frames(data):
                if self._is_closed:
                    return
                self.has_sent_a_frame = True
                self._events.frame_received(self, frame)
        except WireError as error:
            self.fail(str(error))
            return
        self._events.frames_done(self)

    def _counted_frames(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that a read completes; raise `WireError` if there are too many of a master.

        Of reports only the first one of the connection, which states where to start, and the last one of the read
        count: a read can have thousands, and each would be an update of the confirm offset.
        """
        report = None
        for count, frame in enumerate(self._decoder.receive_data(data)):
            if isinstance(frame, EpochReport):
                if self._has_reported:
                    report = frame
                    continue
                self._has_reported = True
            elif count >= TRANSFERS_PER_READ_MAX:
                raise WireError(f"HA transfer: more than {TRANSFERS_PER_READ_MAX} in {len(data)} bytes")
            yield frame
        if report is not None:
            yield report

    # Called by the driver

    def hold_reading(self, is_held: bool) -> None:
        """Stop or resume reading while the member cannot take frames."""
        if self._transport is not None and not self._transport.is_closing():
            if is_held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def send(self, frame: Handshake | HandshakeAnswer | EpochReport) -> None:
        """Write a frame without a body. Of several reports in one turn only the last is written, by `flush_report`."""
        if isinstance(frame, EpochReport):
            self._report, self._is_report_due = frame.physical_offset, True
        elif isinstance(frame, Handshake):
            self._write(encode_handshake(frame))
        else:
            self._write(encode_handshake_answer(frame))

    def flush_report(self) -> None:
        """Write the last report, if it has not been written yet."""
        if self._is_report_due:
            self._is_report_due = False
            self._write(encode_epoch_report(self._report))

    def repeat_report(self) -> None:
        """Write the last report again, as a sign of life; nothing before the first one."""
        if self._report >= 0:
            self._write(encode_epoch_report(self._report))

    def transfer(self, head: TransferHead, body: bytes) -> None:
        """Write bytes of the log, or a heartbeat."""
        if self._transport is not None:
            self._transport.writelines((encode_epoch_transfer_head(head), body))
            self.written_s = self._loop.time()
            self.stated_confirm = head.confirm_offset

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self.written_s = self._loop.time()

    def fail(self, reason: str) -> None:
        """Close the connection and report it as lost."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def close(self) -> None:
        """Close the connection at once, without an event: nothing is sent or received on it afterwards."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _end(self, reason: str) -> None:
        self._transport = None
        if not self._is_closed:
            self._is_closed = True
            self._events.link_lost(self, reason)


class TransferSource(Protocol):
    """The log of a master, and what its member wants to send of it."""

    def plan(self, number: int, bytes_max: int) -> TransferHead | None: ...
    def read(self, physical_offset: int, size_bytes: int) -> bytes: ...


def push_transfers(link: MemberLink, source: TransferSource, transfer_bytes: int) -> bool:
    """Send a slave what it lacks, as much as one turn of the loop allows; return whether there may be more."""
    sent_bytes = 0
    while not link.is_paused and sent_bytes < TURN_BYTES:
        head = source.plan(link.number, transfer_bytes)
        if head is None:
            return False
        try:
            body = source.read(head.physical_offset, head.body_bytes)
        except StoreError as error:
            link.fail(f"could not read the log at {head.physical_offset}: {error}")
            return False
        link.transfer(head, body)
        sent_bytes += len(body)
    return not link.is_paused


def _nothing() -> None:
    pass
