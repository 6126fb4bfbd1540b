"""Changes of the settings of a running broker; its settings file is not changed."""

from __future__ import annotations

import difflib
from typing import Annotated

from msgspec import Meta

from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine
from orbitlog.console.console_call import Call
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.views.broker_view import known_broker
from orbitlog.settings.secret_settings import is_secret, shown_value


class SettingRequest(ChangeRequest, kw_only=True):
    """One setting and its new value."""

    key: Annotated[str, Meta(min_length=1, max_length=255, description="Name of the setting")]
    value: Annotated[str, Meta(max_length=4096, description="Its new value")]


async def prepare_setting(call: Call) -> PreparedChange:
    source, request = call.cluster, call.query
    broker = known_broker(await source.sample(), call.path["address"])
    settings = await source.brokers.settings(broker.address)
    if request.key not in settings:
        near = difflib.get_close_matches(request.key, settings, n=2)
        hint = f"; similar settings: {', '.join(near)}" if near else ""
        raise ConsoleError(404, f"broker {broker.name} has no setting {request.key[:255]}{hint}")
    if "\n" in request.value or "\r" in request.value:
        raise ConsoleError(400, "a value has one line")
    before = settings[request.key]
    lines = []
    if before != request.value:
        after = shown_value(request.key, request.value)
        lines.append(PlanLine(what=request.key, before=shown_value(request.key, before), after=after))

    async def apply() -> list[ResultLine]:
        await source.brokers.change_settings(broker.address, {request.key: request.value})
        after = (await source.brokers.settings(broker.address)).get(request.key)
        is_done = is_secret(request.key) or after == request.value
        result = f"value is {shown_value(request.key, after or '')}"
        return [ResultLine(what=request.key, done=is_done, result=result)]

    return PreparedChange(
        action="change setting",
        target=f"{broker.name} {request.key}",
        sentence=f"change {request.key} of broker {broker.name} ({broker.address}) until its next start",
        lines=lines,
        apply=apply,
        confirm=broker.name,
        warnings=["the settings file of the broker is not changed: its value applies again after a restart"],
    )
