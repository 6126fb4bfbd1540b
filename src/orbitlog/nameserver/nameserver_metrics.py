"""Name server metrics: brokers, topics, requests and limits; and the listener of metrics and health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitlog.errors import RequestRefused
from orbitlog.observe import metric_table as table
from orbitlog.observe import metrics_settings as keys
from orbitlog.observe.condition_pages import condition_families
from orbitlog.observe.exposition import Exposition
from orbitlog.observe.http_listener import HttpListener
from orbitlog.observe.metric import Family, Row, label_text, single
from orbitlog.observe.pages import metrics_and_health
from orbitlog.observe.process_metrics import process_reader
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.settings.limits import NAMESERVER_LIMITS
from orbitlog.settings.setting import Setting
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

if TYPE_CHECKING:
    from orbitlog.nameserver.name_server import NameServer
    from orbitlog.observe.metrics_export import MetricsExport

_REQUEST_NAMES = {int(code): code.name.lower() for code in RequestCode}
_SUCCESS, _REFUSED = "success", "refused"


class RequestCounts:
    """Requests to a name server by code and result."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def counted(self, handler: Handler) -> Handler:
        """Return a handler that counts every request."""

        def handle(connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
            try:
                answer = handler(connection, request)
            except RequestRefused:
                self._add(request.code, _REFUSED)
                raise
            self._add(request.code, _SUCCESS)
            return answer

        return handle

    def _add(self, code: int, result: str) -> None:
        key = _REQUEST_NAMES.get(code, "unknown"), result
        self.counts[key] = self.counts.get(key, 0) + 1

    def reader(self, server: NameServer) -> Callable[[int], Iterator[Family]]:
        """Return the reader of a name server that counts its requests here."""

        def read(_: int) -> Iterator[Family]:
            yield single(table.NAME_SERVER_BROKERS, server.table.broker_count)
            yield single(table.NAME_SERVER_TOPICS, server.table.topic_count)
            yield single(table.NAME_SERVER_CONNECTIONS, len(server.connections))
            requests = [Row(table.NAME_SERVER_REQUESTS.text(*key), count) for key, count in self.counts.items()]
            yield Family(table.NAME_SERVER_REQUESTS, requests)
            reached = [(limit.key, server.limits.reached[limit.key]) for limit in NAMESERVER_LIMITS]
            rows = [Row(table.NAME_SERVER_LIMITS.text(key), count) for key, count in reached]
            yield Family(table.NAME_SERVER_LIMITS, rows)

        return read


def name_server_outlet(
    server: NameServer, counts: RequestCounts, settings: Mapping[str, Any], log_path: Path
) -> HttpListener | MetricsExport:
    """Return the listener of a name server's metrics and health, or the export that its settings ask for.

    A name server is ready as soon as it listens. `log_path` is the file of `metricsExporterType=LOG`.
    """
    pairs = {**dict(keys.label_pairs(settings[keys.LABELS.key])), "node_type": "name_server"}
    shared = label_text(tuple(pairs), tuple(pairs.values()))
    readers = (process_reader(""), counts.reader(server), lambda _: condition_families(server.conditions))
    exposition = Exposition(readers, shared, settings[keys.CARDINALITY.key])
    if settings[keys.EXPORTER.key] == keys.PROM:
        host = settings[keys.PROM_HOST.key] or keys.LOOPBACK
        port = settings[keys.PROM_PORT.key]
        return HttpListener(metrics_and_health(exposition, list[str], server.conditions), host, port, server.limits)
    from orbitlog.observe.metrics_export import make_export

    def read(setting: Setting[Any]) -> Any:
        return settings[setting.key]

    return make_export(
        exposition, read, shared=shared, instance="name-server", log_path=log_path, conditions=server.conditions
    )
