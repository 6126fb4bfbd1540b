"""What the next broker must not change in a store: the written part of log and queues, and the names in tables."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

_UNIT_BYTES = 20
_BARE_KEY = re.compile(r"([{,]\s*)(\d+)\s*:")
_TABLES = {"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable"}


@dataclass(frozen=True)
class Written:
    """One file's bytes up to the last that is not zero."""

    length: int
    digest: str


@dataclass(frozen=True)
class StorePrefix:
    """The files of a stopped store, up to where they are written, and the names in its tables."""

    files: dict[str, Written]
    names: dict[str, frozenset[str]]

    @classmethod
    def of(cls, store: Path) -> StorePrefix:
        files = {}
        for directory in ("commitlog", "consumequeue"):
            for path in sorted(store.glob(f"{directory}/**/*")):
                if path.is_file():
                    content = path.read_bytes().rstrip(b"\0")
                    length = len(content) if directory == "commitlog" else -(-len(content) // _UNIT_BYTES) * _UNIT_BYTES
                    files[str(path.relative_to(store))] = _written(path, length)
        return cls(files, {name: frozenset(_table(store, name, table)) for name, table in _TABLES.items()})

    def check_kept(self, store: Path, *, deleted_topics: frozenset[str] = frozenset()) -> None:
        """Assert that a later state of the store continues this one: nothing written was changed or removed."""
        for name, written in self.files.items():
            path = store / name
            if name.startswith("consumequeue/") and name.split("/")[1] in deleted_topics:
                continue
            assert path.exists(), f"{name} was removed"
            assert _written(path, written.length) == written, f"{name} was changed below byte {written.length}"
        for table, names in self.names.items():
            missing = names - StorePrefix._names(store, table) - deleted_topics
            assert not missing, f"{table} lacks {sorted(missing)}"

    def check_untouched(self, store: Path, topic: str) -> None:
        """Assert that the queue files of a topic are byte-identical: same names, nothing appended."""
        later = StorePrefix.of(store).files
        mine = {name: written for name, written in self.files.items() if name.startswith(f"consumequeue/{topic}/")}
        assert mine, f"{topic} has no queue files"
        assert mine == {name: later.get(name) for name in later if name.startswith(f"consumequeue/{topic}/")}, topic

    @staticmethod
    def _names(store: Path, table: str) -> frozenset[str]:
        return frozenset(_table(store, table, _TABLES[table]))


def _written(path: Path, length: int) -> Written:
    return Written(length, hashlib.sha256(path.read_bytes()[:length]).hexdigest())


def _table(store: Path, name: str, table: str) -> list[str]:
    text = (store / "config" / name).read_text()
    # Fastjson leaves keys that are numbers unquoted.
    return list(json.loads(_BARE_KEY.sub(r'\1"\2":', text))[table])
