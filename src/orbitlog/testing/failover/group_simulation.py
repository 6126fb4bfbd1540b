"""Group simulation: three to five members of a replica group, driven by a list of decisions.

A decision is a kind and a number, from which everything else about the step follows. A decision that does not apply has
no effect, so that any part of a list is a valid run: a violation can be reduced to a short one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from orbitlog.replication.group.actions import Dial, Propose, ReadState, SendFrame
from orbitlog.replication.group.group_record import GroupRecord
from orbitlog.replication.group.group_state import LiveMember, Snapshot
from orbitlog.replication.group.member_context import GroupLimits
from orbitlog.testing.failover.failover_ledger import FailoverLedger
from orbitlog.testing.failover.model_disk import RECORD_BYTES, ModelDisk
from orbitlog.testing.failover.model_link import Frame, ModelLink
from orbitlog.testing.failover.model_node import ModelNode
from orbitlog.testing.failover.table_model import TableModel
from orbitlog.wire.replication.epoch_frames import EpochReport, EpochTransfer, Handshake, HandshakeAnswer, TransferHead


class Kind(IntEnum):
    """Kinds of decisions."""

    DELIVER = 0
    PUMP = 1
    TICK = 2
    APPEND = 3
    SERVE = 4
    ANSWER = 5
    FLUSH = 6
    START = 7
    LOSE = 8
    KILL = 9
    POWER = 10
    BREAK = 11
    BLOCK = 12
    UNBLOCK = 13
    EXPIRE = 14
    PAUSE = 15
    RESUME = 16
    HAND_OVER = 17
    OUTAGE = 18
    DOOM = 19
    HEARTBEAT = 20
    CHANGE = 21
    FETCH = 22
    SAVE = 23
    REPORT = 24
    WIPE = 25


class Decision(NamedTuple):
    """One step: what happens, and a number that selects to whom and how much."""

    kind: Kind
    choice: int


class Setup(NamedTuple):
    """A group: its size, and whether copies count when they are written or when they are flushed."""

    nodes: int
    acks_flushed: bool
    min_in_sync: int = 1
    copies_tables: bool = False


class Request(NamedTuple):
    """A request to the coordinator; `action` None registers the member."""

    node: int
    run: int
    action: ReadState | Propose | None


class Answer(NamedTuple):
    """An answer on its way. `session` is that of a registration; a snapshot of None: the answer is lost."""

    request: Request
    snapshot: Snapshot | None
    session: int = 0


class GroupSimulation:
    """A group, its network and its coordinator."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.record = GroupRecord()
        disks = {member_id: ModelDisk() for member_id in range(1, setup.nodes + 1)}
        self.ledger = FailoverLedger(disks)
        limits = GroupLimits(min_in_sync=setup.min_in_sync, copies_tables=setup.copies_tables)
        self.nodes = [ModelNode(member, disk, self, limits, setup.acks_flushed) for member, disk in disks.items()]
        self.tables = TableModel(self.nodes) if setup.copies_tables else None
        self.links: list[ModelLink] = []
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.blocked: set[tuple[int, int]] = set()
        self.is_coordinator_down = False
        self.effective_steps = 0
        """Decisions that had an effect."""
        self._link_count = 0
        self._record_count = 0
        self._steps = [getattr(self, f"_{kind.name.lower()}") for kind in Kind]
        for node in self.nodes:
            node.start()

    def step(self, decision: Decision) -> None:
        """Do one decision and check the invariants."""
        if self._steps[decision.kind](decision.choice):
            self.effective_steps += 1
            self.ledger.check(self.record.state)
            if self.tables is not None:
                self.tables.check(self.record.state)

    # Calls of nodes

    def dial(self, node: ModelNode, action: Dial) -> None:
        """Open a link; the slave's first frame is on its way with it."""
        self._link_count += 1
        link = ModelLink(self._link_count, node.member_id, node.run, action.connection, action.member_id)
        self.links.append(link)
        if node.member is not None:
            node.member.connected(action.connection)

    def hang_up(self, node: ModelNode, connection: int) -> None:
        """Close a node's end of a link."""
        link = self._link_of(node, connection)
        if link is not None:
            link.close_end(node.member_id)
            self._remove_links()

    def send(self, node: ModelNode, action: SendFrame) -> None:
        """Put a frame on its way."""
        link = self._link_of(node, action.connection)
        if link is not None:
            (link.to_master if action.connection < 0 else link.to_slave).append(action.frame)

    def request(self, node: ModelNode, action: ReadState | Propose | None) -> None:
        """Put a request to the coordinator on its way."""
        self.requests.append(Request(node.member_id, node.run, action))

    def _link_of(self, node: ModelNode, connection: int) -> ModelLink | None:
        for link in self.links:
            if connection < 0:
                if link.slave_connection == connection and link.slave == node.member_id and link.slave_run == node.run:
                    return link
            elif link.master_connection == connection and link.master_run == node.run:
                return link
        return None

    def _remove_links(self) -> None:
        self.links = [link for link in self.links if not link.is_over]

    # Network

    def _deliver(self, choice: int) -> bool:
        """Deliver the next frame of a direction of a link, of the first one from the chosen on that has one."""
        links = self.links
        for index in range(len(links)):
            link = links[((choice >> 1) + index) % len(links)]
            for to_master in (True, False) if choice & 1 else (False, True):
                if link.to_master if to_master else link.to_slave:
                    source, target = (link.slave, link.master) if to_master else (link.master, link.slave)
                    node = self.nodes[target - 1]
                    if not node.is_paused and (source, target) not in self.blocked:
                        self._arrive(link, node, to_master)
                        return True
        return False

    def _arrive(self, link: ModelLink, node: ModelNode, to_master: bool) -> None:
        if to_master:
            self._arrive_at_master(link, node, link.to_master.popleft())
        else:
            self._arrive_at_slave(link, node, link.to_slave.popleft())
        node.carry_out()

    def _arrive_at_master(self, link: ModelLink, node: ModelNode, frame: Frame) -> None:
        member = node.member
        if link.master_run == 0 and frame is not None and member is not None:
            link.master_run = node.run
        if member is None or link.master_run != node.run:
            link.close_end(node.member_id)
            self._remove_links()
        elif frame is None:
            member.disconnected(link.master_connection)
            link.master_run = -1
            self._remove_links()
        elif type(frame) is EpochReport:
            member.report(link.master_connection, frame)
        elif type(frame) is Handshake:
            member.handshake(link.master_connection, frame)

    def _arrive_at_slave(self, link: ModelLink, node: ModelNode, frame: Frame) -> None:
        member = node.member
        if member is None:
            return  # a machine without power answers nothing
        if link.slave_run != node.run:
            link.close_end(node.member_id)
            self._remove_links()
        elif frame is None:
            member.disconnected(link.slave_connection)
            link.slave_run = -1
            self._remove_links()
        elif type(frame) is EpochTransfer:
            member.transfer(link.slave_connection, frame.head, frame.body)
        elif type(frame) is HandshakeAnswer:
            member.handshake_answered(link.slave_connection, frame)

    def _pump(self, choice: int) -> bool:
        """Send the next bytes to a slave, of the first link from the chosen on that has some to send."""
        links = self.links
        for index in range(len(links)):
            link = links[((choice >> 3) + index) % len(links)]
            node = self.nodes[link.master - 1]
            member = None if node.is_paused else node.member
            if member is not None and member.leadership is not None and link.master_run == node.run:
                head = member.leadership.plan_transfer(link.master_connection, 1 + (choice & 7) * 3)
                if head is not None:
                    self._send_transfer(node, link, head)
                    return True
        return False

    def _heartbeat(self, choice: int) -> bool:
        if not self.links:
            return False
        link = self.links[choice % len(self.links)]
        node = self.nodes[link.master - 1]
        if node.member is None or node.member.leadership is None or node.is_paused or link.master_run != node.run:
            return False
        head = node.member.leadership.heartbeat(link.master_connection)
        if head is None:
            return False
        self._send_transfer(node, link, head)
        return True

    def _send_transfer(self, node: ModelNode, link: ModelLink, head: TransferHead) -> None:
        start = head.physical_offset
        link.to_slave.append(EpochTransfer(head, bytes(node.disk.data[start : start + head.body_bytes])))

    def _break(self, choice: int) -> bool:
        """Break a link: frames on their way are lost from some frame on, and both ends learn of it at some time."""
        if not self.links:
            return False
        link = self.links[choice % len(self.links)]
        for queue in (link.to_master, link.to_slave):
            kept = (choice >> 4) % (len(queue) + 1)
            while len(queue) > kept:
                queue.pop()
            queue.append(None)
        return True

    def _block(self, choice: int) -> bool:
        nodes = len(self.nodes)
        source, target = 1 + choice % nodes, 1 + (choice // nodes) % nodes
        if source == target or (source, target) in self.blocked:
            return False
        self.blocked.add((source, target))
        return True

    def _unblock(self, choice: int) -> bool:
        if not self.blocked:
            return False
        self.blocked.discard(sorted(self.blocked)[choice % len(self.blocked)])
        return True

    # Nodes

    def _node(self, choice: int) -> ModelNode:
        return self.nodes[choice % len(self.nodes)]

    def _tick(self, choice: int) -> bool:
        """Move a node's clock by up to four seconds; the clocks of two nodes have nothing in common."""
        node = self._node(choice)
        member = node.member
        if member is None or node.is_paused:
            return False
        node.clock_s += ((choice >> 4) & 63) / 16
        desk = member.context.desk
        registered = self.record.live.get(node.member_id)
        is_registered = registered is not None and registered.session == desk.session
        is_due = not desk.session or choice & (3 << 10) == 0  # others often notice first that a lease has ended
        if is_due and not is_registered and not node.is_registering and not self.is_coordinator_down:
            node.is_registering = True
            self.request(node, None)
        member.tick(node.clock_s)
        node.carry_out()
        return True

    def _append(self, choice: int) -> bool:
        """Append records at a node that takes itself for the master, the first one from the chosen on."""
        for index in range(len(self.nodes)):
            node = self._node(choice + index)
            member = node.member
            if member is not None and not node.is_paused and member.accepts_sends:
                for _ in range(1 + ((choice >> 4) & 3)):
                    self._record_count += 1
                    node.disk.append(self._record_count.to_bytes(RECORD_BYTES, "big"))
                member.appended(len(node.disk.data))
                node.carry_out()
                return True
        return False

    def _flush(self, choice: int) -> bool:
        node = self._node(choice)
        if node.member is None or node.is_paused:
            return False
        node.disk.synced_to = len(node.disk.data)
        node.member.flushed(node.disk.synced_to)
        node.carry_out()
        return True

    def _start(self, choice: int) -> bool:
        node = self._node(choice)
        if node.member is not None:
            return False
        node.start()
        return True

    def _kill(self, choice: int) -> bool:
        node = self._node(choice)
        if node.member is None:
            return False
        self._end_process(node)
        return True

    def _power(self, choice: int) -> bool:
        node = self._node(choice)
        if not self.setup.acks_flushed and not self._may_lose_power(node.member_id):
            return False
        node.disk.lose_unsynced(choice >> 4)
        self.ledger.log_cut(node.member_id, len(node.disk.data))
        if not self.setup.acks_flushed:
            self.ledger.bytes_lost(node.member_id, self.record.state)
        node.may_have_lost_bytes = True
        node.stop()  # without closing its links: the other ends stay open until they send something
        return True

    def _wipe(self, choice: int) -> bool:
        """Replace the disk of a node; its process ends without closing its links."""
        node = self._node(choice)
        if choice & (3 << 4) or not self._may_lose_power(node.member_id):
            return False
        node.disk.replace()
        if self.tables is not None:
            self.tables.wipe(node.member_id)
        self.ledger.log_cut(node.member_id, 0)
        self.ledger.bytes_lost(node.member_id, self.record.state)
        node.may_have_lost_bytes = True
        node.stop()
        return True

    def _may_lose_power(self, member_id: int) -> bool:
        """Return whether a loss of bytes is covered: by the recorded in-sync set, and by any that is on its way."""
        proposed = (request.action.proposal.state for request in self.requests if type(request.action) is Propose)
        return all(self.ledger.may_lose_power(member_id, state) for state in (self.record.state, *proposed))

    def _doom(self, choice: int) -> bool:
        """Kill a node between two of its next actions."""
        node = self._node(choice)
        if node.member is None:
            return False
        node.actions_left = (choice >> 4) & 3
        return True

    def _end_process(self, node: ModelNode) -> None:
        node.stop()
        for link in self.links:
            if link.slave == node.member_id and link.slave_run == node.run:
                link.slave_run = -1
                link.to_slave.clear()
                link.to_master.append(None)
            if link.master == node.member_id and link.master_run == node.run:
                link.close_end(node.member_id)
        self._remove_links()

    def _pause(self, choice: int) -> bool:
        return self._set_paused(choice, True)

    def _resume(self, choice: int) -> bool:
        return self._set_paused(choice, False)

    def _set_paused(self, choice: int, is_paused: bool) -> bool:
        node = self._node(choice)
        is_changed = node.is_paused is not is_paused
        node.is_paused = is_paused
        return is_changed

    def _hand_over(self, choice: int) -> bool:
        node = self._node(choice)
        if node.member is None or node.is_paused:
            return False
        if choice & 16:
            node.member.cancel_handover()
        else:
            node.member.hand_over(1 + (choice >> 5) % len(self.nodes))
        node.carry_out()
        return True

    # Tables

    def _change(self, choice: int) -> bool:
        """Change a table at a node that takes itself for the master, the first one from the chosen on."""
        tables = self.tables
        return tables is not None and any(tables.change(self._node(choice + index)) for index in range(len(self.nodes)))

    def _fetch(self, choice: int) -> bool:
        return self.tables is not None and self.tables.fetch(self._node(choice))

    def _save(self, choice: int) -> bool:
        return self.tables is not None and self.tables.save(self._node(choice))

    def _report(self, choice: int) -> bool:
        return self.tables is not None and self.tables.report(choice)

    # Coordinator

    def _serve(self, choice: int) -> bool:
        """Let the coordinator process any request that is on its way, also one of a process that has ended."""
        if not self.requests or self.is_coordinator_down:
            return False
        request = self.requests.pop(choice % len(self.requests))
        if type(request.action) is Propose:
            revision = self.record.revision
            snapshot = self.record.propose(request.node, request.action.proposal)
            if snapshot.revision != revision and snapshot.state is not None:
                node = self.nodes[request.node - 1]
                has_ended = node.member is None or node.run != request.run
                self.ledger.state_recorded(snapshot.state, request.node, has_ended=has_ended)
            self.answers.append(Answer(request, snapshot))
        elif request.action is None:
            disk = self.nodes[request.node - 1].disk
            epoch = disk.epochs[-1].epoch if disk.epochs else 0
            session = self.record.register(request.node, LiveMember(0, epoch=epoch, written_to=len(disk.data)))
            self.answers.append(Answer(request, self.record.read(), session))
        else:
            self.answers.append(Answer(request, self.record.read()))
        return True

    def _answer(self, choice: int) -> bool:
        """Deliver any answer."""
        if not self.answers:
            return False
        index = choice % len(self.answers)
        node = self.nodes[self.answers[index].request.node - 1]
        if not node.is_paused:
            self._take_answer(node, self.answers.pop(index))
        return True

    def _take_answer(self, node: ModelNode, answer: Answer) -> None:
        request, member = answer.request, node.member
        if member is None or request.run != node.run:
            return
        action = request.action
        if action is None:
            node.is_registering = False
            if answer.session:
                member.registered(answer.session)
        elif type(action) is Propose:
            token = action.proposal.state.token
            if answer.snapshot is None:
                member.proposal_lost(token)
            else:
                member.proposal_answered(token, answer.snapshot)
        elif answer.snapshot is None:
            member.read_failed()
        else:
            member.observe(answer.snapshot)
        node.carry_out()

    def _lose(self, choice: int) -> bool:
        """Lose a request, or the answer to one that took effect; or time out while the request is still on its way."""
        what = choice & 3
        if what == 0 and self.answers:
            index = (choice >> 2) % len(self.answers)
            self.answers[index] = self.answers[index]._replace(snapshot=None, session=0)
        elif what > 0 and self.requests:
            index = (choice >> 2) % len(self.requests)
            self.answers.append(Answer(self.requests[index], None))
            if what == 1:
                del self.requests[index]
        else:
            return False
        return True

    def _expire(self, choice: int) -> bool:
        """End a lease, in half of the cases that of the master, at any time: no clock can be relied on."""
        state = self.record.state
        member_id = 1 + choice % len(self.nodes)
        if choice & 16 and state is not None and state.master is not None:
            member_id = state.master
        if self.is_coordinator_down or member_id not in self.record.live:
            return False
        self.record.expire(member_id)
        return True

    def _outage(self, choice: int) -> bool:
        was_down = self.is_coordinator_down
        self.is_coordinator_down = choice & 3 == 1
        return self.is_coordinator_down is not was_down
