"""Store configurations of the golden stores."""

from __future__ import annotations

from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.store_config import StoreConfig

CONFIGS = {
    "golden_497": StoreConfig(StoreGeometry(65536, 1000, index_layout=IndexLayout(200, 400)), DeriveRules(COMPAT_4_9)),
    "golden_550_crash": StoreConfig(
        StoreGeometry(131072, 1000, index_layout=IndexLayout(100, 300)), DeriveRules(COMPAT_5_5)
    ),
}
