"""Configuration of a store that is to be opened, from settings and files.

Files decide over defaults, settings over both. The broker opens a store with it, and `doctor move` tries the same
before.
"""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.settings import store_settings as keys
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_config import LightQueueConfig, PropertyCrc, StoreConfig
from orbitlog.storefiles.store_paths import StorePaths

_LOGS = "logs"
_NOT_YET_A_STORE = frozenset(
    (tree.ABORT, tree.CONFIG, tree.LOCK, tree.BROKER_IDENTITY, tree.BROKER_IDENTITY_APPLIED, _LOGS)
)


def find_config(root: Path, given: StoreSettings, disk: Disk) -> StoreConfig:
    """Return how to open the store at `root`; raise `StoreLayoutError` if its log is missing or is elsewhere."""
    paths = StorePaths.of(root, given)
    if not _has_segments(disk, paths) and {entry.name for entry in disk.list_directory(root)} <= _NOT_YET_A_STORE:
        geometry, rules = _default_geometry(given), _default_rules(given)
    else:
        from orbitlog.storefiles.log_presence import check_log_is_there
        from orbitlog.storefiles.store_files import find_store_files
        from orbitlog.storefiles.store_inference import infer_geometry, infer_rules

        files = find_store_files(root, paths)
        check_log_is_there(files)
        geometry, rules = infer_geometry(files, given), infer_rules(files, given)
    return StoreConfig(
        geometry=geometry,
        rules=rules,
        retention=given.retention,
        light_queues=LightQueueConfig(
            given.value(keys.LMQ), given.value(keys.MULTI_DISPATCH), given.value(keys.LMQ_QUEUES_MAX)
        ),
        property_crc=PropertyCrc(given.given(keys.APPEND_PROPERTY_CRC), given.value(keys.VERIFY_PROPERTY_CRC)),
        paths=paths,
    )


def _default_geometry(given: StoreSettings) -> StoreGeometry:
    return StoreGeometry(
        segment_bytes=given.value(keys.SEGMENT_BYTES),
        queue_file_bytes=given.value(keys.QUEUE_FILE_BYTES),
        ext_queue_file_bytes=given.value(keys.EXT_QUEUE_FILE_BYTES),
        index_layout=given.index_layout or IndexLayout(),
    )


def _default_rules(given: StoreSettings) -> DeriveRules:
    return DeriveRules(given.value(keys.COMPAT), given.value(keys.DELAY_LEVELS), given.value(keys.MULTI_DISPATCH))


def _has_segments(disk: Disk, paths: StorePaths) -> bool:
    """Return whether a CommitLog directory outside the root has files: the root alone does not show a new store."""
    return paths.is_configured and any(disk.list_directory(directory) for directory in paths.log_directories)
