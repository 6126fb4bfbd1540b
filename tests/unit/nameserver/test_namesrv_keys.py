"""Classes of the keys of Java's `namesrv.conf`: each key has one, and each reported one its sentence."""

from __future__ import annotations

from orbitlog.nameserver.nameserver_settings import NAMESERVER_SETTINGS
from orbitlog.nameserver.namesrv_keys import BEHAVIOUR, NAMESRV_KEYS, NAMESRV_TABLES, PROTECTING_KEYS, SAFETY
from orbitlog.settings.java_keys import ABSENT, COMPUTED
from orbitlog.settings.setting_review import SettingClass, review_setting


def test_no_key_has_two_classes() -> None:
    assert not SAFETY.keys() & BEHAVIOUR.keys()
    assert not (SAFETY.keys() | BEHAVIOUR.keys()) & NAMESERVER_SETTINGS.keys()
    assert SAFETY.keys() | BEHAVIOUR.keys() <= NAMESRV_KEYS.keys()
    assert set(PROTECTING_KEYS) <= NAMESRV_KEYS.keys() | NAMESERVER_SETTINGS.keys()


def test_every_reported_key_has_a_sentence() -> None:
    for key, sentence in {**SAFETY, **BEHAVIOUR}.items():
        assert sentence and not sentence.endswith(".") and "  " not in sentence, key
    assert all(";" in sentence for sentence in SAFETY.values())


def test_javas_default_is_harmless_for_every_key() -> None:
    for key, java in NAMESRV_KEYS.items():
        for default in set(java.defaults) - {ABSENT, COMPUTED}:
            assert review_setting(key, default, "f", tables=NAMESRV_TABLES).kind is SettingClass.HARMLESS, key
