"""Op messages of both lines of versions, and what they leave pending."""

from __future__ import annotations

from orbitlog.formats.records.transaction_ops import check_count, ended_queue_offsets, is_pending, transaction_id


def test_both_forms_and_nonsense() -> None:
    assert list(ended_queue_offsets(b"12")) == [12]
    assert list(ended_queue_offsets(b"12,13,")) == [12, 13]
    assert list(ended_queue_offsets(b"x,-1,,\xff," + b"9" * 30)) == []


def test_what_is_pending() -> None:
    assert is_pending(3, {}, {2})
    assert not is_pending(3, {}, {3})
    assert not is_pending(3, {"TRAN_PREPARED_QUEUE_OFFSET": "1"}, {1})
    assert is_pending(3, {"TRAN_PREPARED_QUEUE_OFFSET": "x"}, {1})


def test_what_half_messages_say() -> None:
    assert (
        check_count({}),
        check_count({"TRANSACTION_CHECK_TIMES": "4"}),
        check_count({"TRANSACTION_CHECK_TIMES": "x"}),
    ) == (0, 4, 0)
    assert transaction_id({"UNIQ_KEY": "U"}) == "U"
    assert transaction_id({"UNIQ_KEY": "U", "__transactionId__": "T"}) == "T"
