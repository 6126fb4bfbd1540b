"""Changes of messages that wait: recall of a scheduled one, and another check of a pending transaction."""

from __future__ import annotations

from orbitlog.client.admin.inspection import Inspection
from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine
from orbitlog.console.console_call import Call
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.views.later_view import find_scheduled, instant_words
from orbitlog.formats.records import properties as props


class RecallRequest(ChangeRequest, kw_only=True):
    """No fields."""


class CheckRequest(ChangeRequest, kw_only=True):
    """No fields."""


async def prepare_recall(call: Call) -> PreparedChange:
    source = call.cluster
    scheduled = await find_scheduled(source, call.path["message"])
    handle = scheduled.recall_handle
    if handle is None:
        sentence = "a message with a delay level cannot be recalled: brokers recall only messages for a timestamp"
        raise ConsoleError(409, sentence)
    message_id = scheduled.message.message_id

    async def apply() -> list[ResultLine]:
        recalled = await Inspection(source.admin).recall(scheduled.queue.broker_name, scheduled.topic, handle)
        return [ResultLine(what=message_id, done=True, result=f"recalled {recalled}; it is not delivered")]

    due = instant_words(scheduled.due_ms)
    return PreparedChange(
        action="recall message",
        target=message_id,
        sentence=f"recall message {message_id} of topic {scheduled.topic}, due at {due} UTC",
        lines=[PlanLine(what="delivery", before=f"{due} UTC to {scheduled.topic}", after="never")],
        apply=apply,
        warnings=["a recalled message cannot be scheduled again; send a new one"],
    )


async def prepare_check(call: Call) -> PreparedChange:
    source, wanted = call.cluster, call.path["message"]
    async for pending in Inspection(source.admin).pending_transactions(source.now_ms):
        half = pending.half
        if wanted in (half.message_id, half.offset_message_id):
            break
    else:
        raise ConsoleError(404, "no pending transaction has this id; it may have ended")
    topic, checks = half.properties.get(props.REAL_TOPIC, ""), pending.check_count

    async def apply() -> list[ResultLine]:
        await source.brokers.resume_check(pending.queue.address, pending.queue.topic, half.offset_message_id)
        return [ResultLine(what=half.message_id, done=True, result="the broker checks it again from the first time on")]

    return PreparedChange(
        action="check transaction",
        target=half.message_id,
        sentence=f"have the broker check the transaction of message {half.message_id} of topic {topic} again",
        lines=[PlanLine(what="checks", before=str(checks), after="0")],
        apply=apply,
    )
