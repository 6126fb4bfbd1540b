"""Lease settings: what an external engine must know to write a store's files, as Java settings in the lease.

File sizes could be inferred from files, but a new store has none, and no file records the derivation rules. A wrong
guess would write files that the broker does not accept.
"""

from __future__ import annotations

from pathlib import Path

from orbitlog.errors import LeaseLost
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.settings import store_settings as table
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings, check_setting
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_paths import StorePaths

_REQUIRED = (
    table.SEGMENT_BYTES,
    table.QUEUE_FILE_BYTES,
    table.SLOT_COUNT,
    table.ENTRY_COUNT,
    table.COMPAT,
    table.DELAY_LEVELS,
    table.MULTI_DISPATCH,
)


def settings_of(config: StoreConfig) -> dict[str, str]:
    """Return every setting that decides the derived bytes, as in `broker.conf`."""
    geometry, rules = config.geometry, config.rules
    return {
        **(config.paths.as_settings() if config.paths else {}),
        table.SEGMENT_BYTES.key: str(geometry.segment_bytes),
        table.QUEUE_FILE_BYTES.key: str(geometry.queue_file_bytes),
        table.SLOT_COUNT.key: str(geometry.index_layout.slot_count),
        table.ENTRY_COUNT.key: str(geometry.index_layout.entry_count),
        table.COMPAT.key: rules.compat.name,
        table.DELAY_LEVELS.key: " ".join(f"{delay_ms // 1000}s" for delay_ms in rules.delay_levels.delays_ms),
        table.MULTI_DISPATCH.key: str(rules.multi_dispatch).lower(),
    }


def config_of(settings: dict[str, str], root: Path) -> StoreConfig:
    """Return the store at `root` as a lease describes it."""
    missing = [setting.key for setting in _REQUIRED if setting.key not in settings]
    if missing:
        raise LeaseLost(f"the dispatch lease lacks {', '.join(missing)}; let the broker hand over dispatch again")
    try:
        for setting in _REQUIRED:
            check_setting(setting.key, settings[setting.key], "the dispatch lease")
        for key in table.LOG_PATH_SETTINGS:
            check_setting(key, settings.get(key, ""), "the dispatch lease")
    except SettingError as error:
        raise LeaseLost(str(error)) from error
    given = StoreSettings(settings)
    layout = given.index_layout
    assert layout is not None
    return StoreConfig(
        paths=StorePaths.of(root, given),
        geometry=StoreGeometry(
            segment_bytes=given.value(table.SEGMENT_BYTES),
            queue_file_bytes=given.value(table.QUEUE_FILE_BYTES),
            index_layout=layout,
        ),
        rules=DeriveRules(
            compat=given.value(table.COMPAT),
            delay_levels=given.value(table.DELAY_LEVELS),
            multi_dispatch=given.value(table.MULTI_DISPATCH),
        ),
    )
