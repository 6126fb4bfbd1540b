"""Transactions over a socket: half messages, commit, rollback, questions; the clock is an argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats import names
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import CheckTransactionRequest
from tests.support.broker_desk import Desk, at_desk, records, until

HALF = {"TRAN_MSG": "true", "PGROUP": "P", "TAGS": "t"}
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
MINUTE_MS = 60_000


async def send_half(desk: Desk, body: bytes = b"order", **properties: str) -> Command:
    sent = await desk.send(body=body, queue_id=1, sys_flag=PREPARED, properties=HALF | properties)
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    assert sent.ext_fields["transactionId"], "a proxy ends a transaction by this id"
    await dispatched(desk)
    return sent


async def dispatched(desk: Desk) -> None:
    store = desk.broker.state.store
    await until(lambda: store.dispatched_to == store.written_to)


async def end(desk: Desk, sent: Command, state: int, *, group: str = "P") -> Command:
    place = parse_offset_message_id(sent.ext_fields["msgId"])
    ended = await desk.ask(
        RequestCode.END_TRANSACTION,
        producerGroup=group,
        tranStateTableOffset=sent.ext_fields["queueOffset"],
        commitLogOffset=place.physical_offset,
        commitOrRollback=state,
        msgId="x",
    )
    await dispatched(desk)
    return ended


def born_ms(desk: Desk) -> int:
    """Messages of these tests say that they were born at 1 ms."""
    return 1


async def messages_of(desk: Desk, topic: str, queue_id: int = 0) -> list[Message]:
    return records(await desk.pull(topic, queue_id))


@pytest.mark.parametrize("compat", ["4.9", "5.5"])
def test_committed_message_is_delivered(tmp_path: Path, compat: str) -> None:
    async def work(desk: Desk) -> None:
        sent = await send_half(desk)
        assert (await desk.pull(queue_id=1)).code != ResponseCode.SUCCESS
        (half,) = await messages_of(desk, names.HALF_TOPIC)
        assert half.sys_flag == 0 and half.properties["REAL_TOPIC"] == "Orders"
        assert ("__transactionId__" in half.properties) == (compat == "5.5")
        assert (await end(desk, sent, COMMIT)).code == ResponseCode.SUCCESS
        (message,) = await messages_of(desk, "Orders", 1)
        assert (message.body, message.sys_flag, message.queue_offset) == (b"order", COMMIT, 0)
        assert message.prepared_transaction_offset == half.physical_offset
        assert ("REAL_TOPIC" in message.properties) == (compat == "4.9")
        (op,) = await messages_of(desk, names.OP_HALF_TOPIC)
        assert op.body == (b"0" if compat == "4.9" else b"0,")
        assert op.properties == {"TAGS": "d", "WAIT": "true"}
        assert op.born_host_raw == op.store_host_raw

    at_desk(tmp_path, work, compat=compat)


def test_rolled_back_message_is_not_delivered(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        sent = await send_half(desk)
        assert (await end(desk, sent, ROLLBACK)).code == ResponseCode.SUCCESS
        assert (await desk.pull(queue_id=1)).code != ResponseCode.SUCCESS
        assert len(await messages_of(desk, names.OP_HALF_TOPIC)) == 1
        assert desk.broker._transaction_check.pending(MINUTE_MS) == []

    at_desk(tmp_path, work)


def test_end_by_another_producer_group_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        sent = await send_half(desk)
        plain = await desk.send()
        for wrong in (await end(desk, sent, COMMIT, group="Q"), await end(desk, plain, COMMIT)):
            assert wrong.code == ResponseCode.SYSTEM_ERROR
        moved = Command(0, ext_fields=sent.ext_fields | {"queueOffset": "7"})
        assert (await end(desk, moved, COMMIT)).code == ResponseCode.SYSTEM_ERROR
        assert await messages_of(desk, names.OP_HALF_TOPIC) == []

    at_desk(tmp_path, work)


def test_half_message_is_refused_if_transactions_are_rejected(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        refused = await desk.send(sys_flag=PREPARED, properties=HALF)
        assert refused.code == ResponseCode.NO_PERMISSION

    at_desk(tmp_path, work, rejectTransactionMessage="true")


def test_transaction_bits_without_property_are_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        assert (await desk.send(sys_flag=COMMIT)).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await desk.send(sys_flag=PREPARED)).code == ResponseCode.MESSAGE_ILLEGAL

    at_desk(tmp_path, work)


def test_checked_producer_ends_the_transaction(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        await send_half(desk, b"first")
        sent = await send_half(desk, b"second")
        await end(desk, sent, COMMIT)
        check = desk.broker._transaction_check
        assert check.check_once(born_ms(desk) + 5_999) == 0
        assert check.check_once(born_ms(desk) + 6_001) == 1
        await until(lambda: any(each.code == RequestCode.CHECK_TRANSACTION_STATE for each in desk.heard))
        asked = next(each for each in desk.heard if each.code == RequestCode.CHECK_TRANSACTION_STATE)
        header = CheckTransactionRequest.from_ext_fields(asked.ext_fields)
        question = decode_message(asked.body)
        assert (question.topic, question.queue_id, question.body) == ("Orders", 1, b"first")
        assert question.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert header.half_queue_offset == 2
        done = await desk.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=header.half_queue_offset,
            commitLogOffset=header.half_physical_offset,
            commitOrRollback=COMMIT,
            fromTransactionCheck="true",
        )
        assert done.code == ResponseCode.SUCCESS
        assert sorted(message.body for message in await messages_of(desk, "Orders", 1)) == [b"first", b"second"]
        assert check.check_once(born_ms(desk) + 100_000) == 0
        assert check.pending(100_000) == []
        offsets = desk.broker.state.offsets
        assert offsets.find(names.HALF_TOPIC, names.TRANSACTION_GROUP, 0) == 3
        assert offsets.find(names.OP_HALF_TOPIC, names.TRANSACTION_GROUP, 0) == 2

    at_desk(tmp_path, work)


async def answer(desk: Desk, state: int) -> Command:
    """Answer the last question, as a producer does."""
    (*_, asked) = [each for each in desk.heard if each.code == RequestCode.CHECK_TRANSACTION_STATE]
    header = CheckTransactionRequest.from_ext_fields(asked.ext_fields)
    place = {"tranStateTableOffset": header.half_queue_offset, "commitLogOffset": header.half_physical_offset}
    done = await desk.ask(RequestCode.END_TRANSACTION, producerGroup="P", commitOrRollback=state, **place)
    await dispatched(desk)
    return done


def test_late_end_stops_the_checks(tmp_path: Path) -> None:
    """It was asked and did not know; then its own branch came to an end, and it names the copy that it sent."""

    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        sent = await send_half(desk)
        check = desk.broker._transaction_check
        for minute in (1, 2):
            assert check.check_once(minute * MINUTE_MS) == 1
            await dispatched(desk)
        await send_half(desk, b"another, too young to be asked about", CHECK_IMMUNITY_TIME_IN_SECONDS="36000")
        assert (await end(desk, sent, COMMIT)).code == ResponseCode.SUCCESS
        assert [each.message_id for each in check.pending(3 * MINUTE_MS)] != []
        assert len(check.pending(3 * MINUTE_MS)) == 1
        assert check.check_once(4 * MINUTE_MS) == 0
        assert [message.body for message in await messages_of(desk, "Orders", 1)] == [b"order"]

    at_desk(tmp_path, work)


def test_repeated_commit_stores_one_message(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        sent = await send_half(desk)
        assert desk.broker._transaction_check.check_once(MINUTE_MS) == 1
        await dispatched(desk)
        await until(lambda: any(each.code == RequestCode.CHECK_TRANSACTION_STATE for each in desk.heard))
        assert (await answer(desk, COMMIT)).code == ResponseCode.SUCCESS
        for state in (COMMIT, ROLLBACK):
            assert (await end(desk, sent, state)).code == ResponseCode.SUCCESS, "the first word counted"
        assert [message.body for message in await messages_of(desk, "Orders", 1)] == [b"order"]

    at_desk(tmp_path, work)


def test_forged_origin_does_not_end_another_message(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        first = await send_half(desk, b"first")
        second = await send_half(desk, b"second", TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="99")
        await end(desk, second, ROLLBACK)
        await end(desk, first, COMMIT)
        assert [message.body for message in await messages_of(desk, "Orders", 1)] == [b"first"]

    at_desk(tmp_path, work)


def test_transaction_is_discarded_after_the_maximum_of_checks(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        await send_half(desk)
        check = desk.broker._transaction_check
        asked = 0
        for minute in range(1, 30):
            asked += check.check_once(minute * MINUTE_MS)
            await dispatched(desk)
        assert asked == 3
        assert [message.body for message in await messages_of(desk, names.CHECK_MAX_TIME_TOPIC)] == [b"order"]
        assert check.pending(30 * MINUTE_MS) == []

    at_desk(tmp_path, work, transactionCheckMax="3")


def test_check_without_a_connected_producer_does_not_count(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await send_half(desk)
        check = desk.broker._transaction_check
        for minute in range(1, 30):
            assert check.check_once(minute * MINUTE_MS) == 0
            await dispatched(desk)
        (pending,) = check.pending(30 * MINUTE_MS)
        assert (pending.topic, pending.producer_group, pending.check_times) == ("Orders", "P", 0)

    at_desk(tmp_path, work, transactionCheckMax="3")


def test_own_immunity_time_delays_the_check(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        await desk.heartbeat()
        sent = await send_half(desk, b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        check = desk.broker._transaction_check
        assert check.check_once(5 * MINUTE_MS) == 0
        await dispatched(desk)
        assert check.check_once(6 * MINUTE_MS) == 0
        # The producer ends the first copy, the only one it knows: no later copy is pending then.
        await end(desk, sent, ROLLBACK)
        assert check.pending(7 * MINUTE_MS) == []
        assert check.check_once(20 * MINUTE_MS) == 0

    at_desk(tmp_path, work)


def test_pending_transaction_survives_a_restart(tmp_path: Path) -> None:
    async def before(desk: Desk) -> None:
        await desk.heartbeat()
        await send_half(desk)
        assert desk.broker._transaction_check.check_once(MINUTE_MS) == 1

    async def after(desk: Desk) -> None:
        (pending,) = desk.broker._transaction_check.pending(2 * MINUTE_MS)
        assert pending.check_times == 1
        await desk.heartbeat()
        assert desk.broker._transaction_check.check_once(2 * MINUTE_MS) == 1

    at_desk(tmp_path, before)
    at_desk(tmp_path, after)


def test_oneway_commits_of_one_turn_share_an_op_message(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        sent = [await send_half(desk, b"%d" % number) for number in range(3)]
        for each in sent:
            place = parse_offset_message_id(each.ext_fields["msgId"])
            header = {
                "producerGroup": "P",
                "tranStateTableOffset": each.ext_fields["queueOffset"],
                "commitLogOffset": str(place.physical_offset),
                "commitOrRollback": str(COMMIT),
            }
            await desk.client.invoke_oneway(desk.address, Command(RequestCode.END_TRANSACTION, ext_fields=header))
        state = desk.broker.state
        await until(lambda: state.max_offset("Orders", 1) == 3)
        await dispatched(desk)
        assert [message.body for message in await messages_of(desk, "Orders", 1)] == [b"0", b"1", b"2"]
        ops = b"".join(message.body for message in await messages_of(desk, names.OP_HALF_TOPIC))
        assert ops == b"0,1,2,"
        assert all(b"REAL_TOPIC" not in message.properties_raw for message in await messages_of(desk, "Orders", 1))

    at_desk(tmp_path, work)
