"""The cause of a failure is found in Spark's multi-line messages."""

from __future__ import annotations

from orbitlog.pipeline.runtime.spark_errors import failure_line, is_orbitlog_failure

STREAM = "[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\n  File x\n"
LOSS = "orbitlog.pipeline.sources.queue_scan.DataLoss: message 7 was deleted"


def test_orbitlog_failure_is_one_with_an_orbitlog_error() -> None:
    assert is_orbitlog_failure(RuntimeError(STREAM + LOSS))
    assert not is_orbitlog_failure(RuntimeError(STREAM + "EOFError"))


def test_failure_line_is_the_last_error_of_the_traceback() -> None:
    assert failure_line(RuntimeError(f"{STREAM}OSError: first\n  {LOSS}\n\tat org.apache.spark\n")) == LOSS
    assert failure_line(RuntimeError(f"{STREAM}OSError: disk\npy4j.Py4JJavaError: o42.stop")) == "OSError: disk"


def test_failure_line_without_an_error_is_the_first_line() -> None:
    assert failure_line(RuntimeError("\n Job aborted\n\tat org.apache.spark\n")) == "Job aborted"
    assert failure_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(failure_line(RuntimeError("x" * 9000))) == 500
