"""Routes: the last answer of name servers counts, and routes stay while no name server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from orbitlog.client.connection.routes import AUTO_CREATE_TOPIC, Routes
from orbitlog.errors import ConnectFailed, NoRoute
from tests.support.fake_name_server import NameServer


def run(scenario: Callable[[NameServer, Routes], Any], topics: Mapping[str, Mapping[str, str]]) -> None:
    name_server = NameServer(topics)
    asyncio.run(scenario(name_server, Routes(name_server)))  # type: ignore[arg-type]


def test_the_latest_address_of_a_broker_counts_whatever_topic_it_came_with() -> None:
    async def scenario(name_server: NameServer, routes: Routes) -> None:
        await routes.of("First")
        name_server.topics["Second"] = {"a": "moved:2"}
        await routes.of("Second")
        assert routes.address("a") == "moved:2"
        assert routes.all_addresses(masters_only=True) == ["moved:2"]

    run(scenario, {"First": {"a": "old:1"}})


def test_who_would_create_a_topic_does_not_share_the_answer_of_who_would_not() -> None:
    async def scenario(name_server: NameServer, routes: Routes) -> None:
        answers = await asyncio.gather(
            routes.refresh("New"), routes.refresh("New", create=True), routes.refresh("New"), return_exceptions=True
        )
        assert [isinstance(each, NoRoute) for each in answers] == [True, False, True]
        assert name_server.requested.count("New") == 2
        with pytest.raises(NoRoute):
            await routes.of("New")

    run(scenario, {AUTO_CREATE_TOPIC: {"a": "a:1"}})


def test_known_routes_are_used_while_no_name_server_answers() -> None:
    async def scenario(name_server: NameServer, routes: Routes) -> None:
        before = await routes.freshest("Known")
        name_server.is_down = True
        assert await routes.freshest("Known") == before
        with pytest.raises(ConnectFailed):
            await routes.freshest("Unknown")
        name_server.is_down = False
        del name_server.topics["Known"]
        with pytest.raises(NoRoute):
            await routes.freshest("Known")
        await routes.refresh_all()
        assert routes.known("Known") == before

    run(scenario, {"Known": {"a": "a:1"}})


class Electing(NameServer):
    """A name server whose replica group has no master until the third request for the route."""

    async def invoke_name_server(self, *request: Any, **options: Any) -> Any:
        answer = await super().invoke_name_server(*request, **options)
        if self.requested.count("Orders") == 3:
            self.topics["Orders"] = {"a": "new:1"}
        return answer


def test_route_of_a_broker_that_did_not_answer_is_fetched_until_it_has_a_master() -> None:
    async def scenario() -> None:
        name_server = Electing({"Orders": {"a": "old:1"}})
        routes = Routes(name_server)  # type: ignore[arg-type]
        await routes.of("Orders")
        name_server.topics["Orders"] = {}
        routes.suspect("Orders")
        await routes.moved.wait()
        assert name_server.requested.count("Orders") == 4
        assert routes.address("a") == "new:1"
        await routes.close()

    asyncio.run(scenario())


def test_a_broker_with_another_master_is_reported_once() -> None:
    async def scenario(name_server: NameServer, routes: Routes) -> None:
        reported: list[str] = []
        routes.on_new_master.append(reported.append)
        await routes.refresh("Orders")
        await routes.refresh("Orders")
        assert reported == []
        name_server.topics["Orders"] = {"a": "new:1", "b": "b:1"}
        for _ in range(2):
            await routes.refresh("Orders")
        assert reported == ["a"]

    run(scenario, {"Orders": {"a": "old:1", "b": "b:1"}})


class ReplacingSilent(NameServer):
    """A name server whose broker stays registered after it has failed, until another master registers."""

    async def invoke_name_server(self, *request: Any, **options: Any) -> Any:
        answer = await super().invoke_name_server(*request, **options)
        if self.requested.count("Orders") == 3:
            self.topics["Orders"] = {"a": "new:1"}
        return answer


@pytest.mark.parametrize("silent", [None, "a"])
def test_route_of_a_silent_broker_is_fetched_until_another_master_is_registered(silent: str | None) -> None:
    async def scenario() -> None:
        name_server = ReplacingSilent({"Orders": {"a": "old:1"}})
        routes = Routes(name_server)  # type: ignore[arg-type]
        await routes.of("Orders")
        routes.suspect("Orders", silent=silent)
        await asyncio.gather(*routes._suspected.values())
        if silent is None:
            assert name_server.requested.count("Orders") == 2, "a registered master is not in doubt"
        else:
            assert routes.address("a") == "new:1"
            assert name_server.dropped == ["old:1"], "requests at the last master wait for their timeouts"
        await routes.close()

    asyncio.run(scenario())
