"""Request modes: whether a group pulls or pops a topic, as set by operators. Mirrors `MessageRequestModeManager`.

A pure table, saved to `messageRequestMode.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.formats.names import RETRY_PREFIX
from orbitlog.formats.tables.group_config import RequestMode, RequestModeTable

PULL, POP = "PULL", "POP"


class RequestModes:
    """Modes by topic and group. `changed` is called after every change."""

    def __init__(self, changed: Callable[[], None], saved: RequestModeTable | None = None) -> None:
        self._changed = changed
        saved = saved or RequestModeTable()
        self._modes = {topic: dict(groups) for topic, groups in saved.modes.items()}
        self._unknown = saved.unknown
        self.is_changed = False

    def find(self, topic: str, group: str, default_mode: str, default_share: int) -> RequestMode:
        """Return the mode of a group for a topic; retry topics are always pulled."""
        mode_set = self._modes.get(topic, {}).get(group)
        if mode_set is not None:
            return mode_set
        mode = PULL if topic.startswith(RETRY_PREFIX) else default_mode
        return RequestMode(topic, group, mode, default_share if mode == POP else 0)

    def __len__(self) -> int:
        return sum(map(len, self._modes.values()))

    def has(self, topic: str, group: str) -> bool:
        """Return whether an operator has set the mode of a group for a topic."""
        return group in self._modes.get(topic, {})

    def put(self, mode: RequestMode) -> None:
        assert mode.topic is not None and mode.group is not None
        self._modes.setdefault(mode.topic, {})[mode.group] = mode
        self.is_changed = True
        self._changed()

    def copy_from(self, copied: RequestModeTable) -> None:
        """Take over the modes of the master."""
        modes = {topic: dict(groups) for topic, groups in copied.modes.items()}
        if modes != self._modes:
            self._modes = modes
            self.is_changed = True
            self._changed()

    def snapshot(self) -> RequestModeTable:
        self.is_changed = False
        return RequestModeTable({topic: dict(groups) for topic, groups in self._modes.items()}, unknown=self._unknown)
