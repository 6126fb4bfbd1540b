"""Pages of a master's tables: merged, of one version, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from orbitlog.broker.slave.paged_tables import TOPIC_PAGES, Page, fetch_pages
from orbitlog.errors import RemotingError
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.registration_body import TopicWrapper


def topic(number: int) -> str:
    return f"Topic{number:05d}"


class Master:
    """Serves `count` topics in pages of `rows`, as 5.x does; its table changes after the answers in `changes`."""

    def __init__(self, count: int, rows: int, *, changes: tuple[int, ...] = (), states_total: bool = True) -> None:
        self.count, self.rows, self.changes, self.states_total = count, rows, changes, states_total
        self.version = DataVersion(1, 1)
        self.requests: list[Mapping[str, str]] = []

    async def answer(self, fields: Mapping[str, str]) -> Page:
        self.requests.append(fields)
        first = int(fields["topicSeq"])
        if fields["dataVersion"] != encode_body(self.version).decode():
            first = 0
        names = [topic(number) for number in range(first, min(first + self.rows, self.count))]
        wrapper = TopicWrapper(topics={name: TopicConfig(name) for name in names}, data_version=self.version)
        if len(self.requests) in self.changes:
            self.version = DataVersion(self.version.counter + 1, 1)
            self.count += 1
        return Page({"totalTopicNum": str(self.count)} if self.states_total else {}, encode_body(wrapper))


def fetched(master: Master) -> list[str]:
    pages = asyncio.run(
        fetch_pages(
            master.answer,
            TOPIC_PAGES,
            lambda body: decode_body(TopicWrapper, body),
            lambda page: len(page.topics),
        )
    )
    assert all(page.data_version == pages[0].data_version for page in pages)
    return [name for page in pages for name in page.topics]


@pytest.mark.parametrize("count", [0, 1, 10, 11, 25])
def test_pages_are_fetched_until_all_rows_are_there(count: int) -> None:
    assert fetched(Master(count, 10)) == [topic(number) for number in range(count)]


def test_answer_without_a_total_is_the_whole_table() -> None:
    master = Master(5, 10, states_total=False)
    assert len(fetched(master)) == 5
    assert len(master.requests) == 1


def test_changed_table_is_fetched_from_its_first_row() -> None:
    master = Master(25, 10, changes=(1, 3))
    assert fetched(master) == [topic(number) for number in range(27)]
    assert [int(request["topicSeq"]) for request in master.requests] == [0, 10, 10, 20, 10, 20]


def test_refused_table_has_no_pages() -> None:
    async def refuse(_: Mapping[str, str]) -> None:
        return None

    decode = lambda body: decode_body(TopicWrapper, body)  # noqa: E731
    assert asyncio.run(fetch_pages(refuse, TOPIC_PAGES, decode, lambda page: len(page.topics))) == []


def test_table_that_never_settles_ends_in_an_error() -> None:
    master = Master(25, 10, changes=tuple(range(1, 100_000)))
    with pytest.raises(RemotingError, match="changed too often"):
        fetched(master)
