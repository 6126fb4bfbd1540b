"""Review of settings that no table reads: classes, values as Java reads them, and keys that look like others."""

from __future__ import annotations

import pytest

from orbitlog.settings.java_keys import JAVA_KEYS
from orbitlog.settings.setting_classes import ACCESS_SWITCHES, APACHE_ACCESS_CLASSES, SAFETY
from orbitlog.settings.setting_review import (
    BROKER_KEYS,
    KeyTables,
    SettingClass,
    is_harmless,
    review_for_store,
    review_setting,
)

HARMLESS, BEHAVIOUR = SettingClass.HARMLESS, SettingClass.BEHAVIOUR
REFUSED, UNKNOWN = SettingClass.SAFETY, SettingClass.UNKNOWN


@pytest.mark.parametrize(
    ("key", "text", "kind"),
    [
        ("enableSlaveActingMaster", "true", REFUSED),
        ("enableSlaveActingMaster", "True", REFUSED),
        ("enableSlaveActingMaster", "false", HARMLESS),
        ("enableSlaveActingMaster", "FALSE", HARMLESS),
        ("enableSlaveActingMaster", "yes", BEHAVIOUR),
        ("maxTopicLength", "127", HARMLESS),
        ("maxTopicLength", "0127", HARMLESS),
        ("maxTopicLength", "0", HARMLESS),
        ("maxTopicLength", "128", REFUSED),
        ("maxTopicLength", "two", REFUSED),
        ("storeType", "default", HARMLESS),
        ("storeType", "defaultRocksDB", REFUSED),
        ("storeType", "defaultrocksdb", REFUSED),
        ("configManagerVersion", "v1", HARMLESS),
        ("configManagerVersion", "v2", REFUSED),
        ("messageStorePlugIn", "", HARMLESS),
        ("messageStorePlugIn", "org.apache.rocketmq.tieredstore.TieredMessageStore", REFUSED),
        ("timerPrecisionMs", "1000", HARMLESS),
        ("timerPrecisionMs", "100", REFUSED),
        ("maxTopicLength", "64", HARMLESS),
        ("maxTopicLength", "255", REFUSED),
        ("enableSlaveActingMaster", "true", REFUSED),
        ("totalReplicas", "3", BEHAVIOUR),
        ("timerStopEnqueue", "true", BEHAVIOUR),
        ("timerStopEnqueue", "false", HARMLESS),
        ("messageIndexEnable", "false", BEHAVIOUR),
        ("messageIndexEnable", "true", HARMLESS),
        ("transientStorePoolEnable", "true", HARMLESS),
        ("enableCompaction", "false", HARMLESS),
        ("sendMessageThreadPoolNums", "64", HARMLESS),
    ],
)
def test_review_class_depends_on_the_value(key: str, text: str, kind: SettingClass) -> None:
    verdict = review_setting(key, text, "broker.conf")
    assert verdict.kind is kind
    assert bool(verdict.sentence) is (kind is not HARMLESS)
    assert not verdict.sentence or verdict.sentence.startswith(f"{key}={text} from broker.conf: ")


@pytest.mark.parametrize(
    ("key", "text", "kind"),
    [
        ("aclEnabled", "true", REFUSED),
        ("aclEnabled", "false", UNKNOWN),
        ("authenticationEnable", "true", REFUSED),
        ("storePathCommitlog", "/data", REFUSED),
        ("storePathRootdir", "/data", REFUSED),
        ("enableDLedgerCommitLog", "true", REFUSED),
        ("flush-disk-type", "SYNC_FLUSH", REFUSED),
        ("brokerid", "1", REFUSED),
        ("brokerIP", "10.0.0.1", UNKNOWN),
        ("tls.server.certificate", "server.pem", REFUSED),
        ("tls.strict", "false", UNKNOWN),
        ("aclEnabled", "yes", REFUSED),
        ("aclEnabled", "off", UNKNOWN),
        ("inSyncReplica", "2", REFUSED),
        ("bindAdress", "10.0.0.1", REFUSED),
        ("ha.members", "10.0.0.0/8", REFUSED),
        ("statsSleepTime", "5", UNKNOWN),
        ("oracleUrl", "jdbc", UNKNOWN),
        ("fileReservedTim", "1000", UNKNOWN),
        ("qqqq", "1", UNKNOWN),
    ],
)
def test_review_unknown_key_like_a_protecting_one_is_refused(key: str, text: str, kind: SettingClass) -> None:
    assert review_setting(key, text, "broker.conf").kind is kind


NAMESRV = KeyTables("name server", "namesrv.conf", {}, {}, {}, {}, ACCESS_SWITCHES)


@pytest.mark.parametrize("tables", [BROKER_KEYS, NAMESRV], ids=["broker", "namesrv"])
@pytest.mark.parametrize(
    "key",
    [
        *("aclEnabled", "enableAcl", "enableACL", "acl.enable", "aclenable", "AclFile", "authEnable", "enable_auth"),
        *("tlsEnable", "enableTls", "enabletls", "ssl.enabled", "useSSL", "mtls", "saslMechanism", "ssl-keystore-path"),
        *("keyStore", "trust.store", "serverCertPath", "adminPassword", "secret_key", "encryptData"),
        *("ipWhiteList", "ip.blacklist", "allowList"),
    ],
)
def test_review_unknown_key_with_a_word_of_access_control_is_refused_unless_off(key: str, tables: KeyTables) -> None:
    verdict = review_setting(key, "true", "f", tables=tables)
    assert verdict.kind is REFUSED
    assert f"no {tables.server} reads this key, so it protects nothing; " in verdict.sentence
    for off in ("false", "OFF", "none", ""):
        assert review_setting(key, off, "f", tables=tables).kind is UNKNOWN


def test_review_class_of_java_that_decides_about_requests_is_refused_unless_it_is_apaches() -> None:
    for key, names in APACHE_ACCESS_CLASSES.items():
        for name in names:
            assert review_setting(key, f"org.apache.rocketmq.auth.{name}", "f").kind is HARMLESS
        assert review_setting(key, "com.example.Custom", "f").kind is REFUSED


def test_review_unknown_key_names_what_is_meant() -> None:
    assert "write storePathCommitLog instead" in review_setting("storePathCommitlog", "/x", "f").sentence
    assert "write aclEnable instead" in review_setting("aclEnabled", "true", "f").sentence
    assert review_setting("enableAcl", "true", "f").sentence == (
        "enableAcl=true from f: no broker reads this key, so it protects nothing; remove this line, or write a key of"
        " docs/reference/settings.md"
    )
    assert review_setting("rocksdbPath", "/x", "f").sentence == (
        "rocksdbPath=/x from f is unknown, Java ignores it as well"
    )
    assert review_setting("fileReservedTim", "1", "f").sentence.endswith("did you mean fileReservedTime?")


def test_review_never_shows_a_secret() -> None:
    verdict = review_setting("socksProxyConfig", '{"password":"hidden"}', "f")
    assert verdict.kind is BEHAVIOUR and "hidden" not in verdict.sentence


def test_review_javas_default_is_harmless_for_every_key() -> None:
    for key, java in JAVA_KEYS.items():
        for default in java.defaults:
            if default not in ("-", "~"):
                assert review_setting(key, default, "f").kind is HARMLESS, key


@pytest.mark.parametrize(
    ("key", "text", "kind"),
    [
        ("aclEnable", "true", HARMLESS),
        ("haListenPort", "1", HARMLESS),
        ("dispatchEngine", "spark", HARMLESS),
        ("brokerName", "a", HARMLESS),
        ("storeType", "defaultRocksDB", BEHAVIOUR),
        ("enableDLegerCommitLog", "true", BEHAVIOUR),
        ("storePathCommitlog", "/elsewhere", REFUSED),
        ("aclEnabled", "true", UNKNOWN),
        ("qqqq", "1", UNKNOWN),
    ],
)
def test_review_for_store_keeps_what_concerns_its_files(key: str, text: str, kind: SettingClass) -> None:
    assert review_for_store(key, text, "f").kind is kind


def test_safety_keys_are_harmless_with_some_value() -> None:
    for key in SAFETY:
        assert any(is_harmless(key, text) for text in ("false", "1", "", "default", "v1", "1000", "127")), key
