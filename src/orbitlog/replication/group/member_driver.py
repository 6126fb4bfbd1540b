"""Member driver: runs a group member on an event loop, with HA connections, a coordinator and the log of a store.

Events reach the member one at a time, and its actions are carried out in order before the next event: actions on the
log block the loop, because the next action relies on them. While the driver is suspended, for a change of the broker's
role, events wait and connections are not read; the lease is renewed in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

from orbitlog.errors import FormatError, OrbitlogError, RemotingError, StoreError, WireError
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.remoting.client import split_address
from orbitlog.replication.group.actions import (
    Action,
    AppendLog,
    Confirmed,
    CutLog,
    Dial,
    FlushLog,
    HangUp,
    KeepTail,
    Propose,
    ReadState,
    Resign,
    RestartRecorded,
    RoleChanged,
    SaveEpochs,
    SendFrame,
    SettleLog,
)
from orbitlog.replication.group.coordinator import Coordinator
from orbitlog.replication.group.group_member import GroupMember
from orbitlog.replication.group.group_state import LiveMember, Proposal
from orbitlog.replication.group.member_links import Frame, MemberLink, push_transfers
from orbitlog.settings.limits import HA_CONNECTIONS
from orbitlog.wire.replication.epoch_frames import (
    BODY_BYTES_MAX,
    EpochReport,
    EpochTransfer,
    Handshake,
    HandshakeAnswer,
    TransferHead,
)

log = logging.getLogger(__name__)

_TICK_S = 0.1
_CONNECT_S = 3.0
_UNREACHABLE = (RemotingError, WireError, FormatError, OSError)


class MemberLog(Protocol):
    """The log and the files of a member; every method is complete, and durable, when it returns."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def flushed_to(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    def read(self, physical_offset: int, size_bytes: int) -> bytes: ...
    def append(self, physical_offset: int, body: bytes) -> None: ...
    def keep_tail(self, last_epoch: int, physical_offset: int, end: int) -> None: ...
    def cut(self, physical_offset: int) -> None: ...
    def flush(self) -> None: ...
    def settle(self) -> int: ...
    def save_epochs(self, entries: tuple[EpochEntry, ...]) -> None: ...
    def note_boot(self) -> None: ...


class DriverEvents(NamedTuple):
    """Calls of the driver into the broker, all in the thread of the event loop."""

    role_changed: Callable[[RoleChanged], None]
    confirmed: Callable[[int], None]
    appended: Callable[[], None]
    """A slave has appended bytes of its master."""
    turn_ended: Callable[[], None]
    """A master has taken the appends of one turn of the loop."""
    describe: Callable[[], LiveMember]
    """Returns the addresses that this member publishes."""
    admits: Callable[[str], bool]
    """Returns whether a peer's address may connect to the HA port."""


class DriverLimits(NamedTuple):
    """Times and sizes of a driver; a lease counts as ended `lease_margin_s` early by the own clock."""

    lease_s: float = 3.0
    lease_margin_s: float = 0.5
    renew_s: float = 1.0
    retry_s: float = 0.25
    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    transfer_bytes: int = 256 * 1024
    connections_max: int = HA_CONNECTIONS.default
    on_full: Callable[[], None] = lambda: None
    """Called for each connection beyond the maximum."""


class MemberDriver:
    """Runs one member until `close`. Use it in one event loop."""

    def __init__(
        self,
        member: GroupMember,
        member_log: MemberLog,
        coordinator: Coordinator,
        events: DriverEvents,
        limits: DriverLimits,
    ) -> None:
        self.member = member
        self._log = member_log
        self._coordinator = coordinator
        self._events = events
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.links: dict[int, MemberLink] = {}
        self._accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: deque[Callable[[], None]] = deque()
        self._is_suspended = self._is_running = self._is_closed = False
        self._append_planned = self._push_planned = False
        self._next_tick: asyncio.TimerHandle | None = None
        self._link_problem = ""
        self.problem = ""
        """Why the coordinator is not reached; empty if it is."""

    # Life cycle

    def start(self) -> None:
        """Register with the coordinator, and take the role that it gives."""
        self._spawn(self._keep_lease())
        self._tick()

    async def close(self) -> None:
        """Close all connections and end the lease, so that the others need not wait for its end."""
        self._is_closed = True
        if self._next_tick is not None:
            self._next_tick.cancel()
        for link in list(self.links.values()):
            link.close()
        self.links.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._coordinator.close()
        except _UNREACHABLE as error:
            log.info("could not end the lease at the coordinator: %s", error)

    def suspend(self) -> None:
        """Hold all events until `resume`; the action under way is the last one."""
        self._is_suspended = True
        for link in self.links.values():
            link.hold_reading(True)

    def resume(self) -> None:
        """Continue with the actions and events that were held."""
        self._is_suspended = False
        for link in self.links.values():
            link.hold_reading(False)
        if self.member.leadership is not None:
            self.appended()  # a broker may append while it starts
        self._carry_out()
        while self._held and not self._is_suspended:
            self._held.popleft()()
            self._carry_out()

    def post(self, event: Callable[[], None]) -> None:
        """Pass an event to the member, now or after `resume`."""
        if self._is_closed:
            return
        if self._is_suspended or self._is_running:
            # An action under way has led to this event: the member is a state machine and is not entered twice.
            self._held.append(event)
            if self._is_running and not self._is_suspended:
                self._loop.call_soon(self._drain)
            return
        event()
        self._carry_out()

    def _drain(self) -> None:
        while self._held and not self._is_suspended and not self._is_running:
            self._held.popleft()()
            self._carry_out()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tick(self) -> None:
        self._next_tick = self._loop.call_later(_TICK_S, self._tick)
        if self._is_suspended:
            return
        now_s = self._loop.time()
        self.member.log.start = self._log.start  # segments expire
        self.post(partial(self.member.tick, now_s))
        for link in list(self.links.values()):
            self._tick_link(link, now_s)

    def _tick_link(self, link: MemberLink, now_s: float) -> None:
        if now_s - link.read_s > self._limits.silence_s:
            link.fail(f"nothing was received for {self._limits.silence_s:g} s")
            return
        is_idle = now_s - link.written_s > self._limits.heartbeat_s
        leadership = self.member.leadership
        if link.number < 0:
            if is_idle:
                link.repeat_report()
        elif leadership is not None and (is_idle or link.stated_confirm < self.member.log.confirmed_to):
            head = leadership.heartbeat(link.number)
            if head is not None and not link.is_paused:
                link.transfer(head, b"")

    @property
    def log_end(self) -> int:
        """End of the log of this member."""
        return self._log.end

    # Coordinator

    async def _keep_lease(self) -> None:
        """Register, and renew the lease until it ends; then register again."""
        is_registered = False
        while True:
            began_s, pause_s = self._loop.time(), self._limits.renew_s
            try:
                if is_registered:
                    is_registered = await self._coordinator.renew()
                else:
                    session = await self._coordinator.register(self._events.describe())
                    is_registered = True
                    self.post(partial(self.member.registered, session))
                self._note_problem("")
                if is_registered:
                    # Counted from before the request: the coordinator counts from when it arrives.
                    ends_s = began_s + self._limits.lease_s - self._limits.lease_margin_s
                    self.post(partial(self.member.lease_renewed, ends_s))
                else:
                    log.warning("the lease of this member has ended; registering with the coordinator")
                    pause_s = 0
            except _UNREACHABLE as error:
                self._note_problem(str(error))
                pause_s = self._limits.retry_s
            await asyncio.sleep(pause_s)

    def _note_problem(self, problem: str) -> None:
        """Keep why the coordinator does not answer; the broker reports it as a condition."""
        self.problem = problem

    async def _read(self) -> None:
        try:
            snapshot = await self._coordinator.read()
        except _UNREACHABLE as error:
            self._note_problem(str(error))
            self.post(self.member.read_failed)
        else:
            self.post(partial(self.member.observe, snapshot))

    async def _propose(self, proposal: Proposal) -> None:
        token = proposal.state.token
        try:
            snapshot = await self._coordinator.propose(proposal)
        except _UNREACHABLE as error:
            if str(error) != self.problem:  # a proposal is repeated until it is answered
                log.warning("no answer of the coordinator to a proposal, its outcome is unknown: %s", error)
            self._note_problem(str(error))
            self.post(partial(self.member.proposal_lost, token))
        else:
            self.post(partial(self.member.proposal_answered, token, snapshot))

    # Connections

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a connection to the HA port."""
        self._accepted += 1
        return MemberLink(self._accepted, self, BODY_BYTES_MAX)

    def link_opened(self, link: MemberLink) -> None:
        """Take a connection that is open."""
        if link.number < 0:
            self.post(partial(self.member.connected, link.number))
            return
        if self._is_closed or not self._events.admits(link.peer.rpartition(":")[0]) or not self._has_room():
            link.close()
            return
        link.resumed = self._plan_push
        self.links[link.number] = link
        if self._is_suspended:
            link.hold_reading(True)  # its frames would be held in memory, without a limit

    def _has_room(self) -> bool:
        """Return whether one more connection may be open; close the oldest that has sent no frame if it has to.

        Otherwise connections that stay silent would keep members out until they time out.
        """
        accepted = [link for number, link in self.links.items() if number > 0]
        if len(accepted) < self._limits.connections_max:
            return True
        self._limits.on_full()
        silent = next((link for link in accepted if not link.has_sent_a_frame), None)
        if silent is None:
            return False
        silent.fail("it has sent nothing, and too many connections are open")
        return True

    def frame_received(self, link: MemberLink, frame: Frame) -> None:
        """Pass a frame to the member."""
        self.post(partial(self._take_frame, link.number, frame))

    def _take_frame(self, number: int, frame: Frame) -> None:
        member = self.member
        if isinstance(frame, EpochTransfer):
            member.transfer(number, frame.head, frame.body)
        elif isinstance(frame, EpochReport):
            member.report(number, frame)
        elif isinstance(frame, Handshake):
            log.info("member %d connects as a slave", frame.slave_id)
            member.handshake(number, frame)
        elif isinstance(frame, HandshakeAnswer):
            member.handshake_answered(number, frame)

    def frames_done(self, link: MemberLink) -> None:
        """Report what was appended, once for all frames that arrived together; send a slave what it asked for."""
        link.flush_report()
        if link.number > 0:
            self._plan_push()

    def link_lost(self, link: MemberLink, reason: str) -> None:
        """Note the end of a connection."""
        if self.links.get(link.number) is link:
            del self.links[link.number]
        self._note_link(link.peer or "to the master", reason)
        self.post(partial(self.member.disconnected, link.number))

    def _note_link(self, peer: str, reason: str) -> None:
        """Log the end of a connection, once for each reason: a slave dials its master several times a second."""
        if reason != self._link_problem:
            log.info("HA connection %s has ended: %s", peer, reason)
        self._link_problem = reason

    async def _connect(self, link: MemberLink, address: str) -> None:
        try:
            host, port = split_address(address)
            async with asyncio.timeout(_CONNECT_S):
                await self._loop.create_connection(lambda: link, host, port)
        except (OSError, TimeoutError, OrbitlogError, ValueError) as error:
            self.link_lost(link, f"could not connect to {address or 'a master without an address'}: {error}")

    # A master's bytes

    def appended(self) -> None:
        """Note, once in a turn of the loop, that this master has appended; call it after each append."""
        if not self._append_planned:
            self._append_planned = True
            self._loop.call_soon(self._take_appended)

    def _take_appended(self) -> None:
        self._append_planned = False
        if self.member.leadership is None or self._is_suspended:
            return
        self.post(self._pass_appended)
        self._push_all()
        self._events.turn_ended()

    def _pass_appended(self) -> None:
        member = self.member
        if member.leadership is not None and self._log.end > member.log.end:
            member.appended(self._log.end)
        if member.log.acks_flushed:
            member.flushed(self._log.flushed_to)

    def _plan_push(self) -> None:
        if not self._push_planned and self.member.leadership is not None:
            self._push_planned = True
            self._loop.call_soon(self._push_all)

    def _push_all(self) -> None:
        self._push_planned = False
        if self._is_suspended:
            return
        is_more = False
        for link in list(self.links.values()):
            if link.number > 0 and push_transfers(link, self, self._limits.transfer_bytes):
                is_more = True
        if is_more:
            self._plan_push()

    def plan(self, number: int, bytes_max: int) -> TransferHead | None:
        """Return the next range to send to a slave, which never crosses a segment."""
        leadership = self.member.leadership
        follower = None if leadership is None else leadership.term.followers.get(number)
        if leadership is None or follower is None or follower.sent_to < 0:
            return None
        segment_bytes = self._log.segment_bytes
        return leadership.plan_transfer(number, min(bytes_max, segment_bytes - follower.sent_to % segment_bytes))

    def read(self, physical_offset: int, size_bytes: int) -> bytes:
        """Return bytes of the log; raise `StoreError` if they do not exist any more."""
        return self._log.read(physical_offset, size_bytes)

    # Actions

    def _carry_out(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        actions = self.member.actions
        try:
            while actions and not self._is_suspended:
                action = actions.pop(0)
                try:
                    self._perform(action)
                except (StoreError, FormatError, OSError) as error:
                    self._retire(error)
        finally:
            self._is_running = False

    def _perform(self, action: Action) -> None:
        _CARRY_OUT[type(action)](self, action)

    def _retire(self, error: Exception) -> None:
        """Give up all roles after an action on the log failed; later ones must not run, because they rely on it."""
        log.error("this member leaves its group until a restart: %s", error)
        kept = (ReadState, Propose, HangUp, Resign)
        self.member.actions[:] = [action for action in self.member.actions if isinstance(action, kept)]
        self.member.retire(str(error))

    def _append_log(self, action: AppendLog) -> None:
        self._log.append(action.physical_offset, action.body)
        self._events.appended()

    def _keep_tail(self, action: KeepTail) -> None:
        self._log.keep_tail(action.last_epoch, action.physical_offset, action.end)

    def _cut_log(self, action: CutLog) -> None:
        self._log.cut(action.physical_offset)

    def _flush_log(self, _: FlushLog) -> None:
        self._log.flush()

    def _settle_log(self, _: SettleLog) -> None:
        self.member.log_settled(self._log.settle())

    def _save_epochs(self, action: SaveEpochs) -> None:
        self._log.save_epochs(action.entries)

    def _restart_recorded(self, _: RestartRecorded) -> None:
        self._log.note_boot()

    def _confirmed(self, action: Confirmed) -> None:
        self._events.confirmed(action.physical_offset)

    def _role_changed(self, action: RoleChanged) -> None:
        self._events.role_changed(action)

    def _read_state(self, _: ReadState) -> None:
        self._spawn(self._read())

    def _send_proposal(self, action: Propose) -> None:
        self._spawn(self._propose(action.proposal))

    def _dial(self, action: Dial) -> None:
        live = self.member.context.desk.live.get(action.member_id)
        # Entered before it is open: the member may hang up while it is being opened.
        link = self.links[action.connection] = MemberLink(action.connection, self, BODY_BYTES_MAX)
        self._spawn(self._connect(link, live.ha_address if live is not None else ""))

    def _hang_up(self, action: HangUp) -> None:
        link = self.links.pop(action.connection, None)
        if link is not None:
            link.close()

    def _send_frame(self, action: SendFrame) -> None:
        link = self.links.get(action.connection)
        if link is not None:
            link.send(action.frame)
            if not isinstance(action.frame, EpochReport):
                return
            # Reports of frames that arrived together are written once, by `frames_done`; others at once.
            self._loop.call_soon(link.flush_report)


_CARRY_OUT: dict[type, Callable[[MemberDriver, Any], None]] = {
    AppendLog: MemberDriver._append_log,
    KeepTail: MemberDriver._keep_tail,
    CutLog: MemberDriver._cut_log,
    FlushLog: MemberDriver._flush_log,
    SettleLog: MemberDriver._settle_log,
    SaveEpochs: MemberDriver._save_epochs,
    RestartRecorded: MemberDriver._restart_recorded,
    Confirmed: MemberDriver._confirmed,
    RoleChanged: MemberDriver._role_changed,
    ReadState: MemberDriver._read_state,
    Propose: MemberDriver._send_proposal,
    Dial: MemberDriver._dial,
    HangUp: MemberDriver._hang_up,
    SendFrame: MemberDriver._send_frame,
}
