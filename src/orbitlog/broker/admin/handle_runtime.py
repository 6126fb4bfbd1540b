"""Runtime handlers: state, settings and statistics of the broker. Mirrors that part of `AdminBrokerProcessor`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from orbitlog.broker.admin.runtime_numbers import runtime_numbers
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import BROKER_GET_NUMS, BROKER_PUT_NUMS, Window
from orbitlog.errors import RequestRefused
from orbitlog.formats.java import utf8_decode
from orbitlog.formats.tables.topic_config import DataVersion
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.settings.config_saving import save_values
from orbitlog.settings.properties_file import parse_properties
from orbitlog.settings.runtime_keys import RETENTION_KEYS
from orbitlog.settings.secret_settings import shown_settings
from orbitlog.settings.setting import SettingError
from orbitlog.wire.admin_headers import BrokerConfigResponse, BrokerStatsRequest
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.client_bodies import BrokerStats, StatsItem
from orbitlog.wire.bodies.list_bodies import KvTable
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

log = logging.getLogger(__name__)

_SETTINGS_BYTES_MAX = 64 * 1024


class RuntimeHandlers:
    """Serves the requests of operators about the running broker; `table` lists the codes."""

    def __init__(
        self,
        state: BrokerState,
        delayed_to: Callable[[int], int],
        retain: Callable[[], Awaitable[None]],
        access_numbers: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._access_numbers = access_numbers
        self._state = state
        self._delayed_to = delayed_to
        self._retain = retain
        self._changes = 0
        self._changed_ms = state.now_ms()

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            RequestCode.GET_BROKER_CONFIG: self.settings,
            RequestCode.UPDATE_BROKER_CONFIG: self.change_settings,
            RequestCode.VIEW_BROKER_STATS_DATA: self.statistic,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
        }

    def runtime(self, _: Connection, request: Command) -> Answer:
        numbers = runtime_numbers(self._state, self._delayed_to)
        numbers |= {key: str(value) for key, value in self._access_numbers().items()}
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(KvTable(numbers)))

    def settings(self, _: Connection, request: Command) -> Answer:
        """Return every setting, with secrets masked."""
        lines = [f"{key}={text}\n" for key, text in sorted(self._state.settings.effective().items())]
        version = DataVersion(self._changes, self._changed_ms)
        header = BrokerConfigResponse(version=encode_body(version).decode())
        body = "".join(lines).encode()
        return response_to(request, ResponseCode.SUCCESS, ext_fields=header.to_ext_fields(), body=body)

    def change_settings(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        """Change settings: all keys of the request or, if one may not be changed, none.

        They are also saved to the settings file that the broker was started with, as Java does.
        """
        if len(request.body) > _SETTINGS_BYTES_MAX:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"settings exceed {_SETTINGS_BYTES_MAX} bytes")
        texts = parse_properties(utf8_decode(request.body))
        try:
            self._state.settings.change(texts)
        except SettingError as error:
            log.warning("refused a change of settings by %s: %s", connection.peer, error)
            allowed = all(map(self._state.settings.may_change, texts))
            code = ResponseCode.INVALID_PARAMETER if allowed else ResponseCode.NO_PERMISSION
            raise RequestRefused(code, str(error)) from None
        self._changes += 1
        self._changed_ms = self._state.now_ms()
        if keys.BROKER_PERMISSION.key in texts:
            self._state.topics.touch()  # name servers must learn the new permission of every topic
        if not RETENTION_KEYS.isdisjoint(texts):
            self._state.store.follow_retention(self._state.settings.store.retention)
        log.warning("settings changed by %s: %s", connection.peer, shown_settings(texts))
        if self._state.settings.config_path is not None:
            return self._saved(request, self._state.settings.config_path, texts)
        return response_to(request, ResponseCode.SUCCESS)

    async def _saved(self, request: Command, path: Path, texts: Mapping[str, str]) -> Answer:
        """Return the answer when the settings file has the new values; a failure is logged, as in Java."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, save_values, path, texts)
        except OSError as error:
            log.warning("could not save changed settings to %s, they hold until the broker stops: %s", path, error)
        return response_to(request, ResponseCode.SUCCESS)

    def statistic(self, _: Connection, request: Command) -> Answer:
        header = BrokerStatsRequest.from_ext_fields(request.ext_fields)
        statistics = self._state.statistics
        totals = {BROKER_PUT_NUMS: statistics.put_messages, BROKER_GET_NUMS: statistics.get_messages}
        is_total = header.name in totals and header.key == self._state.cluster_name
        counter = totals[header.name] if is_total else statistics.find(header.name, header.key)
        if counter is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.name[:80]}> <{header.key[:255]}> not exist"
            )
        minute, hour, day = map(_item, counter.windows(self._state.now_ms()))
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(BrokerStats(minute, hour, day)))

    def clean_queues(self, connection: Connection, request: Command) -> Answer:
        """Remove queues whose messages have all expired."""
        gone = self._state.store.clean_expired_queues()
        log.info("%d expired queues removed by %s", len(gone), connection.peer)
        return response_to(request, ResponseCode.SUCCESS)

    async def delete_expired(self, _: Connection, request: Command) -> Answer:
        """Delete expired segments now, at any hour."""
        self._state.store.delete_expired_now()
        await self._retain()
        return response_to(request, ResponseCode.SUCCESS)


def _item(window: Window) -> StatsItem:
    return StatsItem(window.sum, window.tps, window.average)
