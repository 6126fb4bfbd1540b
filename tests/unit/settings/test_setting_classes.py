"""Classes of Java keys: every key has one class, and every class that is reported has its sentence."""

from __future__ import annotations

from collections import Counter

from orbitlog.broker.runtime.broker_settings import BROKER_SETTINGS
from orbitlog.settings.java_keys import ABSENT, JAVA_KEYS
from orbitlog.settings.secret_settings import JAVA_SECRETS
from orbitlog.settings.setting_classes import (
    BEHAVIOUR,
    HARMLESS,
    HARMLESS_VALUES,
    ORBITLOG_KEYS,
    PLACE_KEYS,
    PROTECTING_KEYS,
    SAFETY,
    STORE_KEYS,
)
from orbitlog.settings.store_settings import ABORT_PATH, CHECKPOINT_PATH, INDEX_PATH, QUEUE_PATH, SETTINGS

HONOURED = SETTINGS.keys() | BROKER_SETTINGS.keys()
TYPES = {"boolean", "int", "long", "double", "string"}


def test_every_java_key_has_exactly_one_class() -> None:
    counts = Counter((*HARMLESS, *BEHAVIOUR, *SAFETY, *(HONOURED & JAVA_KEYS.keys())))
    twice = sorted(key for key, count in counts.items() if count > 1)
    assert not twice, f"in a settings table and in setting_classes, or in two classes there: {twice}"
    missing = sorted(JAVA_KEYS.keys() - counts.keys())
    assert not missing, f"classify in setting_classes: {missing}"
    assert not counts.keys() - JAVA_KEYS.keys()


def test_every_reported_key_has_a_sentence() -> None:
    for key, sentence in {**SAFETY, **BEHAVIOUR}.items():
        assert sentence and not sentence.endswith("."), key
        assert "\n" not in sentence and "  " not in sentence, key
    for key, sentence in SAFETY.items():
        assert ";" in sentence, f"{key}: the sentence has a reason, and what to do after a semicolon"


def test_side_tables_name_known_keys() -> None:
    assert STORE_KEYS <= SAFETY.keys() | HONOURED
    assert PLACE_KEYS <= STORE_KEYS
    assert HARMLESS_VALUES.keys() <= SAFETY.keys() | BEHAVIOUR.keys()
    assert JAVA_SECRETS <= JAVA_KEYS.keys()
    assert set(PROTECTING_KEYS) <= HONOURED | SAFETY.keys()
    # Keys of many published files that no Java version reads: their value is compared with the path that is used.
    ignored = {setting.key for setting in (QUEUE_PATH, INDEX_PATH, CHECKPOINT_PATH, ABORT_PATH)}
    assert ORBITLOG_KEYS == HONOURED - JAVA_KEYS.keys() - ignored


def test_java_keys_have_types_and_a_version() -> None:
    for key, java in JAVA_KEYS.items():
        assert java.type in TYPES, key
        assert java.defaults != (ABSENT, ABSENT), key
