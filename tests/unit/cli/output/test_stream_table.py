"""Tables that fit the terminal."""

from __future__ import annotations

import pytest

from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable

COLUMNS = (
    Column("number", right=True),
    Column("name", width_max=10),
    Column("more", width_min=4, dispensable=1),
    Column("most", dispensable=2),
)


def lines(capsys: pytest.CaptureFixture[str], rows: list[tuple[str, ...]]) -> list[str]:
    with LineWriter() as writer:
        table = StreamTable(writer, COLUMNS)
        for row in rows:
            table.row(row)
        table.finish()
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def width(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    columns: int = request.param
    return columns


ROWS = [("1", "one", "m" * 20, "x" * 12), ("2222222", "two and more words", "m", "y")]


@pytest.mark.parametrize("width", [200], indirect=True)
def test_columns_are_aligned_and_cut(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, ROWS) == [
        " number  name        more                  most",
        "      1  one         mmmmmmmmmmmmmmmmmmmm  xxxxxxxxxxxx",
        "2222222  two and m…  m                     y",
    ]


@pytest.mark.parametrize("width", [45, 30, 24], indirect=True)
def test_narrow_terminals_lose_columns_not_alignment(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, ROWS)
    assert max(map(len, shown)) <= width
    assert "number" in shown[0]
    assert "name" in shown[0]


@pytest.mark.parametrize("width", [200], indirect=True)
def test_rows_after_the_first_ones_are_cut_to_the_same_widths(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("1", "a", "b", "c")] * 300 + [("1", "a", "b", "a very long cell")]
    shown = lines(capsys, rows)
    assert len(shown) == 302
    assert shown[-1].endswith("a v…")


@pytest.mark.parametrize("width", [80], indirect=True)
def test_no_rows_no_heading(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, []) == []
