"""Paged tables: topics and groups of a master in pages, as 5.x serves them; older masters send all at once.

A page has the version of the table. If the table changes between two pages, the master starts from the first row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from orbitlog.broker.slave.fit_check import is_number
from orbitlog.errors import RemotingError
from orbitlog.formats.tables.group_config import GroupTable
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.registration_body import TopicWrapper

_PAGE_ROWS = 2000
_PAGES_MAX = 10_000
ROWS_MAX = 1_000_000
T = TypeVar("T", TopicWrapper, GroupTable)


class PageFields(NamedTuple):
    """Names of the header fields: number of the first row, maximum rows, and the rows of the table in the answer."""

    first_row: str
    rows_max: str
    rows_total: str


TOPIC_PAGES = PageFields("topicSeq", "maxTopicNum", "totalTopicNum")
GROUP_PAGES = PageFields("groupSeq", "maxGroupNum", "totalGroupNum")


class Page(NamedTuple):
    """One answer: its header fields and the table in its body."""

    ext_fields: Mapping[str, str]
    body: bytes


async def fetch_pages(
    ask: Callable[[Mapping[str, str]], Awaitable[Page | None]],
    fields: PageFields,
    decode: Callable[[bytes], T],
    row_count: Callable[[T], int],
) -> list[T]:
    """Return the pages of a table, of one version; none if the master does not serve it.

    `ask` gets the fields of a request. Raise `RemotingError` if the table changes so often that it is never complete,
    or if it has more rows than any master keeps.
    """
    pages: list[T] = []
    rows = 0
    for _ in range(_PAGES_MAX):
        version = encode_body(pages[0].data_version).decode() if pages else ""
        answer = await ask({fields.first_row: str(rows), fields.rows_max: str(_PAGE_ROWS), "dataVersion": version})
        if answer is None:
            return []
        page = decode(answer.body)
        if pages and page.data_version != pages[0].data_version:
            pages, rows = [], 0  # this one starts from the first row
        pages.append(page)
        rows += row_count(page)
        if rows > ROWS_MAX:
            raise RemotingError(f"the table has more than {ROWS_MAX} rows")
        total = answer.ext_fields.get(fields.rows_total, "")
        if not is_number(total) or rows >= int(total) or not row_count(page):
            return pages
    raise RemotingError(f"the table changed too often: it was not complete after {_PAGES_MAX} pages")
