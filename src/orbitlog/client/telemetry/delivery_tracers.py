"""Delivery tracers: what a consumer reports about each delivery, to RocketMQ's traces, OpenTelemetry, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from orbitlog.client.consumer.received import Received


class DeliveryTracer(Protocol):
    """Observes deliveries; `span` is what `started` returned for one, unless that is None."""

    def started(self, message: Received, group: str) -> Any:
        """A message is handed to the user."""
        ...

    def settled(self, message: Received, group: str, span: Any, *, success: bool) -> None:
        """The message was acknowledged, or failed."""
        ...

    def failed(self, span: Any, error: Exception) -> None:
        """A listener raised; `settled` follows."""
        ...

    def released(self, span: Any) -> None:
        """The user left without settling the message."""
        ...

    def entered(self, span: Any) -> AbstractContextManager[None]:
        """Return a context in which a listener runs."""
        ...


class JoinedTracers:
    """Reports to several tracers."""

    def __init__(self, tracers: Sequence[DeliveryTracer]) -> None:
        self._tracers = tracers

    def _pairs(self, spans: Sequence[Any]) -> Iterator[tuple[DeliveryTracer, Any]]:
        return ((tracer, span) for tracer, span in zip(self._tracers, spans, strict=True) if span is not None)

    def started(self, message: Received, group: str) -> Sequence[Any]:
        return [tracer.started(message, group) for tracer in self._tracers]

    def settled(self, message: Received, group: str, span: Sequence[Any], *, success: bool) -> None:
        for tracer, each in self._pairs(span):
            tracer.settled(message, group, each, success=success)

    def failed(self, span: Sequence[Any], error: Exception) -> None:
        for tracer, each in self._pairs(span):
            tracer.failed(each, error)

    def released(self, span: Sequence[Any]) -> None:
        for tracer, each in self._pairs(span):
            tracer.released(each)

    @contextmanager
    def entered(self, span: Sequence[Any]) -> Iterator[None]:
        with ExitStack() as stack:
            for tracer, each in self._pairs(span):
                stack.enter_context(tracer.entered(each))
            yield
