"""Coverage floors: every room has one, and a room below it is reported."""

from __future__ import annotations

import json

import pytest

from tools.room_coverage import FLOORS, directories_of, main, percentage, problems, rooms


def test_every_room_has_a_floor_and_tests() -> None:
    floors = json.loads(FLOORS.read_text())
    assert list(floors) == rooms()
    assert all(0 < floor < 100 for floor in floors.values())
    assert all(directories_of(room) for room in rooms())


def test_share_of_a_room_counts_lines_and_branches_of_its_files_alone() -> None:
    def file(statements: int, lines: int, branches: int, taken: int) -> dict[str, dict[str, int]]:
        counts = {"num_statements": statements, "covered_lines": lines}
        return {"summary": {**counts, "num_branches": branches, "covered_branches": taken}}

    files = {
        "src/orbitlog/wire/frame.py": file(6, 4, 2, 1),
        "src/orbitlog/wire/codes/table.py": file(2, 2, 0, 0),
        "src/orbitlog/wired/other.py": file(100, 0, 0, 0),
    }
    assert percentage({"files": files}, "wire") == 70.0


def test_room_below_its_floor_is_reported_with_both_figures() -> None:
    (line,) = problems({"wire": 92.96, "access": 91.0}, {"wire": 93, "access": 91})
    assert line == "wire: its tests run 92.9 % of its lines and branches, the floor is 93 %"


def test_unknown_room_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["wires"])
    assert "unknown rooms: wires" in capsys.readouterr().err
