from __future__ import annotations

import pytest

from orbitlog.errors import (
    BadField,
    BadMagic,
    ChecksumMismatch,
    ClientClosed,
    FormatError,
    LengthMismatch,
    LimitExceeded,
    Misplaced,
    NoRoute,
    OrbitlogError,
    RemotingError,
    StoreLayoutError,
    Truncated,
)

FORMAT_ERRORS = [
    (Truncated(field="record", needed=91, got=7, position=5), "record at byte 5: needs 91 bytes, only 7 are there"),
    (BadMagic(field="magic", got=-1, position=4), "magic at byte 4: unknown magic 0xFFFFFFFF"),
    (BadField("is empty", field="topic", position=3), "topic at byte 3: is empty"),
    (LengthMismatch(field="record", stated=9, counted=8), "record at byte 0: states 9 bytes, its parts make 8"),
    (ChecksumMismatch(field="body", stored=1, computed=2), "body at byte 0: CRC stored is 1, computed 2"),
    (Misplaced(field="physical offset", stated=1, actual=2), "physical offset at byte 0: states 1, is stored at 2"),
    (LimitExceeded(field="body", limit=4, got="more"), "body at byte 0: more is over the limit of 4"),
]


@pytest.mark.parametrize(("error", "text"), FORMAT_ERRORS, ids=lambda value: type(value).__name__)
def test_format_error_states_which_field_where_and_what(error: FormatError, text: str) -> None:
    assert str(error) == text
    assert text == f"{error.field} at byte {error.position}: {error.problem}"


def everything_below(kind: type[OrbitlogError]) -> list[type[OrbitlogError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in everything_below(below))]


@pytest.mark.parametrize("kind", [NoRoute, ClientClosed, *RemotingError.__subclasses__()])
def test_errors_of_the_client_say_what_to_do(kind: type[OrbitlogError]) -> None:
    for each in everything_below(kind):
        assert isinstance(each.retriable, bool) and each.advice, each


def test_there_is_one_root() -> None:
    assert all(isinstance(error, FormatError) for error, _ in FORMAT_ERRORS)
    assert issubclass(FormatError, OrbitlogError)
    assert issubclass(StoreLayoutError, OrbitlogError)
    assert not issubclass(StoreLayoutError, FormatError)


def test_every_leaf_is_listed_above() -> None:
    assert {type(error) for error, _ in FORMAT_ERRORS} == set(FormatError.__subclasses__())


def test_facts_are_attributes() -> None:
    truncated = Truncated(field="record", needed=91, got=-3)
    assert (truncated.needed, truncated.got) == (91, -3)
    assert "only 0 are there" in str(truncated)
    assert BadMagic(field="magic", got=7).got == 7
    mismatch = LengthMismatch(field="record", stated=9, counted=8)
    assert (mismatch.stated, mismatch.counted) == (9, 8)
    checksum = ChecksumMismatch(field="body", stored=1, computed=2)
    assert (checksum.stored, checksum.computed) == (1, 2)
    misplaced = Misplaced(field="physical offset", stated=1, actual=2)
    assert (misplaced.stated, misplaced.actual) == (1, 2)
    assert LimitExceeded(field="body", limit=4, got=5).limit == 4
