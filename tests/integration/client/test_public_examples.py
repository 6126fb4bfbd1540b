"""Examples of public names run at a broker."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Awaitable

import pytest

import orbitlog
from orbitlog.testing.running_broker import RunningBroker
from tools.generate_docs import example_of

SECONDS_MAX = 60


@pytest.mark.parametrize(
    "name", [name for name in orbitlog.__all__ if name != "errors" and name != "connect"]
)  # that of `connect` names an address of its own
def test_example_of_public_name_runs(name: str, orbitlog_broker: RunningBroker) -> None:
    source = example_of(getattr(orbitlog, name))
    code = compile(source, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def scenario(address: str) -> None:
        async with asyncio.timeout(SECONDS_MAX), orbitlog.connect(address) as mq:
            await mq.send("Orders", "order 42")
            result = eval(code, {"orbitlog": orbitlog, "asyncio": asyncio, "mq": mq, "address": address})
            if isinstance(result, Awaitable):
                await result

    assert inspect.getdoc(getattr(orbitlog, name))
    asyncio.run(scenario(f"rocketmq://{orbitlog_broker.address}"))
