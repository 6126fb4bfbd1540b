"""Settings in `doctor move`: verdicts of the broker's start on a broker.conf, as rows of the report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from orbitlog.broker.runtime.broker_access import check_start, load_access
from orbitlog.broker.runtime.broker_settings import (
    ADVERTISED_ADDRESS,
    BIND_ADDRESS,
    BROKER_NAME,
    STORE_ROOT,
    BrokerSettings,
    load_broker_settings,
)
from orbitlog.broker.runtime.listen_address import advertised_addresses, contradiction
from orbitlog.broker.runtime.setting_verdicts import WRONG, judge_settings
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.broker.tables.offsets_in_force import check_offsets
from orbitlog.doctor.move.move_rows import MoveRow, MoveSeverity, changes, note, refused
from orbitlog.errors import OrbitlogError, StoreError
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.settings.properties_file import read_properties
from orbitlog.settings.setting import SettingError, split_assignment
from orbitlog.settings.setting_review import SettingClass
from orbitlog.settings.store_settings import LMQ, SETTINGS, StoreSettings, check_setting
from orbitlog.settings.tls_settings import check_tls
from orbitlog.storefiles.read_only_disk import ReadOnlyDisk

_BY_FINDING = {
    WRONG: ("invalid setting", refused),
    SettingClass.SAFETY.value: ("setting", refused),
    SettingClass.BEHAVIOUR.value: ("setting", changes),
    SettingClass.UNKNOWN.value: ("unknown setting", note),
}


class GivenSettings(NamedTuple):
    """Settings given by file and on the command line, as text."""

    config_path: Path | None
    assignments: tuple[str, ...]
    texts: Mapping[str, str]

    @classmethod
    def read(cls, config_path: Path | None, assignments: tuple[str, ...]) -> GivenSettings:
        """Read the file, then `key=value` texts; raise `SettingError` for a text without `=`."""
        texts: dict[str, str] = {}
        if config_path is not None:
            texts = read_properties(config_path)
        return cls(config_path, assignments, {**texts, **dict(map(split_assignment, assignments))})

    @property
    def store(self) -> StoreSettings:
        """The valid settings of the store; invalid ones have a row of their own."""
        return StoreSettings({key: text for key, text in self.texts.items() if _is_valid(key, text)})


def _is_valid(key: str, text: str) -> bool:
    if key not in SETTINGS:
        return False
    try:
        check_setting(key, text, "")
    except SettingError:
        return False
    return True


def orbitlog_setting_rows(root: Path, given: GivenSettings) -> Iterator[MoveRow]:
    """Yield the warnings of Orbitlog's broker about the settings."""
    rows = list(_verdict_rows(given))
    yield from rows
    yield from root_rows(root, given.texts, "Orbitlog's broker")
    if BROKER_NAME.key not in given.texts:
        yield changes(
            "default",
            f"brokerName is not given: Java's broker is named after its host, Orbitlog's is {BROKER_NAME.default}",
            setting=BROKER_NAME.key,
            next_step="add brokerName with the name that clients know",
        )
    try:
        loaded = load_broker_settings(given.config_path, given.assignments, os.environ)
        settings = check_start(loaded)
        addresses = advertised_addresses(settings)
    except (SettingError, ValueError) as error:
        # One that a verdict above has named already is not repeated.
        if not any(row.severity is MoveSeverity.REFUSED for row in rows):
            yield refused("setting", str(error), setting=error.key if isinstance(error, SettingError) else None)
        return
    yield from _file_rows(root, settings)
    if sentence := contradiction(settings, addresses):
        yield changes("listen address", sentence, setting=BIND_ADDRESS.key)
    if BIND_ADDRESS.key not in loaded.texts:
        yield (note if loaded[ADVERTISED_ADDRESS] else changes)(
            "listen address",
            f"bindAddress is not given: Orbitlog listens on {settings[BIND_ADDRESS]} only, Java's broker on every"
            " address of the machine",
            setting=BIND_ADDRESS.key,
            next_step="add bindAddress=0.0.0.0 to listen on every address",
        )


def _file_rows(root: Path, settings: BrokerSettings) -> Iterator[MoveRow]:
    """Yield accounts, certificates and keys that the broker would not start with."""
    try:
        load_access(settings, root)
        if options := check_tls(settings.texts):
            from orbitlog.remoting.tls.tls_loading import load_client_tls, load_server_tls

            load_server_tls(options)
            load_client_tls(options)
    except OrbitlogError as error:
        yield refused("access and TLS files", str(error))


def _verdict_rows(given: GivenSettings) -> Iterator[MoveRow]:
    source = "the command line" if given.config_path is None else str(given.config_path)
    for key, finding, sentence in judge_settings(given.texts, source):
        if finding in _BY_FINDING and sentence is not None:
            kind, make = _BY_FINDING[finding]
            yield make(kind, sentence.problem, setting=key, next_step=sentence.advice or None)


def offset_rows(root: Path, given: GivenSettings) -> Iterator[MoveRow]:
    """Yield a refusal if the offset table that `enableLmq` chooses is not the one with the latest offsets."""
    directory = ConfigDirectory(ReadOnlyDisk(), root, COMPAT_5_5)
    if directory.path.is_file():  # which has a row of its own
        return
    has_light_queues = given.store.value(LMQ)
    try:
        check_offsets(directory, has_light_queues=has_light_queues)
        light, ordinary = directory.load(LMQ_CONSUMER_OFFSET), directory.load(CONSUMER_OFFSET)
    except StoreError as error:
        yield refused("consumer offsets", str(error), path=directory.path)
        return
    if has_light_queues and light is None and ordinary is not None:
        yield note(
            "consumer offsets",
            f"{LMQ.key}=true and there is no {LMQ_CONSUMER_OFFSET.name}: the offsets of {CONSUMER_OFFSET.name} are"
            " taken over",
            path=directory.path / CONSUMER_OFFSET.name,
        )


def root_rows(root: Path, texts: Mapping[str, str], broker: str) -> Iterator[MoveRow]:
    """Yield a row if the settings name another store directory than the one that is looked at."""
    text = texts.get(STORE_ROOT.key)
    if not text:
        yield note(
            "store directory",
            f"{STORE_ROOT.key} is not given: the broker would take its default directory",
            setting=STORE_ROOT.key,
            next_step=f"add {STORE_ROOT.key}={root}",
        )
    elif Path(text).resolve() != root.resolve():
        yield changes(
            "store directory",
            f"{STORE_ROOT.key}={text} is another directory: {broker} would not open {root}",
            setting=STORE_ROOT.key,
            next_step=f"set {STORE_ROOT.key}={root}, or give that directory to this command",
        )
